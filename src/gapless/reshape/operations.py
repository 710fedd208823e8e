"""The operations on the tree at one broker: all their components, and their messages.

- :mod:`.coordinator`: runs operations; :mod:`.participant`: the lock of this broker
- :mod:`.takeover`: promises and the candidate; :mod:`.decision`: what a candidate decides
- :mod:`.inquiries`: answers to participants in doubt
- :mod:`.operation_calls`: requests of operators; :mod:`.operation_times`: how long they take
- this module: received records (RS-2, RS-8, RS-18)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.messages.overlay import CellRecord
from gapless.messages.records import LockRecord, OperationRecord, PromiseRecord
from gapless.messages.reshape import (
    OpAbort,
    OpAborted,
    OpFinish,
    OpFinished,
    OpInquire,
    OpOutcome,
    OpPrepare,
    OpPrepared,
    OpRefused,
    OpSwitch,
    OpSwitched,
    Promise,
    Takeover,
)
from gapless.overlay.cell_records import wrong_form
from gapless.reshape.admission import Admission
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.inquiries import Inquiries
from gapless.reshape.operation_calls import OperationCalls
from gapless.reshape.participant import OperationLock
from gapless.reshape.promises import Promises
from gapless.reshape.protocols import CellContents, HeldRecords, OperationPeers
from gapless.reshape.takeover import Promiser, TakeoverCandidate

__all__ = ["OPERATION_MESSAGES", "Operations"]

OPERATION_MESSAGES: Final = frozenset(
    {
        *(OpPrepare, OpPrepared, OpRefused, OpSwitch, OpSwitched, OpFinish, OpFinished),
        *(OpAbort, OpAborted, OpInquire, OpOutcome, Takeover, Promise),
    }
)
"""The messages between brokers; control sessions carry them too (RS-35)."""


class Operations:
    """All components of the operations on the tree."""

    def __init__(
        self,
        context: Context,
        held: HeldRecords,
        peers: OperationPeers,
        contents: CellContents,
        operations: Sequence[OperationRecord],
        locks: Sequence[LockRecord],
        promises: Sequence[PromiseRecord],
    ) -> None:
        self._context = context
        me = context.identity.broker
        self._me = me
        self._records = records = CellRecords(me, held, self._changed)
        known = Promises(records, promises)
        self.coordinator = Coordinator(context, records, known, peers, operations)
        admission = Admission(context, records, known, peers, contents)
        stored = locks[0] if locks else None
        self.lock = OperationLock(context, records, known, peers, admission, stored)
        inquiries = Inquiries(context, records, peers, self.lock, self.coordinator)
        promiser = Promiser(context, records, known, peers, self.lock, self.coordinator)
        self.candidate = TakeoverCandidate(
            context, records, known, peers, self.lock, self.coordinator
        )
        self.calls = OperationCalls(context, records, self.coordinator, self.candidate)
        self._handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {
            **self.coordinator.handlers,
            **self.lock.handlers,
            **inquiries.handlers,
            **promiser.handlers,
            **self.candidate.handlers,
            OpRefused: self._refused,
        }
        assert self._handlers.keys() == OPERATION_MESSAGES
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = dict.fromkeys(
            self._handlers, self._received
        )

    def start(self) -> None:
        """Continue what a former incarnation has begun."""
        self._changed()
        self.lock.start()
        self.coordinator.start()

    def session_opened(self, broker: BrokerId) -> None:
        """Messages to a broker are no longer lost."""
        self.coordinator.session_opened(broker)
        self.candidate.session_opened(broker)

    def records_received(self, peer: BrokerId, records: Iterable[CellRecord]) -> None:
        """Apply newer records of another broker, and what they prove (RS-4, RS-8).

        If one of them is of the own cell and not proven, all are refused: the own cell would be cut
        off from neighbours that follow an operation which it does not follow.
        """
        del peer
        newer = self._records.newer(records)
        own = self._records.own_record
        accepted = [each for each in newer if not self._is_own(each, own)]
        if not self._records.is_consistent(accepted):
            self._context.mark("records that make no tree")
            return
        proven, changes = self.lock.proven(newer)
        if proven or (accepted and len(accepted) == len(newer)):
            self._records.apply((*accepted, *proven), changes)

    def statistics(self) -> dict[str, int]:
        """Return the ended requests by outcome, and the time that finished operations took."""
        times = self.calls.times
        ended = {f"ended {outcome}": count for outcome, count in times.ended.items()}
        return {
            **ended,
            "time_us": times.time_us,
            "longest_us": times.longest_us,
            "working": self.calls.working,
            "locked": int(self.lock.held is not None),
        }

    def _received(self, peer: BrokerId, message: Any) -> None:
        """Pass a message to its component, if the records in it have the right form."""
        degree_max = self._context.parameters.cell_degree_max
        if any(wrong_form(record, degree_max) for record in _records_in(message)):
            self._context.mark("malformed record in an operation")
        else:
            self._handlers[type(message)](peer, message)

    def _is_own(self, record: CellRecord, own: CellRecord) -> bool:
        """Return whether only this broker may write a record: its own cell's, in its term (RS-2)."""
        is_own = own.leader == self._me and (record.name, record.term) == (own.name, own.term)
        if is_own:
            self._context.mark("record of the own cell from elsewhere")
        return is_own

    def _refused(self, peer: BrokerId, message: OpRefused) -> None:
        if message.record is not None:
            self.records_received(peer, (message.record,))
        self.coordinator.refused(peer, message)

    def _changed(self) -> None:
        """Records have changed: another broker may lead now, and operations may be decided by it."""
        lock = self.lock.held
        if lock is not None and not self._records.is_led():
            self._context.mark("leader deposed with a lock")
            self._context.write(self.lock.deposed())
        changes = self.coordinator.drop_fenced()
        if changes:
            self._context.write(changes)
        self.coordinator.records_changed()
        self.candidate.records_changed()


def _records_in(message: Any) -> Iterator[CellRecord]:
    """Return all records that a message contains."""
    record = getattr(message, "record", None)
    if record is not None:
        yield record
    yield from getattr(message, "records", ())
    lock = getattr(message, "lock", None)
    if lock is not None:
        yield from lock.records
    for outcome in getattr(message, "outcomes", ()):
        yield from outcome.records
