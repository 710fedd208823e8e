"""A small world of brokers that only run operations on the tree.

Every broker has the components of :mod:`gapless.reshape.operations` over a disk, a step that merges
records, and sessions with all others. The fault budget: a crash loses writes that are not synced;
a session that is cut loses the messages that are on the way, and opens again later; messages and
disks are late by a seeded time. Nothing is corrupted and no message of one session overtakes
another.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
import pytest

from gapless.core.context import Context, Identity, StepTime, nothing
from gapless.core.effects import Write
from gapless.core.events import Written
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import Parameters
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records import (
    DeleteRecord,
    LockRecord,
    OperationRecord,
    PromiseRecord,
    PutRecord,
)
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OpReply,
    OpRequest,
    TakeoverReply,
)
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.cell_records import newest_records
from gapless.reshape.operations import Operations
from gapless.reshape.proposals import live_neighbours

__all__ = ["Broker", "MergeRecords", "PushedRecords", "World"]

MS = 1_000


class PushedRecords(msgspec.Struct, frozen=True):
    """Stands for RecordPush (RS-4)."""

    records: tuple[CellRecord, ...]


class MergeRecords(msgspec.Struct, frozen=True):
    """The part of a write that is a step of the tree."""

    records: tuple[CellRecord, ...]


_CHECKED = (MergeRecords, OperationRecord)
"""Writes after which the invariants are checked."""


class Held:
    """The step of one broker: it merges records on its disk (RS-1) and cuts them to Δ."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def own(self) -> CellId:
        return own_cell(self._broker.name, self._broker.disk_records, self._broker.cell)

    @property
    def may_join(self) -> bool:
        return True

    def record(self, cell: CellId) -> CellRecord | None:
        return self._broker.disk_records.get(cell)

    def records(self) -> Collection[CellRecord]:
        return self._broker.disk_records.values()

    def is_consistent(self, records: Collection[CellRecord]) -> bool:
        """No run has a broker in two cells that are both in the tree."""
        return bool(self._broker.name or records)

    def apply(
        self,
        records: Collection[CellRecord],
        *,
        changes: tuple[Any, ...] = (),
        then: Callable[[], None] = nothing,
    ) -> None:
        before = self._broker.neighbours()

        def stored() -> None:
            then()
            self._broker.push({*before, *self._broker.neighbours()})

        self._broker.context.write((MergeRecords(tuple(records)), *changes), stored)


def own_cell(name: BrokerId, records: dict[CellId, CellRecord], configured: CellId) -> CellId:
    """Return the cell that a broker is in: a newcomer's changes when it is appended."""
    joined = [each.name for each in records.values() if name in each.brokers and "#" in each.name]
    return max(joined, default=configured)


class Contents:
    """What is left at a broker, as a test sets it."""

    def __init__(self) -> None:
        self.entries: tuple[str, ...] = ()

    def left(self) -> tuple[str, ...]:
        return self.entries

    def is_member(self) -> bool:
        return False

    def leave(self) -> None:
        """Leave nothing: there are no pubends."""


class Broker:
    """A broker and its disk. The disk survives a crash; writes that are not synced do not."""

    def __init__(self, world: World, name: BrokerId, record: CellRecord, near: Topology) -> None:
        self.world = world
        self.name = name
        self.cell = record.name
        self.contents = Contents()
        self.disk: dict[tuple[str, ...], Any] = {}
        self.disk_records: dict[CellId, CellRecord] = {}
        self.distance: dict[CellId, int] = {}
        self.merge(near.cells)
        self.incarnation = 0
        self.alive = False
        self.unsynced: list[Any] = []
        self.replies: list[Any] = []
        self.start()

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        self.incarnation += 1
        self.alive = True
        identity = Identity(self.name, self.cell, self.incarnation)
        self.context = Context(identity, self.world.parameters)
        records = self.disk.values()
        self.operations = Operations(
            self.context,
            Held(self),
            self,
            self.contents,
            [each for each in records if isinstance(each, OperationRecord)],
            [each for each in records if isinstance(each, LockRecord)],
            [each for each in records if isinstance(each, PromiseRecord)],
        )
        self.run(self.operations.start)

    def crash(self) -> None:
        self.alive = False
        self.unsynced.clear()

    def run(self, action: Callable[[], object]) -> None:
        """Run a step, carry out its effects, and wait for the next timer."""
        world, context = self.world, self.context
        context.begin_step(StepTime(world.now, world.now))
        action()
        while messages := context.take_messages_to(self.name):
            for message in messages:
                world.observed(self.name, self.name, message)
                self.operations.handlers[type(message)](self.name, message)
        assert not context.take_messages(), "messages to others are sent to sessions"
        for effect in context.take_effects():
            if isinstance(effect, Write):
                self.unsynced.append(effect)
                world.later(world.disk_delay(self), self._syncer(self.incarnation))
            else:
                pytest.fail(f"{effect!r} is not expected")
        self._set_timer()

    def _syncer(self, incarnation: int) -> Callable[[], None]:
        def sync() -> None:
            if self.incarnation != incarnation or not self.alive or not self.unsynced:
                return
            write = self.unsynced.pop(0)
            for change in write.changes:
                if isinstance(change, MergeRecords):
                    self.merge(change.records)
                elif isinstance(change, PutRecord):
                    self.disk[change.record.key] = change.record
                else:
                    assert isinstance(change, DeleteRecord)
                    self.disk.pop(change.key, None)
            if any(isinstance(getattr(e, "record", e), _CHECKED) for e in write.changes):
                self.world.written(self)
            self.run(lambda: self.context.resume(Written(write.write_id)))

        return sync

    def _set_timer(self) -> None:
        due = self.context.next_timer()
        if due is not None:
            incarnation = self.incarnation

            def ring() -> None:
                if self.alive and self.incarnation == incarnation:
                    now_due = self.context.next_timer()
                    if now_due is not None and now_due <= self.world.now:
                        self.run(self.context.run_timers)

            self.world.later(max(0, due - self.world.now), ring)

    # --- records -------------------------------------------------------------------------------

    def merge(self, records: Iterable[CellRecord]) -> None:
        merged = newest_records((*self.disk_records.values(), *records))
        own = own_cell(self.name, merged, self.cell)
        if not merged[own].edges:
            self.disk_records = merged  # a detached cell keeps what it holds (RS-4)
            return
        near, distance = [own], {own: 0}
        for cell in near:
            if distance[cell] < self.world.radius:
                for other in merged[cell].neighbours:
                    if other not in distance and other in merged:
                        distance[other] = distance[cell] + 1
                        near.append(other)
        self.disk_records, self.distance = {cell: merged[cell] for cell in near}, distance

    def neighbours(self) -> set[BrokerId]:
        return {each for record in self.disk_records.values() for each in record.brokers}

    def push(self, peers: Iterable[BrokerId]) -> None:
        """Send the records to peers whose digest shows that they have other ones."""
        message = PushedRecords(tuple(self.disk_records.values()))
        for peer in sorted(peers):
            if peer != self.name and self.is_open(peer) and self._has_newer(self.world[peer]):
                self.send(peer, message)

    def _has_newer(self, peer: Broker) -> bool:
        held = peer.disk_records
        inner = [e for e in held.values() if peer.distance.get(e.name, 0) < self.world.radius]
        near = {edge.cell for record in inner for edge in record.edges}
        return any(
            record.version > held[cell].version if cell in held else cell in near
            for cell, record in self.disk_records.items()
        )

    # --- peers ---------------------------------------------------------------------------------

    def send(self, broker: BrokerId, message: Any) -> None:
        self.world.send(self.name, broker, message)

    def require(self, owner: str, members: Collection[CellMember]) -> None:
        """All brokers have sessions with each other while they are not cut off."""

    def is_open(self, broker: BrokerId) -> bool:
        return self.world.is_open(self.name, broker)

    def receive(self, peer: BrokerId, message: Any) -> None:
        if isinstance(message, PushedRecords):
            self.run(lambda: self.operations.records_received(peer, message.records))
        else:
            self.run(lambda: self.operations.handlers[type(message)](peer, message))

    def session_opened(self, peer: BrokerId) -> None:
        self.run(lambda: self.operations.session_opened(peer))
        if peer in self.neighbours():
            self.push((peer,))

    # --- what a test reads ---------------------------------------------------------------------

    @property
    def own(self) -> CellRecord:
        return self.disk_records[own_cell(self.name, self.disk_records, self.cell)]

    @property
    def lock(self) -> LockRecord | None:
        found = self.disk.get(("operation lock",))
        assert found is None or isinstance(found, LockRecord)
        return found

    @property
    def open_operations(self) -> list[OperationRecord]:
        found = [each for each in self.disk.values() if isinstance(each, OperationRecord)]
        return [each for each in found if each.participants]


class World:
    """Brokers, their sessions and a clock in microseconds."""

    def __init__(
        self,
        cells: dict[CellId, list[BrokerId]],
        edges: Iterable[tuple[CellId, CellId]],
        newcomers: Iterable[BrokerId] = (),
        *,
        seed: int = 0,
        radius: int = 2,
        slow: bool = False,
    ) -> None:
        self.parameters = Parameters()
        self.random = random.Random(seed)
        self.radius = radius
        self.slow = slow
        """Whether messages and disks are late by a random time; else both take a fixed one."""
        self.now = 1
        self._order = 0
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._cut: set[frozenset[BrokerId]] = set()
        self._sessions: dict[frozenset[BrokerId], int] = {}
        self._arrivals: dict[tuple[BrokerId, BrokerId], int] = {}
        self._synced: dict[BrokerId, int] = {}
        self.brokers: dict[BrokerId, Broker] = {}
        self.observers: list[Callable[[BrokerId, BrokerId, Any], None]] = []
        """Called with sender, receiver and message when a message arrives."""
        self.checks: list[Callable[[Broker], None]] = []
        """Called when a write is on the disk of a broker."""
        self.late: dict[type, int] = {}
        """By kind of message: by how many milliseconds it is late in addition."""
        self.requests = 0
        topology = Topology.of(cells, edges)
        for record in topology.cells:
            for name in record.brokers:
                near = topology.neighbourhood(record.name, radius)
                self.brokers[name] = Broker(self, name, record, Topology(near.cells))
        for name in newcomers:
            record = CellRecord.first(name.rstrip("0123456789"), [name], [])
            self.brokers[name] = Broker(self, name, record, Topology((record,)))
        self.later(1_000 * MS, self._gossip)

    def __getitem__(self, name: BrokerId) -> Broker:
        return self.brokers[name]

    # --- time ----------------------------------------------------------------------------------

    def later(self, delay: int, call: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._calls, (self.now + delay, self._order, call))

    def run(self, ms: int) -> None:
        """Let time pass."""
        end = self.now + ms * MS
        while self._calls and self._calls[0][0] <= end:
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = end

    def run_until(self, condition: Callable[[], bool], ms: int = 60_000) -> None:
        """Run until a condition holds; fail if it does not."""
        end = self.now + ms * MS
        while not condition():
            assert self._calls
            assert self._calls[0][0] <= end, "the condition did not come true"
            self.now, _, call = heapq.heappop(self._calls)
            call()

    # --- disks and sessions --------------------------------------------------------------------

    def disk_delay(self, broker: Broker) -> int:
        delay = self.random.choice((1, 2, 5, 40)) * MS if self.slow else 2 * MS
        at = max(self._synced.get(broker.name, 0), self.now + delay)
        self._synced[broker.name] = at
        return at - self.now

    def written(self, broker: Broker) -> None:
        for check in self.checks:
            check(broker)

    def observed(self, sender: BrokerId, receiver: BrokerId, message: Any) -> None:
        for observe in [*self.observers]:
            observe(sender, receiver, message)

    def is_open(self, one: BrokerId, other: BrokerId) -> bool:
        both = [self.brokers.get(one), self.brokers.get(other)]
        alive = all(each is not None and each.alive for each in both)
        return alive and frozenset((one, other)) not in self._cut

    def send(self, sender: BrokerId, receiver: BrokerId, message: Any) -> None:
        if not self.is_open(sender, receiver):
            return
        delay = self.random.choice((1, 3, 10, 300)) * MS if self.slow else 5 * MS
        delay += self.late.get(type(message), 0) * MS
        pair = (sender, receiver)
        at = max(self._arrivals.get(pair, 0), self.now + delay)
        self._arrivals[pair] = at
        session = self._sessions.get(frozenset(pair), 0)

        def arrive() -> None:
            if self.is_open(*pair) and self._sessions.get(frozenset(pair), 0) == session:
                self.observed(sender, receiver, message)
                if self.is_open(*pair):  # an observer may have cut it
                    self.brokers[receiver].receive(sender, message)

        self.later(at - self.now, arrive)

    def _opened(self, one: BrokerId, other: BrokerId) -> None:
        session = self._sessions.get(frozenset((one, other)), 0)

        def opened() -> None:
            pair = frozenset((one, other))
            if not self.is_open(one, other) or self._sessions.get(pair, 0) != session:
                return
            for me, peer in ((one, other), (other, one)):
                self.brokers[me].session_opened(peer)

        self.later(10 * MS, opened)

    def _gossip(self) -> None:
        """Stand for the digests of heartbeats (RS-4)."""
        for broker in self.brokers.values():
            if broker.alive:
                broker.push(broker.neighbours())
        self.later(1_000 * MS, self._gossip)

    # --- faults --------------------------------------------------------------------------------

    def cut(self, one: BrokerId, *others: BrokerId) -> None:
        for other in others:
            pair = frozenset((one, other))
            self._cut.add(pair)
            self._sessions[pair] = self._sessions.get(pair, 0) + 1

    def cut_off(self, *group: BrokerId) -> None:
        """Cut brokers off from all others, not from each other."""
        for one in group:
            self.cut(one, *(each for each in self.brokers if each not in group))

    def heal(self) -> None:
        cut, self._cut = self._cut, set()
        for pair in sorted(map(sorted, cut)):
            self._opened(*pair)

    def crash(self, name: BrokerId) -> None:
        if self.brokers[name].alive:
            self.brokers[name].crash()
            for other in self.brokers:
                pair = frozenset((name, other))
                self._sessions[pair] = self._sessions.get(pair, 0) + 1

    def restart(self, name: BrokerId) -> None:
        if not self.brokers[name].alive:
            self.brokers[name].start()
            for other in self.brokers:
                if other != name:
                    self._opened(name, other)

    def when(
        self,
        kind: type,
        action: Callable[[], None],
        *,
        source: BrokerId | None = None,
        target: BrokerId | None = None,
    ) -> None:
        """Act once, right before a message of a kind is received."""

        def observe(sender: BrokerId, receiver: BrokerId, message: Any) -> None:
            fits = source in (None, sender) and target in (None, receiver)
            if isinstance(message, kind) and fits:
                self.observers.remove(observe)
                if sender == receiver:
                    self.later(0, action)  # not within a step
                else:
                    action()

        self.observers.append(observe)

    # --- requests ------------------------------------------------------------------------------

    def request(
        self,
        broker: BrokerId,
        kind: OperationKind,
        *cells: CellId,
        member: BrokerId | None = None,
        plan: str = "",
    ) -> OperationRequestId:
        """Request an operation from a broker; return the id of the request."""
        self.requests += 1
        id_ = OperationRequestId(plan or f"request {self.requests}", self.requests)
        call = OpRequest(1, id_, kind, cells, None if member is None else CellMember(member))
        at = self.brokers[broker]
        at.run(lambda: at.operations.calls.asked(call, at.replies.append))
        return id_

    def take_over(self, broker: BrokerId, *replaced: BrokerId) -> None:
        """Let a broker take over its cell."""
        at = self.brokers[broker]

        def begin() -> None:
            refusal = at.operations.calls.take_over(replaced, at.replies.append)
            if refusal is not None:
                at.replies.append(refusal)

        at.run(begin)

    def replies(self, broker: BrokerId) -> list[OpReply]:
        return [each for each in self.brokers[broker].replies if isinstance(each, OpReply)]

    def takeovers(self, broker: BrokerId) -> list[TakeoverReply]:
        return [each for each in self.brokers[broker].replies if isinstance(each, TakeoverReply)]

    # --- the tree ------------------------------------------------------------------------------

    def newest(self, *, without: Collection[BrokerId] = ()) -> dict[CellId, CellRecord]:
        """Return the newest records of the disks, with the decisions that are on them (R-1)."""
        found: list[CellRecord] = []
        for broker in self.brokers.values():
            if broker.name in without:
                continue
            found += broker.disk_records.values()
            for operation in broker.open_operations:
                if operation.phase.name in ("COMMITTED", "FINISHED"):
                    found += operation.records
        return newest_records(found)

    def edges(self, records: dict[CellId, CellRecord] | None = None) -> set[str]:
        """Return the live edges of the newest records, as ``a-b``."""
        records = self.newest() if records is None else records
        return {
            f"{min(each.name, other.name)}-{max(each.name, other.name)}"
            for each in records.values()
            for other in live_neighbours(each, records.get)
        }
