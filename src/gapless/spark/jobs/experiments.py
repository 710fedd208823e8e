"""Experiments: functions that are named by a text, the points they run at, and what they return.

An experiment is a function that takes a point (a dict: names of parameters and their values) and returns
a row (a dict: names of results and plain values). It is named ``module:function``, so that every
executor can import it.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from gapless.core.errors import UsageError, shortened

__all__ = ["Experiment", "Point", "Row", "checked", "grid", "load", "read_points"]

Plain: TypeAlias = str | int | float | bool | None
Point: TypeAlias = dict[str, Plain]
Row: TypeAlias = dict[str, Plain]
Experiment: TypeAlias = Callable[[Point], Mapping[str, Plain]]

_WORDS: Final[dict[str, Plain]] = {"true": True, "false": False, "null": None}


def load(name: str) -> Experiment:
    """Return the function that ``module:function`` stands for; where it runs it is imported again.

    >>> load("operator:length_hint")([1, 2])
    2
    """
    _find(name)  # a wrong name is said before anything is begun
    return functools.partial(_call, name)


def _call(name: str, point: Point) -> Mapping[str, Plain]:
    return _find(name)(point)


@functools.cache
def _find(name: str) -> Experiment:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"there is no experiment {name}, write module:function: {error}"
        ) from error
    if not callable(found):
        raise UsageError(f"{name} is no function that takes a point")
    return found  # type: ignore[no-any-return]  # what it returns is checked with every row


def checked(row: Any, point: Point) -> Row:
    """Return a row, or say why it is none."""
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


def _values(part: str) -> list[Plain]:
    low, dots, high = part.partition("..")
    try:
        if dots:
            return list(range(int(low), int(high) + 1))
    except ValueError:
        pass
    for read in (int, float):
        try:
            return [read(part)]
        except ValueError:
            continue
    return [_WORDS[part]] if part in _WORDS else [part]


def read_points(path: Path) -> list[Point]:
    """Return the points of a file with a JSON object a line; all wrong lines are named at once."""
    points: list[Point] = []
    wrong: list[str] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            points.append(checked(json.loads(line), {}))
        except (ValueError, UsageError) as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        raise UsageError(f"{path} has lines that are no points:\n  " + "\n  ".join(wrong))
    return points
