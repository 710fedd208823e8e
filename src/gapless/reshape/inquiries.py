"""Answers to participants that are in doubt about an operation (RS-8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.messages.records.reshape import OperationPhase
from gapless.messages.reshape import OperationOutcome, OpInquire, OpOutcome
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.participant import OperationLock
from gapless.reshape.proofs import completed, proves_commit
from gapless.reshape.protocols import OperationPeers

__all__ = ["Inquiries"]


class Inquiries:
    """Says what this broker knows of an operation: as its coordinator, as the present leader of the
    coordinator's cell, as a participant, or by the records that it holds.
    """

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        peers: OperationPeers,
        lock: OperationLock,
        coordinator: Coordinator,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._records = records
        self._peers = peers
        self._lock = lock
        self._coordinator = coordinator
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {OpInquire: self.asked}

    def asked(self, peer: BrokerId, message: OpInquire) -> None:
        """Answer when everything that the answer depends on is durable."""
        answer = self._answer_to(message)

        def send() -> None:
            if peer == self._me:
                self._context.send(peer, answer)
            else:
                self._peers.send(peer, answer)

        self._context.write((), send)

    def _answer_to(self, message: OpInquire) -> OpOutcome:
        record = self._coordinator.get(message.op)
        if record is not None and record.participants:
            term = self._coordinator.term_of(record)
            match record.phase:
                case OperationPhase.PREPARING:
                    return OpOutcome(message.op, OperationOutcome.PREPARING)
                case OperationPhase.ABORTED:
                    aborted = OperationOutcome.ABORTED
                    return OpOutcome(message.op, aborted, term, record.new_term)
                case _:
                    committed = OperationOutcome.COMMITTED
                    return OpOutcome(message.op, committed, term, records=record.records)
        own = self._records.own_record
        leads = own.name == message.cell and own.leader == self._me and own.term >= message.term
        proven = self._proven(message)
        if leads and proven:
            records = proven.records
            return OpOutcome(message.op, OperationOutcome.FINISHED, own.term, records=records)
        if leads:
            return OpOutcome(
                message.op, OperationOutcome.ABORTED, own.term, new_term=own.term > message.term
            )
        return proven or OpOutcome(message.op, OperationOutcome.UNKNOWN)

    def _proven(self, message: OpInquire) -> OpOutcome | None:
        """Return that the operation is committed, if this broker has it or a record proves it."""
        lock = self._lock.held
        if lock is not None and lock.op == message.op and lock.switched:
            return OpOutcome(message.op, OperationOutcome.COMMITTED, records=lock.records)
        known = [self._records.get(each.name) for each in message.records]
        for record in known:
            if record is not None and proves_commit(
                message.kind, record, message.records, message.own
            ):
                records = tuple(map(completed, message.records, known))
                return OpOutcome(message.op, OperationOutcome.COMMITTED, records=records)
        return None
