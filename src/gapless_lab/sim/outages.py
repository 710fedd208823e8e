"""Outages: cells that fail as a whole, and heal.

**cell crash**: all brokers of a cell die at once. **cell isolated**: all links of a cell to the outside
are cut, and inside it lives: an island. **side cut**: all links of a cell towards one neighbour and all
beyond that are cut; others may still have links past the cell. **one-way side cut**: the same in one
direction. **barrier crash**, **barrier isolated**: δ + 1 cells in a row, one more than bypass covers; what
is behind them waits, and catches up.

An outage *holds* what it breaks: a lesser fault that struck the same host or link before, and is over
sooner, does not open it. Half of the outages end in one moment, half bit by bit. A *relapse* strikes soon
after an outage is over, while those it hit recover: the same once more, one broker of it, or a cell next
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec

from gapless.core.ids import CellId
from gapless_lab.sim.regions import rows, side

if TYPE_CHECKING:
    from gapless_lab.sim.network import SimulatedLink
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Outages"]


class Outage(msgspec.Struct, frozen=True):
    """What fails together."""

    cells: tuple[CellId, ...]
    """The cells that it is about."""
    hosts: tuple[SimulatedHost, ...] = ()
    """Who is down."""
    links: tuple[SimulatedLink, ...] = ()
    """What is cut."""


class Outages:
    """Strikes whole cells, and lets them heal."""

    def __init__(self, world: World, may_strike: Callable[[], bool]) -> None:
        self._world = world
        self._topology = world.topology
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
        """Begin an outage of a kind; say whether there was anything to strike."""
        outage = self._kinds[kind](random)
        if outage is not None:
            self._world.note("world", f"{kind} of {', '.join(outage.cells)}")
            self._start(outage, random)
        return outage is not None

    def let_go(self) -> None:
        """Hold nothing any more: the liveness phase decides what heals."""
        for host in self._world.hosts.values():
            host.held = 0
        for pair in self._world.network.pairs:
            for link in pair.links:
                link.held = 0

    # --- what is struck ------------------------------------------------------------------------

    def _cell(self, random: Random) -> CellId | None:
        """Draw a cell in which somebody lives."""
        living = {host.cell: None for host in self._world.hosts.values() if host.process}
        return random.choice(list(living)) if living else None

    def _cell_crash(self, random: Random) -> Outage | None:
        cell = self._cell(random)
        return None if cell is None else self._crash((cell,))

    def _cell_isolated(self, random: Random) -> Outage | None:
        cell = self._cell(random)
        if cell is None or len(self._topology.cells) == 1:
            return None
        return self._isolation((cell,))

    def _side_cut(self, random: Random, *, one_way: bool) -> Outage | None:
        edges = [(cell.name, each) for cell in self._topology.cells for each in cell.neighbours]
        if not edges:
            return None
        cell, neighbour = random.choice(edges)
        outward = self._links((cell,), side(self._topology, cell, neighbour))
        back = [link.back for link in outward]
        links = random.choice((outward, back)) if one_way else [*outward, *back]
        return Outage((cell,), links=tuple(links))

    def _row(self, random: Random) -> tuple[CellId, ...] | None:
        found = rows(self._topology, self._world.options.delta + 1)
        return random.choice(found) if found else None

    def _barrier_crash(self, random: Random) -> Outage | None:
        row = self._row(random)
        return None if row is None else self._crash(row)

    def _barrier_isolated(self, random: Random) -> Outage | None:
        """Cut a row off; its cells are one island, or each is one of its own."""
        row = self._row(random)
        return None if row is None else self._isolation(row, apart=random.random() < 0.5)

    def _crash(self, cells: tuple[CellId, ...]) -> Outage:
        hosts = (host for host in self._world.hosts.values() if host.cell in cells)
        return Outage(cells, hosts=tuple(hosts))

    def _isolation(self, cells: tuple[CellId, ...], *, apart: bool = False) -> Outage:
        outside = [cell.name for cell in self._topology.cells if cell.name not in cells]
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

    # --- beginning and ending ------------------------------------------------------------------

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
        """Let something strike those who recover, perhaps."""
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
            for cell in self._topology.cells
            if cell.name in outage.cells
            for each in cell.neighbours
            if each not in outage.cells
        ]
        return self._crash((random.choice(beside),)) if beside else outage
