"""All tables of a broker: those held on its edges and the out-tables for each direction.

An edge passes its changes to the out-tables of all other directions, and the index contains every
table. This module sends nothing and has no timers; :mod:`.exchange` sends the deltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gapless.content import Filter
from gapless.content.merging import merge
from gapless.core.context import Identity
from gapless.core.ids import (
    VIRTUAL_TIME_ZERO,
    CellId,
    PubendId,
    ShbId,
    VectorEntry,
    VirtualTime,
)
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import FIRST_SHAPE, ShapeVersion
from gapless.messages.propagation import TableDelta, TableId
from gapless.propagation.cover import Merge
from gapless.propagation.edge import Edge, LocationVersion, greatest
from gapless.propagation.index import TableIndex
from gapless.propagation.out_table import OutTable
from gapless.propagation.sufficiency import NeighbourhoodPaths, TableChooser

__all__ = ["TableStore"]


class TableStore:
    """The edges of a broker by name (a cell, or a leaf ``broker@cell``), and its out-tables."""

    def __init__(
        self,
        identity: Identity,
        parameters: Parameters,
        neighbourhood: NeighbourhoodPaths,
        *,
        merge: Merge = merge,
    ) -> None:
        self.index = TableIndex()
        self.edges: dict[str, Edge] = {}
        self.out: dict[CellId, OutTable] = {}
        self._identity = identity
        self._shape_version = FIRST_SHAPE
        self._parameters = parameters
        self._merge = merge
        self._location_version = LocationVersion()
        self.chooser = TableChooser(self.edges, self._location_version, neighbourhood)
        self._directions: dict[PubendId, str] = {}
        self._announced: dict[PubendId, tuple[int, Filter]] = {}

    # --- edges ---------------------------------------------------------------------------------

    def set_shape_version(self, shape_version: ShapeVersion) -> bool:
        """Set the shape version of the own cell; return whether all tables are renamed (R13)."""
        if shape_version == self._shape_version:
            return False
        self._shape_version = shape_version
        for direction, out in self.out.items():
            out.sender.rename(self._name(direction))
        return True

    def _name(self, direction: CellId) -> TableId:
        identity = self._identity
        return TableId(identity.broker, identity.incarnation, direction, self._shape_version)

    def add_cell(self, cell: CellId, shape_version: ShapeVersion = FIRST_SHAPE) -> Edge:
        """Add the unsettled edge to a neighbour cell and an out-table for its direction.

        If the own cell was ever reshaped, the out-table omits tables that prove no location: their
        SHBs may be in this direction.
        """
        parameters = self._parameters
        out = self.out[cell] = OutTable(
            self._name(cell),
            budget=parameters.table_conjunctions_max,
            merge=self._merge,
            log_max=parameters.delta_log_max,
            bytes_max=parameters.frame_bytes_max,
            only_locating=self._shape_version > FIRST_SHAPE,
        )
        for edge in self.edges.values():
            out.watch(edge)
        for pubend, (version, advertisement) in self._announced.items():
            if self._directions[pubend] == cell:
                out.announce(pubend, version, advertisement)
        edge = self._add(cell, None)
        if shape_version > FIRST_SHAPE:
            edge.distrust_before(shape_version)
        return edge

    def add_leaf(self, shb: ShbId) -> Edge:
        """Add the edge to the leaf of a broker of the own cell."""
        return self._add(str(shb), shb)

    def _add(self, name: str, leaf: ShbId | None) -> Edge:
        assert name not in self.edges, f"there is an edge to {name} already"
        edge = self.edges[name] = Edge(
            name,
            leaf,
            location_version=self._location_version,
            index=self.index,
            budget=self._parameters.table_conjunctions_max,
            merge=self._merge,
            is_peer=leaf is not None and leaf != self._identity.shb,
        )
        self._location_version.advance()
        for direction, out in self.out.items():
            if direction != name:
                out.watch(edge)
        return edge

    def remove(
        self, name: str, heir: str | None = None, now: int = 0, *, same: bool = False
    ) -> None:
        """Remove an edge with all its tables (R13).

        ``heir`` is the edge behind which its cells are now; it keeps the tables as stale ones.
        ``same`` means that exactly the cells of the removed edge are behind it.
        """
        edge = self.edges.pop(name)
        if heir is not None:
            self.edges[heir].inherit(edge, now, same=same)
        for direction, out in self.out.items():
            if direction != name:
                out.unwatch(edge)
        edge.clear()
        own = self.out.pop(name, None)
        if own is not None:
            for other in self.edges.values():
                own.unwatch(other)
        self._location_version.advance()

    # --- pubends -------------------------------------------------------------------------------

    def announce(
        self, pubend: PubendId, version: int, advertisement: Filter, direction: str
    ) -> None:
        """Note the direction of a pubend: a neighbour cell, or "" for the own cell."""
        old = self._directions.get(pubend)
        if old is not None and old != direction and old in self.out:
            self.out[old].withdraw(pubend)
        self._directions[pubend] = direction
        known = self._announced.get(pubend)
        if known is None or known[0] < version:
            known = self._announced[pubend] = (version, advertisement)
        if direction in self.out:
            self.out[direction].announce(pubend, *known)

    def announced_version(self, pubend: PubendId) -> int:
        """Return the announcement version of a pubend; 0 if it is not announced."""
        known = self._announced.get(pubend)
        return 0 if known is None else known[0]

    def withdraw(self, pubend: PubendId) -> None:
        """Forget a pubend that was ended."""
        direction = self._directions.pop(pubend, None)
        self._announced.pop(pubend, None)
        if direction in self.out:
            self.out[direction].withdraw(pubend)

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return the greatest claim of an SHB for a pubend on all edges, for V^m (R31)."""
        return greatest(
            edge.claim(shb, pubend, announcement_version) for edge in self.edges.values()
        )

    def placing(self, shb: ShbId) -> tuple[CellId, ...]:
        """Return the neighbour cells behind which a table proves an SHB to be."""
        return tuple(
            name for name, edge in self.edges.items() if edge.leaf is None and edge.locates(shb)
        )

    def hosts(self) -> set[ShbId]:
        """Return the SHBs whose filters this broker has received."""
        return {shb for edge in self.edges.values() for shb in edge.hosts}

    def changed_since(self, known: Mapping[ShbId, VirtualTime]) -> dict[ShbId, VirtualTime]:
        """Return the SHBs whose virtual time in the tables is greater than the known one."""
        changed: dict[ShbId, VirtualTime] = {}
        for edge in self.edges.values():
            for table in edge.tables():
                for shb, entry in table.entries.items():
                    before = changed.get(shb) or known.get(shb, VIRTUAL_TIME_ZERO)
                    if entry.time > before and not entry.retired:
                        changed[shb] = entry.time
        return changed

    # --- time ----------------------------------------------------------------------------------

    def drop_stale(self, now: int) -> None:
        """Drop stale tables that are dominated or have timed out (R21)."""
        before = now - microseconds(s=self._parameters.stale_table_ttl_s)
        for edge in self.edges.values():
            if edge.outdated:
                edge.expire(before)
                edge.drop_dominated(partial(self._goes_over, edge.name))

    def _goes_over(self, name: str, pubend: PubendId) -> bool:
        """Return whether a pubend's events leave over an edge: it is not behind that edge."""
        return self._directions.get(pubend) != name

    def flush(self) -> list[tuple[CellId, TableDelta]]:
        """Update all out-tables; return the deltas by direction."""
        deltas = []
        for direction, out in self.out.items():
            delta = out.flush()
            if delta is not None:
                deltas.append((direction, delta))
        return deltas

    @property
    def are_settled(self) -> bool:
        """Whether no edge is unsettled."""
        return all(edge.settled for edge in self.edges.values())

    def statistics(self) -> dict[str, int]:
        """Return counters for operators."""
        return {
            "edges": len(self.edges),
            "tables": sum(len(edge.tables()) for edge in self.edges.values()),
            "outdated": sum(edge.outdated for edge in self.edges.values()),
            "unsettled": sum(not edge.settled for edge in self.edges.values()),
            **self.index.statistics(),
        }
