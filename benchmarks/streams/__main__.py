"""Run all measurements: ``python -m benchmarks.streams [--quick] [--rounds N] [--beside COMMIT]``.

The whole run takes about twenty minutes and writes ``benchmarks/results/streams.{md,json,png}``.
``--quick`` uses few events and writes nothing. ``--beside`` measures another commit in turn with the
present one, in the same run: the calls of subscribers, the guaranteed throughput, and the messages
between brokers by kind. ``--only subscribing``, ``--only idle`` and ``--only counted`` leave out all
other measurements and write nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.streams import report
from benchmarks.streams.beside import (
    SOURCES,
    counted_of,
    idle_of,
    sources_of,
    subscribing_of,
    throughput_of,
)
from benchmarks.streams.idle import KINDS, NONE
from benchmarks.streams.measure import (
    BEST_EFFORT,
    GUARANTEED,
    RELAY,
    measure_latency,
    measure_memory,
    measure_throughput,
)
from benchmarks.streams.report import Findings
from benchmarks.streams.subscribing import PRESENT


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
    calls: int
    """How often each kind of call of a subscriber is measured, in a round."""
    idle_pubends: int
    idle_s: float
    """For so long the processor time of idle brokers is measured."""
    counted_s: float
    """For so many virtual seconds messages are counted."""


FULL: Final = Scope(5, 600_000, 100_000, 1_000, 10_000, 10, 3.0, 1_500_000, 20, 1_000, 60.0, 60.0)
"""Latencies are measured in many short rounds, because the load of a shared machine changes every
minute."""

QUICK: Final = Scope(1, 50_000, 10_000, 100, 500, 1, 2.0, 100_000, 5, 1_000, 20.0, 20.0)


Trees = Mapping[str, Path]
"""The commits that are measured, the present one first, with their sources."""


async def measure(scope: Scope, trees: Trees, console: Console) -> Findings:
    """Measure everything, contenders in turn."""
    found = Findings()
    await measure_streams(found, scope, console)
    if len(trees) > 1:
        await measure_commits(found, scope, trees, console)
        await measure_messages(found, scope, trees, console)
    await measure_subscribers(found, scope, trees, console)
    await measure_idle_brokers(found, scope, trees, console)
    return found


async def measure_commits(found: Findings, scope: Scope, trees: Trees, console: Console) -> None:
    """Measure the throughput of each commit, in turn."""
    for turn in range(scope.rounds):
        for hops in (1, 3):
            for commit, sources in trees.items():
                seen = await throughput_of(sources, GUARANTEED, commit, hops, scope.events, 1)
                found.rounds.append(seen)
                console.print(
                    f"round {turn + 1}: {seen.contender}, {hops} hops: {seen.rate:,.0f} events/s"
                )


async def measure_messages(found: Findings, scope: Scope, trees: Trees, console: Console) -> None:
    """Count the messages of each commit in virtual time, in turn."""
    for turn in range(scope.rounds):
        for hops in (3, 7):
            for commit, sources in trees.items():
                seen = await counted_of(sources, commit, hops, scope.counted_s)
                found.counted.append(seen)
                console.print(
                    f"round {turn + 1}: {commit}, {hops} hops: {sum(seen.messages.values()):,} "
                    f"messages, {seen.cpu_us:,.0f} µs an event"
                )


async def measure_subscribers(
    found: Findings, scope: Scope, trees: Trees, console: Console
) -> None:
    """Measure the calls of subscribers with each commit, in turn."""
    for turn in range(scope.rounds):
        for hops in (1, 3):
            for busy in (False, True):
                for commit, sources in trees.items():
                    seen = await subscribing_of(sources, commit, hops, busy=busy, count=scope.calls)
                    found.subscribing += seen
                    medians = ", ".join(f"{each.kind} {each.median:.1f}" for each in seen)
                    console.print(
                        f"round {turn + 1}: {commit}, {hops} hops, "
                        f"{'busy' if busy else 'idle'}, ms: {medians}"
                    )


async def measure_idle_brokers(
    found: Findings, scope: Scope, trees: Trees, console: Console
) -> None:
    """Measure what idle pubends cost with each commit, in turn."""
    plan = [(1, 0, NONE)]
    plan += [(hops, scope.idle_pubends, kind) for hops in (1, 3) for kind in KINDS]
    for turn in range(scope.rounds):
        for hops, pubends, kind in plan:
            for commit, sources in trees.items():
                seen = await idle_of(sources, commit, hops, pubends, kind, scope.idle_s)
                found.idle.append(seen)
                shares = ", ".join(f"{each:.1%}" for each in seen.shares)
                console.print(
                    f"round {turn + 1}: {commit}, {hops} hops, {pubends:,} idle pubends, {kind}: "
                    f"{shares} of a core"
                )


async def measure_streams(found: Findings, scope: Scope, console: Console) -> None:
    """Measure throughput, latency and memory, contenders in turn."""
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


ONLY: Final = {
    "subscribing": (measure_subscribers, report.subscribing),
    "idle": (measure_idle_brokers, report.idle),
    "counted": (measure_messages, report.counted),
}
"""The measurements that can be made alone, each with its part of the report."""


def main() -> None:
    """Measure, print, and write the results unless the run is quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events; writes nothing")
    parser.add_argument("--rounds", type=int, help="how often each contender takes its turn")
    parser.add_argument("--beside", metavar="COMMIT", help="measure this commit in the same run")
    parser.add_argument("--only", choices=[*ONLY], help="leave out everything else")
    given = parser.parse_args()
    scope = QUICK if given.quick else FULL
    if given.rounds:
        scope = replace(scope, rounds=given.rounds)
    console = Console()
    with contextlib.ExitStack() as checkouts:
        trees = {PRESENT: SOURCES}
        if given.beside:
            trees[given.beside] = checkouts.enter_context(sources_of(given.beside))
        if given.only:
            found = Findings()
            measured, shown = ONLY[given.only]
            asyncio.run(measured(found, scope, trees, console))
            console.print(Markdown(shown(found)))
            return
        found = asyncio.run(measure(scope, trees, console))
    console.print(Markdown(report.markdown(found)))
    if not given.quick:
        report.write(found)


if __name__ == "__main__":
    main()
