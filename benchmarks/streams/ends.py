"""Publishers and subscribers, each a process of its own, of the bare relay and of gapless.

A process puts "ready" on its queue, waits for the start signal, and then reports its results. All
clocks are the machine's monotonic one, which processes share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import cycle, islice
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Signal
from typing import Any, Final, NamedTuple, TypeAlias, cast

import uvloop

import gapless
from benchmarks.streams.relay import decode, encode
from benchmarks.streams.splitter import Splitter
from benchmarks.streams.workload import Quote, quotes
from gapless.client import Session, Subscription

__all__ = [
    "FRAME_EVENTS",
    "Saw",
    "bare_publisher",
    "bare_subscriber",
    "idler",
    "publisher",
    "run",
    "stuck",
    "subscriber",
]

FRAME_EVENTS: Final = 500
"""Events in a frame of the bare relay: as many as a gapless publisher puts into one under load."""

DIFFERENT_QUOTES: Final = 10_000
"""After this many the quotes repeat."""

SILENCE_S: Final = 3.0
"""At best effort the last events may be lost: a subscriber ends after this silence."""

TOGETHER: Final = 250
"""Subscriptions that are opened at once."""

Reports: TypeAlias = "Queue[Any]"


class Saw(NamedTuple):
    """The results of one end of the line."""

    events: int
    first: float
    last: float
    cpu: float
    latencies: list[float]


def run(
    role: Callable[..., Coroutine[Any, Any, Saw]], reports: Reports, go: Signal, *args: Any
) -> None:
    """Run a role in this process and report its results."""
    reports.put(uvloop.run(role(reports, go, *args)))


async def _signalled(go: Signal) -> None:
    """Wait for the signal of another process by polling."""
    while not go.is_set():  # noqa: ASYNC110 - the signal is of another process
        await asyncio.sleep(0.01)


def _stamped(quote: Quote) -> Quote:
    """Put the time of sending into a quote's payload."""
    stamp = str(time.monotonic_ns()).encode()
    return quote[0], stamp.ljust(len(quote[1]))


def _age_ms(payload: bytes) -> float:
    return (time.monotonic_ns() - int(payload)) / 1e6


# --- bare ---------------------------------------------------------------------------------------


class _Bare(asyncio.Protocol):
    """A connection to a relay."""

    def __init__(self, role: bytes, take: Callable[[list[bytes]], None] | None = None) -> None:
        self._role = role
        self._take = take
        self._splitter = Splitter()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._role)

    def data_received(self, data: bytes) -> None:
        if self._take is not None:
            self._take(self._splitter.feed(data))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, frame: bytearray) -> None:
        """Write a frame when the transport is writable."""
        await self._writable.wait()
        self.transport.write(frame)


async def bare_publisher(
    reports: Reports, go: Signal, port: int, count: int, rate: float | None
) -> Saw:
    """Write events to a relay: as fast as it accepts them, or one by one at a rate."""
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(lambda: _Bare(b"P"), "127.0.0.1", port)
    source = quotes(DIFFERENT_QUOTES)
    reports.put("ready")
    await _signalled(go)
    began = time.monotonic()
    if rate is None:
        for first in range(0, count, FRAME_EVENTS):
            at = first % DIFFERENT_QUOTES
            await line.send(encode(tuple(source[at : at + FRAME_EVENTS])))
            await asyncio.sleep(0)
    else:
        async for quote in _paced(source, count, rate):
            await line.send(encode((quote,)))
    saw = Saw(count, began, time.monotonic(), time.process_time(), [])
    await asyncio.sleep(SILENCE_S)
    return saw


async def bare_subscriber(reports: Reports, go: Signal, port: int, count: int, timed: bool) -> Saw:
    """Read this many events from a relay."""
    del go
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    seen, first, ages = 0, 0.0, list[float]()

    def take(bodies: list[bytes]) -> None:
        nonlocal seen, first
        first = first or time.monotonic()
        for body in bodies:
            events = decode(body)
            seen += len(events)
            if timed:
                ages.extend(_age_ms(payload) for _, payload in events)
        if seen >= count and not done.done():
            done.set_result(None)

    await loop.create_connection(lambda: _Bare(b"S", take), "127.0.0.1", port)
    reports.put("ready")
    await done
    return Saw(seen, first, time.monotonic(), time.process_time(), ages)


async def _paced(source: list[Quote], count: int, rate: float) -> Any:
    """Yield quotes one by one at a rate, each stamped with its time."""
    began = time.monotonic()
    for number in range(count):
        delay = began + number / rate - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        yield _stamped(source[number % DIFFERENT_QUOTES])


# --- gapless ------------------------------------------------------------------------------------


async def publisher(
    reports: Reports, go: Signal, url: str, count: int, guaranteed: bool, rate: float | None
) -> Saw:
    """Publish events: as fast as the broker accepts them, or one by one at a rate."""
    source = quotes(DIFFERENT_QUOTES)
    async with (
        gapless.connect(url) as session,
        session.publisher("quotes", guaranteed=guaranteed) as line,
    ):
        reports.put("ready")
        await _signalled(go)
        began = time.monotonic()
        if rate is None:
            await line.publish_many(islice(cycle(source), count), deadline_s=None)
        else:
            async for attributes, payload in _paced(source, count, rate):
                await line.send(attributes, payload)
        await line.flush()
        return Saw(count, began, time.monotonic(), time.process_time(), [])


async def subscriber(
    reports: Reports, go: Signal, url: str, texts: list[str], count: int, timed: bool
) -> Saw:
    """Receive this many events over all subscriptions, or until no more come."""
    del go
    seen, first, last, ages = 0, 0.0, 0.0, list[float]()
    done = asyncio.Event()

    async def consume(events: Subscription) -> None:
        nonlocal seen, first, last
        async for batch in events.batches():
            last = time.monotonic()
            first = first or last
            seen += len(batch)
            if timed:
                ages.extend(_age_ms(event.payload) for event in batch)
            if seen >= count:
                done.set()

    async with gapless.connect(url, deadline_s=120) as session:
        lines = await _subscribed(session, texts)
        tasks = [asyncio.create_task(consume(line)) for line in lines]
        reports.put("ready")
        while not done.is_set():
            before = seen
            try:
                async with asyncio.timeout(SILENCE_S):
                    await done.wait()
            except TimeoutError:
                if first and seen == before:
                    break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Saw(seen, first, last, time.process_time(), ages)


async def _subscribed(session: Session, texts: list[str]) -> list[Subscription]:
    """Open many subscriptions, some at once."""
    lines: list[Subscription] = []
    for first in range(0, len(texts), TOGETHER):
        some = [session.subscribe(text) for text in texts[first : first + TOGETHER]]
        lines += await asyncio.gather(*(each.__aenter__() for each in some))
    return lines


async def idler(reports: Reports, go: Signal, url: str, texts: list[str]) -> Saw:
    """Hold subscriptions that match nothing until the others are done."""
    del go
    async with gapless.connect(url, deadline_s=300) as session:
        await _subscribed(session, texts)
        reports.put("ready")
        await asyncio.sleep(3_600)
    return Saw(0, 0.0, 0.0, 0.0, [])


async def stuck(reports: Reports, go: Signal, url: str, text: str) -> Saw:
    """Subscribe durably, and receive nothing."""
    del go
    async with (
        gapless.connect(url) as session,
        session.subscribe(text, durable="stuck"),
    ):
        reports.put("ready")
        await asyncio.sleep(3_600)
    return Saw(0, 0.0, 0.0, 0.0, [])
