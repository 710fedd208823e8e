"""Whether this broker may lock for an operation (RS-6, RS-10, RS-15)."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.core.reshape_limits import REMAINDERS_NAMED_MAX
from gapless.messages.reshape import (
    OperationKind,
    OpPrepare,
    OpRefused,
    Participant,
    RefusalReason,
)
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.promises import Promises
from gapless.reshape.protocols import CellContents, OperationPeers

__all__ = ["Admission"]


class Admission:
    """Checks a request for a lock completely, before anything changes."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        promises: Promises,
        peers: OperationPeers,
        contents: CellContents,
    ) -> None:
        self._me = context.identity.broker
        self._degree_max = context.parameters.cell_degree_max
        self._records = records
        self._promises = promises
        self._peers = peers
        self._contents = contents

    def refusal_of(self, coordinator: BrokerId, message: OpPrepare) -> OpRefused | None:
        """Return why a free broker does not lock, or None if it does."""
        mine = next((each for each in message.participants if each.broker == self._me), None)
        if mine is None or not self._is_consistent(coordinator, message):
            return OpRefused(message.op, RefusalReason.INVALID)
        fenced = self._fenced(message)
        if fenced is not None:
            return fenced
        if not self._records.is_consistent(message.records):
            return OpRefused(message.op, RefusalReason.NAME_TAKEN)
        if mine.cell not in (self._records.own, *self._unexpected(message)):
            return OpRefused(message.op, RefusalReason.STALE, self._records.own_record)
        if mine.cell != self._records.own:
            return self._refusal_of_newcomer(message)
        return self._refusal_of_leader(message, mine)

    def _is_consistent(self, coordinator: BrokerId, message: OpPrepare) -> bool:
        """Return whether the fields of a message fit together."""
        lead = {each.cell: each for each in message.participants}
        records = {each.name for each in message.records}
        expected = {each.cell for each in message.expected}
        is_shift = message.kind is OperationKind.SHIFT
        if is_shift and (len(message.cells) != 3 or set(message.cells) != lead.keys()):
            return False
        return (
            message.cell in lead
            and lead[message.cell].broker == coordinator
            and len(lead) == len(message.participants)
            and len(records) == len(message.records)
            and expected <= records
            and expected <= lead.keys()
            and records <= lead.keys()
        )

    def _fenced(self, message: OpPrepare) -> OpRefused | None:
        terms = [(each.cell, each.term) for each in message.expected]
        terms += [(each.cell, each.term) for each in message.participants]
        terms.append((message.cell, message.term))
        for cell, term in terms:
            if self._promises.is_fenced(cell, term):
                record = self._records.get(cell)
                is_old = cell != message.cell and record is not None and record.term > term
                reason = RefusalReason.STALE if is_old else RefusalReason.FENCED
                return OpRefused(message.op, reason, record)
        return None

    def _unexpected(self, message: OpPrepare) -> Iterable[str]:
        """Return the cells that the operation makes."""
        return {each.name for each in message.records} - {each.cell for each in message.expected}

    def _refusal_of_leader(self, message: OpPrepare, mine: Participant) -> OpRefused | None:
        own = self._records.own_record
        expected = next((each for each in message.expected if each.cell == own.name), None)
        as_expected = expected is None or expected.shape_version == own.shape_version
        if own.leader != self._me or mine.term != own.term or not as_expected:
            return OpRefused(message.op, RefusalReason.STALE, own)
        after = next((each for each in message.records if each.name == own.name), None)
        if after is not None and len(after.edges) > max(self._degree_max, len(own.edges)):
            return OpRefused(message.op, RefusalReason.BOUND, own)
        is_first = message.cells[:1] == (own.name,)
        if is_first and message.kind is OperationKind.SHIFT:
            return self._refusal_without_session(message)
        if is_first and message.kind is OperationKind.DETACH:
            return self._refusal_of_contents(message)
        return None

    def _refusal_without_session(self, message: OpPrepare) -> OpRefused | None:
        """Refuse if i is to be fed over an edge whose ends have no session (RS-10)."""
        k = next(each.member for each in message.participants if each.cell == message.cells[2])
        self._peers.require("prepare", (k,))
        if self._peers.is_open(k.broker):
            return None
        return OpRefused(message.op, RefusalReason.NO_SESSION)

    def _refusal_of_newcomer(self, message: OpPrepare) -> OpRefused | None:
        own = self._records.own_record
        if not self._records.may_join or own.brokers != (self._me,):
            return OpRefused(message.op, RefusalReason.STALE, own)
        return self._refusal_of_contents(message)

    def _refusal_of_contents(self, message: OpPrepare) -> OpRefused | None:
        left = self._contents.left()[:REMAINDERS_NAMED_MAX]
        if left:
            return OpRefused(message.op, RefusalReason.NOT_EMPTY, left=left)
        if self._contents.is_member():
            self._contents.leave()
            return OpRefused(message.op, RefusalReason.LEAVING)
        return None
