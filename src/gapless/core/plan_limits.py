"""The fixed limits of plans, each with its reason."""

from __future__ import annotations

from typing import Final

__all__ = ["PLAN_CELLS_MAX", "PLAN_EXACT_CELLS_MAX"]

PLAN_CELLS_MAX: Final = 1_000
"""Cells of a tree that a plan begins or ends with. The work of one slice of planning grows with them."""

PLAN_EXACT_CELLS_MAX: Final = 8
"""Cells up to which a shortest plan may be searched for. There are 18 times as many trees of nine."""
