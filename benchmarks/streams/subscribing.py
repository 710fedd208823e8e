"""How long a program waits for a subscription, and for a change of its filter.

A client at the last broker of a line subscribes to the stream of the first one, beside a subscription
to all of it. A new filter is *covered* by that one, or it is not. The stream is idle, or carries events
all the time. Between two calls there is a pause, except where calls are made in a row. A new filter that
is not covered costs one write on the way. The time of a single publish to the client's own broker, which
is a write too, shows how fast the machine is now.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any, Final

import gapless
from benchmarks.streams import ends
from benchmarks.streams.stage import Ends, brokers
from gapless.client import Session, Subscription

__all__ = ["CALLS", "KINDS", "PRESENT", "Subscribing", "measure_subscribing"]

PRESENT: Final = "present"
NOT_COVERED: Final = "subscribe, not covered"
COVERED: Final = "subscribe, covered"
IN_A_ROW: Final = "subscribe, 16 in a row"
DURABLE: Final = "subscribe durably"
SWITCH_COVERED: Final = "set_filter, covered"
SWITCH: Final = "set_filter, not covered"
PUBLISH: Final = "publish, as a yardstick"
CALLS: Final = (NOT_COVERED, COVERED, IN_A_ROW, DURABLE, SWITCH_COVERED, SWITCH)
KINDS: Final = (*CALLS, PUBLISH)

PAUSE_S: Final = 0.25
"""Between two calls: the changes of the one before have reached every broker."""

ROW: Final = 16
RATE: Final = 500.0
"""Events a second of a busy stream."""

BUSY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Subscribing:
    """The times of one kind of call, in milliseconds."""

    commit: str
    kind: str
    hops: int
    busy: bool
    times: list[float] = field(repr=False)

    @property
    def median(self) -> float:
        """The median time."""
        return statistics.median(self.times)


async def measure_subscribing(hops: int, busy: bool, count: int) -> list[Subscribing]:
    """Measure every kind of call over a line of brokers."""
    line = Ends()
    async with brokers(hops) as (urls, _):
        try:
            await line.start(ends.publisher, urls[0], int(RATE * BUSY_S), True, RATE)
            async with (
                gapless.connect(urls[-1], deadline_s=60) as session,
                _consumed(session.subscribe("volume >= 0")),
            ):
                line.go() if busy else None
                await asyncio.sleep(1.0)
                times = {
                    NOT_COVERED: await _subscribes(session, "volume = -{}", count),
                    COVERED: await _subscribes(session, "volume > 99{:02}", count),
                    IN_A_ROW: await _in_a_row(session),
                    DURABLE: await _subscribes(session, "volume = -5{}", count, durable=True),
                    SWITCH_COVERED: await _switches(session, "volume > 99{:02}", count),
                    SWITCH: await _switches(session, "volume = -7{}", count),
                    PUBLISH: await _publishes(session, count),
                }
        finally:
            line.stop()
    return [Subscribing(PRESENT, kind, hops, busy, found) for kind, found in times.items()]


@contextlib.asynccontextmanager
async def _consumed(subscription: Subscription) -> AsyncIterator[Subscription]:
    """Open a subscription and read all its events."""
    async with subscription as events:
        task = asyncio.create_task(_read_all(events))
        yield events
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _read_all(events: Subscription) -> None:
    async for _ in events.batches():
        pass


async def _timed(call: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await call
    return (time.perf_counter() - began) * 1e3


async def _subscribes(
    session: Session, text: str, count: int, *, durable: bool = False
) -> list[float]:
    """Subscribe again and again, with a pause before each time."""
    times = []
    for number in range(count):
        await asyncio.sleep(PAUSE_S)
        name = f"d{number}" if durable else None
        subscription = session.subscribe(text.format(number + 1), durable=name)
        times.append(await _timed(subscription.__aenter__()))
        await subscription.__aexit__(None, None, None)
        if name is not None:
            await session.unsubscribe(name)
    return times


async def _publishes(session: Session, count: int) -> list[float]:
    """Publish single events that no subscription matches, with a pause before each."""
    times = []
    async with session.publisher("yardstick", advertisement="volume < -1000") as publisher:
        for _ in range(count):
            await asyncio.sleep(PAUSE_S)
            times.append(await _timed(publisher.publish({"volume": -1001})))
    return times


async def _in_a_row(session: Session) -> list[float]:
    """Subscribe to filters that are not covered, one directly after the other."""
    await asyncio.sleep(4 * PAUSE_S)
    async with contextlib.AsyncExitStack() as opened:
        times = []
        for number in range(ROW):
            subscription = session.subscribe(f"volume = -3{number:02}")
            times.append(await _timed(opened.enter_async_context(subscription)))
        return times


async def _switches(session: Session, text: str, count: int) -> list[float]:
    """Change the filter of one subscription again and again, with a pause before each time."""
    times = []
    async with _consumed(session.subscribe("volume > 9800")) as events:
        for number in range(count):
            await asyncio.sleep(PAUSE_S)
            times.append(await _timed(events.set_filter(text.format(number + 1))))
    return times
