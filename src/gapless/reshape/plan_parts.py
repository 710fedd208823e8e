"""What the executor of plans needs of the broker: walks, operations, and whether edges are settled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import CellRecord
from gapless.messages.plans import AreEdgesSettled, EdgesSettled
from gapless.messages.reshape import (
    ExpectedCell,
    OperationKind,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    RefusalReason,
)
from gapless.requests.tree_walk import TreeWalker
from gapless.requests.unicast import UnicastAnswer, UnicastHandler, UnicastRequester
from gapless.reshape.leader_requests import LeaderRequests
from gapless.reshape.plan_protocols import (
    Cancellable,
    OperationRefused,
    OperationStale,
    StepDone,
    StepOutcome,
    StepRequest,
)
from gapless.reshape.planning.steps import StepKind

__all__ = ["EdgeStates", "LeaderOperations", "SettledEdges", "WalkedRecords"]

_KINDS: Final = {
    StepKind.APPEND: OperationKind.APPEND,
    StepKind.DETACH: OperationKind.DETACH,
    StepKind.SHIFT: OperationKind.SHIFT,
}

_PLANNED_ANEW: Final = frozenset(
    {
        RefusalReason.STALE,
        RefusalReason.LOCKED,
        RefusalReason.FENCED,
        RefusalReason.NOT_LEADER,
        RefusalReason.TOO_MANY,
    }
)
"""Refusals that mean that others reshape at the same time: the plan is made anew (RS-20)."""


class WalkedRecords:
    """The records of the whole tree, by walks."""

    def __init__(self, walks: TreeWalker) -> None:
        self._walks = walks

    def walk(
        self, then: Callable[[Collection[CellRecord], Collection[CellId]], None]
    ) -> Cancellable:
        """Call back with the records of all cells, and with the cells that did not answer."""
        return self._walks.begin(lambda found: then(*found))


class LeaderOperations:
    """The operations of a plan, requested from the leaders that coordinate them."""

    def __init__(self, leaders: LeaderRequests) -> None:
        self._leaders = leaders

    def request(self, request: StepRequest, then: Callable[[StepOutcome], None]) -> Cancellable:
        """Request an operation until it has ended; call back in a later step, once."""
        kind = _KINDS[request.kind]
        asked = OpRequest(
            0,
            OperationRequestId(request.plan, request.number),
            kind,
            request.cells,
            request.newcomer,
            tuple(
                ExpectedCell(each.cell, each.term, each.shape_version) for each in request.expected
            ),
        )
        return self._leaders.operation(asked, lambda reply: then(_outcome(asked, reply)))


def _outcome(asked: OpRequest, reply: OpReply) -> StepOutcome:
    if reply.status is OperationStatus.DONE:
        is_append = asked.kind is OperationKind.APPEND
        return StepDone(f"{asked.cells[0]}#{reply.op}" if is_append else None)
    if reply.reason in _PLANNED_ANEW:
        return OperationStale()
    word = "" if reply.reason is None else reply.reason.name.lower().replace("_", " ")
    return OperationRefused(f"{word}: {reply.text}" if reply.text else word)


class EdgeStates(Protocol):
    """The edges of this broker."""

    @property
    def are_settled(self) -> bool:
        """Whether no edge of this broker is unsettled."""


class _Settling:
    """Asks the leaders of some cells, again and again, until all edges of these cells are settled."""

    def __init__(
        self,
        context: Context,
        unicast: UnicastRequester,
        leaders: LeaderRequests,
        cells: Collection[CellId],
        then: Callable[[], None],
    ) -> None:
        self._context = context
        self._unicast = unicast
        self._leaders = leaders
        self._left = [*cells]
        self._then = then
        self._under_way: Cancellable | None = None
        self._timer: Timer | None = context.call_later(1, self._ask)

    def cancel(self) -> None:
        """Ask no more."""
        for each in (self._under_way, self._timer):
            if each is not None:
                each.cancel()
        self._under_way = self._timer = None

    def _ask(self) -> None:
        self._timer = None
        if self._left:
            self._under_way = self._leaders.cell(self._left[0], self._found)
        else:
            self._then()

    def _found(self, record: CellRecord | None) -> None:
        self._under_way = None
        if record is None or not record.leader:  # the next operation finds out why
            self._left.pop(0)
            self._ask()
            return
        shb = ShbId(record.leader, record.name)
        self._under_way = self._unicast.request(shb, AreEdgesSettled(), self._answered)

    def _answered(self, answer: EdgesSettled) -> None:
        self._under_way = None
        if answer.settled:
            self._left.pop(0)
            self._ask()
            return
        pause_us = microseconds(ms=self._context.parameters.op_backoff_ms)
        self._timer = self._context.call_later(pause_us, self._ask)


class SettledEdges:
    """Waits until the edges of cells are settled, and tells other brokers about those of this one."""

    def __init__(
        self,
        context: Context,
        unicast: UnicastRequester,
        leaders: LeaderRequests,
        edges: EdgeStates,
    ) -> None:
        self._context = context
        self._unicast = unicast
        self._leaders = leaders
        self._edges = edges
        self.unicast_handlers: Mapping[type, UnicastHandler] = {AreEdgesSettled: self._asked}
        """The bodies of unicast requests that it serves."""

    def settle(self, cells: Collection[CellId], then: Callable[[], None]) -> Cancellable:
        """Call back, in a later step, when no edge of these cells' leaders is unsettled."""
        return _Settling(self._context, self._unicast, self._leaders, cells, then)

    def _asked(self, requester: BrokerId, body: Any, answer: UnicastAnswer) -> None:
        del requester, body
        answer(EdgesSettled(self._edges.are_settled))
