"""Run all measurements: ``python -m benchmarks.streams [--quick] [--rounds N]``.

The whole run takes about a quarter of an hour and writes
``benchmarks/results/streams.{md,json,png}``. ``--quick`` uses few events and writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.streams import report
from benchmarks.streams.measure import (
    BEST_EFFORT,
    GUARANTEED,
    RELAY,
    measure_latency,
    measure_memory,
    measure_throughput,
)
from benchmarks.streams.report import Findings


@dataclass(frozen=True, slots=True)
class Scope:
    """The size of a run."""

    rounds: int
    events: int
    many_events: int
    many: int
    idle: int
    latency_rounds: int
    latency_s: float
    memory_events: int


FULL: Final = Scope(5, 600_000, 100_000, 1_000, 10_000, 10, 3.0, 1_500_000)
"""Latencies are measured in many short rounds, because the load of a shared machine changes every
minute."""

QUICK: Final = Scope(1, 50_000, 10_000, 100, 500, 1, 2.0, 100_000)


async def measure(scope: Scope, console: Console) -> Findings:
    """Measure everything, contenders in turn."""
    found = Findings()
    plan = [
        (contender, hops, 1, 0) for hops in (1, 3) for contender in (RELAY, BEST_EFFORT, GUARANTEED)
    ]
    plan += [
        (contender, hops, scope.many, 0)
        for hops in (1, 3)
        for contender in (BEST_EFFORT, GUARANTEED)
    ]
    plan += [(GUARANTEED, 1, 1, scope.idle)]
    for turn in range(scope.rounds):
        for contender, hops, subscriptions, idle in plan:
            events = scope.events if subscriptions == 1 else scope.many_events
            seen = await measure_throughput(contender, hops, events, subscriptions, idle)
            found.rounds.append(seen)
            console.print(
                f"round {turn + 1}: {contender}, {hops} hops, {subscriptions:,} subscriptions, "
                f"{idle:,} idle: {seen.rate:,.0f} events/s"
            )
    for turn in range(scope.latency_rounds):
        for contender in (RELAY, BEST_EFFORT, GUARANTEED):
            late = await measure_latency(contender, 3, 1_000, scope.latency_s)
            found.latencies.append(late)
            console.print(
                f"round {turn + 1}: {contender}: p50 {late.percentile(0.5):.2f} ms over 3 hops, "
                f"a sync {late.sync_ms:.2f} ms"
            )
    console.print("memory beside a stuck subscriber")
    found.memory = await measure_memory(scope.memory_events)
    return found


def main() -> None:
    """Measure, print, and write the results unless the run is quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events; writes nothing")
    parser.add_argument("--rounds", type=int, help="how often each contender takes its turn")
    given = parser.parse_args()
    quick, scope = given.quick, QUICK if given.quick else FULL
    if given.rounds:
        scope = replace(scope, rounds=given.rounds)
    console = Console()
    found = asyncio.run(measure(scope, console))
    console.print(Markdown(report.markdown(found)))
    if not quick:
        report.write(found)


if __name__ == "__main__":
    main()
