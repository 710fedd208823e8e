"""An experiment: a figure of a paper, points, a measurement, and how rows become a table."""

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
    "HA": "Yoon, Muthusamy and Jacobsen, Foundations for Highly Available Content-based "
    "Publish/Subscribe Overlays",
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
"""The code of experiments that simulate brokers."""

GRAPH: tuple[str, ...] = (
    "gapless/core",
    "gapless/messages",
    "gapless/overlay",
    "gapless_lab/sim/shapes.py",
)
"""The code of experiments that count on the graph of the overlay."""

RUN = "run"
"""The axis on which every run is a point of its own."""
RUNS = "runs"
"""The parameter for the number of runs of one point."""


class ResultTable(msgspec.Struct, frozen=True):
    """A table of results."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[Plain, ...]]


class PaperComparison(msgspec.Struct, frozen=True):
    """A statement of the paper beside our result."""

    subject: str
    paper: str
    """The statement of its text; the figures are pictures, and nothing is read off them."""
    ours: str
    agrees: bool | None = None
    """Whether our result confirms it; None if the two cannot be compared."""


class ChartLine(msgspec.Struct, frozen=True):
    """One line, or one set of dots, of a chart."""

    label: str
    dots: list[tuple[float, float]]
    style: str = "-o"
    """A format string of matplotlib."""
    steps: bool = False
    """Whether a value holds until the next one, as in a distribution."""
    from_paper: bool = False
    """Whether the line is from the paper's text and not measured."""


class Chart(msgspec.Struct, frozen=True):
    """One chart, drawn beside others of the same experiment."""

    title: str
    x: str
    y: str
    lines: list[ChartLine]
    levels: tuple[tuple[str, float], ...] = ()
    """Values of the paper's text, as horizontal lines."""
    uprights: tuple[tuple[str, float], ...] = ()
    """Values of the paper's text, as vertical lines."""
    moments: tuple[tuple[str, float], ...] = ()
    """Times of events of the run, as vertical lines."""
    log_x: bool = False


class Experiment(msgspec.Struct, frozen=True):
    """An experiment as code."""

    name: str
    paper: str
    figure: str
    title: str
    full: Axes
    """The default axes of a run."""
    quick: Axes
    """Axes of a run that takes seconds, as a test."""
    kinds: Mapping[str, AxisKind]
    """The valid values of every axis."""
    measure: Function
    tables: Callable[[Sequence[Row]], list[ResultTable]]
    charts: Callable[[Sequence[Row]], list[Chart]]
    compare: Callable[[Sequence[Row]], list[PaperComparison]]
    about: str
    """How it is done, and where that differs from the paper."""
    relations: tuple[Relation, ...] = ()
    """What must hold between the axes."""
    packages: tuple[str, ...] = MACHINE
    """The packages of gapless, and single files, that it runs."""

    def points(
        self, *, quick: bool = False, runs: int | None = None, changed: Axes | None = None
    ) -> list[Point]:
        """Return the points of a run; ``changed`` replaces axes, ``runs`` sets how often each is
        measured.
        """
        axes = dict(self.quick if quick else self.full)
        repeated = {} if runs is None else self._repeated(axes, runs)
        for name in changed or ():
            if name not in axes:
                raise UsageError(f"{self.name} has no axis {name}; it has {', '.join(axes)}")
            if name in repeated:
                raise UsageError(f"--runs sets the axis {name}; omit one of the two")
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
        raise UsageError(f"{self.name} has no random part and runs once; omit --runs")


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
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Plain, ...], list[Row]]:
    """Return rows by the values of some columns, in the order in which they first appear."""
    found: dict[tuple[Plain, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
