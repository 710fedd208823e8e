"""The tables that a broker has received over one edge (R20 to R22).

An edge holds the tables of several brokers. Each is a copy of one sender's table, and changes of
another sender never apply to it. (VT lets one broker of a node send for all, so a receiver must mix
the tables of two of them.) An edge has the union of their conjunctions and the greatest of their
claims.

A table is *current* while its broker is a source. It is *stale* when the source is replaced or its
session ends: then it belongs to the edge, but no longer to a cell. A stale table is current again
when its source returns in the same incarnation. When the broker sends in a new incarnation, or will
not return, its stale table is merged into the one *merged* table of the edge and never becomes
current again. Stale tables are dropped when current ones claim as much, or after a timeout.

So an edge has at most one table for each broker of its direction, and one more (I14). A leaf table
is complete for every pubend, also for those that its broker does not know. But the receiver of a
claim concludes that the SHB knows the pubend (R46). So the SHB of a peer, a broker of the own cell,
is claimed only for the pubends that this peer has announced.

When a cell gets a new neighbour that was behind another one before, the tables of the other one
still contain SHBs behind the new one. They may filter, because more conjunctions only let more
pass. They prove no location until they are made in the new shape (R13, R23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from gapless.content import Conjunction
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VectorEntry
from gapless.messages.overlay import FIRST_SHAPE, ShapeVersion, TableState
from gapless.messages.propagation import TableDelta, TableFull, TableRequest
from gapless.propagation.cover import Merge
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import merged, undominated
from gapless.propagation.table import UNKNOWN, SubscriptionTable, is_leaf, rank
from gapless.propagation.transfer import TableReceiver, TableUpdate, TransferOutcome

__all__ = ["Edge", "EdgeListener", "HeldTable", "LocationVersion", "greatest"]

_K = TypeVar("_K", Conjunction, ShbId)


class LocationVersion:
    """Counts the changes of SHB locations on all edges of a broker (R23)."""

    def __init__(self) -> None:
        self.revision = 0

    def advance(self) -> None:
        """Count a change."""
        self.revision += 1


class EdgeListener(Protocol):
    """Callback for changes of the tables of an edge."""

    def changed(self, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        """A table has changed; the change of the union of conjunctions may be empty."""


class HeldTable:
    """A table of an edge, or the entry for one that was requested."""

    __slots__ = (
        "cell",
        "incarnation",
        "known_to_peer",
        "number",
        "receiver",
        "sender",
        "since",
        "unclaimed",
    )

    def __init__(
        self,
        sender: BrokerId,
        cell: CellId | None,
        incarnation: int,
        number: int,
        *,
        is_peer: bool = False,
    ) -> None:
        self.sender = sender
        self.cell = cell
        """The cell of the sender; None for the merged stale table, which belongs to no cell."""
        self.incarnation = incarnation
        self.number = number
        self.receiver = TableReceiver()
        self.since: int | None = None
        """The time at which the table became stale; None while its broker is a source."""
        self.unclaimed: tuple[ShbId, PubendId] | None = None
        """An SHB and a pubend that no current table claimed at the last check."""
        self.known_to_peer: dict[PubendId, int] | None = {} if is_peer else None
        """The pubends that a peer has announced, by version, if this is the peer's leaf table.

        None for other tables: they list known pubends, or are this broker's own.
        """

    def __repr__(self) -> str:
        state = "current" if self.current else "incomplete" if self.table is None else "old"
        return f"<{state} {self.table!r}>"

    @classmethod
    def stale(cls, table: SubscriptionTable, since: int, number: int) -> HeldTable:
        """Return the entry of a merged stale table."""
        held = cls("", None, 0, number)
        held.receiver.put(table)
        held.mark_stale(since)
        return held

    @property
    def table(self) -> SubscriptionTable | None:
        """The table, or None until it is complete."""
        return self.receiver.table

    @property
    def current(self) -> bool:
        """Whether the table is complete and its broker is a source."""
        return self.since is None and self.table is not None

    def mark_stale(self, since: int) -> None:
        """The broker is no longer a source."""
        self.since = since

    def mark_current(self) -> None:
        """The broker is a source again."""
        self.since = None

    def is_undominated(
        self, current: Sequence[SubscriptionTable], matters: Callable[[PubendId], bool]
    ) -> bool:
        """Return whether the table has a claim that matters and that no current table has (R21)."""
        assert self.table is not None
        self.unclaimed = undominated(self.table, current, matters, self.unclaimed)
        return self.unclaimed is not None

    def note_known(self, pubend: PubendId, announcement_version: int) -> bool:
        """The peer has announced a pubend; return whether it had not done so before."""
        if self.known_to_peer is None:
            return False
        if self.known_to_peer.get(pubend, UNKNOWN) >= announcement_version:
            return False
        self.known_to_peer[pubend] = announcement_version
        return True

    def knows(self, pubend: PubendId, announcement_version: int) -> bool:
        """Return whether the table is complete for a pubend except for late SHBs."""
        assert self.table is not None
        if self.known_to_peer is None:
            return self.table.knows(pubend, announcement_version)
        return self.known_to_peer.get(pubend, UNKNOWN) >= announcement_version

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return the table's claim of an SHB for a pubend, None if the pubend is not known."""
        assert self.table is not None
        claim = self.table.claim(shb, pubend, announcement_version)
        if claim is None or claim.retired or self.knows(pubend, announcement_version):
            return claim
        return None


class Edge:
    """The tables of one edge: of a neighbour cell, or of the leaf of an SHB.

    ``settled`` is true after a full table came from a current source (R13), or if the edge stands
    for a settled one. It is not durable: all edges are unsettled after a restart.
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
        """Whether this is the edge to the leaf of another broker of the own cell."""
        self.settled = False
        self.revision = 0
        self._listeners: list[EdgeListener] = []
        self._shape_version = FIRST_SHAPE
        """The least shape of the neighbour cell in which a table proves locations of SHBs."""
        self._location_version = location_version
        self._index = index
        self._budget = budget
        self._merge = merge
        self._held: dict[BrokerId, HeldTable] = {}
        self._merged_stale: HeldTable | None = None
        self._conjunctions: dict[Conjunction, int] = {}
        self._hosts: dict[ShbId, int] = {}

    # --- tables ------------------------------------------------------------------------------

    @property
    def conjunctions(self) -> Mapping[Conjunction, int]:
        """The union of all tables' conjunctions, counted."""
        return self._conjunctions

    @property
    def hosts(self) -> Mapping[ShbId, int]:
        """The SHBs that have an entry in any table, counted."""
        return self._hosts

    def held(self) -> Iterator[HeldTable]:
        """Yield the complete tables, the merged stale table last."""
        for held in self._held.values():
            if held.table is not None:
                yield held
        if self._merged_stale is not None:
            yield self._merged_stale

    def tables(self) -> tuple[SubscriptionTable, ...]:
        """Return the complete tables, the merged stale table last."""
        return tuple(held.table for held in self.held() if held.table is not None)

    def held_of(self, cell: CellId) -> tuple[HeldTable, ...]:
        """Return the current tables of the brokers of a cell."""
        return tuple(held for held in self.held() if held.current and held.cell == cell)

    def cells(self) -> tuple[CellId, ...]:
        """Return the cells of the current tables, sorted."""
        return tuple(sorted({held.cell for held in self.held() if held.current and held.cell}))

    @property
    def outdated(self) -> bool:
        """Whether some complete table is stale."""
        return any(not held.current for held in self.held())

    @property
    def merged_stale(self) -> SubscriptionTable | None:
        """The table into which stale ones were merged."""
        return None if self._merged_stale is None else self._merged_stale.table

    # --- locations of SHBs (R13, R23) --------------------------------------------------------

    def distrust_before(self, shape_version: ShapeVersion) -> None:
        """SHBs may have moved: only tables of this shape version or later prove locations."""
        self._shape_version = shape_version
        self._touch(moved=True)

    def unsettle(self) -> None:
        """Other SHBs may be behind the edge: filter nothing until a full table comes (RS-37)."""
        self.settled = False
        self._touch(moved=True)

    def locating_tables(self) -> tuple[HeldTable, ...]:
        """Return the complete tables that prove locations of SHBs."""
        return tuple(
            held
            for held in self.held()
            if held.table is not None and held.table.name.shape_version >= self._shape_version
        )

    def locates(self, shb: ShbId) -> bool:
        """Return whether a table proves that an SHB is behind this edge."""
        if self._shape_version == FIRST_SHAPE:
            return shb in self._hosts
        return any(
            held.table is not None and shb in held.table.entries for held in self.locating_tables()
        )

    def entry(self, shb: ShbId) -> VectorEntry | None:
        """Return the greatest entry of an SHB."""
        return greatest(table.entries.get(shb) for table in self.tables())

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return the greatest claim of an SHB for a pubend (R22)."""
        return greatest(held.claim(shb, pubend, announcement_version) for held in self.held())

    # --- sources -----------------------------------------------------------------------------

    def source(
        self, sender: BrokerId, cell: CellId, incarnation: int, direction: str, now: int
    ) -> TableRequest:
        """Make a broker a source; return the request to send to it."""
        held = self._held.get(sender)
        if held is not None and held.incarnation == incarnation:
            if held.since is not None:
                held.mark_current()
                self._touch(moved=True)
            return held.receiver.request(direction)
        if held is not None:
            self._merge_held(held, now)
        self._held[sender] = HeldTable(
            sender, cell, incarnation, self._index.number(), is_peer=self.is_peer
        )
        return TableRequest(direction)

    def mark_stale(self, sender: BrokerId, now: int) -> None:
        """A broker is no longer a source: its table becomes stale."""
        held = self._held.get(sender)
        if held is None or held.since is not None:
            return
        held.receiver.unstage()
        if held.table is None:
            self._merge_held(held, now)
        else:
            held.mark_stale(now)
            self._touch(moved=True)

    def merge_stale(self, sender: BrokerId, now: int) -> None:
        """A broker will not be a source again: merge its table into the merged stale table."""
        held = self._held.get(sender)
        if held is not None:
            self._merge_held(held, now)

    def sources(self) -> tuple[BrokerId, ...]:
        """Return the brokers that are sources, also those with incomplete tables."""
        return tuple(held.sender for held in self._held.values() if held.since is None)

    def senders(self) -> tuple[tuple[BrokerId, CellId | None], ...]:
        """Return the brokers that have a table here of their own, with their cells."""
        return tuple((held.sender, held.cell) for held in self._held.values())

    def note_known(self, sender: BrokerId, pubend: PubendId, announcement_version: int) -> bool:
        """A broker has announced a pubend; return whether its SHB is newly claimed for it."""
        held = self._held.get(sender)
        if held is None or not held.note_known(pubend, announcement_version):
            return False
        self._touch(moved=False)
        return True

    # --- messages from sources ---------------------------------------------------------------

    def receive(self, sender: BrokerId, message: TableFull | TableDelta) -> TransferOutcome:
        """Take a message from a source; refuse it from any other broker."""
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
        """Compare the copy of a source's table with the state in its heartbeat."""
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
                self._discard(self._merged_stale)  # the SHB's newer incarnation replaces it
        elif before is not None and held.table is None:  # the copy was corrupt and dropped
            self._index.change(held.number, (), update.removed)
            self._shift(update, moved=True)
        return update.outcome

    # --- stale tables ------------------------------------------------------------------------

    def drop_dominated(self, matters: Callable[[PubendId], bool]) -> None:
        """Drop the stale tables whose claims that matter are in current tables too (R21).

        A pubend matters if its events go over this edge: if it is not behind the edge.
        """
        current = [held.table for held in self.held() if held.current and held.table is not None]
        if self.leaf is not None or not current:
            return  # a stale leaf table is dropped when the SHB's new incarnation sends one
        for held in tuple(self.held()):
            if held.current or held.table is None:
                continue
            if not held.is_undominated(current, matters):
                self._discard(held)

    def expire(self, before: int) -> None:
        """Drop the tables that became stale before a time or at it."""
        for held in tuple(self.held()):
            if held.since is not None and held.since <= before:
                self._discard(held)

    def inherit(self, other: Edge, now: int, *, same: bool = False) -> None:
        """Merge the tables of a removed edge; its cells, or exactly the ``same``, are behind this."""
        assert self.leaf is None, "a leaf edge has tables of its own SHB only"
        self.settled |= same and other.settled
        tables = other.tables()
        if tables:
            self._merge_into_stale(tables, now)

    def clear(self) -> None:
        """Drop all tables: the edge is removed (R13)."""
        for held in (*self._held.values(), *self.held()):
            self._discard(held)

    def _merge_held(self, held: HeldTable, now: int) -> None:
        """Remove a broker's entry and keep its table merged; a leaf table is kept unchanged."""
        table = held.table
        since = now if held.since is None else held.since
        if table is None:
            self._discard(held)
        elif self.leaf is not None:
            if self._merged_stale is not None:
                self._discard(self._merged_stale)
            del self._held[held.sender]
            held.mark_stale(since)
            self._merged_stale = held
            self._touch(moved=True)
        else:
            self._merge_into_stale((table,), since, held)

    def _merge_into_stale(
        self, tables: tuple[SubscriptionTable, ...], since: int, held: HeldTable | None = None
    ) -> None:
        """Merge tables into the merged stale table; ``held`` is their entry if this edge had it."""
        old = tables if self.merged_stale is None else (self.merged_stale, *tables)
        since = max(since, 0 if self._merged_stale is None else self._merged_stale.since or 0)
        made = merged(self.name, old, budget=self._budget, merge=self._merge)
        merged_stale = HeldTable.stale(made, since, self._index.number())
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

    # --- listeners ---------------------------------------------------------------------------

    def add_listener(self, listener: EdgeListener) -> None:
        """Call a listener with the changes from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: EdgeListener) -> None:
        """Call a listener no more."""
        self._listeners.remove(listener)

    # --- union of the tables -----------------------------------------------------------------

    def _shift(self, update: TableUpdate, *, moved: bool) -> None:
        """Count a change of one table and call the listeners with the change of the union."""
        before = self._conjunctions.keys()
        added = [one for one in dict.fromkeys(update.added) if one not in before]
        _count(self._conjunctions, update.added, 1)
        removed = _count(self._conjunctions, update.removed, -1)
        _count(self._hosts, update.added_hosts, 1)
        _count(self._hosts, update.removed_hosts, -1)
        self._touch(moved=moved, added=added, removed=removed)

    def _touch(
        self, *, moved: bool, added: Sequence[Conjunction] = (), removed: Sequence[Conjunction] = ()
    ) -> None:
        self.revision += 1
        if moved:
            self._location_version.advance()
        for listener in self._listeners:
            listener.changed(added, removed)


def greatest(entries: Iterable[VectorEntry | None]) -> VectorEntry | None:
    """Return the greatest of some entries of one SHB, None if there is none."""
    return max((entry for entry in entries if entry is not None), key=rank, default=None)


def _count(counts: dict[_K, int], keys: Iterable[_K], step: int) -> list[_K]:
    """Count keys up or down; return those whose count is now zero."""
    removed = []
    for key in keys:
        counts[key] = counts.get(key, 0) + step
        if not counts[key]:
            del counts[key]
            removed.append(key)
    return removed
