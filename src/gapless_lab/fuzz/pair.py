"""The healthy publisher and its subscribers: ``python -m gapless_lab.fuzz.pair URL URL``.

They are a process of their own, so that the work of the attackers does not delay them. The publisher
and the durable subscriber *near* are at the first broker, the subscriber *far* is at the second and
wants half of the events. The process answers each line of its standard input: ``latency`` with the
latencies since the last one, ``audit`` with an audit of all deliveries, after which it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections import Counter
from typing import Final

import msgspec

from gapless.client import Session, connect
from gapless.core.errors import GaplessError
from gapless_lab.fuzz.vocabulary import PAIR_PUBEND

__all__ = ["Latencies", "PairAudit", "audit_deliveries", "latencies_of", "main"]

RATE: Final = 50
"""Events per second."""

DEADLINE_S: Final = 60.0
"""How long a call may take: attacks delay it, and must not prevent it."""

DRAIN_S: Final = 30.0
"""How long the last events may take to arrive before they count as lost."""

SETTLE_S: Final = 0.3
"""How long unexpected events are waited for at the end."""


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """From publishing an event to its delivery."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class PairAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Compares deliveries with what was published."""

    published: int
    delivered: int
    lost: int
    repeated: int
    reordered: int
    spurious: int
    errors: list[str]
    """Errors that a publisher or a subscriber got."""

    @property
    def is_clean(self) -> bool:
        """Whether every subscriber received every event that it wants, once, in order."""
        wrong = self.lost + self.repeated + self.reordered + self.spurious
        return not wrong and not self.errors and self.published > 0


def latencies_of(found_ms: list[float]) -> Latencies:
    """Return the percentiles of latencies.

    >>> latencies_of([1.0] * 98 + [5.0, 9.0]).p99_ms
    5.0
    """
    ordered = sorted(found_ms) or [0.0]

    def percentile(share: float) -> float:
        return round(ordered[max(0, int(len(ordered) * share + 0.5) - 1)], 2)

    return Latencies(
        count=len(found_ms),
        p50_ms=percentile(0.5),
        p99_ms=percentile(0.99),
        max_ms=round(ordered[-1], 2),
    )


def audit_deliveries(
    published: list[int], received: dict[str, list[int]], errors: list[str]
) -> PairAudit:
    """Compare the numbers that each subscriber received with those that were published.

    *far* wants the even numbers only.
    """
    lost = repeated = reordered = spurious = 0
    for name, numbers in received.items():
        wanted = [each for each in published if name != "far" or each % 2 == 0]
        counts = Counter(numbers)
        expected = set(wanted)
        lost += len(expected - counts.keys())
        spurious += sum(count for number, count in counts.items() if number not in expected)
        repeated += sum(counts[number] - 1 for number in expected & counts.keys())
        reordered += sum(later < before for before, later in itertools.pairwise(numbers))
    return PairAudit(
        published=len(published),
        delivered=sum(map(len, received.values())),
        lost=lost,
        repeated=repeated,
        reordered=reordered,
        spurious=spurious,
        errors=errors,
    )


class _Pair:
    """Publishes and receives until the audit."""

    def __init__(self) -> None:
        self._published: list[int] = []
        self._received: dict[str, list[int]] = {"near": [], "far": []}
        self._latencies_ms: list[float] = []
        self._errors: list[str] = []
        self._is_over = asyncio.Event()
        self.is_ready = asyncio.Event()
        """Set when both subscribers have received an event."""

    async def publish(self, session: Session) -> None:
        """Publish numbers at a constant rate, each acknowledged before the audit."""
        try:
            async with session.publisher(PAIR_PUBEND, name="healthy") as publisher:
                started, number = time.monotonic(), 0
                while not self._is_over.is_set():
                    while number < (time.monotonic() - started) * RATE:
                        number += 1
                        attributes = {
                            "pair": True,
                            "number": number,
                            "even": number % 2 == 0,
                            "sent_ns": time.monotonic_ns(),
                        }
                        await publisher.send(attributes, b"healthy")
                        self._published.append(number)
                    await asyncio.sleep(0.5 / RATE)
                await publisher.flush()
        except GaplessError as error:
            self._errors.append(f"publisher: {error!r}")

    async def receive(self, session: Session, name: str) -> None:
        """Receive until cancelled; "near" is durable, "far" wants half."""
        wanted = "pair = TRUE AND even = TRUE" if name == "far" else "pair = TRUE"
        durable = "healthy-near" if name == "near" else None
        received = self._received[name]
        try:
            async with session.subscribe(
                wanted,
                durable=durable,
                start="earliest",
                on_gap="report",
                create=name == "near",  # the hostile neighbour is silent before the attack
            ) as events:
                async for event in events:
                    now_ns = time.monotonic_ns()
                    received.append(int(event.attributes["number"]))
                    sent_ns = int(event.attributes["sent_ns"])
                    self._latencies_ms.append((now_ns - sent_ns) / 1e6)
                    if all(self._received.values()):
                        self.is_ready.set()
        except GaplessError as error:
            self._errors.append(f"{name}: {error!r}")
            self.is_ready.set()

    def take_latencies(self) -> Latencies:
        """Return the latencies since the last call."""
        found, self._latencies_ms = self._latencies_ms, []
        return latencies_of(found)

    async def audit(self, publishing: asyncio.Task[None]) -> PairAudit:
        """Stop publishing, wait for the last events, and compare."""
        self._is_over.set()
        await publishing
        limit = time.monotonic() + DRAIN_S
        while time.monotonic() < limit:
            found = audit_deliveries(self._published, self._received, self._errors)
            if not found.lost:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)
        return audit_deliveries(self._published, self._received, self._errors)


async def _run(near: str, far: str) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    pair = _Pair()
    async with (
        connect(near, name="pair-publisher", deadline_s=DEADLINE_S) as publishing,
        connect(near, name="pair-near", deadline_s=DEADLINE_S) as nearby,
        connect(far, name="pair-far", deadline_s=DEADLINE_S) as distant,
    ):
        tasks = [
            asyncio.create_task(pair.publish(publishing)),
            asyncio.create_task(pair.receive(nearby, "near")),
            asyncio.create_task(pair.receive(distant, "far")),
        ]
        await pair.is_ready.wait()
        _write(b"{}")
        while line := await lines.readline():
            if line.strip() == b"audit":
                _write(msgspec.json.encode(await pair.audit(tasks[0])))
                break
            _write(msgspec.json.encode(pair.take_latencies()))
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def main(near: str, far: str) -> int:
    """Run the pair until its standard input ends or the audit is made."""
    asyncio.run(_run(near, far))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
