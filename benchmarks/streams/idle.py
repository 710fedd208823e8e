"""What idle pubends cost: the processor time of brokers while nothing is published.

The first broker of a line hosts the pubends. A client at the last one may have a subscription to all of
them. After everything has settled, the processor time of each broker process is taken over a fixed time
in which nothing happens. The same is measured without pubends and without a subscription: that is what
a broker costs at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import gapless
from benchmarks.streams.stage import brokers, cpu_seconds
from gapless.client import Session

__all__ = ["KINDS", "Idle", "measure_idle"]

NONE: Final = "no subscription"
LIVE: Final = "a subscription to all"
DURABLE: Final = "a durable subscription to all"
KINDS: Final = (NONE, LIVE, DURABLE)

SETTLE_S: Final = 45.0
"""After this time intervals that double have reached their greatest."""

AT_ONCE: Final = 50
"""Publishers that are opened at once."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The processor time of idle brokers."""

    commit: str
    hops: int
    pubends: int
    kind: str
    seconds: float
    hop_cpu: list[float]
    """Processor seconds of each broker, the host of the pubends first."""

    @property
    def shares(self) -> list[float]:
        """The share of a core that each broker took."""
        return [each / self.seconds for each in self.hop_cpu]


async def measure_idle(commit: str, hops: int, pubends: int, kind: str, seconds: float) -> Idle:
    """Measure the brokers of a line while nothing is published."""
    async with brokers(hops) as (urls, pids):
        async with gapless.connect(urls[0], deadline_s=120) as host:
            for first in range(0, pubends, AT_ONCE):
                numbers = range(first, min(pubends, first + AT_ONCE))
                await asyncio.gather(*(_opened(host, f"idle-{number}") for number in numbers))
        async with _subscribed(urls[-1], kind):
            await asyncio.sleep(SETTLE_S)
            before = [cpu_seconds(pid) for pid in pids]
            await asyncio.sleep(seconds)
            cpu = [cpu_seconds(pid) - base for pid, base in zip(pids, before, strict=True)]
    return Idle(commit, hops, pubends, kind, seconds, cpu)


async def _opened(session: Session, name: str) -> None:
    """Create a pubend, and publish nothing."""
    async with session.publisher(name):
        pass


@contextlib.asynccontextmanager
async def _subscribed(url: str, kind: str) -> AsyncIterator[None]:
    """Keep a subscription to all pubends that no event matches, or none."""
    if kind == NONE:
        yield
        return
    async with gapless.connect(url, deadline_s=120) as session:
        name = "idle" if kind == DURABLE else None
        async with session.subscribe("volume = -1", durable=name):
            yield
