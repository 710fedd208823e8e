"""How a table comes from the broker that says it to those that hold a copy (R19).

A sender keeps its last deltas. Asked from a version on, it answers with the deltas since, or with
the whole table, in parts. A receiver stages parts until all are there, and applies a delta only at
exactly its base version: equal versions of one sender's table are equal states, so the base version
is VT's constraint vector in one number (VT 4.1.5, 4.2.2). All messages may be lost, repeated and
reordered: what does not fit is left, and asked for (VT 4.3.2 to 4.3.4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from gapless.content import Conjunction
from gapless.core.ids import Entry, PubendId, ShbId
from gapless.core.limits import TABLE_PARTS_MAX
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableId, TableWant
from gapless.propagation.table import Table, conjunction_of

__all__ = ["Outcome", "TableReceiver", "TableSender", "Update", "full_parts"]


class Outcome(Enum):
    """What became of a message that carries a table."""

    APPLIED = "applied"
    """The copy is at a newer version now."""
    STAGED = "staged"
    """A part was kept; others are missing."""
    STALE = "stale"
    """The copy is as new or newer; nothing to do."""
    WANT = "want"
    """It does not fit the copy: ask for what is missing."""
    REFUSED = "refused"
    """Nobody asked this broker, or the message is beyond a limit."""


class Update(NamedTuple):
    """What a message changed: conjunctions, and the hosts of which the table has an entry."""

    outcome: Outcome
    added: tuple[Conjunction, ...] = ()
    removed: tuple[Conjunction, ...] = ()
    arrived: tuple[ShbId, ...] = ()
    gone: tuple[ShbId, ...] = ()


class TableSender:
    """A broker's own table, with the last deltas that led to it."""

    def __init__(self, name: TableId, version: int, *, log_max: int, bytes_max: int) -> None:
        self.table = Table(name, version)
        self._log: deque[TableDelta] = deque(maxlen=log_max)
        self._bytes_max = bytes_max

    def advance(self, delta: TableDelta) -> TableDelta:
        """Go to the next version and return the delta, to be sent to all who hold a copy."""
        fits = self.table.apply(delta)
        assert fits, "a broker's own delta fits its own table"
        self._log.append(delta)
        return delta

    def rename(self, name: TableId) -> None:
        """Go on under another name: what it is made from has changed, so nobody may go on (R13).

        The version grows, so that heartbeats show every holder of a copy that it is old.
        """
        self.table.name = name
        self.table.version += 1
        self._log.clear()

    def answer(self, want: TableWant) -> tuple[TableDelta, ...] | tuple[TableFull, ...]:
        """Return what brings the asker's copy to the present version."""
        table = self.table
        if want.have == table.name:
            if want.version == table.version:
                return ()
            if self._log and self._log[0].base <= want.version < table.version:
                return tuple(delta for delta in self._log if delta.base >= want.version)
        return full_parts(table, self._bytes_max)

    def state(self) -> TableState:
        """Return what a heartbeat says of the table."""
        return TableState(self.table.name.direction, self.table.version, self.table.digest)


class TableReceiver:
    """A copy of the table of one broker in one life; None until it is complete."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self._parts: dict[int, TableFull] = {}

    def want(self, direction: str) -> TableWant:
        """Return what to ask for, from the version on that is here."""
        if self.table is None:
            return TableWant(direction)
        return TableWant(direction, self.table.name, self.table.version)

    def take(self, message: TableFull | TableDelta) -> Update:
        """Apply a message, stage it, or say that it does not fit."""
        if isinstance(message, TableDelta):
            return self._take_delta(message)
        return self._take_part(message)

    def told(self, state: TableState) -> Update:
        """Compare the copy with what a heartbeat says of the table."""
        table = self.table
        if table is None or table.version < state.version:
            return Update(Outcome.WANT)
        if table.version == state.version and table.digest != state.digest:
            return self.drop(Outcome.WANT)
        return Update(Outcome.STALE)

    def drop(self, outcome: Outcome = Outcome.APPLIED) -> Update:
        """Forget the copy, which is always safe, and say what that takes out."""
        table, self.table = self.table, None
        self._parts = {}
        return Update(outcome) if table is None else _replaced(table, None, outcome)

    def unstage(self) -> None:
        """Forget parts whose others will not come."""
        self._parts = {}

    def _take_delta(self, delta: TableDelta) -> Update:
        table = self.table
        if table is not None and delta.table.shape_version < table.name.shape_version:
            return Update(Outcome.STALE)
        if table is None or delta.table != table.name:
            return Update(Outcome.WANT)
        if delta.version <= table.version:
            return Update(Outcome.STALE)
        if delta.base != table.version:
            return Update(Outcome.WANT)
        new = tuple(shb for shb, _ in delta.entries if shb not in table.entries)
        if not table.apply(delta):
            # the same base version and another state: this copy is damaged
            return self.drop(Outcome.WANT)
        return Update(
            Outcome.APPLIED,
            tuple(map(conjunction_of, delta.added)),
            tuple(map(conjunction_of, delta.removed)),
            new,
            delta.forgotten,
        )

    def _take_part(self, part: TableFull) -> Update:
        if not 0 <= part.part < part.parts <= TABLE_PARTS_MAX:
            return Update(Outcome.REFUSED)
        table = self.table
        if table is not None and part.table.shape_version < table.name.shape_version:
            return Update(Outcome.STALE)
        if table is not None and table.name == part.table:
            newer = part.version > table.version
            repairs = part.version == table.version and part.digest != table.digest
            if not (newer or repairs):
                return Update(Outcome.STALE)
        staged = next(iter(self._parts.values()), None)
        if staged is not None and _whole(staged) != _whole(part):
            if staged.table == part.table and staged.version > part.version:
                return Update(Outcome.STALE)
            self._parts = {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return Update(Outcome.STAGED)
        return self._complete()

    def _complete(self) -> Update:
        """Replace the copy by the staged parts, in one step."""
        parts, self._parts = self._parts, {}
        made = Table.of(parts[number] for number in sorted(parts))
        if made is None:
            return Update(Outcome.WANT)
        table, self.table = self.table, made
        return _replaced(table, made, Outcome.APPLIED)


def _whole(part: TableFull) -> tuple[TableId, int, int, int]:
    """Return what all parts of one table have in common."""
    return part.table, part.version, part.parts, part.digest


def _replaced(old: Table | None, new: Table | None, outcome: Outcome) -> Update:
    gone = {} if old is None else old.conjunctions
    come = {} if new is None else new.conjunctions
    left = {} if old is None else old.entries
    arrived = {} if new is None else new.entries
    return Update(
        outcome,
        tuple(conjunction for text, conjunction in come.items() if text not in gone),
        tuple(conjunction for text, conjunction in gone.items() if text not in come),
        tuple(shb for shb in arrived if shb not in left),
        tuple(shb for shb in left if shb not in arrived),
    )


# --- cutting a table into parts -----------------------------------------------------------------


class _Part:
    """A part that is being filled."""

    def __init__(self) -> None:
        self.bytes = 0
        self.conjunctions: list[str] = []
        self.entries: list[tuple[ShbId, Entry]] = []
        self.known: list[tuple[PubendId, int]] = []
        self.late: dict[PubendId, list[ShbId]] = {}

    def add(self, item: _Item) -> None:
        self.bytes += item.bytes
        if item.entry is not None:
            self.entries.append(item.entry)
        elif item.known is not None:
            self.known.append(item.known)
        elif item.late is not None:
            self.late.setdefault(item.late[0], []).append(item.late[1])
        else:
            self.conjunctions.append(item.conjunction)


class _Item(NamedTuple):
    """One thing that a table says, with about as many bytes as it takes."""

    bytes: int
    conjunction: str = ""
    entry: tuple[ShbId, Entry] | None = None
    known: tuple[PubendId, int] | None = None
    late: tuple[PubendId, ShbId] | None = None


_OVERHEAD = 32
"""Bytes of numbers and of the frame around an item, at most."""


def full_parts(table: Table, bytes_max: int) -> tuple[TableFull, ...]:
    """Return a table as messages of about ``bytes_max`` bytes; more only for a single long text."""
    filled = [_Part()]
    for item in _items(table):
        if filled[-1].bytes and filled[-1].bytes + item.bytes > bytes_max:
            filled.append(_Part())
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


def _items(table: Table) -> Iterator[_Item]:
    """Go through all that a table says, in an order that depends on nothing else."""
    for text in sorted(table.conjunctions):
        yield _Item(4 * len(text) + _OVERHEAD, conjunction=text)
    for shb, entry in sorted(table.entries.items()):
        yield _Item(_bytes(shb) + _OVERHEAD, entry=(shb, entry))
    for pubend, version in sorted(table.known.items()):
        yield _Item(4 * len(pubend.name) + _OVERHEAD, known=(pubend, version))
    for pubend in sorted(table.late):
        for shb in sorted(table.late[pubend]):
            yield _Item(4 * len(pubend.name) + _bytes(shb) + _OVERHEAD, late=(pubend, shb))


def _bytes(shb: ShbId) -> int:
    return 4 * (len(shb.broker) + len(shb.cell))
