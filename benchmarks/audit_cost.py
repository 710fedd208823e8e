"""The cost of the audit log: ``python -m benchmarks.audit_cost [--events N] [--rounds N]``.

A broker process, and a publisher and a subscriber in this process. Runs without a log, with one at
the broker, and with one at all three alternate. The results are the processor time of each side for
an event that is published and delivered once, and the events per second.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import gapless
from benchmarks.streams.stage import cpu_seconds
from benchmarks.streams.workload import Quote, quotes
from gapless.audit import AuditOptions
from gapless.client import Publisher, Subscription
from gapless.runtime import Supervisor, generate

MODES: Final = ("off", "broker", "broker and clients")
CHUNK: Final = 500


class Cost(NamedTuple):
    """One run."""

    mode: str
    rate: float
    broker_us: float
    clients_us: float
    bytes_each: float


async def measure(mode: str, count: int) -> Cost:
    """Publish this many events to one subscriber."""
    events = quotes(count)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "audit"
        broker_log = None if mode == "off" else AuditOptions(directory=str(log))
        client_log = log if mode == "broker and clients" else None
        async with (
            Supervisor(generate("line:1"), Path(folder) / "d", port=0, audit=broker_log) as line,
            gapless.connect(line.urls, audit=client_log) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("volume >= 0") as wanted,
        ):
            pid = int(line.brokers[0].pid or 0)
            await publisher.publish_many(events[:CHUNK])
            await _taken(wanted, CHUNK)
            cpu, own, started_at = cpu_seconds(pid), time.process_time(), time.monotonic()
            async with asyncio.TaskGroup() as both:
                both.create_task(_taken(wanted, count))
                both.create_task(_published(publisher, events))
            seconds = time.monotonic() - started_at
            broker, clients = cpu_seconds(pid) - cpu, time.process_time() - own
        written = sum(path.stat().st_size for path in log.glob("*")) if log.exists() else 0
    each = 1e6 / count
    return Cost(mode, count / seconds, broker * each, clients * each, written / count)


async def _published(publisher: Publisher, events: list[Quote]) -> None:
    await publisher.publish_many(events)


async def _taken(events: Subscription, count: int) -> None:
    while count:
        count -= len(await events.next_batch())


async def compare(count: int, rounds: int) -> None:
    """Run the modes in turn, and print the best result of each."""
    found: dict[str, list[Cost]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            found[mode].append(await measure(mode, count))
    print(f"{'log':20} {'events/s':>10} {'broker us':>10} {'clients us':>10} {'bytes':>7}")
    for mode, costs in found.items():
        broker = min(cost.broker_us for cost in costs)
        clients = min(cost.clients_us for cost in costs)
        rate = max(cost.rate for cost in costs)
        size = costs[0].bytes_each
        print(f"{mode:20} {rate:10,.0f} {broker:10.2f} {clients:10.2f} {size:7.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    asyncio.run(compare(chosen.events, chosen.rounds))


if __name__ == "__main__":
    main()
