"""Requests to the leaders of cells, from any broker: operations, takeovers, readmissions (RS-5, D9).

Only the leader of the coordinator's cell can carry out an operation. A broker that an operator asks finds the
leader in the records that it holds, else by a walk over the tree, and sends the request there by a
unicast request, which is repeated until it is answered. A leader that still works on an operation
answers so, and is asked again. All of it is harmless to repeat, because an operation has the id of its
request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.parameters import microseconds
from gapless.core.reshape_limits import TAKEOVER_ANSWERS_MAX
from gapless.messages.overlay import CellRecord, CellRole
from gapless.messages.reshape import (
    OperationKind,
    OperationStatus,
    OpReply,
    OpRequest,
    RefusalReason,
    TakeOverCell,
    TakeoverReply,
)
from gapless.requests.tree_walk import TreeFound, TreeWalker
from gapless.requests.unicast import UnicastAnswer, UnicastHandler, UnicastRequester
from gapless.reshape.plan_protocols import Cancellable

__all__ = ["LeaderRequest", "LeaderRequests", "LocalOperations", "coordinating_cell"]

_FIRST: Final = frozenset({OperationKind.HAND_OVER, OperationKind.READMIT})
"""Operations whose first cell coordinates them; of the others it is the second."""

_ASKED_AGAIN: Final = frozenset({RefusalReason.NOT_LEADER, RefusalReason.FENCED})
"""Refusals after which the leader is looked for again."""


class LocalOperations(Protocol):
    """The operations that this broker coordinates, and its takeovers."""

    def asked(self, request: OpRequest, answer: Callable[[OpReply], None]) -> None:
        """Work on a request; ``answer`` is called once."""

    def take_over(
        self, replaced: Collection[BrokerId], ended: Callable[[TakeoverReply], None]
    ) -> str | None:
        """Begin a takeover of the own cell; return why it cannot begin."""


def coordinating_cell(request: OpRequest) -> CellId | None:
    """Return the cell whose leader coordinates an operation, or None if the request names none."""
    place = 0 if request.kind in _FIRST else 1
    return request.cells[place] if place < len(request.cells) else None


class LeaderRequest:
    """One operation that is requested from the leader of its coordinating cell, until it has ended."""

    def __init__(
        self,
        context: Context,
        unicast: UnicastRequester,
        find: Callable[[CellId, Callable[[CellRecord | None], None]], Cancellable],
        request: OpRequest,
        then: Callable[[OpReply], None],
    ) -> None:
        self._context = context
        self._unicast = unicast
        self._find = find
        self._request = request
        self._then = then
        self._under_way: Cancellable | None = None
        self._timer: Timer | None = None
        self._attempts = 0

    def start(self) -> None:
        """Find the leader and ask it."""
        cell = coordinating_cell(self._request)
        if cell is None:
            self._refuse(RefusalReason.INVALID, "the operation names too few cells")
        else:
            self._under_way = self._find(cell, self._found)

    def cancel(self) -> None:
        """Ask no more. The leader may carry out the operation all the same."""
        for each in (self._under_way, self._timer):
            if each is not None:
                each.cancel()
        self._under_way = self._timer = None

    def _found(self, record: CellRecord | None) -> None:
        self._under_way = None
        if record is None:
            cell = coordinating_cell(self._request)
            self._refuse(RefusalReason.STALE, f"no cell {cell} was found in the tree")
        elif not record.leader:
            self._refuse(RefusalReason.NOT_LEADER, f"the cell {record.name} has no leader")
        else:
            self._ask(ShbId(record.leader, record.name))

    def _ask(self, leader: ShbId) -> None:
        self._timer = None
        self._under_way = self._unicast.request(
            leader, self._request, lambda reply: self._answered(leader, reply)
        )

    def _answered(self, leader: ShbId, reply: OpReply) -> None:
        self._under_way = None
        parameters = self._context.parameters
        if reply.status is OperationStatus.UNDER_WAY:
            pause_us = microseconds(ms=parameters.op_backoff_ms)
            self._timer = self._context.call_later(pause_us, lambda: self._ask(leader))
            return
        again = reply.status is OperationStatus.REFUSED and reply.reason in _ASKED_AGAIN
        self._attempts += 1
        if not again or self._attempts > parameters.op_attempts:
            self._then(reply)
            return
        pause_us = microseconds(ms=parameters.op_backoff_ms)
        self._timer = self._context.call_later(pause_us, self.start)

    def _refuse(self, reason: RefusalReason, text: str) -> None:
        reply = OpReply(0, self._request.id, OperationStatus.REFUSED, reason=reason, text=text)
        # in a later step: the caller must have its request before it is called back
        self._timer = self._context.call_later(1, lambda: self._then(reply))


class LeaderRequests:
    """Sends requests to the leaders of cells, and serves those of other brokers."""

    def __init__(
        self,
        context: Context,
        held: Callable[[], Iterable[CellRecord]],
        walks: TreeWalker,
        unicast: UnicastRequester,
        local: LocalOperations,
    ) -> None:
        """``held`` returns the newest records of this broker."""
        self._context = context
        self._held = held
        self._walks = walks
        self._unicast = unicast
        self._local = local
        self._takeover: tuple[BrokerId, ...] | None = None
        """The brokers that the takeover under way declares, if another broker has requested it."""
        self._waiting: list[UnicastAnswer] = []
        """Of the requests for that takeover."""
        self.unicast_handlers: Mapping[type, UnicastHandler] = {
            OpRequest: self._operation_requested,
            TakeOverCell: self._takeover_requested,
        }
        """The bodies of unicast requests that it serves."""

    # --- requests of this broker ---------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no further request is made for a client."""
        return self._unicast.is_full

    def operation(self, request: OpRequest, then: Callable[[OpReply], None]) -> LeaderRequest:
        """Request an operation until it has ended; call back in a later step, once."""
        numbered = replace(request, request=0)
        found = LeaderRequest(self._context, self._unicast, self.cell, numbered, then)
        found.start()
        return found

    def takeover(self, call: TakeOverCell, then: Callable[[TakeoverReply], None]) -> None:
        """Let a member of a cell take the cell over; call back in a later step."""

        def found(record: CellRecord | None) -> None:
            candidate = None if record is None else _candidate(record, call.replaced)
            if candidate is None:
                text = f"the cell {call.cell} has no active member that could take over"
                then(TakeoverReply(0, done=False, text=text))
            else:
                shb = ShbId(candidate, call.cell)
                self._unicast.request(shb, replace(call, request=0), then)

        self.cell(call.cell, found)

    def take_over_own(
        self, replaced: Collection[BrokerId], ended: Callable[[TakeoverReply], None]
    ) -> str | None:
        """Let this broker take over its own cell; return why that cannot begin."""
        return self._local.take_over(replaced, ended)

    def cell_of(self, broker: BrokerId, then: Callable[[CellRecord | None], None]) -> Cancellable:
        """Find the record of the cell of a broker."""
        return self._find(lambda record: broker in record.brokers, then)

    def cell(self, cell: CellId, then: Callable[[CellRecord | None], None]) -> Cancellable:
        """Find the record of a cell."""
        return self._find(lambda record: record.name == cell, then)

    def _find(
        self, wanted: Callable[[CellRecord], bool], then: Callable[[CellRecord | None], None]
    ) -> Cancellable:
        """Find a record among those held, else by a walk; call back in a later step."""
        held = next(filter(wanted, self._held()), None)
        if held is not None:
            return self._context.call_later(1, lambda: then(held))

        def walked(found: TreeFound) -> None:
            then(next(filter(wanted, found.records), None))

        return self._walks.begin(walked)

    # --- requests of others --------------------------------------------------------------------

    def _operation_requested(self, requester: BrokerId, body: Any, answer: UnicastAnswer) -> None:
        del requester
        assert isinstance(body, OpRequest)
        self._local.asked(replace(body, request=0), answer)

    def _takeover_requested(self, requester: BrokerId, body: Any, answer: UnicastAnswer) -> None:
        """Take over the own cell. The same request may come again while the takeover lasts."""
        del requester
        assert isinstance(body, TakeOverCell)
        if self._takeover == body.replaced:
            self._waiting = [*self._waiting[1 - TAKEOVER_ANSWERS_MAX :], answer]
            return

        def ended(reply: TakeoverReply) -> None:
            waiting, self._waiting, self._takeover = self._waiting, [], None
            for each in waiting:
                each(reply)

        reason = self._local.take_over(body.replaced, ended)
        if reason is not None:
            answer(TakeoverReply(0, done=False, text=reason))
        else:
            self._takeover, self._waiting = body.replaced, [answer]


def _candidate(record: CellRecord, replaced: Collection[BrokerId]) -> BrokerId | None:
    """Return the member that takes over: the leader if it is not declared, else the first one."""
    active = [
        each.broker
        for each in record.members
        if each.role is CellRole.ACTIVE and each.broker not in replaced
    ]
    return record.leader if record.leader in active else min(active, default=None)
