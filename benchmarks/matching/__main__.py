"""Run all measurements: ``python -m benchmarks.matching [--quick]``.

The whole run takes about ten minutes and writes ``benchmarks/results/matching.{md,json,png}``.
``--quick`` uses small workloads and writes nothing.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.matching import changes, load, report
from benchmarks.matching.contenders import (
    Contender,
    index_contenders,
    rivals,
)
from benchmarks.matching.findings import Findings, Machine, Row
from benchmarks.matching.timing import Cell, measure, without_gc
from benchmarks.workloads import FAMILIES, Workload
from gapless.content.matching.kernel import COMPILED as COMPILED_ENGINE

EVENTS: Final = 1_000
FALLBACK_SIZE_MAX: Final = 100_000
"""Beyond this the Python fallback takes minutes to load."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run measures."""

    cells: tuple[tuple[str, int], ...]
    load_size: int
    change_size: int
    forest_fallback_size: int


FULL: Final = Scope(
    cells=(
        ("W1", 1_000),
        ("W1", 10_000),
        ("W1", 100_000),
        ("W1", 1_000_000),
        ("W2", 10_000),
        ("W3", 100_000),
        ("W4", 10_000),
        ("W4", 100_000),
        ("W1 wide", 10_000),
        ("W1 wide", 100_000),
        ("W4 wide", 10_000),
        ("W4 wide", 100_000),
        ("W5", 10_000),
        ("W5", 100_000),
    ),
    load_size=1_000_000,
    change_size=100_000,
    forest_fallback_size=10_000,
)
QUICK: Final = Scope(
    cells=(
        ("W1", 1_000),
        ("W1", 10_000),
        ("W2", 10_000),
        ("W3", 10_000),
        ("W4", 1_000),
        ("W4", 10_000),
        ("W5", 1_000),
    ),
    load_size=10_000,
    change_size=10_000,
    forest_fallback_size=1_000,
)


class Run:
    """One run, step by step, with its progress."""

    def __init__(self, scope: Scope, progress: Progress) -> None:
        self._scope = scope
        self._progress = progress
        self.findings = Findings(Machine.here())
        self._kernels = ["fallback"] if COMPILED_ENGINE is None else ["compiled", "fallback"]

    def go(self) -> Findings:
        """Measure everything."""
        steps = list(self._steps())
        task = self._progress.add_task("", total=len(steps))
        for title, step in steps:
            self._progress.update(task, description=title)
            with without_gc():  # millions of filters are made, and none of them is garbage
                step()
            gc.collect()
            self._progress.advance(task)
        return self.findings

    def _steps(self) -> Iterable[tuple[str, Callable[[], None]]]:
        scope = self._scope
        for name, size in scope.cells:
            yield f"{name} {size:,}", partial(self._row, name, size)
        yield f"load W1 {scope.load_size:,}", partial(self._load, self._kernels[0])
        for kernel in self._kernels:
            for name in ("W1", "W4"):
                title = f"replace filters, {name}, {kernel}"
                yield title, partial(self._updates, name, kernel)
        yield "router", self._routing
        for kernel in self._kernels:
            for name in changes.FOREST_SETS:
                yield f"covering forest, {name}, {kernel}", partial(self._forest, name, kernel)

    def _row(self, name: str, size: int) -> None:
        workload = FAMILIES[name](size, EVENTS)
        kernels = self._kernels[:1] if size > FALLBACK_SIZE_MAX else self._kernels
        names = [f"gapless, {kernel}" for kernel in kernels]
        ours = index_contenders(workload, names)
        answers = ours[0].results(EVENTS)
        cells: dict[str, Cell] = {}
        for make in rivals(workload):
            contender = make()
            self._check(contender, workload, answers)
            cells[contender.name] = measure(contender, EVENTS)
            del contender
            gc.collect()
        for contender in ours:
            self._check(contender, workload, answers)
            cells[contender.name] = measure(contender, EVENTS)
        matches = sum(map(len, answers)) / len(answers)
        self.findings.rows.append(Row(name, size, matches, cells))

    def _check(
        self, contender: Contender, workload: Workload, answers: list[frozenset[int]]
    ) -> None:
        """Compare the contender's results with ours on some events."""
        count = max(5, min(EVENTS, 1_000_000 // workload.size))
        if contender.results(count) != answers[:count]:
            raise AssertionError(f"{contender.name} and gapless differ on {workload.title}")

    def _load(self, kernel: str) -> None:
        self.findings.loads[kernel] = load.in_own_process("W1", self._scope.load_size, kernel)

    def _updates(self, name: str, kernel: str) -> None:
        size = self._scope.change_size
        pairs = size // 5 if kernel == "compiled" else size // 50
        self.findings.updates.append(changes.measure_updates(name, size, kernel, pairs))

    def _routing(self) -> None:
        measured = changes.measure_routing("W4", self._scope.change_size, EVENTS)
        self.findings.routing.append(measured)

    def _forest(self, name: str, kernel: str) -> None:
        size = self._scope.change_size if kernel == "compiled" else self._scope.forest_fallback_size
        self.findings.forests.append(changes.measure_forest(name, size, kernel))


def main() -> None:
    """Run, print, and write the results of a whole run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matching", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small workloads, nothing is written")
    quick = parser.parse_args().quick
    console = Console()
    columns = (
        TextColumn("{task.description:<40}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        findings = Run(QUICK if quick else FULL, progress).go()
    report.show(findings, console)
    if not quick:
        report.write(findings)
        console.print(f"written to {report.RESULTS}")


if __name__ == "__main__":
    main()
