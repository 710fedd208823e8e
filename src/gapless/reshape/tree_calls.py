"""Requests of operators for operations, takeovers and readmissions, at any broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from gapless.core.context import Context, Timer
from gapless.core.parameters import microseconds
from gapless.core.reshape_limits import TREE_REQUESTS_MAX
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    ReadmitBroker,
    RefusalReason,
    TakeOverCell,
    TakeoverReply,
)
from gapless.reshape.leader_requests import LeaderRequest, LeaderRequests

__all__ = ["OperatorTreeCalls"]


class _ClientOperation:
    """An operation that a client waits for."""

    def __init__(self) -> None:
        self._request: LeaderRequest | None = None
        self._timer: Timer | None = None

    def begin(self, request: LeaderRequest, timer: Timer) -> None:
        """Note what is under way, and the timer that ends the wait."""
        self._request, self._timer = request, timer

    def end(self) -> None:
        """Ask no more."""
        if self._request is not None:
            self._request.cancel()
        if self._timer is not None:
            self._timer.cancel()


class OperatorTreeCalls:
    """Carries the requests of operators to the leaders of the cells concerned.

    If no leader has answered within ``op_request_ms`` the reply says that the operation is still
    under way: it may be carried out later, and the same request may be sent again.
    """

    def __init__(self, context: Context, leaders: LeaderRequests) -> None:
        self._context = context
        self._leaders = leaders
        self._pending = 0
        """The operations that clients wait for."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            OpRequest: self._operate,
            TakeOverCell: self._take_over,
            ReadmitBroker: self._readmit,
        }

    def _operate(self, client: str, call: OpRequest) -> None:
        if self._is_refused(client, call.request):
            return
        self._pending += 1
        waiting = _ClientOperation()

        def ended(reply: OpReply) -> None:
            self._pending -= 1
            waiting.end()
            self._context.notify(client, replace(reply, request=call.request))

        def too_late() -> None:
            text = "the leader of the cell has not answered: the operation may still be carried out"
            ended(OpReply(0, call.id, OperationStatus.UNDER_WAY, text=text))

        longest_us = microseconds(ms=self._context.parameters.op_request_ms)
        request = self._leaders.operation(call, ended)
        waiting.begin(request, self._context.call_later(longest_us, too_late))

    def _readmit(self, client: str, call: ReadmitBroker) -> None:
        if self._is_refused(client, call.request):
            return

        def found(record: CellRecord | None) -> None:
            if record is None:
                text = f"no cell has a broker {call.broker}"
                id_ = OperationRequestId("readmit", call.request)
                refused, invalid = OperationStatus.REFUSED, RefusalReason.INVALID
                reply = OpReply(call.request, id_, refused, reason=invalid, text=text)
                self._context.notify(client, reply)
                return
            id_ = OperationRequestId(f"readmit {call.broker} {client}"[:200], call.request)
            member = CellMember(call.broker)
            kind = OperationKind.READMIT
            self._operate(client, OpRequest(call.request, id_, kind, (record.name,), member))

        self._leaders.cell_of(call.broker, found)

    def _take_over(self, client: str, call: TakeOverCell) -> None:
        if self._is_refused(client, call.request):
            return

        def ended(reply: TakeoverReply) -> None:
            self._context.notify(client, replace(reply, request=call.request))

        if call.cell:
            self._leaders.takeover(call, ended)
        elif reason := self._leaders.take_over_own(call.replaced, ended):
            self._context.notify(client, Refused(call.request, reason))

    def _is_refused(self, client: str, request: int) -> bool:
        """Refuse a request if too many are under way."""
        is_full = self._pending >= TREE_REQUESTS_MAX or self._leaders.is_full
        if is_full:
            reason = "too many operations are requested at this broker; retry later"
            self._context.notify(client, Refused(request, reason, RefusalCause.UNAVAILABLE))
        return is_full
