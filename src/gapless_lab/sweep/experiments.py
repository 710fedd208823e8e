"""Experiments: functions that are named by a text, the points they run at, and what they return.

An experiment is a function that takes a point (a dict: names of parameters and their values) and returns
a row (a dict: names of results and plain values). It is named ``module:function``, so that every
executor can import it, or by its name in the lab.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from gapless.core.errors import UsageError
from gapless_lab.lab.points import Function as Experiment
from gapless_lab.lab.points import Plain, Point, Row, checked, grid, parse_axes, parse_axis

__all__ = [
    "Experiment",
    "Plain",
    "Point",
    "Row",
    "checked",
    "grid",
    "lab_points",
    "load",
    "parse_axes",
    "parse_axis",
    "read_points",
]


def load(name: str) -> Experiment:
    """Return the function named ``module:function``, or by a name of the lab's catalogue.

    It is imported again where it runs.

    >>> load("operator:length_hint")([1, 2])
    2
    """
    _find(name)  # a wrong name is reported before the first run
    return functools.partial(_call, name)


def _call(name: str, point: Point) -> Mapping[str, Plain]:
    return _find(name)(point)


def lab_points(name: str, axes: Mapping[str, Sequence[Plain]]) -> list[Point] | None:
    """Return the points of an experiment of the lab, with other values for the given axes.

    None if it is not an experiment of the lab: its points are not known.
    """
    from gapless_lab.lab.catalogue import EXPERIMENTS

    found = EXPERIMENTS.get(name)
    return None if found is None else found.points(changed=axes)


@functools.cache
def _find(name: str) -> Experiment:
    module, colon, attribute = name.partition(":")
    if not colon:
        return _find_in_lab(name)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"there is no experiment {name}, write module:function: {error}"
        ) from error
    if not callable(found):
        raise UsageError(f"{name} is not a function that takes a point")
    return found  # type: ignore[no-any-return]  # every returned row is checked


def _find_in_lab(name: str) -> Experiment:
    from gapless_lab.lab.catalogue import find

    try:
        return find(name).measure
    except UsageError as error:
        raise UsageError(f"{error}; or write module:function") from None


def read_points(path: Path) -> list[Point]:
    """Return the points of a file with one JSON object per line; an error names all wrong lines."""
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
        raise UsageError(f"{path} has lines that are not points:\n  " + "\n  ".join(wrong))
    return points
