"""Closed pubends: planted bugs of how they end (:mod:`gapless.pubend.closings`)."""

from __future__ import annotations

from typing import Final

from gapless.pubend.closings import PubendClosings
from gapless_lab.sim.planted_bugs import PlantedBug, constant

__all__ = ["CLOSING_BUGS"]

CLOSING_BUGS: Final = (
    PlantedBug(
        "ends pubends before they are drained",
        "a sealed pubend becomes a tombstone while its log is needed (RS-33)",
        ((PubendClosings, "_is_drained", constant(True)),),
    ),
)
"""Each must be detected within 1,000 seeds."""
