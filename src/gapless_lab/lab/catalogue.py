"""All experiments by name, and the one function that measures a point of any of them."""

from __future__ import annotations

import difflib
from typing import Final

from gapless.core.errors import UsageError
from gapless_lab.lab import failover, gd_6, gd_7, gd_8, ha_7, pt_9, pt_10, pt_11, pt_12, vt_6_17
from gapless_lab.lab.experiment import Experiment, text
from gapless_lab.lab.points import Point, Row

__all__ = ["EXPERIMENTS", "MEASURE", "find", "measure"]

EXPERIMENTS: Final[dict[str, Experiment]] = {
    each.name: each
    for each in (
        gd_6.EXPERIMENT,
        gd_7.EXPERIMENT,
        gd_8.EXPERIMENT,
        ha_7.EXPERIMENT,
        pt_9.EXPERIMENT,
        pt_10.EXPERIMENT,
        pt_11.EXPERIMENT,
        pt_12.EXPERIMENT,
        vt_6_17.EXPERIMENT,
        failover.EXPERIMENT,
    )
}

MEASURE: Final = "gapless_lab.lab.catalogue:measure"
"""The name under which a sweep finds :func:`measure`."""


def find(name: str) -> Experiment:
    """Return the experiment with a name."""
    found = EXPERIMENTS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, EXPERIMENTS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"there is no experiment {name!r}; {hint}there are {', '.join(EXPERIMENTS)}"
        )
    return found


def measure(point: Point) -> Row:
    """Measure a point of the experiment that it names."""
    return dict(find(text(point, "experiment")).measure(point))
