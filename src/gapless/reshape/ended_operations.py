"""The operations that have ended at this broker, for requests that are repeated."""

from __future__ import annotations

from gapless.core.ids import BrokerId
from gapless.core.reshape_limits import OPERATIONS_KEPT
from gapless.messages.records import DeleteRecord, OperationRecord, StorageChange
from gapless.messages.reshape import OperationId, OperationRequestId

__all__ = ["EndedOperations"]


class EndedOperations:
    """The last operations that have ended, oldest first."""

    def __init__(self, me: BrokerId) -> None:
        self._me = me
        self._records: dict[OperationId, OperationRecord] = {}

    def get(self, op: OperationId) -> OperationRecord | None:
        """Return an operation, if it is remembered."""
        return self._records.get(op)

    def find(self, request: OperationRequestId) -> OperationRecord | None:
        """Return the last attempt for a request, if it is remembered."""
        found = [each for each in self._records.values() if each.request == request]
        return found[-1] if found else None

    def add(self, record: OperationRecord) -> tuple[StorageChange, ...]:
        """Remember an operation; return the changes that forget the oldest one if there are many.

        The newest operation of this broker is kept, because it has the last number.
        """
        self._records[record.op] = record
        if len(self._records) <= OPERATIONS_KEPT:
            return ()
        newest = max((op for op in self._records if op.broker == self._me), default=None)
        oldest = next(each for each in self._records.values() if each.op != newest)
        del self._records[oldest.op]
        return (DeleteRecord(oldest.key),)
