"""The cell records as this broker has requested them: those on disk, and those being written.

A decision must not be made by a record that a requested write is about to replace. Messages that
depend on a requested record are sent after a later write, so they never leave before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gapless.core.context import nothing
from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRecord
from gapless.messages.records import StorageChange
from gapless.reshape.protocols import HeldRecords

__all__ = ["CellRecords", "newest_records"]


def newest_records(records: Iterable[CellRecord]) -> dict[CellId, CellRecord]:
    """Return the newest of some records of each cell (RS-1)."""
    found: dict[CellId, CellRecord] = {}
    for record in records:
        known = found.get(record.name)
        if known is None or record.version > known.version:
            found[record.name] = record
    return found


class CellRecords:
    """The newest records that this broker holds or has requested to write."""

    def __init__(self, me: BrokerId, held: HeldRecords, changed: Callable[[], None]) -> None:
        """``changed`` is called when records are durable and applied."""
        self._me = me
        self._held = held
        self._changed = changed
        self._requested: list[tuple[CellRecord, ...]] = []
        """In the order of the writes."""

    @property
    def own(self) -> CellId:
        """The cell of this broker."""
        return self._held.own

    @property
    def own_record(self) -> CellRecord:
        """The record of the own cell."""
        found = self.get(self.own)
        assert found is not None, f"no record of the own cell {self.own}"
        return found

    def is_led(self) -> bool:
        """Return whether this broker leads its cell."""
        return self.own_record.leader == self._me

    def get(self, cell: CellId) -> CellRecord | None:
        """Return the newest record of a cell, or None."""
        found = self._held.record(cell)
        for records in self._requested:
            for record in records:
                if record.name == cell and (found is None or record.version > found.version):
                    found = record
        return found

    def all(self) -> dict[CellId, CellRecord]:
        """Return the newest records of all cells."""
        requested = (record for records in self._requested for record in records)
        return newest_records((*self._held.records(), *requested))

    @property
    def may_join(self) -> bool:
        """Whether this broker can become a member of another cell, if it is alone in its own."""
        return self._held.may_join and not self.own_record.edges

    def is_consistent(self, records: Collection[CellRecord]) -> bool:
        """Return whether a step with these records leads to a tree that this broker can take."""
        return self._held.is_consistent(records)

    def newer(self, records: Iterable[CellRecord]) -> list[CellRecord]:
        """Return those records that are newer than the ones known here."""
        found = []
        for record in records:
            known = self.get(record.name)
            if known is None or record.version > known.version:
                found.append(record)
        return found

    def apply(
        self,
        records: Collection[CellRecord],
        changes: tuple[StorageChange, ...] = (),
        then: Callable[[], None] = nothing,
    ) -> None:
        """Make records durable and apply them, with changes in the same write; then call back."""
        requested = tuple(records)
        self._requested.append(requested)

        def stored() -> None:
            self._requested.remove(requested)
            then()
            self._changed()

        self._held.apply(requested, changes=changes, then=stored)
