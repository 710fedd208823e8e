"""Random runs of operations under faults, and what must hold in them.

A run has brokers, up to six operations, crashes, cuts and takeovers at seeded times. Then the world is
healed: all brokers run, all sessions open, and the operator ends takeovers that were given up. Then
every operation must end, no lock may be left, and all brokers must agree on one tree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRole, ShapeVersion, Term
from gapless.messages.records import OperationPhase
from gapless.messages.reshape import OperationId, OperationKind
from gapless.reshape.proofs import given_epochs
from gapless.reshape.takeover_state import TakeoverState
from tests.reshape.world import MS, Broker, World

__all__ = ["Mode", "ViolationError", "run"]


class ViolationError(AssertionError):
    """An invariant does not hold."""


class Mode(NamedTuple):
    """What may happen in a run."""

    takeovers: int = 1
    wrong: bool = False
    """Whether living brokers are declared too."""
    together: bool = False
    """Whether several leaders are cut off together and declared."""


CELLS = {cell: [f"{cell}1", f"{cell}2"] for cell in "ijka"}
EDGES = [("i", "j"), ("j", "k"), ("j", "a")]
DURATION = 12_000
_DECIDED = (OperationPhase.COMMITTED, OperationPhase.FINISHED)


class Run:
    """One random run."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self.random = rng = random.Random(seed)
        self.mode = mode
        cells, edges = dict(CELLS), list(EDGES)
        if rng.random() < 0.4:
            cells["m"] = ["m1", "m2"]
            edges.append(("k", "m"))
        self.world = World(cells, edges, ["n1"], seed=seed, radius=rng.choice((1, 2)), slow=True)
        self.world.checks.append(self._written)
        self.declared: set[BrokerId] = set()
        self.epochs: dict[tuple[tuple[CellId, CellId], ShapeVersion], OperationId] = {}
        self.leaders: dict[tuple[CellId, Term], BrokerId] = {}
        self.detached: set[CellId] = set()
        """The cells that a committed DETACH removes. Their leaders are not waited for (RS-7)."""

    # --- faults and requests ---------------------------------------------------------------------

    def schedule(self) -> None:
        rng, world = self.random, self.world
        for _ in range(rng.randint(2, 6)):
            world.later(rng.randint(1, DURATION // 2) * MS, self._request)
        for _ in range(rng.randint(0, 5)):
            world.later(rng.randint(1, DURATION) * MS, self._crash)
        for _ in range(rng.randint(0, 3)):
            world.later(rng.randint(1, DURATION) * MS, self._cut)
        for _ in range(rng.randint(0, 2)):
            world.later(rng.randint(1, DURATION) * MS, self._heal)
        for _ in range(rng.randint(0, self.mode.takeovers)):
            world.later(rng.randint(1, DURATION) * MS, self._take_over)

    def _request(self) -> None:
        rng, world = self.random, self.world
        newest = world.newest()
        kind = rng.choice([OperationKind.SHIFT] * 4 + [*OperationKind])
        coordinators = [each for each in newest.values() if each.edges and each.leader]
        record = rng.choice(sorted(coordinators, key=lambda each: each.name))
        leader = world[record.leader]
        if not leader.alive:
            return
        near = [*record.neighbours]
        rng.shuffle(near)
        match kind:
            case OperationKind.SHIFT if len(near) > 1:
                world.request(leader.name, kind, near[0], record.name, near[1])
            case OperationKind.APPEND:
                world.request(leader.name, kind, "n", record.name, member="n1")
            case OperationKind.DETACH:
                world.request(leader.name, kind, near[0], record.name)
            case OperationKind.HAND_OVER | OperationKind.READMIT:
                member = rng.choice(record.brokers)
                world.request(leader.name, kind, record.name, member=member)

    def _crash(self) -> None:
        name = self.random.choice(sorted(self.world.brokers))
        self.world.crash(name)
        if self.random.random() < 0.6:
            delay = self.random.choice((50, 500, 4_000)) * MS
            self.world.later(delay, lambda: self._restart(name))

    def _restart(self, name: BrokerId) -> None:
        if name not in self.declared or self.mode.wrong:
            self.world.restart(name)

    def _cut(self) -> None:
        names = sorted(self.world.brokers)
        group = self.random.sample(names, self.random.randint(1, 3))
        self.world.cut_off(*group)

    def _heal(self) -> None:
        self.world.heal()

    def _take_over(self) -> None:
        """Declare a dead leader, and with it other dead leaders; or living ones too."""
        rng, world = self.random, self.world
        newest = world.newest(without=self.declared)
        leaders = sorted({each.leader for each in newest.values() if each.leader and each.edges})
        dead = [each for each in leaders if not world[each].alive]
        if self.mode.together and rng.random() < 0.7:
            chosen = rng.sample(leaders, min(len(leaders), rng.randint(2, 3)))
            for each in chosen:
                world.crash(each)
        elif self.mode.wrong:
            chosen = rng.sample(leaders, min(len(leaders), rng.randint(1, 3)))
        elif dead:
            chosen = [rng.choice(dead)]
        else:
            chosen = [rng.choice(leaders)]
            world.crash(chosen[0])
        first = next(each for each in newest.values() if each.leader == chosen[0])
        candidates = [
            each.broker
            for each in first.members
            if each.broker not in chosen
            and each.role is CellRole.ACTIVE
            and world[each.broker].alive
        ]
        if candidates:
            self.declared |= set(chosen)
            world.take_over(rng.choice(candidates), *chosen)

    # --- invariants ------------------------------------------------------------------------------

    def _written(self, broker: Broker) -> None:
        """Check what must hold whenever a write is durable."""
        self._check_leaders(broker)
        for operation in broker.open_operations:
            if operation.kind is OperationKind.DETACH and operation.phase in _DECIDED:
                self.detached.add(operation.records[0].name)
        if self.mode.wrong or self.mode.together:
            return
        self._check_epochs(broker)
        self._check_tree()

    def _check_leaders(self, broker: Broker) -> None:
        for record in broker.disk_records.values():
            if record.leader:
                known = self.leaders.setdefault((record.name, record.term), record.leader)
                if known != record.leader:
                    raise ViolationError(f"R-1: {known} and {record.leader} lead {record.name}")

    def _check_epochs(self, broker: Broker) -> None:
        for operation in broker.open_operations:
            if operation.phase in _DECIDED:
                if broker.name in self.declared:
                    continue
                for edge in given_epochs(operation.records):
                    if operation.kind in (OperationKind.SHIFT, OperationKind.APPEND):
                        known = self.epochs.setdefault(edge, operation.op)
                        if known != operation.op:
                            raise ViolationError(f"R-9: {known} and {operation.op} give {edge}")

    def _check_tree(self) -> None:
        aborting = [
            each
            for broker in self.world.brokers.values()
            for each in broker.open_operations
            if each.phase is OperationPhase.ABORTED and each.new_term
        ]
        if aborting or any(self._takes_over(each) for each in self.world.brokers.values()):
            return
        check_tree(self.world, self.declared, self.detached)

    def _takes_over(self, broker: Broker) -> bool:
        return broker.alive and broker.operations.candidate.state is not TakeoverState.IDLE

    # --- the end ---------------------------------------------------------------------------------

    def heal(self) -> None:
        """Let everybody return, end takeovers that were given up, and wait for quiet."""
        world = self.world
        for name in sorted(world.brokers):
            world.restart(name)
        world.heal()
        for second in range(400):
            world.run(1_000)
            if self._is_quiet():
                world.run(2_000)
                return
            if second % 15 == 14:
                self._end_takeover()
        self._check_ends()

    def _is_quiet(self) -> bool:
        brokers = self.world.brokers.values()
        return (
            not any(
                each.lock
                or each.open_operations
                or self._takes_over(each)
                or each.operations.calls.working
                for each in brokers
            )
            and not self._without_leader()
        )

    def _without_leader(self) -> list[CellId]:
        """Return the cells that no broker leads in the greatest promised term."""
        newest = self.world.newest()
        found = []
        for cell, record in sorted(newest.items()):
            promised = max(
                (
                    each.disk[("promise", cell)].term
                    for each in self.world.brokers.values()
                    if ("promise", cell) in each.disk
                ),
                default=Term(),
            )
            if self.world.radius == 1 and any(
                not any(each.role is CellRole.ACTIVE for each in newest[other].members)
                for other in record.neighbours
                if other in newest
            ):
                continue  # nobody there can name the cells behind it (see RS-17)
            active = any(each.role is CellRole.ACTIVE for each in record.members)
            if record.edges and active and (not record.leader or promised > record.term):
                found.append(cell)
        return found

    def _end_takeover(self) -> None:
        """Let the leader of a cell, or a member of a cell without one, end a takeover."""
        newest = self.world.newest()
        brokers = self.world.brokers.values()
        waiting = [each.own.name for each in brokers if self._takes_over(each)]
        for cell in (*waiting, *self._without_leader()):
            record = newest[cell]
            active = [each.broker for each in record.members if each.role is CellRole.ACTIVE]
            if active:
                candidate = record.leader if record.leader in active else active[0]
                self.world.take_over(candidate)
                return

    def _check_ends(self) -> None:
        for broker in self.world.brokers.values():
            if broker.lock is not None:
                raise ViolationError(f"R-5: {broker.name} has the lock of {broker.lock.op}")
            if broker.open_operations:
                raise ViolationError(f"{broker.name} has {broker.open_operations}")
        if self._without_leader():
            raise ViolationError(f"nobody leads {self._without_leader()}")

    def check_end(self) -> None:
        """Check the healed world."""
        self._check_ends()
        check_tree(self.world, set(), set())
        newest = self.world.newest()
        for broker in self.world.brokers.values():
            if not broker.own.edges:
                continue  # a newcomer, or detached
            for cell, record in broker.disk_records.items():
                if record != newest[cell]:
                    raise ViolationError(f"{broker.name} has an old or other record of {cell}")


def check_tree(world: World, without: set[BrokerId], detached: set[CellId]) -> None:
    """Check that the live edges form a tree (R-1)."""
    records = world.newest(without=without)
    edges = world.edges(records)
    cells = {cell for cell, record in records.items() if record.edges} - detached
    reached, more = set[CellId](), sorted(cells)[:1]
    for cell in more:
        if cell not in reached:
            reached.add(cell)
            more += [end for edge in edges for end in edge.split("-") if cell in edge.split("-")]
    if reached != cells or len(edges) != max(0, len(cells) - 1):
        raise ViolationError(f"R-1: no tree of {sorted(cells)}: {sorted(edges)}")


ONE_AT_A_TIME = Mode()


def run(
    seed: int, mode: Mode = ONE_AT_A_TIME, prepare: Callable[[World], None] | None = None
) -> World:
    """Carry out one run and return its world; raise ViolationError if an invariant does not hold."""
    found = Run(seed, mode)
    if prepare is not None:
        prepare(found.world)
    found.schedule()
    found.world.run(DURATION)
    found.heal()
    found.check_end()
    return found.world
