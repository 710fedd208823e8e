"""How long plans between random trees are: against the shortest, the lower bound and HA's proof.

Run it with `python -m benchmarks.planning`; it takes about two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random
from typing import Final

from gapless.reshape.planning.plan import TreePlan, plan_between
from gapless.reshape.planning.trees import CellTree

RESULT: Final = Path(__file__).parent / "results" / "planning.md"
SEED: Final = 1

METHOD: Final = f"""\
Both trees of a pair are drawn uniformly from all labelled trees of so many cells (seed {SEED}).
Columns are means over the pairs; *worst* is the greatest ratio. *Lower bound* and *shortest* are
lengths, in steps. *Relaxed* is the share of plans that need a greater degree than the default
bound, two above both trees. Seconds are CPU time of one plan, the mean and the longest.
"""


def random_tree(count: int, random: Random) -> CellTree:
    """Return a tree of some cells from a random Prüfer code."""
    cells = [f"c{number:03}" for number in range(count)]
    code = [random.randrange(count) for _ in range(count - 2)]
    missing = [1 + code.count(number) for number in range(count)]
    leaves = [number for number in range(count) if missing[number] == 1]
    heapify(leaves)
    edges = []
    for number in code:
        edges.append((cells[heappop(leaves)], cells[number]))
        missing[number] -= 1
        if missing[number] == 1:
            heappush(leaves, number)
    edges.append((cells[heappop(leaves)], cells[heappop(leaves)]))
    return CellTree.of(cells, edges)


def pairs(count: int, number: int) -> Iterator[tuple[CellTree, CellTree]]:
    """Yield pairs of different trees."""
    random = Random(SEED)
    while number:
        present, wanted = random_tree(count, random), random_tree(count, random)
        if present != wanted:
            number -= 1
            yield present, wanted


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def timed(run: Callable[[], TreePlan]) -> tuple[TreePlan, float]:
    """Return a plan and the CPU seconds that it took."""
    started = time.process_time()
    return run(), time.process_time() - started


def against_shortest() -> Iterator[str]:
    """Yield the lines of the table of small trees."""
    yield "| cells | pairs | plan / shortest | worst | HA's proof / shortest | seconds of the search |"
    yield "|---|---|---|---|---|---|"
    for count, number in ((5, 200), (6, 200), (7, 200)):
        ratios, baselines, seconds = [], [], []
        for present, wanted in pairs(count, number):
            search = partial(plan_between, present, wanted, degree=count, diameter=count)
            shortest, took = timed(search)
            found = search(exact_cells=0)
            ratios.append(len(found.steps) / len(shortest.steps))
            baselines.append(found.baseline_length / len(shortest.steps))
            seconds.append(took)
        yield (
            f"| {count} | {number} | {mean(ratios):.2f} | {max(ratios):.2f} | {mean(baselines):.2f} "
            f"| {mean(seconds):.3f}, {max(seconds):.3f} |"
        )


def against_lower_bound(*, is_bounded: bool) -> Iterator[str]:
    """Yield the lines of the table of larger trees."""
    yield "| cells | pairs | lower bound | plan / lower bound | worst | HA's proof / lower bound | relaxed | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    for count, number in ((8, 200), (15, 100), (30, 40), (60, 20), (120, 4), (200, 2)):
        if is_bounded and count > 60:
            continue
        bound = None if is_bounded else count
        found = [
            timed(partial(plan_between, present, wanted, degree=bound, diameter=bound))
            for present, wanted in pairs(count, number)
        ]
        plans = [plan for plan, _ in found]
        ratios = [len(plan.steps) / plan.lower_bound for plan in plans]
        seconds = [took for _, took in found]
        yield (
            f"| {count} | {number} | {mean([plan.lower_bound for plan in plans]):.1f} "
            f"| {mean(ratios):.2f} | {max(ratios):.2f} "
            f"| {mean([plan.baseline_length / plan.lower_bound for plan in plans]):.2f} "
            f"| {100 * mean([plan.kept.degree > plan.asked.degree for plan in plans]):.0f} % "
            f"| {mean(seconds):.2f}, {max(seconds):.2f} |"
        )


def main() -> None:
    """Measure, print and write the tables."""
    lines = ["# Lengths of plans between random trees", "", METHOD]
    for title, table in (
        ("Few cells, any degree and diameter", against_shortest()),
        ("Any degree and diameter", against_lower_bound(is_bounded=False)),
        ("Default bounds", against_lower_bound(is_bounded=True)),
    ):
        lines += [f"## {title}", ""]
        for line in table:
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    RESULT.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
