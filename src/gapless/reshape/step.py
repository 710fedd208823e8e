"""One step of the tree at this broker: the interface of the reshape operations (R13).

Theory of operation
-------------------
An operation on the tree (SHIFT, APPEND, DETACH, a change of members) ends, at every broker near it,
in one step: the broker gets another neighbourhood with a greater version. The neighbourhood is on
disk before anything depends on it. After a crash before that write the broker starts in the old
tree, after it in the new one. Then the components follow, in one step of the machine:

1. **Paths.** Each pubend gets the path that the new tree gives it, and is announced again.
2. **Tables.** A new edge is unsettled until a full table has come over it. The tables of a removed
   edge become stale tables of the edge behind which that cell lies now; if there is none, they are
   deleted. All tables that this broker sends get new ids, because they describe other sets of SHBs.
3. **Streams.** A receiver is fed only while both ends know the same shape of the cells between
   them. Other feeds end and are requested again. A cell that *gains* a neighbour raises its scope:
   silence that its brokers received held only for the SHBs that were behind the cell before, so it
   is dropped.
4. **Sessions.** Sessions with brokers outside the neighbourhood end. The driver receives the new
   peers.

In SHIFT(i, j, k) cell i leaves j for k. Cell k gains i, and k is the only cell behind which there
are more SHBs than before. Cell i gets a new neighbour too, but the cell it lost lies behind that
one: the rest of the tree is the same set before and after, so i keeps what it knows. Cell j only
loses. Under APPEND the new cell is empty, so no broker has filtered for fewer SHBs than there are.

At k the tables of j still list the SHBs of i's side, as if these SHBs were behind j and not behind
i. Until j has sent its table in the new shape, its tables are no evidence of locations, and k does
not send them to i, whose own SHBs they may list.

The operations themselves choose the coordinator and the order in which the cells change, and bring
the newer neighbourhood to brokers that were unreachable. Brokers that know different shapes do not
feed each other. So streams may wait between the first and the last step of an operation. No event
is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from gapless.core.context import Context, nothing
from gapless.core.ids import BrokerId, CellId
from gapless.core.overlay_limits import RECORDS_MAX
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records import NeighbourhoodRecord, PutRecord, StorageChange
from gapless.overlay.cell_records import Records, by_name, merged, within
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.tree import Tree, TreeChange

__all__ = [
    "FollowsTree",
    "Reshaped",
    "TellsRecords",
    "TreeStep",
    "neighbourhood_of",
    "stored_neighbourhood",
]


class Reshaped(Protocol):
    """A component that follows the tree in the first pass of a step."""

    def reshape(self, change: TreeChange) -> None:
        """Take the new tree."""


class FollowsTree(Protocol):
    """A component that acts when all components have taken the new tree."""

    def reshaped(self) -> None:
        """All components have taken the new tree."""


class TellsRecords(Protocol):
    """Tells the peers which records a step has changed (RS-4)."""

    def tell_step(self, old: Records, new: Records) -> None:
        """Send each peer, old or new, the records that are new to it."""


def stored_neighbourhood(
    configured: Neighbourhood,
    stored: NeighbourhoodRecord | None,
    broker: BrokerId,
    radius: int,
) -> Neighbourhood:
    """Return the neighbourhood of the stored records; the configured one if there are none."""
    if stored is None or stored.own != configured.own:
        return configured
    return neighbourhood_of(broker, stored.own, stored.version, by_name(stored.cells), radius)


def neighbourhood_of(
    broker: BrokerId, own: CellId, version: int, records: Records, radius: int
) -> Neighbourhood:
    """Return the neighbourhood of a broker by some records.

    A broker that is in no newest record of its cell is a leaf without edges (RS-4).
    """
    record = records[own]
    if broker not in record.brokers:
        alone = replace(record, members=(CellMember(broker),), edges=(), leader="")
        return Neighbourhood(own, version, (alone,))
    return Neighbourhood(own, version, tuple(within(records, own, radius).values()))


class TreeStep:
    """Applies the steps of the tree at this broker, one after the other."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        stored: NeighbourhoodRecord | None,
        exchange: TellsRecords,
        first: Sequence[Reshaped],
        second: Sequence[FollowsTree],
        *,
        may_join: bool = False,
    ) -> None:
        """``may_join``: the broker was started alone, to be appended (RS-15)."""
        self._context = context
        self._me = context.identity.broker
        self._own = tree.neighbourhood.own
        self._radius = context.parameters.neighbourhood_radius
        self._tree = tree
        self._exchange = exchange
        self._first = first
        self._second = second
        cells = tree.neighbourhood.cells if stored is None else stored.cells
        self._held: Records = by_name(cells)
        """The newest durable records."""
        self._latest: Records = self._held
        """The records of the last step that was requested. Its write may be pending."""
        self._may_join = may_join
        self._has_joined = False
        """Whether this broker is in another cell, in which its next incarnation starts."""
        self._version = tree.version
        """Of the neighbourhood of that step."""

    @property
    def own(self) -> CellId:
        """The cell of this broker."""
        return self._own

    @property
    def may_join(self) -> bool:
        """Whether this broker can become a member of another cell.

        A running broker keeps its cell: its components and its SHB have the cell's id. So a newcomer
        that joins starts again.
        """
        return self._may_join

    def record(self, cell: CellId) -> CellRecord | None:
        """Return the newest durable record of a cell, or None."""
        return self._held.get(cell)

    def records(self) -> tuple[CellRecord, ...]:
        """Return all durable records, those of the nearest cells first."""
        return tuple(self._held.values())

    def apply(
        self,
        records: Collection[CellRecord],
        *,
        changes: tuple[StorageChange, ...] = (),
        then: Callable[[], None] = nothing,
    ) -> None:
        """Merge records into those held, make them durable with other changes, and apply them.

        ``then`` is called after that, also if no record is newer (RS-1).
        """
        before = self._latest
        found = merged(before, records)
        if self._has_joined:
            self._context.write(changes, then)  # the next incarnation gets the records
            return
        joined = self._joined(found)
        if joined is not None:
            self._join(joined, found, changes, then)
            return
        kept = self._kept(found)
        if kept == before:
            self._context.write(changes, then)
            return
        self._latest = kept
        self._version += 1
        version = self._version
        new = neighbourhood_of(self._me, self._own, version, kept, self._radius)

        def stored() -> None:
            self._held = kept
            self._apply(new, before, found)
            then()

        record = NeighbourhoodRecord(self._own, version, tuple(kept.values()))
        self._context.write((PutRecord(record), *changes), stored)

    def _joined(self, records: Records) -> CellId | None:
        """Return the cell that this newcomer has become a member of, or None."""
        others = (name for name in records if name != self._own)
        found = (name for name in others if self._me in records[name].brokers)
        return next(found, None) if self._may_join else None

    def _join(
        self,
        cell: CellId,
        records: Records,
        changes: tuple[StorageChange, ...],
        then: Callable[[], None],
    ) -> None:
        """Store the neighbourhood of the new cell, and start again as its member."""
        self._may_join, self._has_joined = False, True
        near = within(records, cell, self._radius, listed=True)

        def stored() -> None:
            then()
            self._context.start_again()

        record = NeighbourhoodRecord(cell, 1, tuple(near.values()))
        self._context.write((PutRecord(record), *changes), stored)

    def is_consistent(self, records: Collection[CellRecord]) -> bool:
        """Return whether a step with these records leads to a tree that this broker can take.

        No broker is in two cells, and there are not too many cells.
        """
        kept = self._kept(merged(self._latest, records))
        brokers = [broker for record in kept.values() for broker in record.brokers]
        return len(kept) <= RECORDS_MAX and len(set(brokers)) == len(brokers)

    def _kept(self, records: Records) -> Records:
        """Return the records of the cells within Δ, nearest first.

        A broker whose cell has no edge, or that is in no record of its cell, keeps those it had.
        """
        own = records[self._own]
        if own.edges and self._me in own.brokers:
            return within(records, self._own, self._radius, listed=True)
        return {cell: records[cell] for cell in self._latest}

    def _apply(self, new: Neighbourhood, before: Records, after: Records) -> None:
        old = self._tree.neighbourhood
        change = TreeChange(old, new)
        self._exchange.tell_step(before, after)
        self._tree.replace(new)
        for component in self._first:
            component.reshape(change)
        for follower in self._second:
            follower.reshaped()
