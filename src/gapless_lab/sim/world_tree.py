"""The tree of a run: the newest durable records of its cells, over all disks (RS-1, SM-1).

A decision of an operation is a durable write, so the tree follows from the disks: a stored record
that is newer than the known one of its cell replaces it. Everything that needs the tree asks for it
here and keeps no copy. ``revision`` shows that the tree has changed.

A broker that has not applied the newest records lives in an older tree. :meth:`WorldTree.seen_by`
returns the tree as such a broker sees it: the records that it holds decide about the edges of their
cells, the newest records about the edges of all others (RS-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord
from gapless.messages.records import (
    NeighbourhoodRecord,
    OperationPhase,
    OperationRecord,
    PutRecord,
    StorageChange,
)
from gapless.overlay.cell_records import Records, by_name, is_live
from gapless.overlay.neighbourhood import Neighbourhood, Topology

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost

__all__ = ["CellGraph", "WorldTree", "live_edges"]

Edges = Mapping[CellId, tuple[CellId, ...]]

_NONE: Final[Records] = {}

_DECIDED: Final = frozenset({OperationPhase.COMMITTED, OperationPhase.FINISHED})
"""An operation in these phases is committed: its records are decided."""


class CellGraph:
    """The cells and the edges between them, in one view."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._paths: dict[CellId, dict[CellId, tuple[CellId, ...]]] = {}

    @classmethod
    def of(cls, topology: Topology) -> CellGraph:
        """Return the graph of a configured tree."""
        return cls(live_edges(by_name(topology.cells)))

    def neighbours(self, cell: CellId) -> tuple[CellId, ...]:
        """Return the cells that a cell has an edge to."""
        return self._edges.get(cell, ())

    def find_path(self, cell: CellId, other: CellId) -> tuple[CellId, ...] | None:
        """Return the path between two cells, without the first one; None if there is none."""
        return self._paths_from(cell).get(other)

    def path(self, cell: CellId, other: CellId) -> tuple[CellId, ...]:
        """Return the path between two cells that are connected, without the first one."""
        return self._paths_from(cell)[other]

    def distance(self, cell: CellId, other: CellId) -> int:
        """Return how many edges two connected cells are apart."""
        return len(self.path(cell, other))

    def is_behind(self, cell: CellId, other: CellId, start: CellId) -> bool:
        """Return whether the path from ``start`` to ``cell`` contains ``other``."""
        path = self.find_path(start, cell)
        return path is not None and (other == start or other in path)

    def side(self, cell: CellId, neighbour: CellId) -> list[CellId]:
        """Return the cells that a cell reaches over one of its neighbours, with the neighbour."""
        paths = self._paths_from(cell)
        return [other for other, path in paths.items() if path[:1] == (neighbour,)]

    def rows(self, length: int) -> list[tuple[CellId, ...]]:
        """Return all rows of cells of a length that separate a cell at each end."""
        return [
            path[:-1]
            for cell in self._edges
            for other in self._edges
            if other > cell and (path := self.find_path(cell, other)) and len(path) == length + 1
        ]

    def longest_row(self) -> int:
        """Return the length of the longest row of cells between two others, 0 if there is none."""
        paths = (path for cell in self._edges for path in self._paths_from(cell).values())
        return max(0, max(map(len, paths)) - 1)

    def _paths_from(self, cell: CellId) -> dict[CellId, tuple[CellId, ...]]:
        paths = self._paths.get(cell)
        if paths is None:
            paths = self._paths[cell] = {cell: ()}
            order = [cell]
            for name in order:
                for neighbour in self.neighbours(name):
                    if neighbour not in paths:
                        paths[neighbour] = (*paths[name], neighbour)
                        order.append(neighbour)
        return paths


class WorldTree:
    """The newest durable records of all cells."""

    def __init__(self, topology: Topology) -> None:
        self.records: dict[CellId, CellRecord] = by_name(topology.cells)
        self.revision = 0
        """Grows with every change."""
        self.listeners: list[Callable[[], None]] = []
        """Called after every change."""
        self._graph: CellGraph | None = None
        self._seen: dict[int, tuple[Neighbourhood, CellGraph]] = {}
        """By the identity of a neighbourhood: the neighbourhood, and the tree with it."""

    # --- what the disks say --------------------------------------------------------------------

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Learn from a change that has reached a disk."""
        del host
        record = change.record if type(change) is PutRecord else None
        match record:
            case NeighbourhoodRecord():
                self.learn(record.cells)
            case OperationRecord() if record.phase in _DECIDED:
                self.learn(record.records)
            case _:
                pass

    def learn(self, records: Iterable[CellRecord]) -> None:
        """Take the records that are newer than the known ones (RS-1)."""
        newer = [each for each in records if self._is_newer(each)]
        if not newer:
            return
        self.records.update(by_name(newer))
        self.revision += 1
        self._graph = None
        self._seen.clear()
        for listener in self.listeners:
            listener()

    def _is_newer(self, record: CellRecord) -> bool:
        known = self.records.get(record.name)
        return known is None or record.version > known.version

    # --- the tree ------------------------------------------------------------------------------

    @property
    def cells(self) -> tuple[CellRecord, ...]:
        """The records of the cells of the tree; a cell that was detached is not one of them."""
        inside = [each for each in self.records.values() if each.edges]
        return tuple(inside) or tuple(self.records.values())[:1]

    @property
    def names(self) -> tuple[CellId, ...]:
        """The names of the cells of the tree."""
        return tuple(each.name for each in self.cells)

    def __contains__(self, cell: CellId) -> bool:
        return cell in self.names

    @property
    def graph(self) -> CellGraph:
        """The live edges by the newest records."""
        if self._graph is None:
            self._graph = CellGraph(live_edges(self.records))
        return self._graph

    @property
    def is_tree(self) -> bool:
        """Whether the live edges join all cells of the tree, without a cycle (R-1)."""
        graph, names = self.graph, self.names
        edges = sum(len(graph.neighbours(name)) for name in names)
        whole = all(graph.find_path(names[0], name) is not None for name in names)
        return whole and edges == 2 * (len(names) - 1)

    def seen_by(self, neighbourhood: Neighbourhood) -> CellGraph:
        """Return the tree as a broker with this neighbourhood sees it."""
        found = self._seen.get(id(neighbourhood))
        if found is None:
            found = self._seen[id(neighbourhood)] = (neighbourhood, self._graph_with(neighbourhood))
        return found[1]

    def _graph_with(self, neighbourhood: Neighbourhood) -> CellGraph:
        held = by_name(neighbourhood.cells)
        if all(self.records.get(name) == record for name, record in held.items()):
            return self.graph
        return CellGraph(live_edges(self.records | held, held))


def live_edges(records: Records, held: Records = _NONE) -> Edges:
    """Return the live edges of each cell, in the order of its record (RS-2).

    The records of ``held`` decide alone about the edges between their cells and others.
    """
    return {name: tuple(_live_edges_of(name, records, held)) for name in records}


def _live_edges_of(cell: CellId, records: Records, held: Records) -> Iterator[CellId]:
    for edge in records[cell].edges:
        other = edge.cell
        if other not in records:
            continue
        if (cell in held) == (other in held):
            live = is_live(records, cell, edge)
        else:
            live = cell in held or cell in records[other].neighbours
        if live:
            yield other
    if cell not in held:
        named = records[cell].neighbours
        yield from (name for name in held if cell in held[name].neighbours and name not in named)
