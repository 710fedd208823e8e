"""The axes of experiments: invalid values are refused before anything is measured.

Every axis has a kind: whole numbers, numbers or words, with bounds. Values that are valid each and
not together (more failures than brokers) violate a relation. Some axes take one value per run,
because tables and comparisons do not distinguish several.
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
"""The greatest number of points of a run: all of them are in memory."""

RUNS_MAX: Final = 1_000
"""How often a point is measured at most; more runs hardly improve the mean."""


class Whole(msgspec.Struct, frozen=True):
    """Whole numbers between two bounds."""

    least: int
    most: int
    several: bool = True
    """Whether a run may have several of these values."""

    def takes(self, value: Plain) -> bool:
        """Return whether a value is valid; a Boolean is not a number."""
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"a whole number from {self.least:,} to {self.most:,}"


class NumberAxis(msgspec.Struct, frozen=True):
    """Numbers between two bounds, whole or not."""

    least: float
    most: float
    several: bool = True

    def takes(self, value: Plain) -> bool:
        """Return whether a value is valid; NaN and Booleans are not."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value <= self.most

    def __str__(self) -> str:
        """Return the text for messages."""
        return f"a number from {self.least:,g} to {self.most:,g}"


class OneOf(msgspec.Struct, frozen=True):
    """One of some words."""

    words: tuple[str, ...]
    several: bool = True

    def takes(self, value: Plain) -> bool:
        """Return whether a value is valid."""
        return value in self.words

    def __str__(self) -> str:
        """Return the text for messages."""
        return " or ".join(self.words)


AxisKind: TypeAlias = Whole | NumberAxis | OneOf

RUN_NUMBER: Final = Whole(0, RUNS_MAX - 1)
"""The axis on which every run is a point of its own: the number is the seed."""
RUNS: Final = Whole(1, RUNS_MAX, several=False)
"""The axis for the number of runs of one point."""


class Relation(msgspec.Struct, frozen=True):
    """A condition on the values of a point."""

    axes: tuple[str, ...]
    """The axes whose values a message names."""
    holds: Callable[[Point], bool]
    rule: str


def checked_points(
    axes: Axes, kinds: Mapping[str, AxisKind], relations: Sequence[Relation]
) -> list[Point]:
    """Return every combination of the values of all axes; refuse an invalid one."""
    for name, values in axes.items():
        if not values:
            raise UsageError(f"{name} has no value; it takes {kinds[name]}")
    count = math.prod(len(values) for values in axes.values())
    if count > POINTS_MAX:
        raise UsageError(f"the axes give {count:,} points; a run has {POINTS_MAX:,} at most")
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
        raise UsageError(f"{name} takes one value a run; tables do not distinguish several")


def _check_relations(point: Point, relations: Sequence[Relation]) -> None:
    for relation in relations:
        if not relation.holds(point):
            named = ", ".join(f"{name} {_shown(point[name])}" for name in relation.axes)
            raise UsageError(f"{named} cannot be: {relation.rule}")


def _shown(value: Plain) -> str:
    """Return a value for a message: words in quotes, true and false as they are written."""
    if isinstance(value, str):
        return repr(shortened(value))
    return str(value).lower() if isinstance(value, bool) else shortened(str(value))
