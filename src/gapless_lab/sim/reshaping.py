"""Changes of the tree while a run goes on (SM-2, SM-3).

Theory of operation
-------------------
At random times a SHIFT of the present tree is decided. The brokers of its three cells then apply the
new records one after the other: first the leader of one of the cells that do not coordinate, then,
when that step is durable, the others, each after a delay of its own. All other brokers learn of the
records from their peers (RS-4). A broker that is down or paused, or that crashes before its step is
durable, applies the records later. Until the three leaders have stepped their cells are locked: no
other operation on them begins (RS-6).

Chance rarely hits what matters most, so some operations are aimed: the busiest feeder hears last, or
a broker crashes inside the sync of its step.

This module is the only one that decides about the tree. It calls the step of the brokers directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from gapless.broker import Broker
from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord
from gapless.messages.records import NeighbourhoodRecord
from gapless.reshape.changes import shifted

if TYPE_CHECKING:
    from gapless_lab.sim.options import SimulationOptions
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Reshaping", "with_reshaping"]

RESHAPING_SHARE: Final = 0.3
"""The share of seeds in which the tree changes, of those with enough cells."""

CELLS_MIN: Final = 3
"""A SHIFT needs three cells."""

RETRY_US: Final = 20_000
"""How soon a broker that could not apply records is tried again."""


def with_reshaping(options: SimulationOptions) -> SimulationOptions:
    """Return the options with changes of the tree, in some seeds; other options do not change."""
    random = Random(f"{options.seed}/reshaping")  # noqa: S311
    if random.random() >= RESHAPING_SHARE or options.cells < CELLS_MIN:
        return options
    return options.with_(reshape_rate=random.choice((1.0, 3.0, 8.0)) * 0.1 / options.pace)


class _Step:
    """An operation that is decided and not yet over."""

    def __init__(self, records: tuple[CellRecord, ...], hosts: list[SimulatedHost]) -> None:
        self.records = records
        self.waiting = hosts
        """The members of the cells that have not applied the records, in the order of the steps."""
        self.is_free = False
        """Whether the first participant has applied them, so that the others may follow."""

    @property
    def cells(self) -> list[CellId]:
        return [record.name for record in self.records]

    def leads(self, host: SimulatedHost) -> bool:
        return any(record.leader == host.broker for record in self.records)


class Reshaping:
    """Decides SHIFTs, and lets the brokers concerned apply them."""

    def __init__(self, world: World, aim: Callable[[SimulatedHost], None]) -> None:
        """``aim`` arms a crash of a host inside its next sync, if that fault may strike now."""
        self._world = world
        self._aim = aim
        self._random = world.stream("reshaping")
        self._steps: list[_Step] = []
        self._over = False
        self.decided = 0
        """The number of operations that were decided."""

    def start(self) -> None:
        """Schedule the operations."""
        if self._world.options.reshape_rate > 0:
            self._plan()

    def stop(self) -> None:
        """Decide nothing new; what is decided is still applied, also if the first one stays down."""
        self._over = True
        for step in self._steps:
            if not step.is_free:
                self._follow(step)

    def outstanding(self) -> list[str]:
        """Return the operations that the leaders in the core have not applied."""
        core = self._world.core
        return [
            f"{host.broker} has not applied the records of {', '.join(step.cells)}"
            for step in self._steps
            for host in step.waiting
            if host in core
        ]

    def _plan(self) -> None:
        delay = self._random.expovariate(self._world.options.reshape_rate)
        self._world.after(int(delay * 1_000_000), self._strike)

    def _strike(self) -> None:
        if not self._over:
            self._shift()
            self._plan()

    # --- decisions -----------------------------------------------------------------------------

    def _shift(self) -> None:
        """Decide SHIFT(i, j, k) for random cells that are not locked."""
        tree, random = self._world.tree, self._random
        locked = {cell for step in self._steps if self._is_locked(step) for cell in step.cells}
        rows = [
            (i, j, k)
            for j in tree.names
            for i in tree.graph.neighbours(j)
            for k in tree.graph.neighbours(j)
            if i != k and locked.isdisjoint((i, j, k))
        ]
        if not rows:
            return
        i, j, k = random.choice(rows)
        records = shifted(*(tree.records[cell] for cell in (i, j, k)))
        self._world.note("world", f"SHIFT({i}, {j}, {k}) is decided")
        self._world.count_fault("shift")
        self.decided += 1
        self._world.tree.learn(records)
        step = _Step(records, self._ordered(records, random.choice((i, k))))
        self._steps.append(step)
        self._apply(step, step.waiting[0])

    def _is_locked(self, step: _Step) -> bool:
        return not step.is_free or any(map(step.leads, step.waiting))

    def _ordered(self, records: tuple[CellRecord, ...], first: CellId) -> list[SimulatedHost]:
        """Return the members of the cells: the leader of one cell first, the others at random.

        In some operations the broker with the most receivers is the last.
        """
        world, random = self._world, self._random
        hosts = [world.hosts[broker] for record in records for broker in record.brokers]
        leader = next(record.leader for record in records if record.name == first)
        hosts.remove(world.hosts[leader])
        random.shuffle(hosts)
        if random.random() < 0.3:
            hosts.sort(key=_receivers)
        return [world.hosts[leader], *hosts]

    # --- steps ---------------------------------------------------------------------------------

    def _follow(self, step: _Step) -> None:
        """The first participant has stepped: the others follow, each after a delay."""
        step.is_free = True
        at_most = int(self._random.choice((1_000, 20_000, 300_000, 3_000_000)))
        at_most = int(at_most * self._world.options.pace)
        delays = sorted(self._random.randrange(1 + at_most) for _ in step.waiting)
        for host, delay in zip(step.waiting, delays, strict=True):
            self._world.after(delay, partial(self._apply, step, host))

    def _apply(self, step: _Step, host: SimulatedHost) -> None:
        """Let a broker apply the records; look later whether the step has become durable."""
        if self._has_applied(step, host):
            if host in step.waiting:
                step.waiting.remove(host)
            if not step.is_free:
                self._follow(step)
            if not step.waiting and step in self._steps:
                self._steps.remove(step)
            return
        process = host.process
        machine = None if process is None else process.machine
        if isinstance(machine, Broker) and machine.is_running and process and not process.paused:
            if self._random.random() < 0.1:
                self._aim(host)
            machine.apply_records(step.records)
            self._world.happen(process, None)
        self._world.after(
            RETRY_US + self._world.options.sync_us_max, partial(self._apply, step, host)
        )

    def _has_applied(self, step: _Step, host: SimulatedHost) -> bool:
        """Return whether the record of the own cell is on disk, or a newer one."""
        stored = host.disk.records.get(("neighbourhood",))
        if not isinstance(stored, NeighbourhoodRecord):
            return False
        own = next(record for record in step.records if record.name == host.cell)
        return any(cell.name == own.name and cell.version >= own.version for cell in stored.cells)


def _receivers(host: SimulatedHost) -> int:
    """Return how many receivers the router of a host feeds."""
    machine = None if host.process is None else host.process.machine
    if not isinstance(machine, Broker) or not machine.is_running:
        return 0
    routed = machine.components.router.routed.values()
    return sum(len(each.attachments) for each in routed)
