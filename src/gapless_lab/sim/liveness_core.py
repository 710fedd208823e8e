"""The core: the part of the overlay that is healthy in the liveness phase, and must converge.

It is drawn at random: a connected part of the tree, or the whole tree. Inside it brokers may stay
dead for ever, up to whole cells, but never more than δ cells in a row: the live brokers around them
must find a route past them (R7, R20; PT's δ). Links may stay cut for ever too, if both ends still
reach each other over at most as many other links as a relayed session may have (R3). What is
outside the core may stay broken.

A *narrow* core has only the links that it needs: those to the nearest live cells. In a *wide* core
the links past live cells work too. There a live cell may be cut off from one side, an island, and
the brokers beyond it relay its sessions (A2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, CellId

if TYPE_CHECKING:
    from gapless_lab.sim.network import HostPair
    from gapless_lab.sim.world import World
    from gapless_lab.sim.world_tree import WorldTree

__all__ = ["LivenessCore"]


class LivenessCore:
    """The brokers that live in the liveness phase, and the links between them that work."""

    def __init__(self, world: World, random: Random, *, whole: bool) -> None:
        self._options = world.options
        self._tree = world.tree
        self.cells = _connected_part(world.tree, random, whole=whole)
        self._empty: set[CellId] = set()
        """Cells without a live broker."""
        self.brokers = self._survivors(random)
        self._wide = self._options.inner_cuts > 0 and world.stream("wide core").random() < 0.5
        self._cut: set[frozenset[BrokerId]] = set()
        self._cut_some(world, random)

    def keeps_links(self, pair: HostPair) -> bool:
        """Return whether the links between two brokers work in the liveness phase."""
        return self._is_good(pair) and _ends(pair) not in self._cut

    def has_cut(self, pair: HostPair) -> bool:
        """Return whether the link between two brokers of the core stays cut."""
        return _ends(pair) in self._cut

    # --- live brokers --------------------------------------------------------------------------

    def _survivors(self, random: Random) -> set[BrokerId]:
        survivors: set[BrokerId] = set()
        for cell in self._tree.cells:
            if cell.name not in self.cells:
                continue
            living = list(cell.brokers)
            if random.random() < self._options.inner_losses:
                kept = random.randrange(len(living))
                living = random.sample(living, kept)
            if not living and not self._may_be_empty(cell.name):
                living = [random.choice(cell.brokers)]
            if not living:
                self._empty.add(cell.name)
            survivors.update(living)
        return survivors

    def _may_be_empty(self, cell: CellId) -> bool:
        """Return whether a cell may be dead too: at most δ in a row, and one cell must live."""
        dead = self._empty | {cell}
        if len(dead) == len(self.cells):
            return False
        return all(self._run_length(ends, dead) <= self._options.delta for ends in _pairs(dead))

    def _run_length(self, ends: tuple[CellId, CellId], dead: set[CellId]) -> int:
        """Return the length of the row of dead cells from one cell to another, 0 if a live cell is
        between.
        """
        start, end = ends
        path = (start, *self._tree.graph.path(start, end))
        return len(path) if dead.issuperset(path) else 0

    # --- working links -------------------------------------------------------------------------

    def _is_good(self, pair: HostPair) -> bool:
        """Return whether two brokers have a link unless it is cut: no cell between them has a live
        broker.

        In a wide core the cells between do not matter.
        """
        left, right = (link.source for link in pair.links)
        if not {left.broker, right.broker} <= self.brokers:
            return False
        path = self._tree.graph.path(left.cell, right.cell)
        if len(path) > self._options.parameters().neighbourhood_radius:
            return False  # they had a link in an earlier tree
        return self._wide or self._empty.issuperset(path[:-1])

    def _cut_some(self, world: World, random: Random) -> None:
        """Choose links that stay cut, each only if its ends still reach each other over others."""
        good = [_ends(pair) for pair in world.network.pairs if self._is_good(pair)]
        for link in good:
            if random.random() < self._options.inner_cuts:
                left = [each for each in good if each not in self._cut and each != link]
                if all(self._is_relayable(each, left) for each in (*self._cut, link)):
                    self._cut.add(link)

    def _is_relayable(
        self, missing: frozenset[BrokerId], links: Iterable[frozenset[BrokerId]]
    ) -> bool:
        start, end = sorted(missing)
        reached = {start}
        for _ in range(self._options.parameters().relay_hops_max + 1):
            reached |= {broker for link in links if link & reached for broker in link}
        return end in reached


def _ends(pair: HostPair) -> frozenset[BrokerId]:
    return frozenset(link.source.broker for link in pair.links)


def _pairs(cells: set[CellId]) -> Iterable[tuple[CellId, CellId]]:
    """Return all pairs of cells, including each cell with itself."""
    ordered = sorted(cells)
    return [*combinations(ordered, 2), *((cell, cell) for cell in ordered)]


def _connected_part(tree: WorldTree, random: Random, *, whole: bool) -> list[CellId]:
    """Return the cells of a connected part of the tree."""
    cells = tree.names
    core = [random.choice(cells)]
    size = len(cells) if whole else random.randint(1, len(cells))
    while len(core) < size:
        edge = [
            neighbour
            for name in core
            for neighbour in tree.graph.neighbours(name)
            if neighbour not in core
        ]
        core.append(random.choice(edge))
    return core
