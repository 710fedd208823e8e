"""Points and rows: the input and the output of an experiment.

A point is a dict of parameter names and values, a row one of result names and values. Both are flat
and plain, so that they can be sent anywhere: to another process, into a file, to an executor of
Spark.
"""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gapless.core.errors import UsageError, shortened

__all__ = [
    "Function",
    "Plain",
    "Point",
    "PointOutcome",
    "Row",
    "checked",
    "grid",
    "parse_axes",
    "parse_axis",
    "run_point",
]

Plain: TypeAlias = str | int | float | bool | None
Point: TypeAlias = dict[str, Plain]
Row: TypeAlias = dict[str, Plain]
Function: TypeAlias = Callable[[Point], Mapping[str, Plain]]
"""The function that is run at a point."""

_WORDS: Final[dict[str, Plain]] = {"true": True, "false": False, "null": None}

VALUES_MAX: Final = 1_000_000
"""How many values ``a..b`` may have: all of them are in memory."""


class PointOutcome(msgspec.Struct, frozen=True):
    """The outcome of an experiment at a point: a row, or an error."""

    index: int
    point: Point
    row: Row
    error: str
    """The last line of the error; empty if there was none."""
    traceback: str
    seconds: float


def run_point(experiment: Function, index: int, point: Point) -> PointOutcome:
    """Run an experiment at a point; an error is an outcome too, and the other points still run."""
    started_at = time.perf_counter()
    row: Row = {}
    error = trace = ""
    try:
        row = checked(experiment(dict(point)), point)
    except Exception as failed:  # noqa: BLE001 - a user's function may raise anything
        error = "".join(traceback.format_exception_only(failed)).strip().splitlines()[-1]
        trace = traceback.format_exc()
    return PointOutcome(index, point, row, error, trace, time.perf_counter() - started_at)


def checked(row: Any, point: Point) -> Row:
    """Return a row; refuse an invalid one."""
    if not isinstance(row, Mapping):
        raise UsageError(f"an experiment returns a dict, not {type(row).__name__}")
    for name, value in row.items():
        if not isinstance(name, str) or not isinstance(value, Plain):
            raise UsageError(
                f"result {name!r} is a {type(value).__name__}; rows are flat and plain"
            )
        if name in point and point[name] != value:
            raise UsageError(f"result {name!r} has the name of a parameter and another value")
    return dict(row)


def grid(axes: Mapping[str, Iterable[Plain]]) -> list[Point]:
    """Return every combination of some values, the last axis fastest.

    >>> grid({"cells": [1, 3], "loss": [0.0, 0.1]})[:2]
    [{'cells': 1, 'loss': 0.0}, {'cells': 1, 'loss': 0.1}]
    """
    values = [list(each) for each in axes.values()]
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*values)]


def parse_axis(text: str) -> tuple[str, list[Plain]]:
    """Return an axis from ``name=1,2,3``; ``a..b`` are the whole numbers from a to b.

    >>> parse_axis("cells=1,3,5..7")
    ('cells', [1, 3, 5, 6, 7])
    """
    name, equals, listed = text.partition("=")
    parts = [part.strip() for part in listed.split(",") if part.strip()]
    if not name.strip() or not equals or not parts:
        raise UsageError(f"{shortened(text)!r} is no axis; write name=1,2,3 or name=1..9")
    return name.strip(), [value for part in parts for value in _values(part)]


def parse_axes(texts: Iterable[str]) -> dict[str, list[Plain]]:
    """Return axes by name; an axis that is given twice is refused."""
    found: dict[str, list[Plain]] = {}
    for name, values in map(parse_axis, texts):
        if name in found:
            raise UsageError(f"the axis {name} is given twice; write its values as {name}=1,2,3")
        found[name] = values
    return found


def _values(part: str) -> list[Plain]:
    low, dots, high = part.partition("..")
    try:
        numbers = range(int(low), int(high) + 1) if dots else None
    except ValueError:
        numbers = None
    if numbers is not None:
        return _counted(part, numbers)
    for read in (int, float):
        try:
            return [read(part)]
        except ValueError:
            continue
    return [_WORDS[part]] if part in _WORDS else [part]


def _counted(part: str, numbers: range) -> list[Plain]:
    """Return the numbers of ``a..b``, if there are any and not too many."""
    if not numbers:
        raise UsageError(f"{shortened(part)} is empty; write the smaller number first")
    if numbers.stop - numbers.start > VALUES_MAX:
        raise UsageError(f"{shortened(part)} are more than {VALUES_MAX:,} values")
    return list(numbers)
