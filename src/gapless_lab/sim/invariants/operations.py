"""Operations on the tree: their locks and decisions on all disks (R-5, R-6, R-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId
from gapless.messages.overlay import CellRecord
from gapless.messages.records import (
    DeleteRecord,
    LockRecord,
    NeighbourhoodRecord,
    OperationPhase,
    OperationRecord,
    PutRecord,
    StorageChange,
)
from gapless.messages.records.reshape import LOCK_KEY
from gapless.messages.reshape import OperationId
from gapless_lab.sim.invariants.global_state import GlobalState, broker_of
from gapless_lab.sim.invariants.monitor import Invariant

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["OperationInvariant"]


class OperationInvariant(Invariant):
    """R-5: a lock ends only when its operation is decided. In the liveness phase none is left.

    R-6: no disk has a record that only an aborted operation proposed.

    R-7: when an operation commits, every participant has its lock, so a cell is in at most one
    operation. Its decisions are equal on all disks. Several operations never commit on one state of
    a cell: each raises the shape version or the term that it began with.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._locks: dict[BrokerId, LockRecord] = {}
        self._committed: dict[OperationId, BrokerId] = {}
        """The operations that are committed on a disk, with that broker."""
        self._aborted: dict[OperationId, BrokerId] = {}
        self._proposed: dict[OperationId, tuple[CellRecord, ...]] = {}
        self._done: set[CellRecord] = set(self.world.tree.records.values())
        """All records that were ever decided."""
        self._undone: set[CellRecord] = set()
        """Records that aborted operations proposed; a later one may propose and decide the same."""

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Look at a lock, a phase of an operation, or the records of a step."""
        if type(change) is DeleteRecord and change.key == LOCK_KEY:
            self._unlocked(host)
        elif type(change) is PutRecord:
            match change.record:
                case LockRecord() as lock:
                    self._locks[host.broker] = lock
                case OperationRecord() as operation:
                    self._phase(host, operation)
                case NeighbourhoodRecord() as stored:
                    self._stepped(host, stored)
                case _:
                    pass

    # --- phases --------------------------------------------------------------------------------

    def _phase(self, host: SimulatedHost, operation: OperationRecord) -> None:
        op = operation.op
        match operation.phase:
            case OperationPhase.PREPARING:
                self._proposed[op] = operation.records
            case OperationPhase.COMMITTED:
                if op not in self._committed and op.broker == host.broker:
                    self._check_locks(host, operation)
                self._decided(op, host, self._committed, self._aborted)
                self._done.update(operation.records)
            case OperationPhase.ABORTED:
                self._decided(op, host, self._aborted, self._committed)
                self._undone.update(self._proposed.get(op, ()))
            case _:
                pass

    def _decided(
        self,
        op: OperationId,
        host: SimulatedHost,
        same: dict[OperationId, BrokerId],
        other: dict[OperationId, BrokerId],
    ) -> None:
        same.setdefault(op, host.broker)
        if op in other:
            self.world.violate(
                "R-7", f"{op} has two decisions: at {host.broker}, and another at {other[op]}"
            )

    def _check_locks(self, host: SimulatedHost, operation: OperationRecord) -> None:
        for participant in operation.participants:
            lock = self._locks.get(participant.broker)
            if lock is None or lock.op != operation.op:
                self.world.violate(
                    "R-7",
                    f"{host.broker} commits {operation.op}, but {participant.broker} has "
                    f"{'no lock' if lock is None else f'the lock of {lock.op}'}",
                )
                return

    # --- locks and records ---------------------------------------------------------------------

    def _unlocked(self, host: SimulatedHost) -> None:
        lock = self._locks.pop(host.broker, None)
        if lock is None or lock.op in self._committed or lock.op in self._aborted:
            return
        coordinator = self.world.hosts.get(lock.coordinator)
        machine = None if coordinator is None else broker_of(coordinator)
        known = None if machine is None else machine.components.operations.coordinator.get(lock.op)
        if known is not None and known.phase is OperationPhase.PREPARING:
            self.world.violate(
                "R-5", f"{host.broker} drops the lock of {lock.op}, which is {known.phase.name}"
            )

    def _stepped(self, host: SimulatedHost, stored: NeighbourhoodRecord) -> None:
        for record in stored.cells:
            if record in self._undone and record not in self._done:
                self.world.violate(
                    "R-6", f"{host.broker} applies {record!r}, which an aborted operation proposed"
                )
                return

    # --- the end -------------------------------------------------------------------------------

    def outstanding(self, world: World) -> list[str]:
        """Return the locks that are left in the core."""
        return [
            f"{host.broker} has the lock of {self._locks[host.broker].op} (R-5)"
            for host in world.core
            if host.broker in self._locks
        ]
