"""What an experiment is: a figure of a paper, points, a measurement, and how rows become a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gapless.core.errors import UsageError
from gapless_lab.lab.axes import RUNS_MAX, Axes, AxisKind, Relation, checked_points
from gapless_lab.lab.points import Function, Plain, Point, Row

__all__ = [
    "GRAPH",
    "MACHINE",
    "PAPERS",
    "Chart",
    "ChartLine",
    "Experiment",
    "PaperComparison",
    "ResultTable",
    "grouped",
    "mean",
    "number",
    "text",
    "whole",
]

PAPERS: dict[str, str] = {
    "GD": "Bhola et al., Exactly-once Delivery in a Content-based Publish-Subscribe System",
    "PT": "Kazemzadeh and Jacobsen, Partition-Tolerant Distributed Publish/Subscribe Systems",
    "VT": "Zhao, Distribution of Route-Impacting Control Information in a Publish/Subscribe System "
    "with Delivery Guarantees",
    "ours": "no paper: a measurement of our own",
}
"""The short names of the papers."""

MACHINE: tuple[str, ...] = (
    "gapless/core",
    "gapless/content",
    "gapless/messages",
    "gapless/packed",
    "gapless/stream",
    "gapless/overlay",
    "gapless/directory",
    "gapless/propagation",
    "gapless/feeds",
    "gapless/routing",
    "gapless/requests",
    "gapless/pubend",
    "gapless/subscribers",
    "gapless/retirement",
    "gapless/mobility",
    "gapless/reshape",
    "gapless/inspection",
    "gapless/broker",
    "gapless_lab/sim",
)
"""What runs where brokers are simulated."""

GRAPH: tuple[str, ...] = (
    "gapless/core",
    "gapless/messages",
    "gapless/overlay",
    "gapless_lab/sim/shapes.py",
)
"""What runs where something is counted on the graph of the overlay."""

RUN = "run"
"""The axis on which every run is a point of its own."""
RUNS = "runs"
"""The parameter that says how many runs one point has."""


class ResultTable(msgspec.Struct, frozen=True):
    """Results for readers."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[Plain, ...]]


class PaperComparison(msgspec.Struct, frozen=True):
    """A statement of the paper beside ours."""

    subject: str
    paper: str
    """What its text says; the figures themselves are pictures, and nothing is read off them."""
    ours: str
    agrees: bool | None = None
    """Whether ours bears it out; None where the two cannot be held against each other."""


class ChartLine(msgspec.Struct, frozen=True):
    """One line, or one cloud of dots, of a chart."""

    label: str
    dots: list[tuple[float, float]]
    style: str = "-o"
    """As matplotlib writes it."""
    steps: bool = False
    """Whether a value holds until the next one, as in a distribution."""
    from_paper: bool = False
    """Whether the paper's text says it, and we did not measure it."""


class Chart(msgspec.Struct, frozen=True):
    """One picture, drawn beside others of the same experiment."""

    title: str
    x: str
    y: str
    lines: list[ChartLine]
    levels: tuple[tuple[str, float], ...] = ()
    """What the paper's text says, as horizontal lines."""
    uprights: tuple[tuple[str, float], ...] = ()
    """What the paper's text says, as vertical lines."""
    moments: tuple[tuple[str, float], ...] = ()
    """When something happened, as vertical lines."""
    log_x: bool = False


class Experiment(msgspec.Struct, frozen=True):
    """An experiment, as code."""

    name: str
    paper: str
    figure: str
    title: str
    full: Axes
    """What a run measures unless it is told otherwise."""
    quick: Axes
    """The same in seconds, to see that it works."""
    kinds: Mapping[str, AxisKind]
    """What every axis takes."""
    measure: Function
    tables: Callable[[Sequence[Row]], list[ResultTable]]
    charts: Callable[[Sequence[Row]], list[Chart]]
    compare: Callable[[Sequence[Row]], list[PaperComparison]]
    about: str
    """How it is done, and where that differs from the paper."""
    relations: tuple[Relation, ...] = ()
    """What must hold between the axes."""
    packages: tuple[str, ...] = MACHINE
    """The rooms of gapless, and single files, that it runs."""

    def points(
        self, *, quick: bool = False, runs: int | None = None, changed: Axes | None = None
    ) -> list[Point]:
        """Return the points of a run; ``changed`` replaces axes, ``runs`` how often each is measured."""
        axes = dict(self.quick if quick else self.full)
        repeated = {} if runs is None else self._repeated(axes, runs)
        for name in changed or ():
            if name not in axes:
                raise UsageError(f"{self.name} has no axis {name}; it has {', '.join(axes)}")
            if name in repeated:
                raise UsageError(f"--runs sets the axis {name}; leave one of the two out")
        axes |= {**repeated, **(changed or {})}
        try:
            points = checked_points(axes, self.kinds, self.relations)
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from None
        return [{"experiment": self.name, **point} for point in points]

    def _repeated(self, axes: Axes, runs: int) -> Axes:
        if not 1 <= runs <= RUNS_MAX:
            raise UsageError(f"--runs is a whole number from 1 to {RUNS_MAX:,}")
        if RUNS in axes:
            return {RUNS: (runs,)}
        if RUN in axes:
            return {RUN: range(runs)}
        raise UsageError(f"{self.name} has no chance in it: it is run once, leave --runs out")


def number(values: Mapping[str, Plain], name: str) -> float:
    """Return a value that is a number."""
    value = values[name]
    assert isinstance(value, int | float), f"{name} is no number: {value!r}"
    return value


def whole(values: Mapping[str, Plain], name: str) -> int:
    """Return a value that is a whole number."""
    value = values[name]
    assert isinstance(value, int), f"{name} is no whole number: {value!r}"
    return value


def text(values: Mapping[str, Plain], name: str) -> str:
    """Return a value that is a text."""
    value = values[name]
    assert isinstance(value, str), f"{name} is no text: {value!r}"
    return value


def mean(values: Sequence[float]) -> float:
    """Return the mean; there is at least one."""
    return sum(values) / len(values)


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Plain, ...], list[Row]]:
    """Return rows by the values of some columns, in the order in which they first appear."""
    found: dict[tuple[Plain, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
