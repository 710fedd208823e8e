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
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VectorEntry
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableRequest
from gapless.propagation.cover import Merge
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import merged, undominated
from gapless.propagation.table import UNKNOWN, SubscriptionTable, is_leaf, rank
from gapless.propagation.transfer import TableReceiver, TableUpdate, TransferOutcome

__all__ = ["Edge", "EdgeListener", "HeldTable", "LocationVersion", "greatest"]

_K = TypeVar("_K", Conjunction, ShbId)


class LocationVersion:
    """Counts changes of what the edges of a broker tell about where hosts are (R23)."""

    def __init__(self) -> None:
        self.revision = 0


class EdgeListener(Protocol):
    """Who wants to know what changes on an edge."""

    def changed(self, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        """A table changed, and with it the union of the edge's conjunctions, maybe by nothing."""


class HeldTable:
    """A table of an edge, or the place for one that was asked for."""

    __slots__ = (
        "cell",
        "incarnation",
        "known_to_peer",
        "number",
        "receiver",
        "sender",
        "since",
        "witness",
    )

    def __init__(
        self, sender: BrokerId, cell: CellId | None, incarnation: int, number: int
    ) -> None:
        self.sender = sender
        self.cell = cell
        """The cell that it speaks for; None for the legacy table, which speaks for none."""
        self.incarnation = incarnation
        self.number = number
        self.receiver = TableReceiver()
        self.since: int | None = None
        """Since when it is old; None while it is current."""
        self.witness: tuple[ShbId, PubendId] | None = None
        """What no current table claimed when that was last looked at."""
        self.known_to_peer: dict[PubendId, int] | None = None
        """The pubends that a peer has said it knows, by version, if this is its host's table.

        None for other tables: they say it themselves, or are this broker's own.
        """

    def __repr__(self) -> str:
        state = "current" if self.current else "incomplete" if self.table is None else "old"
        return f"<{state} {self.table!r}>"

    @property
    def table(self) -> SubscriptionTable | None:
        """The table, once it is complete."""
        return self.receiver.table

    @property
    def current(self) -> bool:
        """Whether it is a table and its broker is a source."""
        return self.since is None and self.table is not None

    def knows(self, pubend: PubendId, announcement_version: int) -> bool:
        """Say whether it is complete for a pubend that its sender knows, but for the late."""
        assert self.table is not None
        if self.known_to_peer is None:
            return self.table.knows(pubend, announcement_version)
        return self.known_to_peer.get(pubend, UNKNOWN) >= announcement_version

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
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
        location_version: LocationVersion,
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
        self.listeners: list[EdgeListener] = []
        self._shape_version = 1
        """In which shape of the neighbour cell tables must be made to say where hosts are."""
        self._location_version = location_version
        self._index = index
        self._budget = budget
        self._merge = merge
        self._held: dict[BrokerId, HeldTable] = {}
        self._merged_stale: HeldTable | None = None
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

    def held(self) -> Iterator[HeldTable]:
        """Go through the complete tables, the legacy table last."""
        for held in self._held.values():
            if held.table is not None:
                yield held
        if self._merged_stale is not None:
            yield self._merged_stale

    def tables(self) -> tuple[SubscriptionTable, ...]:
        """Return the complete tables, the legacy table last."""
        return tuple(held.table for held in self.held() if held.table is not None)

    def held_of(self, cell: CellId) -> tuple[HeldTable, ...]:
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
    def merged_stale(self) -> SubscriptionTable | None:
        """The table into which old ones were joined."""
        return None if self._merged_stale is None else self._merged_stale.table

    # --- where hosts are (R13, R23) ----------------------------------------------------------

    def distrust_before(self, shape_version: int) -> None:
        """Hosts behind this edge may have moved: believe tables of that shape and later ones."""
        self._shape_version = shape_version
        self._touch(moved=True)

    def locating_tables(self) -> tuple[HeldTable, ...]:
        """Return the complete tables that say where hosts are."""
        return tuple(
            held
            for held in self.held()
            if held.table is not None and held.table.name.shape_version >= self._shape_version
        )

    def locates(self, shb: ShbId) -> bool:
        """Say whether a table shows that a host is behind this edge."""
        if self._shape_version == 1:
            return shb in self._hosts
        return any(
            held.table is not None and shb in held.table.entries for held in self.locating_tables()
        )

    def entry(self, shb: ShbId) -> VectorEntry | None:
        """Return the greatest entry of a host."""
        return greatest(table.entries.get(shb) for table in self.tables())

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return the greatest claim of a host for a pubend (R22)."""
        return greatest(held.claim(shb, pubend, announcement_version) for held in self.held())

    # --- sources -----------------------------------------------------------------------------

    def source(
        self, sender: BrokerId, cell: CellId, incarnation: int, direction: str, now: int
    ) -> TableRequest:
        """Take a broker as a source, again or anew; return what to ask it for."""
        held = self._held.get(sender)
        if held is not None and held.incarnation == incarnation:
            if held.since is not None:
                held.since = None
                self._touch(moved=True)
            return held.receiver.request(direction)
        if held is not None:
            self._merge_held(held, now)
        held = self._held[sender] = HeldTable(sender, cell, incarnation, self._index.number())
        held.known_to_peer = {} if self.is_peer else None
        return TableRequest(direction)

    def mark_stale(self, sender: BrokerId, now: int) -> None:
        """A broker is no source any more: its table is old."""
        held = self._held.get(sender)
        if held is None or held.since is not None:
            return
        held.receiver.unstage()
        if held.table is None:
            self._merge_held(held, now)
        else:
            held.since = now
            self._touch(moved=True)

    def merge_stale(self, sender: BrokerId, now: int) -> None:
        """A broker will not be a source again: its table, if it has one, becomes legacy."""
        held = self._held.get(sender)
        if held is not None:
            self._merge_held(held, now)

    def sources(self) -> tuple[BrokerId, ...]:
        """Return the brokers that are sources, whether their tables are complete or not."""
        return tuple(held.sender for held in self._held.values() if held.since is None)

    def note_known(self, sender: BrokerId, pubend: PubendId, announcement_version: int) -> bool:
        """A broker has said that it knows a pubend; say whether its host is claimed for it by that."""
        held = self._held.get(sender)
        if held is None or held.known_to_peer is None:
            return False
        if held.known_to_peer.get(pubend, UNKNOWN) >= announcement_version:
            return False
        held.known_to_peer[pubend] = announcement_version
        self._touch(moved=False)
        return True

    # --- tables that come --------------------------------------------------------------------

    def receive(self, sender: BrokerId, message: TableFull | TableDelta) -> TransferOutcome:
        """Take a message from a source; another broker's is refused."""
        held = self._held.get(sender)
        name = message.table
        if (
            held is None
            or held.since is not None
            or (name.broker, name.incarnation) != (sender, held.incarnation)
        ):
            return TransferOutcome.REFUSED
        if is_leaf(name) if self.leaf is None else name.direction != str(self.leaf):
            return TransferOutcome.REFUSED
        before = held.table
        return self._updated(held, before, held.receiver.take(message))

    def compare_state(self, sender: BrokerId, state: TableState) -> TransferOutcome:
        """Compare a source's copy with what its heartbeat says."""
        held = self._held.get(sender)
        if held is None or held.since is not None:
            return TransferOutcome.REFUSED
        before = held.table
        return self._updated(held, before, held.receiver.compare_state(state))

    def _updated(
        self, held: HeldTable, before: SubscriptionTable | None, update: TableUpdate
    ) -> TransferOutcome:
        if update.outcome is TransferOutcome.APPLIED:
            moved = not self.settled or bool(update.added_hosts or update.removed_hosts)
            self.settled = True
            self._index.change(held.number, update.added, update.removed)
            self._shift(update, moved=moved)
            if self.leaf is not None and self._merged_stale is not None:
                self._discard(self._merged_stale)  # a host's newer life says all there is to say
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
            self._merge_into_stale(tables, now)

    def clear(self) -> None:
        """Forget everything: the edge is removed (R13)."""
        for held in (*self._held.values(), *self.held()):
            self._discard(held)

    def _merge_held(self, held: HeldTable, now: int) -> None:
        """Take a broker's table out of its place; keep what it says as legacy."""
        table = held.table
        since = now if held.since is None else held.since
        if table is None:
            self._discard(held)
        elif self.leaf is not None:
            if self._merged_stale is not None:
                self._discard(self._merged_stale)
            del self._held[held.sender]
            held.since = since
            self._merged_stale = held
            self._touch(moved=True)
        else:
            self._merge_into_stale((table,), since, held)

    def _merge_into_stale(
        self, tables: tuple[SubscriptionTable, ...], since: int, held: HeldTable | None = None
    ) -> None:
        """Join tables into the legacy table; ``held`` is where they were, if it was here."""
        old = tables if self.merged_stale is None else (self.merged_stale, *tables)
        since = max(since, 0 if self._merged_stale is None else self._merged_stale.since or 0)
        made = merged(self.name, old, budget=self._budget, merge=self._merge)
        merged_stale = HeldTable("", None, 0, self._index.number())
        merged_stale.since = since
        merged_stale.receiver.table = made
        self._admit(merged_stale, made)
        for replaced in (held, self._merged_stale):
            if replaced is not None:
                self._discard(replaced)
        self._merged_stale = merged_stale

    def _admit(self, held: HeldTable, table: SubscriptionTable) -> None:
        added = tuple(table.conjunctions.values())
        self._index.change(held.number, added, ())
        self._shift(
            TableUpdate(TransferOutcome.APPLIED, added, added_hosts=tuple(table.entries)),
            moved=True,
        )

    def _discard(self, held: HeldTable) -> None:
        update = held.receiver.drop()
        if self._merged_stale is held:
            self._merged_stale = None
        elif self._held.get(held.sender) is held:
            del self._held[held.sender]
        else:
            return
        self._index.drop(held.number)
        self._shift(update, moved=True)

    # --- what the tables mean together -------------------------------------------------------

    def _shift(self, update: TableUpdate, *, moved: bool) -> None:
        """Count a change of one table, and tell the watchers what it means for the edge."""
        before = self._conjunctions.keys()
        added = [one for one in dict.fromkeys(update.added) if one not in before]
        _count(self._conjunctions, update.added, 1)
        removed = _count(self._conjunctions, update.removed, -1)
        _count(self._hosts, update.added_hosts, 1)
        _count(self._hosts, update.removed_hosts, -1)
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
            self._location_version.revision += 1
        for listener in self.listeners:
            listener.changed(added, removed)


def greatest(entries: Iterable[VectorEntry | None]) -> VectorEntry | None:
    """Return the greatest of some entries of one host, None if there is none."""
    return max((entry for entry in entries if entry is not None), key=rank, default=None)


def _count(counts: dict[_K, int], keys: Iterable[_K], step: int) -> list[_K]:
    """Count keys up or down; return those that are not there any more."""
    removed = []
    for key in keys:
        counts[key] = counts.get(key, 0) + step
        if not counts[key]:
            del counts[key]
            removed.append(key)
    return removed
