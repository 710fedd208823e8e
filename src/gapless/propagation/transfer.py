"""The transfer of a table from its broker to the holders of a copy (R19).

A sender keeps its last deltas. It answers a request with the deltas since the requested version, or
with the full table in parts. A receiver stages the parts until it has all of them, and applies a
delta only to exactly its base version. Equal versions of one sender's table are equal states, so
the base version is VT's constraint vector in one number (VT 4.1.5, 4.2.2). All messages may be
lost, repeated or reordered. A message that does not fit is dropped and the missing changes are
requested (VT 4.3.2 to 4.3.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

from gapless.content import Conjunction
from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.limits import TABLE_PARTS_MAX
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableId, TableRequest
from gapless.propagation.table import SubscriptionTable, conjunction_of

__all__ = ["TableReceiver", "TableSender", "TableUpdate", "TransferOutcome", "full_parts"]


class TransferOutcome(Enum):
    """The result of a table message."""

    APPLIED = "applied"
    """The copy is at a newer version now."""
    STAGED = "staged"
    """The part was kept; other parts are missing."""
    STALE = "stale"
    """The copy is as new or newer."""
    REQUEST = "request"
    """The message does not fit the copy: request the missing changes."""
    REFUSED = "refused"
    """The sender is not a source, or the message exceeds a limit."""


class TableUpdate(NamedTuple):
    """The change by a message: conjunctions, and the SHBs that have an entry in the table."""

    outcome: TransferOutcome
    added: tuple[Conjunction, ...] = ()
    removed: tuple[Conjunction, ...] = ()
    added_hosts: tuple[ShbId, ...] = ()
    removed_hosts: tuple[ShbId, ...] = ()


class TableSender:
    """A broker's own table, with the last deltas that led to it."""

    def __init__(self, name: TableId, version: int, *, log_max: int, bytes_max: int) -> None:
        self.table = SubscriptionTable(name, version)
        self._log: deque[TableDelta] = deque(maxlen=log_max)
        self._bytes_max = bytes_max

    @property
    def deltas(self) -> Collection[TableDelta]:
        """The last deltas, oldest first."""
        return self._log

    def advance(self, delta: TableDelta) -> TableDelta:
        """Apply a delta and return it, to be sent to all holders of a copy."""
        fits = self.table.apply(delta)
        assert fits, "a broker's own delta fits its own table"
        self._log.append(delta)
        return delta

    def rename(self, name: TableId) -> None:
        """Rename the table, so that no copy is continued after its base has changed (R13).

        The version grows, so that every holder learns from the heartbeat that its copy is old.
        """
        self.table.rename(name)
        self._log.clear()

    def answer(self, request: TableRequest) -> tuple[TableDelta, ...] | tuple[TableFull, ...]:
        """Return the messages that bring the requester's copy to the current version."""
        table = self.table
        if request.have == table.name:
            if request.version == table.version:
                return ()
            if self._log and self._log[0].base <= request.version < table.version:
                return tuple(delta for delta in self._log if delta.base >= request.version)
        return full_parts(table, self._bytes_max)

    def state(self) -> TableState:
        """Return the state of the table for the heartbeat."""
        return TableState(self.table.name.direction, self.table.version, self.table.digest)


class TableReceiver:
    """The copy of a table of one broker in one incarnation; None until it is complete."""

    def __init__(self) -> None:
        self.table: SubscriptionTable | None = None
        self._parts: dict[int, TableFull] = {}

    def put(self, table: SubscriptionTable) -> None:
        """Hold a table that was merged here."""
        self.table = table

    def request(self, direction: str) -> TableRequest:
        """Return the request for the changes since the version of the copy."""
        if self.table is None:
            return TableRequest(direction)
        return TableRequest(direction, self.table.name, self.table.version)

    def take(self, message: TableFull | TableDelta) -> TableUpdate:
        """Apply a message or stage it, if it fits."""
        if isinstance(message, TableDelta):
            return self._take_delta(message)
        return self._take_part(message)

    def compare_state(self, state: TableState) -> TableUpdate:
        """Compare the copy with the state in a heartbeat."""
        table = self.table
        if table is None or table.version < state.version:
            return TableUpdate(TransferOutcome.REQUEST)
        if table.version == state.version and table.digest != state.digest:
            return self.drop(TransferOutcome.REQUEST)
        return TableUpdate(TransferOutcome.STALE)

    def drop(self, outcome: TransferOutcome = TransferOutcome.APPLIED) -> TableUpdate:
        """Drop the copy, which is always safe, and return what is removed."""
        table, self.table = self.table, None
        self._parts = {}
        return TableUpdate(outcome) if table is None else _replaced(table, None, outcome)

    def unstage(self) -> None:
        """Drop the staged parts, because the missing ones will not arrive."""
        self._parts = {}

    def _take_delta(self, delta: TableDelta) -> TableUpdate:
        table = self.table
        if table is not None and delta.table.shape_version < table.name.shape_version:
            return TableUpdate(TransferOutcome.STALE)
        if table is None or delta.table != table.name:
            return TableUpdate(TransferOutcome.REQUEST)
        if delta.version <= table.version:
            return TableUpdate(TransferOutcome.STALE)
        if delta.base != table.version:
            return TableUpdate(TransferOutcome.REQUEST)
        new = tuple(shb for shb, _ in delta.entries if shb not in table.entries)
        if not table.apply(delta):
            # the same base version and another state: this copy is corrupt
            return self.drop(TransferOutcome.REQUEST)
        return TableUpdate(
            TransferOutcome.APPLIED,
            tuple(map(conjunction_of, delta.added)),
            tuple(map(conjunction_of, delta.removed)),
            new,
            delta.removed_hosts,
        )

    def _take_part(self, part: TableFull) -> TableUpdate:
        if not 0 <= part.part < part.parts <= TABLE_PARTS_MAX:
            return TableUpdate(TransferOutcome.REFUSED)
        table = self.table
        if table is not None and part.table.shape_version < table.name.shape_version:
            return TableUpdate(TransferOutcome.STALE)
        if table is not None and table.name == part.table:
            newer = part.version > table.version
            repairs = part.version == table.version and part.digest != table.digest
            if not (newer or repairs):
                return TableUpdate(TransferOutcome.STALE)
        staged = next(iter(self._parts.values()), None)
        if staged is not None and _whole(staged) != _whole(part):
            if staged.table == part.table and staged.version > part.version:
                return TableUpdate(TransferOutcome.STALE)
            self._parts = {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return TableUpdate(TransferOutcome.STAGED)
        return self._complete()

    def _complete(self) -> TableUpdate:
        """Replace the copy by the staged parts in one step."""
        parts, self._parts = self._parts, {}
        made = SubscriptionTable.of(parts[number] for number in sorted(parts))
        if made is None:
            return TableUpdate(TransferOutcome.REQUEST)
        table, self.table = self.table, made
        return _replaced(table, made, TransferOutcome.APPLIED)


def _whole(part: TableFull) -> tuple[TableId, int, int, int]:
    """Return the fields that are equal in all parts of one table."""
    return part.table, part.version, part.parts, part.digest


def _replaced(
    old: SubscriptionTable | None, new: SubscriptionTable | None, outcome: TransferOutcome
) -> TableUpdate:
    before = {} if old is None else old.conjunctions
    after = {} if new is None else new.conjunctions
    hosts_before = {} if old is None else old.entries
    hosts_after = {} if new is None else new.entries
    return TableUpdate(
        outcome,
        tuple(conjunction for text, conjunction in after.items() if text not in before),
        tuple(conjunction for text, conjunction in before.items() if text not in after),
        tuple(shb for shb in hosts_after if shb not in hosts_before),
        tuple(shb for shb in hosts_before if shb not in hosts_after),
    )


# --- splitting a table into parts ---------------------------------------------------------------


class _TablePart:
    """A part that is being filled."""

    def __init__(self) -> None:
        self.bytes = 0
        self.conjunctions: list[str] = []
        self.entries: list[tuple[ShbId, VectorEntry]] = []
        self.known: list[tuple[PubendId, int]] = []
        self.late: dict[PubendId, list[ShbId]] = {}

    def add(self, item: _TableItem) -> None:
        self.bytes += item.bytes
        if item.entry is not None:
            self.entries.append(item.entry)
        elif item.known is not None:
            self.known.append(item.known)
        elif item.late is not None:
            self.late.setdefault(item.late[0], []).append(item.late[1])
        else:
            self.conjunctions.append(item.conjunction)


class _TableItem(NamedTuple):
    """One item of a table with its approximate size in bytes."""

    bytes: int
    conjunction: str = ""
    entry: tuple[ShbId, VectorEntry] | None = None
    known: tuple[PubendId, int] | None = None
    late: tuple[PubendId, ShbId] | None = None


_OVERHEAD = 32
"""The greatest number of bytes of an item besides its texts."""


def full_parts(table: SubscriptionTable, bytes_max: int) -> tuple[TableFull, ...]:
    """Return a table as messages of about ``bytes_max`` bytes; one long item may exceed that."""
    filled = [_TablePart()]
    for item in _items(table):
        if filled[-1].bytes and filled[-1].bytes + item.bytes > bytes_max:
            filled.append(_TablePart())
        filled[-1].add(item)
    return tuple(
        TableFull(
            table=table.name,
            version=table.version,
            part=number,
            parts=len(filled),
            conjunctions=tuple(part.conjunctions),
            entries=tuple(part.entries),
            known=tuple(part.known),
            late=tuple((pubend, tuple(shbs)) for pubend, shbs in part.late.items()),
            digest=table.digest,
        )
        for number, part in enumerate(filled)
    )


def _items(table: SubscriptionTable) -> Iterator[_TableItem]:
    """Yield all items of a table in a fixed order."""
    for text in sorted(table.conjunctions):
        yield _TableItem(4 * len(text) + _OVERHEAD, conjunction=text)
    for shb, entry in sorted(table.entries.items()):
        yield _TableItem(_bytes(shb) + _OVERHEAD, entry=(shb, entry))
    for pubend, version in sorted(table.known.items()):
        yield _TableItem(4 * len(pubend.name) + _OVERHEAD, known=(pubend, version))
    for pubend in sorted(table.late):
        for shb in sorted(table.late[pubend]):
            yield _TableItem(4 * len(pubend.name) + _bytes(shb) + _OVERHEAD, late=(pubend, shb))


def _bytes(shb: ShbId) -> int:
    return 4 * (len(shb.broker) + len(shb.cell))
