"""The table that a router sends in one direction, computed from all its other edges (R18).

Entries are the greatest of the held tables. Conjunctions are those that can match events of a
pubend in that direction, covered and merged. The table is complete for the pubends announced from
that direction (``known``), except for the SHBs whose entry no held table claims for the pubend
(``late``). A router that has just learned of a pubend must not claim for brokers behind it, or
peers of its cell, that do not know the pubend yet.

The table is computed from the held tables in one step. If I4 holds for these, it holds for the
out-table: an entry that is not late for a pubend comes from a table that claims it, and the
out-table covers all conjunctions of that table for the pubend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gapless.content import Conjunction, Filter
from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.messages.propagation import TableDelta, TableId
from gapless.propagation.cover import CoverSet, Merge
from gapless.propagation.edge import Edge, HeldTable
from gapless.propagation.table import Late, rank
from gapless.propagation.transfer import TableSender

__all__ = ["OutTable"]


class _Announced(NamedTuple):
    version: int
    advertisement: Filter


class _Group(NamedTuple):
    """SHBs whose greatest entry comes from the same tables."""

    givers: tuple[HeldTable, ...]
    shbs: frozenset[ShbId]


class OutTable:
    """A router's table for one direction, computed from all other edges, which it watches."""

    def __init__(
        self,
        name: TableId,
        *,
        budget: int,
        merge: Merge,
        log_max: int,
        bytes_max: int,
        only_locating: bool = False,
    ) -> None:
        self.sender = TableSender(name, 1, log_max=log_max, bytes_max=bytes_max)
        self.dirty = False
        self._only_locating = only_locating
        """Whether tables that prove no location are omitted (R13).

        This is set for a new direction: such tables may contain SHBs of this direction.
        """
        self._edges: list[Edge] = []
        self._announced: dict[PubendId, _Announced] = {}
        self._cover = CoverSet(budget, merge)
        self._wanted: dict[Conjunction, int] = {}
        """The number of edges that have each conjunction, pruned or not."""
        self._pruned: dict[Conjunction, None] = {}
        """Conjunctions that match no event of the known pubends."""

    # --- input -------------------------------------------------------------------------------

    def watch(self, edge: Edge) -> None:
        """Include the tables of an edge."""
        self._edges.append(edge)
        edge.add_listener(self)
        self.changed(edge.conjunctions, ())

    def unwatch(self, edge: Edge) -> None:
        """Exclude the tables of an edge again."""
        self._edges.remove(edge)
        edge.remove_listener(self)
        self.changed((), edge.conjunctions)

    def changed(self, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        """Apply a change on one of the edges."""
        self.dirty = True
        for conjunction in added:
            self._wanted[conjunction] = self._wanted.get(conjunction, 0) + 1
            if self._wanted[conjunction] == 1:
                self._place(conjunction)
        for conjunction in removed:
            self._wanted[conjunction] -= 1
            if self._wanted[conjunction]:
                continue
            del self._wanted[conjunction]
            if conjunction in self._pruned:
                del self._pruned[conjunction]
            else:
                self._cover.remove(conjunction)

    def announce(self, pubend: PubendId, version: int, advertisement: Filter) -> None:
        """Add a pubend of this direction, or widen its advertisement."""
        old = self._announced.get(pubend)
        if old is not None and old.version >= version:
            return
        self.dirty = True
        self._announced[pubend] = _Announced(version, advertisement)
        for conjunction in tuple(self._pruned):
            if _meets(advertisement, conjunction):
                del self._pruned[conjunction]
                self._cover.insert(conjunction)

    def withdraw(self, pubend: PubendId) -> None:
        """Remove a pubend that was ended or is no longer in this direction."""
        if self._announced.pop(pubend, None) is None:
            return
        self.dirty = True
        for conjunction in tuple(self._cover.forest):
            if not self._passes(conjunction):
                self._cover.remove(conjunction)
                self._pruned[conjunction] = None

    def _place(self, conjunction: Conjunction) -> None:
        if self._passes(conjunction):
            self._cover.insert(conjunction)
        else:
            self._pruned[conjunction] = None

    def _passes(self, conjunction: Conjunction) -> bool:
        return any(
            _meets(announced.advertisement, conjunction) for announced in self._announced.values()
        )

    # --- output ------------------------------------------------------------------------------

    def flush(self) -> TableDelta | None:
        """Compute the table from the edges; return the delta, None if nothing has changed."""
        if not self.dirty:
            return None
        self.dirty = False
        vector = _vector(held for edge in self._edges for held in self._spoken_for(edge))
        groups = tuple(_groups(vector))
        change = self._cover.take()
        delta = self.sender.table.difference(
            added=change.added,
            removed=change.removed,
            entries={shb: entry for shb, (entry, _) in vector.items()},
            known={pubend: announced.version for pubend, announced in self._announced.items()},
            late=self._late(groups),
        )
        return None if delta is None else self.sender.advance(delta)

    def _spoken_for(self, edge: Edge) -> Iterable[HeldTable]:
        return edge.locating_tables() if self._only_locating else edge.held()

    def _late(self, groups: tuple[_Group, ...]) -> Late:
        late = {}
        for pubend, announced in self._announced.items():
            missing = frozenset(
                shb for group in groups for shb in _unclaimed(group, pubend, announced.version)
            )
            if missing:
                late[pubend] = missing
        return late

    def statistics(self) -> dict[str, int]:
        """Return counters for operators."""
        table = self.sender.table
        return {
            "conjunctions": len(self._wanted),
            "pruned": len(self._pruned),
            "sent": len(table.conjunctions),
            "hosts": len(table.entries),
            "late": sum(map(len, table.late.values())),
            "version": table.version,
        }


def _meets(advertisement: Filter, conjunction: Conjunction) -> bool:
    return any(offered.intersects(conjunction) for offered in advertisement.conjunctions)


def _vector(tables: Iterable[HeldTable]) -> dict[ShbId, tuple[VectorEntry, list[HeldTable]]]:
    """Return for each SHB its greatest entry and the tables that have it."""
    vector: dict[ShbId, tuple[VectorEntry, list[HeldTable]]] = {}
    for held in tables:
        assert held.table is not None
        for shb, entry in held.table.entries.items():
            found = vector.get(shb)
            if found is None or rank(found[0]) < rank(entry):
                vector[shb] = (entry, [held])
            elif found[0] == entry:
                found[1].append(held)
    return vector


def _groups(vector: dict[ShbId, tuple[VectorEntry, list[HeldTable]]]) -> Iterator[_Group]:
    """Group SHBs by the tables that gave their entries, so that a pubend is looked up once a group.

    Retired SHBs are omitted: they have no filters and cannot be late.
    """
    by_givers: dict[tuple[int, ...], tuple[list[HeldTable], list[ShbId]]] = {}
    for shb, (entry, givers) in vector.items():
        if not entry.retired:
            key = tuple(map(id, givers))
            by_givers.setdefault(key, (givers, []))[1].append(shb)
    for givers, shbs in by_givers.values():
        yield _Group(tuple(givers), frozenset(shbs))


def _unclaimed(group: _Group, pubend: PubendId, version: int) -> frozenset[ShbId]:
    """Return the SHBs whose entry none of the group's tables claims for a pubend."""
    missing = group.shbs
    for held in group.givers:
        if held.table is not None and held.knows(pubend, version):
            missing &= held.table.late.get(pubend, frozenset())
    return missing
