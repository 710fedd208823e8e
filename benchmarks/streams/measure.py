"""The measurements: events per second, latency, and the cost in time and memory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.streams import ends
from benchmarks.streams.stage import Ends, brokers, cpu_seconds, relays, resident_bytes, sync_ms
from benchmarks.streams.workload import expected_deliveries, filters, idle_filters, quotes

__all__ = [
    "BEST_EFFORT",
    "GUARANTEED",
    "RELAY",
    "Latency",
    "Memory",
    "Throughput",
    "measure_latency",
    "measure_memory",
    "measure_throughput",
]

RELAY: Final = "bare relay"
BEST_EFFORT: Final = "best effort"
GUARANTEED: Final = "guaranteed"

SETTLE_S: Final = 1.0
"""Time for subscriptions to reach every broker before the first event."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One measurement of the throughput."""

    contender: str
    hops: int
    subscriptions: int
    idle: int
    published: int
    expected: int
    delivered: int
    seconds: float
    hop_cpu: list[float]
    """Processor seconds of each relay or broker."""

    @property
    def rate(self) -> float:
        """Published events per second until the last delivery; lost ones do not count."""
        return self.published * self.delivered / self.expected / self.seconds

    @property
    def delivery_rate(self) -> float:
        """Deliveries per second, over all subscriptions."""
        return self.delivered / self.seconds


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of single events, in milliseconds."""

    contender: str
    hops: int
    rate: float
    sync_ms: float
    ages: list[float] = field(repr=False)

    def percentile(self, share: float) -> float:
        """Return the latency that a share of the events does not exceed."""
        ages = sorted(self.ages)
        return ages[min(len(ages) - 1, int(share * len(ages)))]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a broker while one of its subscribers reads nothing."""

    published: int
    seconds: list[float]
    resident: list[int]


async def measure_throughput(
    contender: str, hops: int, count: int, subscriptions: int = 1, idle: int = 0
) -> Throughput:
    """Send this many events through a line as fast as it accepts them."""
    if contender == RELAY:
        return await _relay_throughput(hops, count)
    wanted = filters(subscriptions)
    different = quotes(ends.DIFFERENT_QUOTES)
    published = [different[number % len(different)] for number in range(count)]
    expected = expected_deliveries(published, wanted)
    line = Ends()
    async with brokers(hops) as (urls, pids):
        try:
            if idle:
                await line.start(ends.idler, urls[-1], idle_filters(idle))
            source = await line.start(ends.publisher, urls[0], count, contender == GUARANTEED, None)
            await asyncio.sleep(SETTLE_S)
            texts = [text for text, _, _ in wanted]
            sink = await line.start(ends.subscriber, urls[-1], texts, expected, False)
            await asyncio.sleep(SETTLE_S)
            before = [cpu_seconds(pid) for pid in pids]
            line.go()
            sent = await line.saw(source)
            seen = await line.saw(sink)
            cpu = [cpu_seconds(pid) - base for pid, base in zip(pids, before, strict=True)]
        finally:
            line.stop()
    return Throughput(
        contender,
        hops,
        subscriptions,
        idle,
        count,
        expected,
        seen.events,
        seen.last - sent.first,
        cpu,
    )


async def _relay_throughput(hops: int, count: int) -> Throughput:
    line = Ends()
    with relays(hops) as (ports, pids):
        try:
            sink = await line.start(ends.bare_subscriber, ports[-1], count, False)
            source = await line.start(ends.bare_publisher, ports[0], count, None)
            await asyncio.sleep(SETTLE_S)
            before = [cpu_seconds(pid) for pid in pids]
            line.go()
            seen = await line.saw(sink)
            cpu = [cpu_seconds(pid) - base for pid, base in zip(pids, before, strict=True)]
            sent = await line.saw(source)
        finally:
            line.stop()
    seconds = seen.last - sent.first
    return Throughput(RELAY, hops, 1, 0, count, count, seen.events, seconds, cpu)


async def measure_latency(contender: str, hops: int, rate: float, seconds: float) -> Latency:
    """Send single events at a rate and measure their latency."""
    count = int(rate * seconds)
    line = Ends()
    if contender == RELAY:
        with relays(hops) as (ports, _):
            try:
                sink = await line.start(ends.bare_subscriber, ports[-1], count, True)
                await line.start(ends.bare_publisher, ports[0], count, rate)
                await asyncio.sleep(SETTLE_S)
                line.go()
                seen = await line.saw(sink)
            finally:
                line.stop()
    else:
        async with brokers(hops) as (urls, _):
            try:
                await line.start(ends.publisher, urls[0], count, contender == GUARANTEED, rate)
                await asyncio.sleep(SETTLE_S)
                sink = await line.start(ends.subscriber, urls[-1], ["volume >= 0"], count, True)
                await asyncio.sleep(SETTLE_S)
                line.go()
                seen = await line.saw(sink)
            finally:
                line.stop()
    return Latency(contender, hops, rate, sync_ms(), seen.latencies)


async def measure_memory(count: int) -> Memory:
    """Publish for a while beside a subscriber that reads nothing; measure the broker's memory."""
    line = Ends()
    times, held = list[float](), list[int]()
    async with brokers(1) as (urls, pids):
        try:
            source = await line.start(ends.publisher, urls[0], count, True, None)
            await line.start(ends.stuck, urls[0], "volume >= 0")
            sink = await line.start(ends.subscriber, urls[0], ["volume >= 0"], count, False)
            began = time.monotonic()
            line.go()
            done = asyncio.ensure_future(line.saw(source))
            while not done.done():
                times.append(time.monotonic() - began)
                held.append(resident_bytes(pids[0]))
                await asyncio.wait([done], timeout=0.5)
            await line.saw(sink)
        finally:
            line.stop()
    return Memory(count, times, held)
