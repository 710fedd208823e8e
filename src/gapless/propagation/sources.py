"""The sources of an edge: the brokers from which this broker requests tables (R20).

One broker of a neighbour cell is enough, because its table contains everything behind that cell. If
no broker of the cell is reachable, each cell beyond gives a source, up to Δ. So subscriptions cross
a cell that is down (PT V). Every broker of another cell that this broker feeds is a source too:
this broker filters for it, and its route to the other sources may be lost.

A source is kept while no other is reached better, because every change costs a full table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b

from gapless.core.ids import BrokerId, CellId
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["TableSources"]


class TableSources:
    """Chooses sources from the reachable brokers and the fed ones."""

    def __init__(self, me: BrokerId, tree: Tree, peers: Peers) -> None:
        self._me = me
        self._tree = tree
        self._peers = peers
        self._receivers: set[BrokerId] = set()

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether this broker feeds a broker of another cell."""
        if fed:
            self._receivers.add(peer)
        else:
            self._receivers.discard(peer)

    def wanted(self, neighbour: CellId, current: Collection[BrokerId]) -> list[BrokerId]:
        """Return the sources that the edge to a neighbour cell should have, given those it has."""
        chosen = dict.fromkeys(self._of(neighbour, current))
        receivers = [each for each in sorted(self._receivers) if self._is_behind(each, neighbour)]
        if receivers:
            chosen.update(dict.fromkeys(self._peers.open_in(receivers)))
        return [*chosen]

    def _is_behind(self, broker: BrokerId, neighbour: CellId) -> bool:
        """Return whether a broker lies in the direction of a neighbour cell."""
        cell = self._tree.neighbourhood.cell_of(broker)
        return cell is not None and self._tree.neighbourhood.direction(cell) == neighbour

    def _of(self, cell: CellId, current: Collection[BrokerId]) -> Iterator[BrokerId]:
        """Yield one broker of a cell, or one of each cell beyond if none is reachable."""
        reached = self._peers.open_in(self._tree.neighbourhood.active_brokers(cell))
        if len(reached) == 1:
            yield reached[0]
        elif reached:
            yield min(reached, key=lambda broker: self._rank(broker, current))
        else:
            for beyond in self._tree.neighbourhood.beyond(cell):
                yield from self._of(beyond, current)

    def _rank(self, broker: BrokerId, current: Collection[BrokerId]) -> tuple[bool, bool, bytes]:
        """Order brokers: direct before relayed, current sources before others, then by hash."""
        weight = blake2b(f"{self._me}\0{broker}".encode(), digest_size=8).digest()
        return not self._peers.is_direct(broker), broker not in current, weight
