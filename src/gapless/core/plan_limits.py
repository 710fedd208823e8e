"""The fixed limits of plans, each with its reason."""

from __future__ import annotations

from typing import Final

__all__ = ["PLAN_CELLS_MAX", "PLAN_EXACT_CELLS_MAX", "PLAN_PAIRS_MAX", "PLAN_STEPS_SHOWN_MAX"]

PLAN_CELLS_MAX: Final = 1_000
"""Cells of a tree that a plan begins or ends with. The work of one slice of planning grows with them."""

PLAN_EXACT_CELLS_MAX: Final = 8
"""Cells up to which a shortest plan may be searched for. There are 18 times as many trees of nine."""

PLAN_PAIRS_MAX: Final = 100
"""Pairs of cells whose distance a plan keeps. Each is checked for every candidate of a step."""

PLAN_STEPS_SHOWN_MAX: Final = 256
"""Steps of a plan in one reply, so that the reply has a bounded size."""
