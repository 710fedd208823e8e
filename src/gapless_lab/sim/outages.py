"""Outages: cells that fail as a whole, and heal.

**cell crash**: all brokers of a cell crash at once. **cell isolated**: all links of a cell to the
outside are cut, but not those inside it: an island. **side cut**: all links of a cell to one
neighbour and to the cells beyond it are cut; other cells may still have links across. **one-way
side cut**: the same in one direction. **barrier crash**, **barrier isolated**: δ + 1 cells in a
row, one more than bypass covers; the cells behind them catch up later.

An outage *holds* the hosts and links that it breaks: the end of a smaller fault that struck one of
them before does not restore it. Half of the outages end at one time, half bit by bit. A *relapse*
strikes soon after the end of an outage, while its cells recover: the same outage again, a crash of
one broker, or a crash of a neighbour cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec

from gapless.core.ids import CellId

if TYPE_CHECKING:
    from gapless_lab.sim.network import SimulatedLink
    from gapless_lab.sim.world import SimulatedHost, World
    from gapless_lab.sim.world_tree import WorldTree

__all__ = ["Outages"]


class Outage(msgspec.Struct, frozen=True):
    """Hosts and links that fail together."""

    cells: tuple[CellId, ...]
    """The affected cells."""
    hosts: tuple[SimulatedHost, ...] = ()
    """The hosts that are down."""
    links: tuple[SimulatedLink, ...] = ()
    """The links that are cut."""


class Outages:
    """Breaks whole cells and heals them."""

    def __init__(self, world: World, may_strike: Callable[[], bool]) -> None:
        self._world = world
        self._may_strike = may_strike
        self._relapses = world.stream("faults", "relapse")
        self._kinds: dict[str, Callable[[Random], Outage | None]] = {
            "cell crash": self._cell_crash,
            "cell isolated": self._cell_isolated,
            "side cut": partial(self._side_cut, one_way=False),
            "one-way side cut": partial(self._side_cut, one_way=True),
            "barrier crash": self._barrier_crash,
            "barrier isolated": self._barrier_isolated,
        }

    def strike(self, kind: str, random: Random) -> bool:
        """Start an outage of a kind; return False if nothing could be struck."""
        outage = self._kinds[kind](random)
        if outage is not None:
            self._world.note("world", f"{kind} of {', '.join(outage.cells)}")
            self._start(outage, random)
        return outage is not None

    def let_go(self) -> None:
        """End all holds: the liveness phase decides what heals."""
        for host in self._world.hosts.values():
            host.held = 0
        for pair in self._world.network.pairs:
            for link in pair.links:
                link.held = 0

    @property
    def _tree(self) -> WorldTree:
        return self._world.tree

    # --- choosing the cells --------------------------------------------------------------------

    def _cell(self, random: Random) -> CellId | None:
        """Draw a cell with a running process."""
        living = {host.cell: None for host in self._world.hosts.values() if host.process}
        return random.choice(list(living)) if living else None

    def _cell_crash(self, random: Random) -> Outage | None:
        cell = self._cell(random)
        return None if cell is None else self._crash((cell,))

    def _cell_isolated(self, random: Random) -> Outage | None:
        cell = self._cell(random)
        if cell is None or len(self._tree.names) == 1:
            return None
        return self._isolation((cell,))

    def _side_cut(self, random: Random, *, one_way: bool) -> Outage | None:
        graph = self._tree.graph
        edges = [(cell, each) for cell in self._tree.names for each in graph.neighbours(cell)]
        if not edges:
            return None
        cell, neighbour = random.choice(edges)
        outward = self._links((cell,), graph.side(cell, neighbour))
        back = [link.back for link in outward]
        links = random.choice((outward, back)) if one_way else [*outward, *back]
        return Outage((cell,), links=tuple(links))

    def _row(self, random: Random) -> tuple[CellId, ...] | None:
        found = self._tree.graph.rows(self._world.options.delta + 1)
        return random.choice(found) if found else None

    def _barrier_crash(self, random: Random) -> Outage | None:
        row = self._row(random)
        return None if row is None else self._crash(row)

    def _barrier_isolated(self, random: Random) -> Outage | None:
        """Isolate a row of cells, as one island or each cell as its own."""
        row = self._row(random)
        return None if row is None else self._isolation(row, apart=random.random() < 0.5)

    def _crash(self, cells: tuple[CellId, ...]) -> Outage:
        hosts = (host for host in self._world.hosts.values() if host.cell in cells)
        return Outage(cells, hosts=tuple(hosts))

    def _isolation(self, cells: tuple[CellId, ...], *, apart: bool = False) -> Outage:
        outside = [cell for cell in self._tree.names if cell not in cells]
        links = self._links(cells, outside)
        if apart:
            for cell in cells:
                links += self._links((cell,), [other for other in cells if other > cell])
        return Outage(cells, links=tuple(each for link in links for each in (link, link.back)))

    def _links(self, near: Iterable[CellId], far: Iterable[CellId]) -> list[SimulatedLink]:
        """Return the links from the brokers of some cells to those of others."""
        sources, targets = frozenset(near), frozenset(far)
        return [
            link
            for host in self._world.hosts.values()
            if host.cell in sources
            for link in self._world.network.links[host.broker].values()
            if link.target.cell in targets
        ]

    # --- start and end -------------------------------------------------------------------------

    def _start(self, outage: Outage, random: Random) -> None:
        for host in outage.hosts:
            host.held += 1
            self._world.crash(host, "with others")
        for link in outage.links:
            link.held += 1
            self._world.network.cut(link)
        span = self._world.options.outage_us(random)
        at_once = random.random() < 0.5
        ends = [partial(self._release_host, host) for host in outage.hosts]
        ends += [partial(self._release_link, link) for link in outage.links]
        for end in ends:
            earlier = 0 if at_once else random.randrange(1 + span // 2)
            self._world.after(span - earlier, end)
        self._world.after(span, partial(self._relapse, outage))

    def _release_host(self, host: SimulatedHost) -> None:
        host.held = max(0, host.held - 1)
        self._world.start(host)

    def _release_link(self, link: SimulatedLink) -> None:
        link.held = max(0, link.held - 1)
        if link.cut and not link.permanent and not link.held:
            self._world.network.heal(link)

    def _relapse(self, outage: Outage) -> None:
        """Strike the recovering cells again, with the probability that the options set."""
        random, options = self._relapses, self._world.options
        if random.random() >= options.relapse:
            return
        again = random.choice((self._the_same, self._one_of_it, self._next_to_it))(outage, random)
        soon = random.randrange(2 * self._world.parameters.session_timeout_ms * 1_000)

        def strike() -> None:
            if self._may_strike():
                self._world.note("world", f"relapse of {', '.join(again.cells)}")
                self._world.count_fault("relapse")
                self._start(again, random)

        self._world.after(soon, strike)

    def _the_same(self, outage: Outage, random: Random) -> Outage:
        del random
        return outage

    def _one_of_it(self, outage: Outage, random: Random) -> Outage:
        whole = self._crash(outage.cells)
        return Outage(outage.cells, hosts=(random.choice(whole.hosts),))

    def _next_to_it(self, outage: Outage, random: Random) -> Outage:
        beside = [
            each
            for cell in self._tree.names
            if cell in outage.cells
            for each in self._tree.graph.neighbours(cell)
            if each not in outage.cells
        ]
        return self._crash((random.choice(beside),)) if beside else outage
