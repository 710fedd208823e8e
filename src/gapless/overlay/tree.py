"""The current neighbourhood of this broker, which all components read."""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.ids import CellId
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["Tree", "TreeChange"]


class TreeChange(NamedTuple):
    """One durable step of the tree at this broker (R13)."""

    old: Neighbourhood
    new: Neighbourhood
    wider: bool
    """Whether a new neighbour has SHBs behind it that were not behind this cell before."""


class Tree:
    """Holds the current neighbourhood. Only the step of the tree replaces it."""

    __slots__ = ("neighbourhood",)

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.neighbourhood = neighbourhood
        """The cells within Δ of the own cell, as they are now."""

    @property
    def version(self) -> int:
        """The version of the neighbourhood."""
        return self.neighbourhood.version

    def path_to(self, cell: CellId) -> tuple[CellId, ...] | None:
        """Return the path to a cell, or None if it is not in the neighbourhood."""
        return self.neighbourhood.find_path(cell)

    def replace(self, neighbourhood: Neighbourhood) -> None:
        """Make another neighbourhood the current one."""
        self.neighbourhood = neighbourhood
