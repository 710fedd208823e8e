"""Requests for operations at their coordinator: attempts, repetitions, replies (RS-6).

A request is attempted again after a refusal that may pass: another operation has the lock, a record
was old, or a session was missing. The wait before an attempt is drawn between nothing and a bound
that doubles. A request that is repeated while it is worked on is answered with UNDER_WAY.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.core.parameters import microseconds
from gapless.core.reshape_limits import OPERATIONS_WAITING_MAX
from gapless.messages.records.reshape import OperationPhase
from gapless.messages.reshape import (
    NO_OPERATION,
    OperationId,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    RefusalReason,
    TakeoverReply,
)
from gapless.reshape.cell_records import CellRecords
from gapless.reshape.coordinator import Coordinator
from gapless.reshape.operation_times import OperationTimes
from gapless.reshape.proposals import Refusal
from gapless.reshape.takeover import TakeoverCandidate

__all__ = ["OperationCalls"]

Answer = Callable[[OpReply], None]

_PASSING: Final = frozenset(
    {
        RefusalReason.LOCKED,
        RefusalReason.STALE,
        RefusalReason.NO_SESSION,
        RefusalReason.UNANSWERED,
        RefusalReason.LEAVING,
    }
)
"""Refusals after which the coordinator attempts the operation again."""


class _Attempts:
    """A requested operation and its attempts."""

    def __init__(self, request: OpRequest, answer: Answer, now: int) -> None:
        self.request = request
        self.answer = answer
        self.begun_at = now
        self.count = 0
        self.op = NO_OPERATION

    def begin(self) -> None:
        """Count an attempt."""
        self.count += 1

    def note(self, op: OperationId) -> None:
        """Note the operation that an attempt was."""
        self.op = op


class OperationCalls:
    """Answers requests for the operations that this broker coordinates, and for its takeovers."""

    def __init__(
        self,
        context: Context,
        records: CellRecords,
        coordinator: Coordinator,
        candidate: TakeoverCandidate,
    ) -> None:
        self._context = context
        self._records = records
        self._coordinator = coordinator
        self._candidate = candidate
        self._working: dict[OperationRequestId, _Attempts] = {}
        self.times = OperationTimes()

    @property
    def working(self) -> int:
        """How many requests are worked on."""
        return len(self._working)

    def asked(self, request: OpRequest, answer: Answer) -> None:
        """Work on a request; ``answer`` is called once."""
        known = self._coordinator.find(request.id)
        if known is not None and known.phase is OperationPhase.FINISHED:
            done = OpReply(request.request, request.id, OperationStatus.DONE, known.op)
            answer(replace(done, time_us=self.times.of(request.id)))
            return
        if request.id in self._working or (known is not None and known.participants):
            op = NO_OPERATION if known is None else known.op
            answer(OpReply(request.request, request.id, OperationStatus.UNDER_WAY, op))
            return
        if len(self._working) >= OPERATIONS_WAITING_MAX:
            refusal = Refusal(RefusalReason.TOO_MANY, "this leader works on enough operations")
            answer(self._refused(request, NO_OPERATION, refusal))
            return
        attempts = _Attempts(request, answer, self._context.now)
        self._working[request.id] = attempts
        self._attempt(attempts)

    # --- attempts ------------------------------------------------------------------------------

    def _attempt(self, attempts: _Attempts) -> None:
        attempts.begin()
        refusal = self._coordinator.begin(
            attempts.request, lambda op, why: self._ended(attempts, op, why)
        )
        if refusal is not None:
            self._end(attempts, refusal)

    def _ended(
        self,
        attempts: _Attempts,
        op: OperationId,
        why: Refusal | None,
    ) -> None:
        attempts.note(op)
        planned = (
            why is not None and why.reason is RefusalReason.STALE and attempts.request.expected
        )
        if (
            why is None
            or why.reason not in _PASSING
            or planned
            or attempts.count >= self._context.parameters.op_attempts
        ):
            self._end(attempts, why)
        else:
            self._context.call_later(self._pause_us(attempts), lambda: self._attempt(attempts))

    def _pause_us(self, attempts: _Attempts) -> int:
        """Return a wait that differs between coordinators, and is the same in every run."""
        parameters = self._context.parameters
        doubled = parameters.op_backoff_ms * 2 ** (attempts.count - 1)
        bound_us = microseconds(ms=min(doubled, parameters.op_backoff_max_ms))
        drawn = zlib.crc32(f"{attempts.op} {self._context.now}".encode())
        return 1 + bound_us * drawn // 2**32

    def _end(self, attempts: _Attempts, why: Refusal | None) -> None:
        request = attempts.request
        del self._working[request.id]
        if why is None:
            took_us = self._context.now - attempts.begun_at
            self.times.finished(request.id, attempts.op, request.kind, took_us)
            done = OpReply(request.request, request.id, OperationStatus.DONE, attempts.op)
            attempts.answer(replace(done, time_us=took_us))
        else:
            self.times.count(why.reason.name.lower())
            attempts.answer(self._refused(request, attempts.op, why))

    def _refused(self, request: OpRequest, op: OperationId, why: Refusal) -> OpReply:
        leader = ""
        if why.reason is RefusalReason.NOT_LEADER:
            leader = self._records.own_record.leader
        return OpReply(
            request.request,
            request.id,
            OperationStatus.REFUSED,
            op,
            why.reason,
            why.text,
            leader,
        )

    # --- takeover --------------------------------------------------------------------------------

    def take_over(
        self, replaced: Collection[BrokerId], ended: Callable[[TakeoverReply], None]
    ) -> str | None:
        """Begin a takeover of the own cell; return why it cannot begin."""

        def counted(reply: TakeoverReply) -> None:
            self.times.count("takeover" if reply.done else "takeover given up")
            ended(reply)

        return self._candidate.declare(replaced, counted)
