"""What a broker holds of one edge: the tables that came over it (R20 to R22).

Tables of several brokers stand side by side, each one sender's copy, never continued by another's
changes (VT lets one broker of a node speak for all; then a receiver must mix what two of them
said). Together they mean the union of their conjunctions and the greatest of their claims.

A table is *current* while its broker is a source. If the source is replaced or its session ends the
table is *old*: it belongs to the edge, but no longer to a cell. An old table is current again when
its source returns in the same life. When the broker says something in a new life, or will not
return, its old table is joined into the one *legacy* table of the edge, and never becomes current
again. Old tables go when current ones claim as much, and after a time.

So an edge has at most one table a broker of its direction, and one more (I14).

A host's table is complete for every pubend, also for those that its broker has not heard of. But who
is told of a claim takes it that the host knows the pubend (R46). So the host of a peer, a broker of the
own cell, is claimed for the pubends that this peer has said it knows.

When a cell gets a new neighbour that was behind an old one before, the tables of the old one still
name hosts that lie behind the new one. They may filter, for more conjunctions only let more pass,
but they say nothing of places until they were made in the new shape (R13, R23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from gapless.content import Conjunction
from gapless.core.ids import BrokerId, CellId, Entry, PubendId, ShbId
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableWant
from gapless.propagation.cover import Merge
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import joined, undominated
from gapless.propagation.table import UNKNOWN, Table, is_leaf, rank
from gapless.propagation.transfer import Outcome, TableReceiver, Update

__all__ = ["Edge", "Held", "Places", "Watcher", "greatest"]

_K = TypeVar("_K", Conjunction, ShbId)


class Places:
    """Counts changes of what the edges of a broker tell about where hosts are (R23)."""

    def __init__(self) -> None:
        self.revision = 0


class Watcher(Protocol):
    """Who wants to know what changes on an edge."""

    def changed(self, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        """A table changed, and with it the union of the edge's conjunctions, maybe by nothing."""


class Held:
    """A table of an edge, or the place for one that was asked for."""

    __slots__ = ("cell", "heard", "life", "number", "receiver", "sender", "since", "witness")

    def __init__(self, sender: BrokerId, cell: CellId | None, life: int, number: int) -> None:
        self.sender = sender
        self.cell = cell
        """The cell that it speaks for; None for the legacy table, which speaks for none."""
        self.life = life
        self.number = number
        self.receiver = TableReceiver()
        self.since: int | None = None
        """Since when it is old; None while it is current."""
        self.witness: tuple[ShbId, PubendId] | None = None
        """What no current table claimed when that was last looked at."""
        self.heard: dict[PubendId, int] | None = None
        """The pubends that a peer has said it knows, by version, if this is its host's table.

        None for other tables: they say it themselves, or are this broker's own.
        """

    def __repr__(self) -> str:
        state = "current" if self.current else "incomplete" if self.table is None else "old"
        return f"<{state} {self.table!r}>"

    @property
    def table(self) -> Table | None:
        """The table, once it is complete."""
        return self.receiver.table

    @property
    def current(self) -> bool:
        """Whether it is a table and its broker is a source."""
        return self.since is None and self.table is not None

    def knows(self, pubend: PubendId, announcement_version: int) -> bool:
        """Say whether it is complete for a pubend that its sender knows, but for the late."""
        assert self.table is not None
        if self.heard is None:
            return self.table.knows(pubend, announcement_version)
        return self.heard.get(pubend, UNKNOWN) >= announcement_version

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> Entry | None:
        """Return up to when a host is served for a pubend by it, if the host knows the pubend."""
        assert self.table is not None
        claim = self.table.claim(shb, pubend, announcement_version)
        if claim is None or claim.retired or self.knows(pubend, announcement_version):
            return claim
        return None


class Edge:
    """The tables of one edge: of a neighbour cell, or of the leaf of a subscriber host.

    ``settled`` says that a full table came from a current source since the edge is there (R13); it
    is not kept over a restart, so an edge that is new in this life is unsettled.
    """

    def __init__(
        self,
        name: str,
        leaf: ShbId | None,
        *,
        places: Places,
        index: TableIndex,
        budget: int,
        merge: Merge,
        is_peer: bool = False,
    ) -> None:
        self.name = name
        self.leaf = leaf
        self.is_peer = is_peer
        """Whether it leads to the leaf of another broker of the own cell."""
        self.settled = False
        self.revision = 0
        self.watchers: list[Watcher] = []
        self._shape_version = 1
        """In which shape of the neighbour cell tables must be made to say where hosts are."""
        self._places = places
        self._index = index
        self._budget = budget
        self._merge = merge
        self._held: dict[BrokerId, Held] = {}
        self._legacy: Held | None = None
        self._conjunctions: dict[Conjunction, int] = {}
        self._hosts: dict[ShbId, int] = {}

    # --- what it holds -----------------------------------------------------------------------

    @property
    def conjunctions(self) -> Mapping[Conjunction, int]:
        """The union of all tables' conjunctions, counted."""
        return self._conjunctions

    @property
    def hosts(self) -> Mapping[ShbId, int]:
        """The hosts of which some table has an entry, counted."""
        return self._hosts

    def held(self) -> Iterator[Held]:
        """Go through the complete tables, the legacy table last."""
        for held in self._held.values():
            if held.table is not None:
                yield held
        if self._legacy is not None:
            yield self._legacy

    def tables(self) -> tuple[Table, ...]:
        """Return the complete tables, the legacy table last."""
        return tuple(held.table for held in self.held() if held.table is not None)

    def held_of(self, cell: CellId) -> tuple[Held, ...]:
        """Return the current tables of the brokers of a cell."""
        return tuple(held for held in self.held() if held.current and held.cell == cell)

    def cells(self) -> tuple[CellId, ...]:
        """Return the cells of which there are current tables, in their order."""
        return tuple(sorted({held.cell for held in self.held() if held.current and held.cell}))

    @property
    def outdated(self) -> bool:
        """Whether there are tables that are not current."""
        return any(not held.current for held in self.held())

    @property
    def legacy(self) -> Table | None:
        """The table into which old ones were joined."""
        return None if self._legacy is None else self._legacy.table

    # --- where hosts are (R13, R23) ----------------------------------------------------------

    def doubt(self, shape_version: int) -> None:
        """Hosts behind this edge may have moved: believe tables of that shape and later ones."""
        self._shape_version = shape_version
        self._touch(moved=True)

    def placing(self) -> tuple[Held, ...]:
        """Return the complete tables that say where hosts are."""
        return tuple(
            held
            for held in self.held()
            if held.table is not None and held.table.name.shape_version >= self._shape_version
        )

    def places(self, shb: ShbId) -> bool:
        """Say whether a table shows that a host is behind this edge."""
        if self._shape_version == 1:
            return shb in self._hosts
        return any(held.table is not None and shb in held.table.entries for held in self.placing())

    def entry(self, shb: ShbId) -> Entry | None:
        """Return the greatest entry of a host."""
        return greatest(table.entries.get(shb) for table in self.tables())

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> Entry | None:
        """Return the greatest claim of a host for a pubend (R22)."""
        return greatest(held.claim(shb, pubend, announcement_version) for held in self.held())

    # --- sources -----------------------------------------------------------------------------

    def source(
        self, sender: BrokerId, cell: CellId, life: int, direction: str, now: int
    ) -> TableWant:
        """Take a broker as a source, again or anew; return what to ask it for."""
        held = self._held.get(sender)
        if held is not None and held.life == life:
            if held.since is not None:
                held.since = None
                self._touch(moved=True)
            return held.receiver.want(direction)
        if held is not None:
            self._put_away(held, now)
        held = self._held[sender] = Held(sender, cell, life, self._index.number())
        held.heard = {} if self.is_peer else None
        return TableWant(direction)

    def lapse(self, sender: BrokerId, now: int) -> None:
        """A broker is no source any more: its table is old."""
        held = self._held.get(sender)
        if held is None or held.since is not None:
            return
        held.receiver.unstage()
        if held.table is None:
            self._put_away(held, now)
        else:
            held.since = now
            self._touch(moved=True)

    def fold(self, sender: BrokerId, now: int) -> None:
        """A broker will not be a source again: its table, if it has one, becomes legacy."""
        held = self._held.get(sender)
        if held is not None:
            self._put_away(held, now)

    def sources(self) -> tuple[BrokerId, ...]:
        """Return the brokers that are sources, whether their tables are complete or not."""
        return tuple(held.sender for held in self._held.values() if held.since is None)

    def hear(self, sender: BrokerId, pubend: PubendId, announcement_version: int) -> bool:
        """A broker has said that it knows a pubend; say whether its host is claimed for it by that."""
        held = self._held.get(sender)
        if held is None or held.heard is None:
            return False
        if held.heard.get(pubend, UNKNOWN) >= announcement_version:
            return False
        held.heard[pubend] = announcement_version
        self._touch(moved=False)
        return True

    # --- tables that come --------------------------------------------------------------------

    def receive(self, sender: BrokerId, message: TableFull | TableDelta) -> Outcome:
        """Take a message from a source; another broker's is refused."""
        held = self._held.get(sender)
        name = message.table
        if (
            held is None
            or held.since is not None
            or (name.broker, name.life) != (sender, held.life)
        ):
            return Outcome.REFUSED
        if is_leaf(name) if self.leaf is None else name.direction != str(self.leaf):
            return Outcome.REFUSED
        before = held.table
        return self._updated(held, before, held.receiver.take(message))

    def told(self, sender: BrokerId, state: TableState) -> Outcome:
        """Compare a source's copy with what its heartbeat says."""
        held = self._held.get(sender)
        if held is None or held.since is not None:
            return Outcome.REFUSED
        before = held.table
        return self._updated(held, before, held.receiver.told(state))

    def _updated(self, held: Held, before: Table | None, update: Update) -> Outcome:
        if update.outcome is Outcome.APPLIED:
            moved = not self.settled or bool(update.arrived or update.gone)
            self.settled = True
            self._index.change(held.number, update.added, update.removed)
            self._shift(update, moved=moved)
            if self.leaf is not None and self._legacy is not None:
                self._discard(self._legacy)  # a host's newer life says all there is to say
        elif before is not None and held.table is None:  # it was damaged and dropped
            self._index.change(held.number, (), update.removed)
            self._shift(update, moved=True)
        return update.outcome

    # --- old tables --------------------------------------------------------------------------

    def drop_dominated(self, matters: Callable[[PubendId], bool]) -> None:
        """Let old tables go of which the current ones claim all that matters (R21).

        A pubend matters if its events go over this edge, that is, unless it lies behind it.
        """
        current = [held.table for held in self.held() if held.current and held.table is not None]
        if self.leaf is not None or not current:
            return  # a host's old table goes when the host says something in its new life
        for held in tuple(self.held()):
            if held.current or held.table is None:
                continue
            held.witness = undominated(held.table, current, matters, held.witness)
            if held.witness is None:
                self._discard(held)

    def expire(self, before: int) -> None:
        """Let tables go that were old before a time."""
        for held in tuple(self.held()):
            if held.since is not None and held.since <= before:
                self._discard(held)

    def inherit(self, other: Edge, now: int) -> None:
        """Keep as legacy what came over an edge that is removed and led where this one leads."""
        assert self.leaf is None, "a host's tables come from nobody else"
        tables = other.tables()
        if tables:
            self._keep_as_legacy(tables, now)

    def clear(self) -> None:
        """Forget everything: the edge is removed (R13)."""
        for held in (*self._held.values(), *self.held()):
            self._discard(held)

    def _put_away(self, held: Held, now: int) -> None:
        """Take a broker's table out of its place; keep what it says as legacy."""
        table = held.table
        since = now if held.since is None else held.since
        if table is None:
            self._discard(held)
        elif self.leaf is not None:
            if self._legacy is not None:
                self._discard(self._legacy)
            del self._held[held.sender]
            held.since = since
            self._legacy = held
            self._touch(moved=True)
        else:
            self._keep_as_legacy((table,), since, held)

    def _keep_as_legacy(
        self, tables: tuple[Table, ...], since: int, held: Held | None = None
    ) -> None:
        """Join tables into the legacy table; ``held`` is where they were, if it was here."""
        old = tables if self.legacy is None else (self.legacy, *tables)
        since = max(since, 0 if self._legacy is None else self._legacy.since or 0)
        made = joined(self.name, old, budget=self._budget, merge=self._merge)
        legacy = Held("", None, 0, self._index.number())
        legacy.since = since
        legacy.receiver.table = made
        self._admit(legacy, made)
        for gone in (held, self._legacy):
            if gone is not None:
                self._discard(gone)
        self._legacy = legacy

    def _admit(self, held: Held, table: Table) -> None:
        added = tuple(table.conjunctions.values())
        self._index.change(held.number, added, ())
        self._shift(Update(Outcome.APPLIED, added, arrived=tuple(table.entries)), moved=True)

    def _discard(self, held: Held) -> None:
        update = held.receiver.drop()
        if self._legacy is held:
            self._legacy = None
        elif self._held.get(held.sender) is held:
            del self._held[held.sender]
        else:
            return
        self._index.drop(held.number)
        self._shift(update, moved=True)

    # --- what the tables mean together -------------------------------------------------------

    def _shift(self, update: Update, *, moved: bool) -> None:
        """Count a change of one table, and tell the watchers what it means for the edge."""
        before = self._conjunctions.keys()
        added = [one for one in dict.fromkeys(update.added) if one not in before]
        _count(self._conjunctions, update.added, 1)
        removed = _count(self._conjunctions, update.removed, -1)
        _count(self._hosts, update.arrived, 1)
        _count(self._hosts, update.gone, -1)
        self._touch(moved=moved, added=added, removed=removed)

    def _touch(
        self,
        *,
        moved: bool,
        added: Iterable[Conjunction] = (),
        removed: Iterable[Conjunction] = (),
    ) -> None:
        self.revision += 1
        if moved:
            self._places.revision += 1
        for watcher in self.watchers:
            watcher.changed(added, removed)


def greatest(entries: Iterable[Entry | None]) -> Entry | None:
    """Return the greatest of some entries of one host, None if there is none."""
    return max((entry for entry in entries if entry is not None), key=rank, default=None)


def _count(counts: dict[_K, int], keys: Iterable[_K], step: int) -> list[_K]:
    """Count keys up or down; return those that are not there any more."""
    gone = []
    for key in keys:
        counts[key] = counts.get(key, 0) + step
        if not counts[key]:
            del counts[key]
            gone.append(key)
    return gone
