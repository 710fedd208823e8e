"""Whom this broker asks for tables: the sources of its edges (R20).

Of a neighbour cell one broker is enough: any of them speaks for all that lies behind it. If none of
them is reached, each cell beyond is asked in its place, up to Δ: that is how subscriptions cross a cell
that is down (PT V). And whoever is fed here from another cell is asked too. It is the one that must be
filtered for, and it may have lost the way to those that would speak for it.

A source is kept while it can be reached as well as any other: every change costs a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b

from gapless.core.ids import BrokerId, CellId
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["TableSources"]


class TableSources:
    """Chooses sources from who can be reached and who is fed."""

    def __init__(self, me: BrokerId, tree: Tree, peers: Peers) -> None:
        self._me = me
        self._tree = tree
        self._peers = peers
        self._receivers: set[BrokerId] = set()

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether a broker of another cell is fed here."""
        if fed:
            self._receivers.add(peer)
        else:
            self._receivers.discard(peer)

    def wanted(self, neighbour: CellId, current: Collection[BrokerId]) -> list[BrokerId]:
        """Return the sources that the edge to a neighbour cell should have, given those it has."""
        chosen = dict.fromkeys(self._of(neighbour, current))
        for broker in sorted(self._receivers):
            cell = self._tree.neighbourhood.cell_of(broker)
            if cell is not None and self._tree.neighbourhood.direction(cell) == neighbour:
                chosen[broker] = None
        return self._peers.open_in(chosen)

    def _of(self, cell: CellId, current: Collection[BrokerId]) -> Iterator[BrokerId]:
        """Yield one broker of a cell; if none is reached, one of each cell beyond."""
        reached = self._peers.open_in(self._tree.neighbourhood.brokers(cell))
        if reached:
            yield min(reached, key=lambda broker: self._rank(broker, current))
        else:
            for beyond in self._tree.neighbourhood.beyond(cell):
                yield from self._of(beyond, current)

    def _rank(self, broker: BrokerId, current: Collection[BrokerId]) -> tuple[bool, bool, bytes]:
        """Order brokers: links before relays, who is a source before others, then by hash."""
        weight = blake2b(f"{self._me}\0{broker}".encode(), digest_size=8).digest()
        return not self._peers.is_direct(broker), broker not in current, weight
