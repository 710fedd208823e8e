"""How long operations take, from the request to the end (HA, section V).

The time contains refused attempts and the waits between them, because the operator waits for them
too. Of the newest finished operations each time is kept, by the id of the last attempt.
"""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.reshape_limits import OPERATION_TIMES_SHOWN, OPERATIONS_KEPT
from gapless.messages.reshape import OperationId, OperationKind, OperationRequestId

__all__ = ["OperationTime", "OperationTimes"]


class OperationTime(NamedTuple):
    """A finished operation."""

    op: OperationId
    kind: OperationKind
    time_us: int


class OperationTimes:
    """The ended requests of operations at their coordinator."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        """How many requests have ended, by outcome."""
        self.done = 0
        """How many operations are finished."""
        self.time_us = 0
        """The time that they have taken together."""
        self.longest_us = 0
        self._kept: dict[OperationRequestId, OperationTime] = {}
        """The newest finished operations, oldest first."""

    @property
    def newest(self) -> tuple[OperationTime, ...]:
        """The newest finished operations, oldest first."""
        return tuple(self._kept.values())[-OPERATION_TIMES_SHOWN:]

    def of(self, request: OperationRequestId) -> int:
        """Return the time of the operation that a request has led to; 0 if it is not kept."""
        found = self._kept.get(request)
        return 0 if found is None else found.time_us

    def count(self, outcome: str) -> None:
        """Count a request that has ended without a finished operation."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1

    def finished(
        self, request: OperationRequestId, op: OperationId, kind: OperationKind, time_us: int
    ) -> None:
        """An operation is finished, so long after its request."""
        self.count("done")
        self.done += 1
        self.time_us += time_us
        self.longest_us = max(self.longest_us, time_us)
        self._kept[request] = OperationTime(op, kind, time_us)
        if len(self._kept) > OPERATIONS_KEPT:
            del self._kept[next(iter(self._kept))]
