"""The current neighbourhood of this broker, which all components read, and what a step means."""

from __future__ import annotations

from typing import Final, NamedTuple

from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["Tree", "TreeChange"]

_APPENDED: Final = 2
"""The count of the shape version of a cell that was appended and not changed since (RS-15)."""


class TreeChange(NamedTuple):
    """One durable step of the tree at this broker, and what it means (R13, RS-37)."""

    old: Neighbourhood
    new: Neighbourhood

    @property
    def changes_own_edges(self) -> bool:
        """Whether an edge of the own cell was added, was removed, or has another epoch (RS-13)."""
        return self._own_edges(self.old) != self._own_edges(self.new)

    @property
    def is_one_operation(self) -> bool:
        """Whether at most one operation has changed the own cell's edges since the last step."""
        before, after = (each.shape_version(self.new.own) for each in (self.old, self.new))
        return before == after or (before.term, before.count + 1) == (after.term, after.count)

    @property
    def gained(self) -> tuple[CellId, ...]:
        """The new neighbours that have SHBs behind them which were behind another neighbour.

        A new neighbour behind which a lost one lies now stands for it: the same cells are behind
        both. Behind a cell that was appended and not changed since no SHB ever was.
        """
        paths = [self.new.extended_path(cell) for cell in self._lost]
        instead = {path[0] for path in paths if path}
        new = (cell for cell in self.new.neighbours if cell not in self.old.neighbours)
        return tuple(cell for cell in new if cell not in instead and not self._is_unused(cell))

    @property
    def narrowed(self) -> frozenset[CellId]:
        """The former neighbours behind which the gained cells lay."""
        paths = (self.old.extended_path(cell) for cell in self.gained)
        return frozenset(path[0] for path in paths if path)

    @property
    def forgets_everything(self) -> bool:
        """Whether silence of any pubend may have been made for fewer SHBs than there are now.

        That is so if operations were missed or undone, or if it is not known behind which neighbour
        a gained cell lay.
        """
        unknown = any(not self.old.extended_path(cell) for cell in self.gained)
        return unknown or not self.is_one_operation

    @property
    def retouched(self) -> tuple[CellId, ...]:
        """The neighbours, old and new, to which the edge has another epoch."""
        return tuple(
            cell
            for cell in self.new.neighbours
            if cell in self.old.neighbours
            and self.old.epoch(self.old.own, cell) != self.new.epoch(self.new.own, cell)
        )

    def forgets(self, path: tuple[CellId, ...] | None) -> bool:
        """Return whether silence of a pubend must be forgotten, by its path in the new tree.

        ``path`` is None if it is not known. Nothing is filtered inside the PHB's cell, where the
        path is empty.
        """
        if path == ():
            return False
        if self.forgets_everything:
            return True
        if not self.narrowed:
            return False
        if path is None:
            return True
        before = next(filter(None, map(self.old.extended_path, path)), None)
        return before is None or before[0] in self.narrowed

    @property
    def _lost(self) -> list[CellId]:
        return [cell for cell in self.old.neighbours if cell not in self.new.neighbours]

    def _is_unused(self, cell: CellId) -> bool:
        record = self.new.record(cell)
        return record is not None and _is_appended(record)

    @staticmethod
    def _own_edges(tree: Neighbourhood) -> dict[CellId, object]:
        return {cell: tree.epoch(tree.own, cell) for cell in tree.neighbours}


def _is_appended(record: CellRecord) -> bool:
    """Return whether a cell was appended, and its edges have not changed since."""
    return "#" in record.name and record.shape_version.count == _APPENDED


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
