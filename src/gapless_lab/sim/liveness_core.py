"""The core: the part of the overlay that is whole in the liveness phase, and must converge.

It is drawn: a connected part of the tree, whole or not. Inside of it brokers may stay dead for ever, up
to whole cells, but never more than δ cells in a row: what is alive around them must find its way past
them (R7, R20; PT's δ). And links may stay cut for ever, if both ends still reach each other over so
many others as a session may be relayed over (R3). What is outside fares as it will.

A *narrow* core has only the links that are needed: those to the nearest that live. In a *wide* one the
links past living cells are good too. There a cell may be cut off from one side and alive, an island, and
those beyond it carry its sessions (A2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, CellId
from gapless.overlay.neighbourhood import Topology

if TYPE_CHECKING:
    from gapless_lab.sim.network import HostPair
    from gapless_lab.sim.world import World

__all__ = ["LivenessCore"]


class LivenessCore:
    """What lives for good, and which links between them stay good."""

    def __init__(self, world: World, random: Random, *, whole: bool) -> None:
        self._options = world.options
        self._topology = world.topology
        self._neighbourhoods = {
            cell.name: world.topology.neighbourhood(cell.name, len(world.topology.cells))
            for cell in world.topology.cells
        }
        self.cells = _connected_part(world.topology, random, whole=whole)
        self._empty: set[CellId] = set()
        """Cells inside of which nobody lives."""
        self.brokers = self._survivors(random)
        self._wide = self._options.inner_cuts > 0 and world.stream("wide core").random() < 0.5
        self._cut: set[frozenset[BrokerId]] = set()
        self._cut_some(world, random)

    def keeps_links(self, pair: HostPair) -> bool:
        """Say whether the links between two brokers are good in the liveness phase."""
        return self._is_good(pair) and _ends(pair) not in self._cut

    def has_cut(self, pair: HostPair) -> bool:
        """Say whether two brokers of the core have to do without the link between them."""
        return _ends(pair) in self._cut

    # --- who lives -----------------------------------------------------------------------------

    def _survivors(self, random: Random) -> set[BrokerId]:
        survivors: set[BrokerId] = set()
        for cell in self._topology.cells:
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
        """Say whether a cell may be dead too: at most δ in a row, and somebody must live."""
        dead = self._empty | {cell}
        if len(dead) == len(self.cells):
            return False
        return all(self._run_length(ends, dead) <= self._options.delta for ends in _pairs(dead))

    def _run_length(self, ends: tuple[CellId, CellId], dead: set[CellId]) -> int:
        """Return how many dead cells in a row the way between two of them has, 0 if it is not one."""
        start, end = ends
        path = (start, *self._neighbourhoods[start].path(end))
        return len(path) if dead.issuperset(path) else 0

    # --- which links are good ------------------------------------------------------------------

    def _is_good(self, pair: HostPair) -> bool:
        """Say whether two brokers have a link unless it is cut: nobody lives in the cells between.

        In a wide core whoever is between does not matter.
        """
        left, right = (link.source for link in pair.links)
        if not {left.broker, right.broker} <= self.brokers:
            return False
        between = self._neighbourhoods[left.cell].path(right.cell)[:-1]
        return self._wide or self._empty.issuperset(between)

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
    """Return all pairs of cells, each cell with itself among them."""
    ordered = sorted(cells)
    return [*combinations(ordered, 2), *((cell, cell) for cell in ordered)]


def _connected_part(topology: Topology, random: Random, *, whole: bool) -> list[CellId]:
    """Return the cells of a connected part of the tree."""
    cells = {cell.name: cell for cell in topology.cells}
    core = [random.choice(list(cells))]
    size = len(cells) if whole else random.randint(1, len(cells))
    while len(core) < size:
        edge = [
            neighbour
            for name in core
            for neighbour in cells[name].neighbours
            if neighbour not in core
        ]
        core.append(random.choice(edge))
    return core
