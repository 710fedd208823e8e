"""The next hop of a request to a named broker (D9).

A hop knows one of three things of the named broker: its cell is in the neighbourhood; one edge has
it in its tables; several edges have it, or none. A step of the tree may move the cell of either end
while a request is under way, and then two edges may name the broker, one of them wrongly. So each
attempt takes one edge, selected by the id of the request, and never all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from gapless.core.context import Identity
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["BrokerPaths", "ShbLocations"]


class ShbLocations(Protocol):
    """The locations of SHBs that subscription tables prove."""

    def placing(self, shb: ShbId) -> Sequence[CellId]:
        """Return the neighbour cells behind which a table proves an SHB to be."""


class BrokerPaths:
    """Finds the next hop to a broker. It keeps no state."""

    def __init__(
        self, identity: Identity, tree: Tree, peers: Peers, locations: ShbLocations
    ) -> None:
        self._identity = identity
        self._tree = tree
        self._peers = peers
        self._locations = locations

    def next_hop(
        self, to: ShbId, request: int, passed: Collection[BrokerId] = ()
    ) -> BrokerId | None:
        """Return the next hop of a request that has passed some brokers; None if there is none."""
        path = self._tree.neighbourhood.find_path(to.cell)
        if path is not None:
            return self._next_on_path(to, path, request, passed)
        edges = self._edges(to, passed)
        if edges:
            hops = self._open_behind(edges[request % len(edges)], passed)
            if hops:
                return hops[request // len(edges) % len(hops)]
        return self._next_cell_peer(request, passed)

    def _next_on_path(
        self, to: ShbId, path: tuple[CellId, ...], request: int, passed: Collection[BrokerId]
    ) -> BrokerId | None:
        """Return the broker itself if it has a session, else one of the cells on the path."""
        neighbourhood = self._tree.neighbourhood
        if self._peers.is_open(to.broker) and neighbourhood.cell_of(to.broker) == to.cell:
            return to.broker
        hops = [broker for cell in path for broker in self._open_in(cell, passed)]
        return hops[request % len(hops)] if hops else self._next_cell_peer(request, passed)

    def _next_cell_peer(self, request: int, passed: Collection[BrokerId]) -> BrokerId | None:
        """Return another broker of the own cell: it may have a session that this one lacks."""
        hops = self._open_in(self._identity.cell, passed)
        return hops[request % len(hops)] if hops else None

    def _edges(self, to: ShbId, passed: Collection[BrokerId]) -> list[CellId]:
        """Return the edges that place a broker, else all; never the one the request came from."""
        neighbourhood = self._tree.neighbourhood
        came_from = {
            neighbourhood.direction(cell)
            for broker in passed
            if (cell := neighbourhood.cell_of(broker)) is not None
        }
        ahead = [cell for cell in neighbourhood.neighbours if cell not in came_from]
        placing = set(self._locations.placing(to))
        return [cell for cell in ahead if cell in placing] or ahead

    def _open_behind(self, edge: CellId, passed: Collection[BrokerId]) -> list[BrokerId]:
        """Return the reachable brokers of a neighbour cell, else of the cells behind it."""
        found = self._open_in(edge, passed)
        if found:
            return found
        neighbourhood = self._tree.neighbourhood
        behind = (each.name for each in neighbourhood.cells if each.name != edge)
        return [
            broker
            for cell in behind
            if neighbourhood.direction(cell) == edge
            for broker in self._open_in(cell, passed)
        ]

    def _open_in(self, cell: CellId, passed: Collection[BrokerId]) -> list[BrokerId]:
        record = self._tree.neighbourhood.record(cell)
        brokers = () if record is None else record.brokers
        return [each for each in self._peers.open_in(brokers) if each not in passed]
