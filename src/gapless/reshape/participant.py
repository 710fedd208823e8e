"""A participant of operations: the lock of this broker, and its step (RS-6 to RS-10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import CellRecord, Term
from gapless.messages.records import DeleteRecord, LockRecord, PutRecord, StorageChange
from gapless.messages.reshape import (
    OpAbort,
    OpAborted,
    OperationId,
    OperationKind,
    OperationOutcome,
    OpFinish,
    OpFinished,
    OpInquire,
    OpOutcome,
    OpPrepare,
    OpPrepared,
    OpRefused,
    OpSwitch,
    OpSwitched,
    RefusalReason,
    ReportedLock,
)
from gapless.reshape.admission import Admission
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.lock_state import LockInput, LockState, next_lock_state, state_of
from gapless.reshape.promises import Promises
from gapless.reshape.proofs import completed, proves_commit
from gapless.reshape.protocols import OperationPeers

__all__ = ["OperationLock"]


class OperationLock:
    """The lock of this broker. While it is locked it asks for the outcome after a silence (RS-8)."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        promises: Promises,
        peers: OperationPeers,
        admission: Admission,
        stored: LockRecord | None,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._records = records
        self._promises = promises
        self._peers = peers
        self._admission = admission
        self._lock = stored
        self._timer: Timer | None = None
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {
            OpPrepare: self.prepare,
            OpSwitch: self.switch,
            OpFinish: self.finish,
            OpAbort: self.abort,
            OpOutcome: self.outcome,
        }

    def start(self) -> None:
        """Ask for the outcome of the operation that a former incarnation locked for."""
        if self._lock is not None:
            self._require(self._lock)
            self._inquire()

    @property
    def held(self) -> LockRecord | None:
        """The lock, or None while this broker is free."""
        return self._lock

    @property
    def state(self) -> LockState:
        """The state of the lock."""
        return state_of(self._lock)

    # --- prepare -------------------------------------------------------------------------------

    def prepare(self, peer: BrokerId, message: OpPrepare) -> None:
        """Lock for an operation, or refuse."""
        lock = self._lock
        if lock is not None and lock.op == message.op:
            self._answer(peer, OpPrepared(message.op, lock.own))
            return
        if lock is not None:
            refusal = OpRefused(message.op, RefusalReason.LOCKED, locked_by=lock.op)
            self._answer(peer, refusal)
            return
        refused = self._admission.refusal_of(peer, message)
        if refused is not None:
            self._answer(peer, refused)
            return
        own = self._records.own_record
        lock = LockRecord(
            message.op,
            message.kind,
            message.cells,
            peer,
            message.cell,
            message.term,
            own,
            message.participants,
            message.records,
        )
        self._change(LockInput.PREPARE, lock)
        self._require(lock)
        reply = OpPrepared(message.op, own)
        self._context.write((PutRecord(lock),), lambda: self._send(peer, reply))

    # --- the outcome ---------------------------------------------------------------------------

    def switch(self, peer: BrokerId, message: OpSwitch) -> None:
        """Apply the records of a committed operation."""
        if self._refuse_fenced(peer, message.op, message.cell, message.term):
            return
        done = OpSwitched(message.op)
        if not self._is_for_lock(message.op, message.cell, message.term):
            self._records.apply(
                self._of_others(message.records), then=lambda: self._send(peer, done)
            )
            return
        changes = self._switch(LockInput.SWITCH, message.records)
        self._records.apply(message.records, changes, lambda: self._send(peer, done))

    def finish(self, peer: BrokerId, message: OpFinish) -> None:
        """Unlock after an operation that every participant has applied."""
        if self._refuse_fenced(peer, message.op, message.cell, message.term):
            return
        done = OpFinished(message.op)
        lock = self._lock
        if lock is None or not self._is_for_lock(message.op, message.cell, message.term):
            self._answer(peer, done)
        elif lock.switched:
            self._context.write(self._unlock(LockInput.FINISH), lambda: self._send(peer, done))

    def abort(self, peer: BrokerId, message: OpAbort) -> None:
        """Unlock after an operation without effect."""
        if self._refuse_fenced(peer, message.op, message.cell, message.term):
            return
        done = OpAborted(message.op)
        if not self._is_for_lock(message.op, message.cell, message.term):
            self._answer(peer, done)
        else:
            self._abort(new_term=message.new_term, then=lambda: self._send(peer, done))

    def outcome(self, peer: BrokerId, message: OpOutcome) -> None:
        """Take the answer to an inquiry."""
        del peer
        lock = self._lock
        if lock is None or lock.op != message.op:
            return
        decides = message.term is not None and not (
            message.term < lock.term or self._promises.is_fenced(lock.cell, message.term)
        )
        if message.outcome is OperationOutcome.ABORTED and decides:
            self._abort(new_term=message.new_term, then=_nothing)
        elif message.outcome is OperationOutcome.FINISHED and decides:
            records = () if lock.switched else message.records
            changes = () if lock.switched else self._switch(LockInput.SWITCH, records)
            unlocked = () if self._lock is None else self._unlock(LockInput.FINISH)
            self._records.apply(records, (*changes, *unlocked))
        elif (
            message.outcome is OperationOutcome.COMMITTED
            and not lock.switched
            and (decides or not lock.passed)
        ):
            happened = LockInput.SWITCH if decides else LockInput.PROOF
            self._records.apply(message.records, self._switch(happened, message.records))

    def proven(
        self, received: Iterable[CellRecord]
    ) -> tuple[tuple[CellRecord, ...], tuple[StorageChange, ...]]:
        """Return what to apply, and the changes, if a received record proves the commit (RS-8)."""
        lock = self._lock
        if lock is None or self.state is not LockState.LOCKED:
            return (), ()
        own = self._own_in(lock)
        if not any(proves_commit(lock.kind, each, lock.records, own) for each in received):
            return (), ()
        self._context.mark("operation proven by a record")
        records = tuple(completed(each, self._records.get(each.name)) for each in lock.records)
        return records, self._switch(LockInput.PROOF, records)

    def deposed(self) -> tuple[StorageChange, ...]:
        """Return the changes of the step that makes another broker the leader (RS-18)."""
        return () if self._lock is None else self._unlock(LockInput.DEPOSED)

    # --- takeover ------------------------------------------------------------------------------

    def report(self) -> ReportedLock | None:
        """Return the lock as a promise contains it."""
        lock = self._lock
        if lock is None:
            return None
        return ReportedLock(
            lock.op,
            lock.kind,
            lock.cell,
            self._own_in(lock),
            lock.participants,
            lock.records,
            lock.switched,
        )

    def pass_on(self, cells: Iterable[CellId], term: Term) -> tuple[StorageChange, ...]:
        """Pass the lock to the candidate that takes over its coordinator's cell."""
        lock = self._lock
        if lock is None or lock.cell not in cells or lock.term >= term:
            return ()
        passed = replace(lock, term=term, passed=True)
        self._change(LockInput.HAND_ON, passed)
        return (PutRecord(passed),)

    # --- the lock ------------------------------------------------------------------------------

    def _switch(
        self, happened: LockInput, records: tuple[CellRecord, ...]
    ) -> tuple[StorageChange, ...]:
        """Return the changes of the step; the lock ends if this broker leaves tree or leadership."""
        lock = self._lock
        assert lock is not None
        self._change(happened, replace(lock, records=records, switched=True))
        leaves = lock.kind is OperationKind.DETACH and lock.cells[0] == self._records.own
        own = next((each for each in records if each.name == self._records.own), None)
        if leaves:
            return self._unlock(LockInput.FINISH)
        if own is not None and own.leader != self._me:
            return self._unlock(LockInput.DEPOSED)
        assert self._lock is not None
        return (PutRecord(self._lock),)

    def _abort(self, *, new_term: bool, then: Callable[[], None]) -> None:
        lock = self._lock
        assert lock is not None
        undone = lock.switched
        if undone:
            self._context.mark("step undone")
        changes = self._unlock(LockInput.ABORT)
        own = self._records.own_record
        if own.leader != self._me or not (new_term or undone):
            self._records.apply((), changes, then)
            return
        number = max(own.term, self._promises.greatest(own.name)).number + 1
        before = lock.own if undone else own
        raised = replace(before, term=Term(number, self._me))
        self._records.apply((raised,), changes, then)

    def _unlock(self, happened: LockInput) -> tuple[StorageChange, ...]:
        lock = self._lock
        assert lock is not None
        self._change(happened, None)
        self._peers.require(_OWNER, ())
        return (DeleteRecord(lock.key),)

    def _change(self, happened: LockInput, lock: LockRecord | None) -> None:
        expected = next_lock_state(self.state, happened)
        self._lock = lock
        assert self.state is expected, f"{happened} leads to {expected}, not to {self.state}"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if lock is not None:
            self._wait()

    def _is_for_lock(self, op: OperationId, cell: CellId, term: Term) -> bool:
        lock = self._lock
        return lock is not None and (lock.op, lock.cell) == (op, cell) and term >= lock.term

    def _own_in(self, lock: LockRecord) -> CellId:
        """Return the cell for which this broker locks; the id of a newcomer's cell is new."""
        found = (each.cell for each in lock.participants if each.broker == self._me)
        return next(found, self._records.own)

    def _refuse_fenced(self, peer: BrokerId, op: OperationId, cell: CellId, term: Term) -> bool:
        lock = self._lock
        passed = lock is not None and lock.op == op and lock.term > term
        if not passed and not self._promises.is_fenced(cell, term):
            return False
        self._answer(peer, OpRefused(op, RefusalReason.FENCED, self._records.get(cell)))
        return True

    def _of_others(self, records: Iterable[CellRecord]) -> list[CellRecord]:
        """Leave out the own record if this broker has written it: no lock proves it (RS-2)."""
        own = self._records.own_record
        return [
            each
            for each in records
            if (each.name, each.term) != (own.name, own.term) or own.leader != self._me
        ]

    # --- in doubt ------------------------------------------------------------------------------

    def _wait(self) -> None:
        delay_us = microseconds(ms=self._context.parameters.op_inquire_ms)
        self._timer = self._context.call_later(delay_us, self._inquire)

    def _inquire(self) -> None:
        """Ask all that may know the outcome, and wait again."""
        lock = self._lock
        assert lock is not None, "a free broker has no timer"
        own = self._own_in(lock)
        inquiry = OpInquire(lock.op, lock.kind, lock.cell, lock.term, own, lock.records)
        leader = self._records.get(lock.cell)
        asked = [lock.coordinator, *(each.broker for each in lock.participants)]
        if leader is not None and leader.leader:
            asked.append(leader.leader)
        asked += [
            broker for each in lock.records if each.name == lock.cell for broker in each.brokers
        ]
        asked += [lock.term.broker] if lock.passed else []
        for broker in dict.fromkeys(asked):
            if broker != self._me or broker == lock.coordinator:
                self._send(broker, inquiry)
        self._wait()

    def _require(self, lock: LockRecord) -> None:
        members = {each.broker: each.member for each in lock.participants}
        members |= {each.broker: each for record in lock.records for each in record.members}
        others = [each for name, each in members.items() if name != self._me]
        self._peers.require(_OWNER, others)

    def _answer(self, peer: BrokerId, message: Any) -> None:
        """Answer by the present state, some of which may still be written."""
        self._context.write((), lambda: self._send(peer, message))

    def _send(self, broker: BrokerId, message: Any) -> None:
        if broker == self._me:
            self._context.send(broker, message)
        else:
            self._peers.send(broker, message)


_OWNER = "lock"
"""Under this name sessions with the other participants are kept."""


def _nothing() -> None:
    """Answer nobody."""
