"""The terms of cells that this broker has promised or knows (RS-17).

A broker that has promised a term of a cell refuses every message of an operation, and every
takeover, of that cell in a lower term.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ids import CellId
from gapless.messages.overlay import Term
from gapless.messages.records import PromiseRecord, PutRecord, StorageChange
from gapless.reshape.cell_records import CellRecords

__all__ = ["Promises"]


class Promises:
    """The greatest promised term of each cell. A promise of a term that is known is forgotten."""

    def __init__(self, records: CellRecords, stored: Iterable[PromiseRecord]) -> None:
        self._records = records
        self._promised = {each.cell: each.term for each in stored}

    def greatest(self, cell: CellId) -> Term:
        """Return the greatest term of a cell that is promised or known."""
        record = self._records.get(cell)
        known = Term() if record is None else record.term
        return max(self._promised.get(cell, Term()), known)

    def is_fenced(self, cell: CellId, term: Term) -> bool:
        """Return whether a message of a cell in a term is refused."""
        return term < self.greatest(cell)

    def promise(self, cells: Iterable[CellId], term: Term) -> tuple[StorageChange, ...]:
        """Promise a term of some cells; the answer depends on the write of these changes."""
        changes = []
        for cell in cells:
            assert not self.is_fenced(cell, term), f"{term} of {cell} is fenced"
            if self._promised.get(cell, Term()) < term:
                self._promised[cell] = term
                changes.append(PutRecord(PromiseRecord(cell, term)))
        return tuple(changes)
