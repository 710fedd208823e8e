"""The results of one run, and the targets."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVarTuple

import duckdb

from benchmarks.matching.changes import Forest, Routing, Updates
from benchmarks.matching.contenders import COMPILED, FALLBACK, LINEAR
from benchmarks.matching.load import Load
from benchmarks.matching.timing import Cell

__all__ = ["Findings", "Machine", "Row", "Verdict", "verdicts"]


@dataclass(frozen=True, slots=True)
class Row:
    """One workload with its contenders."""

    family: str
    size: int
    matches: float
    """Filters that an event matches, on average."""
    cells: dict[str, Cell]

    def times_faster(self, name: str) -> float | None:
        """How many times as fast as the linear scan a contender is."""
        scan, other = self.cells.get(LINEAR), self.cells.get(name)
        if scan is None or other is None:
            return None
        return scan.microseconds / other.microseconds


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the run."""

    processor: str
    cores: int
    python: str
    sqlite: str
    duckdb: str

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return cls(
            models[0] if models else platform.machine(),
            len(models),
            platform.python_version(),
            sqlite3.sqlite_version,
            duckdb.__version__,
        )


@dataclass(slots=True)
class Findings:
    """The results of one run."""

    machine: Machine
    rows: list[Row] = field(default_factory=list)
    loads: dict[str, Load] = field(default_factory=dict)
    updates: list[Updates] = field(default_factory=list)
    routing: list[Routing] = field(default_factory=list)
    forests: list[Forest] = field(default_factory=list)

    def row(self, family: str, size: int) -> Row | None:
        """The row of a workload, if it was measured."""
        return next((row for row in self.rows if (row.family, row.size) == (family, size)), None)


# --- targets ------------------------------------------------------------------------------------


_Rest = TypeVarTuple("_Rest")


class Verdict(NamedTuple):
    """A target, what was measured, and whether it is met."""

    subject: str
    target: str
    measured: str
    met: bool


_RATIOS: Final = (
    ("W1", 10_000, COMPILED, 500),
    ("W1", 100_000, COMPILED, 2_000),
    ("W2", 10_000, COMPILED, 500),
    ("W3", 100_000, COMPILED, 20_000),
    ("W4", 10_000, COMPILED, 250),
    ("W4", 100_000, COMPILED, 400),
    ("W1", 10_000, FALLBACK, 100),
    ("W4", 100_000, FALLBACK, 50),
)
"""The least factor by which an engine must be faster than the linear scan."""

_AIMS: Final = (
    ("W1", 10_000, 1.0),
    ("W1", 100_000, 4.0),
    ("W1", 1_000_000, 40.0),
    ("W2", 10_000, 2.0),
    ("W3", 100_000, 0.5),
    ("W4", 10_000, 5.0),
    ("W4", 100_000, 50.0),
)
"""Microseconds per event for the compiled kernel."""

_LOAD_SECONDS_MAX: Final = 60
_BYTES_MAX: Final = 400
_UPDATES_MIN: Final = 50_000
_INSERTS_MIN: Final = 5_000


def verdicts(findings: Findings) -> Iterator[Verdict]:
    """Compare the targets with the measurements."""
    yield from _ratio_verdicts(findings)
    yield from _aim_verdicts(findings)
    if (load := findings.loads.get("compiled")) is not None:
        subject = f"load W1 {load.filters:,}"
        seconds, size = load.seconds, load.bytes_per_filter
        yield Verdict(
            subject, f"under {_LOAD_SECONDS_MAX} s", f"{seconds:.0f} s", seconds < _LOAD_SECONDS_MAX
        )
        yield Verdict(
            subject,
            f"under {_BYTES_MAX} bytes a filter",
            f"{size:.0f} bytes",
            size < _BYTES_MAX,
        )
    for updates in findings.updates:
        if updates.kernel == "compiled":
            rate = updates.pairs_per_second
            yield Verdict(
                f"add + remove, {updates.workload}",
                f"{_UPDATES_MIN:,} a second",
                f"{rate:,.0f} pairs a second",
                rate >= _UPDATES_MIN,
            )
    for forest in findings.forests:
        if forest.kernel == "compiled":
            rate = forest.last_inserts_per_second
            yield Verdict(
                f"forest, insert at {forest.size:,}, {forest.name}",
                f"{_INSERTS_MIN:,} a second",
                f"{rate:,.0f} a second",
                rate >= _INSERTS_MIN,
            )


def _both_widths(targets: tuple[tuple[str, *_Rest], ...]) -> Iterator[tuple[str, *_Rest]]:
    """Return every target twice: for the workload, and for the same with wider ranges.

    The targets do not mention widths, and a wider range is harder: its results are larger.
    """
    yield from targets
    for family, *rest in targets:
        yield (f"{family} wide", *rest)  # type: ignore[misc]


def _ratio_verdicts(findings: Findings) -> Iterator[Verdict]:
    for family, size, name, ratio in _both_widths(_RATIOS):
        row = findings.row(family, size)
        if row is None or (measured := row.times_faster(name)) is None:
            continue
        yield Verdict(
            f"{family} {size:,}, {name.removeprefix('gapless, ')}",
            f"{ratio:,} times the linear scan",
            f"{measured:,.0f} times",
            measured >= ratio,
        )


def _aim_verdicts(findings: Findings) -> Iterator[Verdict]:
    for family, size, aim in _both_widths(_AIMS):
        row = findings.row(family, size)
        if row is None or COMPILED not in row.cells:
            continue
        measured = row.cells[COMPILED].microseconds
        yield Verdict(
            f"{family} {size:,}, compiled",
            f"{aim:g} µs an event (aim)",
            f"{measured:.2f} µs",
            measured <= aim,
        )
