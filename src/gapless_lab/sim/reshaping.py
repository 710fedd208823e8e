"""Changes of the tree while a run goes on (SM-2, SM-3).

Theory of operation
-------------------
Operators (:mod:`.operators`) request SHIFTs and changes of cell leaders at random times. The brokers
run the operations themselves; the tree of the run follows their decisions (:mod:`.world_tree`).

Chance rarely hits what matters most. So when a phase of an operation becomes durable, one of the
brokers concerned sometimes crashes soon after it, or crashes inside its next sync; and sometimes the
broker with the most receivers is paused, so that it hears last of the decision. These faults strike
only where the options have them.

Before the liveness phase all hosts and links work for a while, until every operation has ended: a
broker that never returns would keep a lock for ever.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from gapless.broker import Broker
from gapless.messages.overlay import CellRecord, CellRole
from gapless.messages.records import (
    LockRecord,
    OperationRecord,
    PutRecord,
    StorageChange,
)
from gapless.messages.reshape import OperationKind
from gapless_lab.sim.operators import SimulatedOperator

if TYPE_CHECKING:
    from gapless_lab.sim.faults import FaultInjector
    from gapless_lab.sim.options import SimulationOptions
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Reshaping", "with_reshaping"]

RESHAPING_SHARE: Final = 0.3
"""The share of seeds in which the tree changes, of those with enough cells."""

CELLS_MIN: Final = 3
"""A SHIFT needs three cells."""

HAND_OVER_SHARE: Final = 0.15
"""The share of operations that change the leader of a cell, where a cell has several brokers."""

AIMED_SHARE: Final = 0.15
"""How often a fault is aimed at a phase of an operation."""


def with_reshaping(options: SimulationOptions) -> SimulationOptions:
    """Return the options with changes of the tree, in some seeds; other options do not change."""
    random = Random(f"{options.seed}/reshaping")  # noqa: S311
    if random.random() >= RESHAPING_SHARE or options.cells < CELLS_MIN:
        return options
    return options.with_(reshape_rate=random.choice((1.0, 3.0, 8.0)) * 0.1 / options.pace)


class Reshaping:
    """The operators of a run, and the faults that are aimed at their operations."""

    def __init__(self, world: World, oracle: Oracle, faults: FaultInjector) -> None:
        self._world = world
        self._oracle = oracle
        self._faults = faults
        self._random = world.stream("reshaping")
        self._aims = world.stream("reshaping", "aims")
        self.operators: list[SimulatedOperator] = []
        self._over = False
        if self.is_on:
            world.disk_listeners.append(self._durable)

    @property
    def is_on(self) -> bool:
        """Whether the tree changes in this run."""
        return self._world.options.reshape_rate > 0

    def start(self) -> None:
        """Schedule the operations."""
        if self.is_on:
            self._plan()

    def stop(self) -> None:
        """Request nothing new; what was requested continues."""
        self._over = True
        for operator in self.operators:
            operator.connect()

    def outstanding(self) -> list[str]:
        """Return the operations that have no end yet, and the locks that are left (R-5)."""
        found = [
            f"{operator.name}: {operator.what} has no reply"
            for operator in self.operators
            if operator.outcome is None
        ]
        for host in self._world.hosts.values():
            for record in host.disk.records.values():
                if isinstance(record, OperationRecord) and record.participants:
                    found.append(f"{host.broker}: {record.op} is {record.phase.name}")
                elif isinstance(record, LockRecord):
                    found.append(f"{host.broker} has the lock of {record.op}")
        return found

    # --- operations ----------------------------------------------------------------------------

    def _plan(self) -> None:
        delay = self._random.expovariate(self._world.options.reshape_rate)
        self._world.after(int(delay * 1_000_000), self._strike)

    def _strike(self) -> None:
        if self._over:
            return
        several = [each for each in self._world.tree.cells if len(_active(each)) > 1]
        if several and self._random.random() < HAND_OVER_SHARE:
            self._hand_over(self._random.choice(several))
        else:
            self._shift()
        self._plan()

    def _shift(self) -> None:
        """Request SHIFT(i, j, k) of random cells, whether or not another operation has them."""
        tree = self._world.tree
        inner = [cell for cell in tree.names if len(tree.graph.neighbours(cell)) > 1]
        if inner:
            j = self._random.choice(inner)
            i, k = self._random.sample(tree.graph.neighbours(j), 2)
            leader = tree.records[j].leader or tree.records[j].brokers[0]
            self._request(OperationKind.SHIFT, leader, i, j, k)

    def _hand_over(self, record: CellRecord) -> None:
        others = [broker for broker in _active(record) if broker != record.leader]
        if record.leader and others:
            member = self._random.choice(others)
            self._request(OperationKind.HAND_OVER, record.leader, record.name, member=member)

    def _request(
        self, kind: OperationKind, leader: str, *cells: str, member: str | None = None
    ) -> None:
        host = self._world.hosts[leader]
        name = f"o{len(self.operators) + 1}"
        operator = SimulatedOperator(self._world, self._oracle, name, host, kind, cells, member)
        self._world.note(name, f"requests {operator.what}")
        self._world.count_fault(kind.name.lower().replace("_", " "))
        self.operators.append(operator)
        operator.connect()

    # --- aims ----------------------------------------------------------------------------------

    def _durable(self, host: SimulatedHost, change: StorageChange) -> None:  # noqa: ARG002
        """A phase of an operation is durable: sometimes strike one of the brokers concerned."""
        record = change.record if type(change) is PutRecord else None
        if self._over or not isinstance(record, OperationRecord | LockRecord):
            return
        if not record.participants or self._aims.random() >= AIMED_SHARE:
            return
        hosts = [self._world.hosts[each.broker] for each in record.participants]
        soon = self._aims.randrange(int(20_000 * self._world.options.pace) + 1)
        match self._aims.randrange(3):
            case 0:
                self._world.after(soon, partial(self._faults.bounce, self._aims.choice(hosts)))
            case 1:
                self._faults.aim(self._aims.choice(hosts))
            case _:
                members = [self._world.hosts[b] for each in record.records for b in each.brokers]
                self._world.after(0, partial(self._faults.hold_up, max(members, key=_receivers)))


def _active(record: CellRecord) -> list[str]:
    return [each.broker for each in record.members if each.role is CellRole.ACTIVE]


def _receivers(host: SimulatedHost) -> int:
    """Return how many receivers the router of a host feeds."""
    machine = None if host.process is None else host.process.machine
    if not isinstance(machine, Broker) or not machine.is_running:
        return 0
    return sum(len(each.attachments) for each in machine.components.router.routed.values())
