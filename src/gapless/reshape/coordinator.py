"""The coordinator of operations: prepare, switch, finish; or abort (RS-5 to RS-9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import CellRecord, Term
from gapless.messages.records import OperationRecord, PutRecord, StorageChange
from gapless.messages.records.reshape import OperationPhase
from gapless.messages.reshape import (
    OpAborted,
    OperationId,
    OperationKind,
    OperationRequestId,
    OpFinished,
    OpPrepare,
    OpPrepared,
    OpRefused,
    OpRequest,
    OpSwitched,
    Participant,
    PromisedOutcome,
    RefusalReason,
)
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.coordinator_state import OperationInput, next_phase
from gapless.reshape.ended_operations import EndedOperations
from gapless.reshape.operation_run import Ended, OperationRun, ignore_end
from gapless.reshape.promises import Promises
from gapless.reshape.proposals import Refusal, Surroundings, propose
from gapless.reshape.protocols import OperationPeers

__all__ = ["Coordinator"]


class Coordinator:
    """The operations that this broker coordinates, and those that it decided in a takeover."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        promises: Promises,
        peers: OperationPeers,
        stored: Iterable[OperationRecord],
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._records = records
        self._promises = promises
        self._peers = peers
        self._operations: dict[OperationId, OperationRun] = {}
        self._over = EndedOperations(self._me)
        self._count = 0
        for record in sorted(stored, key=lambda each: each.op):
            if record.op.broker == self._me:
                self._count = max(self._count, record.op.counter)
            if record.participants:
                self._operations[record.op] = OperationRun(record)
            else:
                self._over.add(record)
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {
            OpPrepared: self.prepared,
            OpRefused: self.refused,
            OpSwitched: self.switched,
            OpFinished: self.finished,
            OpAborted: self.aborted,
        }

    def start(self) -> None:
        """Continue the operations of the former incarnation; those not decided are aborted."""
        for operation in [*self._operations.values()]:
            self._require(operation)
            if operation.record.phase is OperationPhase.PREPARING:
                self._fail(operation, Refusal(RefusalReason.UNANSWERED))
            else:
                self._repeat(operation)

    # --- the operations ------------------------------------------------------------------------

    def get(self, op: OperationId) -> OperationRecord | None:
        """Return an operation that is worked on or remembered."""
        found = self._operations.get(op)
        return self._over.get(op) if found is None else found.record

    def find(self, request: OperationRequestId) -> OperationRecord | None:
        """Return the last attempt for a request, if it is remembered."""
        working = [each.record for each in self._operations.values()]
        return next((e for e in working if e.request == request), self._over.find(request))

    def term_of(self, record: OperationRecord) -> Term:
        """Return the term in which this broker decides for the coordinator's cell."""
        own = self._records.own_record
        leads = own.name == record.cell and own.leader == self._me
        return max(own.term, record.term) if leads else record.term

    def greatest_term(self, cell: CellId) -> Term:
        """Return the greatest term that an operation of this broker gives a cell."""
        given = (record for each in self._operations.values() for record in each.record.records)
        return max((each.term for each in given if each.name == cell), default=Term())

    def outcomes(self) -> tuple[PromisedOutcome, ...]:
        """Return what this broker has decided and not forgotten, for a promise."""
        return tuple(
            PromisedOutcome(
                each.record.op,
                each.record.phase is not OperationPhase.ABORTED,
                each.record.records,
            )
            for each in self._operations.values()
            if each.record.phase is not OperationPhase.PREPARING
        )

    # --- prepare -------------------------------------------------------------------------------

    def begin(self, request: OpRequest, ended: Ended) -> Refusal | None:
        """Attempt an operation. ``ended`` is called once, unless it is refused at once."""
        own = self._records.own_record
        if own.leader != self._me or self._promises.is_fenced(own.name, own.term):
            return Refusal(RefusalReason.NOT_LEADER, f"{self._me} does not lead {own.name}")
        op = OperationId(self._me, self._count + 1)
        degree_max = self._context.parameters.cell_degree_max
        around = Surroundings(own, self._records.get, degree_max, self._peers.is_open)
        proposal = propose(request, op, around)
        if isinstance(proposal, Refusal):
            return proposal
        self._count += 1
        record = OperationRecord(
            op,
            request.id,
            request.kind,
            own.name,
            own.term,
            proposal.participants,
            proposal.records,
            OperationPhase.PREPARING,
        )
        cells = request.cells
        if request.kind is OperationKind.APPEND:
            cells = (proposal.records[0].name, *request.cells[1:])
        operation = OperationRun(record, cells, proposal, ended)
        self._operations[op] = operation
        self._require(operation)
        timeout_us = microseconds(ms=self._context.parameters.op_prepare_ms)
        operation.wait(self._context, timeout_us, lambda: self._time_out(operation))
        self._context.write((PutRecord(record),), lambda: self._ask_next(operation))
        return None

    def prepared(self, peer: BrokerId, message: OpPrepared) -> None:
        """A participant has locked: ask the next one, or decide."""
        operation = self._awaiting(message.op, OperationPhase.PREPARING)
        if operation is None or (asked := self._next(operation)) is None or asked.broker != peer:
            return
        operation.note_lock(asked.cell, message.record)
        if self._next(operation) is not None:
            self._ask_next(operation)
        else:
            self._commit(operation)

    def refused(self, peer: BrokerId, message: OpRefused) -> None:
        """A participant does not lock: abort. A fenced decision waits for newer records."""
        operation = self._awaiting(message.op, OperationPhase.PREPARING)
        if operation is None or (asked := self._next(operation)) is None or asked.broker != peer:
            return
        text = f"{peer} refuses"
        if message.reason is RefusalReason.LOCKED:
            text += f": {message.locked_by} has the lock"
        elif message.left:
            text += f": it still has {'; '.join(message.left)}"
        self._fail(operation, Refusal(message.reason, text[:1_000]))

    def _ask_next(self, operation: OperationRun) -> None:
        asked, proposal, record = self._next(operation), operation.proposal, operation.record
        if record.phase is not OperationPhase.PREPARING:
            return  # aborted before its record was durable
        assert asked is not None
        assert proposal is not None
        operation.begin_asking()
        prepare = OpPrepare(
            record.op,
            record.kind,
            operation.cells,
            record.cell,
            record.term,
            proposal.expected,
            record.participants,
            record.records,
        )
        self._send(asked.broker, prepare)

    def _next(self, operation: OperationRun) -> Participant | None:
        participants = operation.record.participants
        return next((e for e in participants if e.cell not in operation.prepared), None)

    def _time_out(self, operation: OperationRun) -> None:
        if operation.record.phase is OperationPhase.PREPARING:
            asked = self._next(operation)
            assert asked is not None
            self._fail(operation, Refusal(RefusalReason.UNANSWERED, f"{asked.broker} is silent"))

    # --- the decision --------------------------------------------------------------------------

    def _commit(self, operation: OperationRun) -> None:
        record = operation.record
        own = self._records.own_record
        if self._promises.is_fenced(record.cell, record.term) or own.leader != self._me:
            self._fail(operation, Refusal(RefusalReason.FENCED, "another broker takes over"))
            return
        new = tuple(self._decided(operation, each) for each in record.records)
        term = new[0].term if record.kind is OperationKind.HAND_OVER else record.term
        operation.change(OperationInput.ALL_PREPARED, records=new, term=term)
        self._context.write((PutRecord(operation.record),), lambda: self._repeat(operation))

    def _decided(self, operation: OperationRun, proposed: CellRecord) -> CellRecord:
        """Take the members from the record in OpPrepared (RS-6)."""
        locked = operation.prepared.get(proposed.name)
        is_new = operation.newcomer is not None and proposed.name == operation.newcomer.cell
        if locked is None or is_new or operation.record.kind is OperationKind.READMIT:
            return proposed
        return replace(proposed, members=locked.members, member_version=locked.member_version)

    def _fail(self, operation: OperationRun, why: Refusal) -> None:
        operation.change(OperationInput.FAILED)
        self._context.write((PutRecord(operation.record),), lambda: self._send_aborts(operation))
        operation.end(why)

    def _send_aborts(self, operation: OperationRun) -> None:
        """Send OpAbort once: a participant that misses it asks."""
        record = operation.record
        message = operation.message(self.term_of(record))
        for each in record.participants:
            self._send(each.broker, message)
        if record.op in self._operations:
            self._end(operation)

    # --- switch, finish, abort by a takeover -----------------------------------------------------

    def switched(self, peer: BrokerId, message: OpSwitched) -> None:
        """A participant has applied the records."""
        operation = self._awaiting(message.op, OperationPhase.COMMITTED)
        if operation is None:
            return
        operation.note_answer(peer)
        if not operation.has_spread and peer != self._me:
            newcomer = operation.newcomer
            if newcomer is None or newcomer.broker != peer:
                self._spread(operation)
        self._advance(operation)

    def finished(self, peer: BrokerId, message: OpFinished) -> None:
        """A participant has unlocked."""
        operation = self._awaiting(message.op, OperationPhase.FINISHED)
        if operation is not None:
            operation.note_answer(peer)
            self._advance(operation)

    def aborted(self, peer: BrokerId, message: OpAborted) -> None:
        """A participant has unlocked without a step."""
        operation = self._awaiting(message.op, OperationPhase.ABORTED)
        if operation is not None:
            operation.note_answer(peer)
            self._advance(operation)

    def _advance(self, operation: OperationRun) -> None:
        """Continue when every participant has answered."""
        if self._unanswered(operation):
            return
        record = operation.record
        if record.phase is not OperationPhase.COMMITTED:
            self._end(operation)
            return
        operation.change(OperationInput.ALL_SWITCHED)

        def durable() -> None:
            operation.end(None)
            self._repeat(operation)

        self._context.write((PutRecord(operation.record),), durable)

    def _unanswered(self, operation: OperationRun) -> list[Participant]:
        """Return whom the operation waits for.

        A cell of a greater term was taken over: its candidate has adopted the outcome (RS-17).
        """
        return [
            each
            for each in operation.record.participants
            if each.cell not in operation.answered
            and each.cell != operation.leaving
            and not self._is_taken_over(operation, each)
        ]

    def _is_taken_over(self, operation: OperationRun, participant: Participant) -> bool:
        known = self._records.get(participant.cell)
        if participant.broker == self._me or known is None or known.term <= participant.term:
            return False
        given = (each.version for each in operation.record.records)
        return known.version not in given  # the operation itself may raise a term

    def _repeat(self, operation: OperationRun) -> None:
        """Send the message of the present phase to all that have not answered, again and again."""
        record = operation.record
        if self._operations.get(record.op) is not operation:
            return
        self._advance(operation)
        if operation.record.phase is not record.phase or record.op not in self._operations:
            return
        for each in self._unanswered(operation):
            self._send_phase(operation, each)
        leaving = operation.leaving
        if record.phase is OperationPhase.COMMITTED and leaving not in (None, *operation.answered):
            left = next((e for e in record.participants if e.cell == leaving), None)
            if left is not None:
                self._send_phase(operation, left)
        if record.phase is OperationPhase.COMMITTED and not operation.has_spread:
            awaited = self._unanswered(operation)
            if not any(each in awaited for each in operation.others):
                self._spread(operation)
        self._set_timer(operation)

    def _spread(self, operation: OperationRun) -> None:
        """Let this broker, the newcomer and all members of the cells apply the decision (RS-7)."""
        operation.note_spread()
        record = operation.record
        message = operation.message(self.term_of(record))
        others = {each.broker for each in operation.others}
        members = [broker for each in record.records for broker in each.brokers]
        for broker in dict.fromkeys((self._me, *members)):
            if broker not in others:
                self._send(broker, message)

    def _send_phase(self, operation: OperationRun, to: Participant) -> None:
        is_early = to.broker == self._me or to == operation.newcomer
        is_switch = operation.record.phase is OperationPhase.COMMITTED
        if not (is_switch and is_early and not operation.has_spread):
            self._send(to.broker, operation.message(self.term_of(operation.record)))

    def session_opened(self, broker: BrokerId) -> None:
        """Repeat at once what a broker has not answered, because messages may be lost."""
        for operation in [*self._operations.values()]:
            asked, newcomer = self._next(operation), operation.newcomer
            awaits_newcomer = operation.is_asking and asked is not None and asked == newcomer
            if awaits_newcomer and newcomer is not None and newcomer.broker == broker:
                self._ask_next(operation)
            if operation.record.phase is not OperationPhase.PREPARING:
                for each in self._unanswered(operation):
                    if each.broker == broker:
                        self._send_phase(operation, each)

    # --- takeover ------------------------------------------------------------------------------

    def abort_undecided(self, cells: Iterable[CellId]) -> None:
        """Abort what is not decided and contains these cells, because their terms end (RS-17)."""
        named = set(cells)
        for operation in [*self._operations.values()]:
            record = operation.record
            concerned = named & {each.cell for each in record.participants}
            if record.phase is OperationPhase.PREPARING and concerned:
                self._fail(operation, Refusal(RefusalReason.FENCED, "a cell is taken over"))

    def adopt(self, adopted: Iterable[OperationRecord]) -> None:
        """Continue operations that this broker has decided in a takeover; they are durable."""
        for record in adopted:
            before = self._operations.pop(record.op, None)
            if before is not None:
                before.stop()
            operation = OperationRun(record, ended=ignore_end if before is None else before.end_at)
            operation.note_spread()
            self._operations[record.op] = operation
            self._require(operation)
            self._repeat(operation)

    def records_changed(self) -> None:
        """Newer records are durable: participants that were taken over are waited for no longer."""
        for operation in [*self._operations.values()]:
            if operation.record.phase is not OperationPhase.PREPARING and any(
                self._is_taken_over(operation, each) for each in operation.record.participants
            ):
                self._repeat(operation)

    def drop_fenced(self) -> tuple[StorageChange, ...]:
        """Give up operations for whose coordinator's cell a greater term decides (RS-18)."""
        changes: list[StorageChange] = []
        for operation in [*self._operations.values()]:
            record = operation.record
            known = self._records.get(record.cell)
            if known is None or known.term <= self.term_of(record):
                continue
            self._context.mark("operation fenced")
            if record.phase is OperationPhase.PREPARING:
                self._fail(operation, Refusal(RefusalReason.FENCED, "another broker leads"))
                continue
            operation.end(Refusal(RefusalReason.FENCED, "another broker leads"))
            next_phase(record.phase, OperationInput.DROPPED)
            changes += self._forget(operation)
        return tuple(changes)

    # --- records, timers, messages ---------------------------------------------------------------

    def _awaiting(self, op: OperationId, phase: OperationPhase) -> OperationRun | None:
        operation = self._operations.get(op)
        return operation if operation is not None and operation.record.phase is phase else None

    def _set_timer(self, operation: OperationRun) -> None:
        delay_us = microseconds(ms=self._context.parameters.op_inquire_ms)
        operation.wait(self._context, delay_us, lambda: self._repeat(operation))

    def _end(self, operation: OperationRun) -> None:
        assert next_phase(operation.record.phase, OperationInput.ALL_ANSWERED) is None
        self._context.write(self._forget(operation))

    def _forget(self, operation: OperationRun) -> tuple[StorageChange, ...]:
        """Keep of an operation only its request and number, of some operations."""
        operation.stop()
        record = replace(operation.record, participants=(), records=())
        del self._operations[record.op]
        self._peers.require(str(record.op), ())
        return (PutRecord(record), *self._over.add(record))

    def _require(self, operation: OperationRun) -> None:
        record = operation.record
        others = [each.member for each in record.participants if each.broker != self._me]
        self._peers.require(str(record.op), others)

    def _send(self, broker: BrokerId, message: Any) -> None:
        if broker == self._me:
            self._context.send(broker, message)
        else:
            self._peers.send(broker, message)
