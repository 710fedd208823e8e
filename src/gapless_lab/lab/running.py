"""A run of an experiment: it measures the missing points, one by one or distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from gapless_lab.lab.catalogue import measure
from gapless_lab.lab.experiment import Chart, Experiment
from gapless_lab.lab.origin import origin_of
from gapless_lab.lab.points import Point, PointOutcome, Row, run_point
from gapless_lab.lab.report import ExperimentReport, report_of
from gapless_lab.lab.results import ResultStore, key_of

__all__ = ["ExperimentRun", "PointFailure", "Spread", "one_by_one"]

Spread: TypeAlias = Callable[[Sequence[Point]], Iterable[PointOutcome]]
"""Measures points, and yields outcomes as they come."""


class PointFailure(msgspec.Struct, frozen=True):
    """A point that could not be measured."""

    point: Point
    error: str
    traceback: str


def one_by_one(points: Sequence[Point]) -> Iterable[PointOutcome]:
    """Measure points in this process."""
    for index, point in enumerate(points):
        yield run_point(measure, index, point)


class ExperimentRun:
    """An experiment at some points, of which some may be finished already."""

    def __init__(self, experiment: Experiment, points: Sequence[Point], shelf: ResultStore) -> None:
        self.experiment = experiment
        self.points = points
        self.failures: list[PointFailure] = []
        self.shelf = shelf
        self._finished = shelf.finished()
        # Now, because files may change during a long run. Results of other code are not in the
        # store, so this code made all rows. A digest of everything follows the plus.
        self._origin = origin_of(experiment, shelf.version.partition("+")[0])

    @property
    def missing(self) -> list[Point]:
        """The points that have no result yet."""
        return [point for point in self.points if key_of(point) not in self._finished]

    def go(
        self, spread: Spread = one_by_one, on_outcome: Callable[[PointOutcome], None] | None = None
    ) -> None:
        """Measure the missing points; each result is stored at once."""
        for outcome in spread(self.missing):
            if outcome.error:
                self.failures.append(PointFailure(outcome.point, outcome.error, outcome.traceback))
            else:
                self._finished[key_of(outcome.point)] = self.shelf.keep(outcome)
            if on_outcome is not None:
                on_outcome(outcome)

    @property
    def rows(self) -> list[Row]:
        """Parameters and results of the finished points, in the order of the points."""
        found = (self._finished.get(key_of(point)) for point in self.points)
        return [{**kept.point, **kept.row} for kept in found if kept is not None]

    def report(self) -> tuple[ExperimentReport, list[Chart]]:
        """Return the report of the results so far."""
        kept = (self._finished.get(key_of(point)) for point in self.points)
        seconds = sum(each.seconds for each in kept if each is not None)
        return report_of(
            self.experiment, self.rows, self.points, seconds=seconds, origin=self._origin
        )
