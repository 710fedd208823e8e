"""What the axes of an experiment take, so that what cannot be measured is refused before anything is.

Every axis has a kind: whole numbers, numbers or some words, with bounds. Values that are fine each for
itself and make no sense together (more failures than brokers) break a relation. Some axes take one value
a run, as tables and comparisons do not tell several apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from gapless.core.errors import UsageError, shortened
from gapless_lab.lab.points import Plain, Point, grid

__all__ = [
    "POINTS_MAX",
    "RUNS",
    "RUNS_MAX",
    "RUN_NUMBER",
    "Axes",
    "AxisKind",
    "NumberAxis",
    "OneOf",
    "Relation",
    "Whole",
    "checked_points",
]

Axes: TypeAlias = Mapping[str, Sequence[Plain]]

POINTS_MAX: Final = 100_000
"""Points of a run: more would not end, and all of them are in memory."""

RUNS_MAX: Final = 1_000
"""How often a point is measured at most: the mean of so many is as good as it gets."""


class Whole(msgspec.Struct, frozen=True):
    """Whole numbers between two bounds."""

    least: int
    most: int
    several: bool = True
    """Whether a run may have more than one of them."""

    def takes(self, value: Plain) -> bool:
        """Say whether a value is one of these; a truth value is no number."""
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        """Return this as a message names it."""
        return f"a whole number from {self.least:,} to {self.most:,}"


class NumberAxis(msgspec.Struct, frozen=True):
    """Numbers between two bounds, whole or not."""

    least: float
    most: float
    several: bool = True

    def takes(self, value: Plain) -> bool:
        """Say whether a value is one of these; what is not a number at all is not."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value <= self.most

    def __str__(self) -> str:
        """Return this as a message names it."""
        return f"a number from {self.least:,g} to {self.most:,g}"


class OneOf(msgspec.Struct, frozen=True):
    """Some words."""

    words: tuple[str, ...]
    several: bool = True

    def takes(self, value: Plain) -> bool:
        """Say whether a value is one of these."""
        return value in self.words

    def __str__(self) -> str:
        """Return this as a message names it."""
        return " or ".join(self.words)


AxisKind: TypeAlias = Whole | NumberAxis | OneOf

RUN_NUMBER: Final = Whole(0, RUNS_MAX - 1)
"""The axis on which every run is a point of its own: the number is the seed."""
RUNS: Final = Whole(1, RUNS_MAX, several=False)
"""The axis that says how many runs one point has."""


class Relation(msgspec.Struct, frozen=True):
    """What must hold between the values of a point."""

    axes: tuple[str, ...]
    """Whose values a message names."""
    holds: Callable[[Point], bool]
    rule: str


def checked_points(
    axes: Axes, kinds: Mapping[str, AxisKind], relations: Sequence[Relation]
) -> list[Point]:
    """Return every combination of the values of all axes, or say what is wrong with one."""
    for name, values in axes.items():
        if not values:
            raise UsageError(f"{name} has no value; it takes {kinds[name]}")
    count = math.prod(len(values) for values in axes.values())
    if count > POINTS_MAX:
        raise UsageError(f"these are {count:,} points; a run has {POINTS_MAX:,} at most")
    for name, values in axes.items():
        _check_axis(name, values, kinds[name])
    points = grid(axes)
    for point in points:
        _check_relations(point, relations)
    return points


def _check_axis(name: str, values: Sequence[Plain], kind: AxisKind) -> None:
    for value in values:
        if not kind.takes(value):
            raise UsageError(f"{name} cannot be {_shown(value)}; it takes {kind}")
    if len(set(values)) < len(values):
        raise UsageError(f"{name} has a value twice; each is measured once")
    if len(values) > 1 and not kind.several:
        raise UsageError(f"{name} takes one value a run, as tables do not tell several apart")


def _check_relations(point: Point, relations: Sequence[Relation]) -> None:
    for relation in relations:
        if not relation.holds(point):
            named = ", ".join(f"{name} {_shown(point[name])}" for name in relation.axes)
            raise UsageError(f"{named} cannot be: {relation.rule}")


def _shown(value: Plain) -> str:
    """Return a value as a message quotes it: words in quotes, true and false as they are written."""
    if isinstance(value, str):
        return repr(shortened(value))
    return str(value).lower() if isinstance(value, bool) else shortened(str(value))
