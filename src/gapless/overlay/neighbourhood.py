"""What a broker knows of the tree: the cells within Δ of its own, their brokers and edges.

No broker needs the whole tree. The neighbourhood is versioned. It is as configured until the first
reshape operation; from then on it is durable, and changes only by such operations, in one step each
(R13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec
from msgspec.structs import replace

from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import CELL_BROKERS_MAX
from gapless.messages.overlay import FIRST_SHAPE, CellRecord, ShapeVersion
from gapless.overlay.cell_records import by_name, is_live

__all__ = ["CellRecord", "Neighbourhood", "Topology"]


class Topology(msgspec.Struct, frozen=True):
    """A whole tree of cells, as an operator configures it.

    >>> tree = Topology.of({"a": ["a1"], "b": ["b1", "b2"], "c": ["c1"]}, [("a", "b"), ("b", "c")])
    >>> tree.neighbourhood("a", radius=1).brokers("b")
    ('b1', 'b2')
    """

    cells: tuple[CellRecord, ...]

    @classmethod
    def of(
        cls,
        brokers: dict[CellId, list[BrokerId]],
        edges: Iterable[tuple[CellId, CellId]],
    ) -> Topology:
        """Make a topology; raise UsageError if the cells do not form a tree."""
        links: dict[CellId, list[CellId]] = {cell: [] for cell in brokers}
        count = 0
        for left, right in edges:
            for cell in (left, right):
                if cell not in links:
                    raise UsageError(f"the edge {left} - {right} names {cell}, which is no cell")
            links[left].append(right)
            links[right].append(left)
            count += 1
        _check_brokers(brokers)
        topology = cls(
            tuple(CellRecord.first(cell, brokers[cell], links[cell]) for cell in sorted(brokers))
        )
        reached = topology.neighbourhood(min(brokers), radius=len(brokers)).cells if brokers else ()
        if len(reached) < len(brokers):
            missing = sorted(set(brokers) - {cell.name for cell in reached})
            raise UsageError(f"the cells are not connected: no path to {', '.join(missing)}")
        if count != len(brokers) - 1:
            raise UsageError(
                f"{len(brokers)} cells with {count} edges are no tree: take out a cycle"
            )
        return topology

    def with_addresses(self, addresses: Mapping[BrokerId, str]) -> Topology:
        """Return the topology with the addresses of members, as ``host:port``."""
        cells = []
        for cell in self.cells:
            found = ((each, addresses.get(each.broker)) for each in cell.members)
            members = (
                each if known is None else replace(each, addresses=(known,))
                for each, known in found
            )
            cells.append(replace(cell, members=tuple(members)))
        return Topology(tuple(cells))

    def neighbourhood(self, cell: CellId, radius: int, version: int = 1) -> Neighbourhood:
        """Return the neighbourhood of a cell, which its brokers store."""
        cells = by_name(self.cells)
        order, distance = [cell], {cell: 0}
        for name in order:
            if distance[name] < radius:
                for neighbour in cells[name].neighbours:
                    if neighbour not in distance:
                        distance[neighbour] = distance[name] + 1
                        order.append(neighbour)
        return Neighbourhood(cell, version, tuple(cells[name] for name in order))


class Neighbourhood(msgspec.Struct, frozen=True, dict=True):
    """The cells within Δ of a broker's own, nearest first.

    An edge is live if the records of both its cells list it with one epoch (RS-2). At the border of
    the neighbourhood the one record that is there decides. Paths lead over live edges only.
    """

    own: CellId
    version: int
    cells: tuple[CellRecord, ...]

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._paths

    @property
    def neighbours(self) -> tuple[CellId, ...]:
        """The cells that the own cell has a live edge to, and whose records are held."""
        return self.neighbours_of(self.own)

    @property
    def peers(self) -> tuple[BrokerId, ...]:
        """The brokers of the own cell."""
        return self.cells[0].brokers

    def brokers(self, cell: CellId) -> tuple[BrokerId, ...]:
        """Return the brokers of a cell that is in the neighbourhood."""
        return self._by_name[cell].brokers

    def active_brokers(self, cell: CellId) -> tuple[BrokerId, ...]:
        """Return the brokers of a cell that take part in routing; the others are replaced (RS-3)."""
        return self._by_name[cell].active_brokers

    def all_brokers(self) -> tuple[BrokerId, ...]:
        """Return every broker of the neighbourhood, nearest cells first."""
        return tuple(broker for cell in self.cells for broker in cell.brokers)

    def cell_of(self, broker: BrokerId) -> CellId | None:
        """Return the cell of a broker, or None if it is not in the neighbourhood."""
        return self._cell_by_broker.get(broker)

    def path(self, cell: CellId) -> tuple[CellId, ...]:
        """Return the path to a cell, without the own cell and with that cell."""
        return self._paths[cell]

    def find_path(self, cell: CellId) -> tuple[CellId, ...] | None:
        """Return the path to a cell; None if it is not in the neighbourhood."""
        return self._paths.get(cell)

    def extended_path(self, cell: CellId) -> tuple[CellId, ...] | None:
        """Return the path to a cell of the neighbourhood, or to one with an edge to such a cell."""
        return self._extended_paths.get(cell)

    def record(self, cell: CellId) -> CellRecord | None:
        """Return the record of a cell, or None if it is not in the neighbourhood."""
        return self._by_name.get(cell)

    def neighbours_of(self, cell: CellId) -> tuple[CellId, ...]:
        """Return the cells that a cell of the neighbourhood has a live edge to."""
        return self._live[cell]

    def shape_version(self, cell: CellId) -> ShapeVersion:
        """Return the shape version of a cell; the first one if the cell is unknown."""
        found = self._by_name.get(cell)
        return FIRST_SHAPE if found is None else found.shape_version

    def epoch(self, cell: CellId, other: CellId) -> ShapeVersion | None:
        """Return the epoch of a live edge; None if there is none, or no record of its cells."""
        near, far = (cell, other) if cell in self._live else (other, cell)
        if far not in self._live.get(near, ()):
            return None
        return self._by_name[near].epoch(far)

    def direction(self, cell: CellId) -> CellId | None:
        """Return the neighbour cell on the path, None for the own cell and unknown cells."""
        path = self._paths.get(cell)
        return path[0] if path else None

    def beyond(self, cell: CellId) -> list[CellId]:
        """Return the cells that have an edge to a cell and are farther away than it."""
        return [name for name, path in self._paths.items() if path[-2:-1] == (cell,)]

    def is_leaf(self, cell: CellId) -> bool:
        """Return whether a neighbour cell has no edge but the one to the own cell."""
        return self._live[cell] == (self.own,)

    def distance(self, cell: CellId) -> int:
        """Return the number of edges on the path to a cell."""
        return len(self._paths[cell])

    def is_beyond(self, cell: CellId, other: CellId) -> bool:
        """Return whether ``other`` is on the path to ``cell``, both ends included."""
        return other == self.own or other in self._paths.get(cell, ())

    @cached_property
    def _by_name(self) -> dict[CellId, CellRecord]:
        return by_name(self.cells)

    @cached_property
    def _cell_by_broker(self) -> dict[BrokerId, CellId]:
        return {broker: cell.name for cell in self.cells for broker in cell.brokers}

    @cached_property
    def _live(self) -> dict[CellId, tuple[CellId, ...]]:
        """The live edges of each cell, in the order of its record.

        The own cell is not at the border, so an edge to a cell whose record is not held is not live.
        """
        return {
            each.name: tuple(
                edge.cell
                for edge in each.edges
                if is_live(self._by_name, each.name, edge)
                and (each.name != self.own or edge.cell in self._by_name)
            )
            for each in self.cells
        }

    @cached_property
    def _paths(self) -> dict[CellId, tuple[CellId, ...]]:
        paths: dict[CellId, tuple[CellId, ...]] = {self.own: ()}
        for cell in self.cells:  # nearest first, so the path to a cell exists before it is needed
            for neighbour in self._live[cell.name]:
                if neighbour in self._by_name and neighbour not in paths:
                    paths[neighbour] = (*paths[cell.name], neighbour)
        return paths

    @cached_property
    def _extended_paths(self) -> dict[CellId, tuple[CellId, ...]]:
        paths = dict(self._paths)
        for cell in self.cells:
            for neighbour in self._live[cell.name]:
                paths.setdefault(neighbour, (*self._paths[cell.name], neighbour))
        return paths


def _check_brokers(brokers: dict[CellId, list[BrokerId]]) -> None:
    cell_by_broker: dict[BrokerId, CellId] = {}
    for cell, names in brokers.items():
        for name in (cell, *names):
            if not name or "@" in name:
                raise UsageError(f"{name!r} is no name: use at least one character and no @")
        if not names:
            raise UsageError(f"the cell {cell} has no broker; add one or remove the cell")
        if len(names) > CELL_BROKERS_MAX:
            raise UsageError(
                f"the cell {cell} has {len(names)} brokers, more than {CELL_BROKERS_MAX}: split it"
            )
        for name in names:
            if name in cell_by_broker:
                raise UsageError(
                    f"the broker {name} is in {cell_by_broker[name]} and in {cell}: remove one"
                )
            cell_by_broker[name] = cell
