"""Requests of operators for plans: apply a tree, ask how far it is, abort (RS-19 to RS-21)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.context import Context
from gapless.core.errors import UsageError
from gapless.core.plan_limits import PLAN_STEPS_SHOWN_MAX
from gapless.messages.clients import Refused
from gapless.messages.plans import (
    AbortPlan,
    ApplyPlan,
    GetPlan,
    PlanAborted,
    PlanReply,
    PlanStepState,
)
from gapless.messages.records.plans import NearCells, Newcomer, PlanOrder, PlanRecord
from gapless.reshape.plan_protocols import (
    PlanOutcome,
)
from gapless.reshape.plans import PlanExecutor

__all__ = ["PlanCalls"]


class PlanCalls:
    """Answers requests for plans. A plan goes on when its client has left."""

    def __init__(self, context: Context, plans: PlanExecutor) -> None:
        self._context = context
        self._plans = plans
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            ApplyPlan: self._apply,
            GetPlan: self._get,
            AbortPlan: self._abort,
        }

    def _apply(self, client: str, call: ApplyPlan) -> None:
        """Begin a plan; the same order again is answered by its state."""
        order = order_of(call)
        under_way = self._plans.plan
        try:
            if under_way is None or under_way.order != order:
                self._plans.apply(order, _ignore)
        except UsageError as error:
            self._context.notify(client, Refused(call.request, str(error)))
            return
        self._context.notify(client, self._reply(call.request, 0))

    def _get(self, client: str, call: GetPlan) -> None:
        self._context.notify(client, self._reply(call.request, call.after))

    def _abort(self, client: str, call: AbortPlan) -> None:
        self._context.notify(client, PlanAborted(call.request, self._plans.abort()))

    def _reply(self, request: int, after: int) -> PlanReply:
        finished = self._plans.finished
        shown = tuple(
            PlanStepState(each.step.kind.value, each.step.cells, each.time_us)
            for each in finished[after : after + PLAN_STEPS_SHOWN_MAX]
        )
        plan, outcome = self._plans.plan, self._plans.last_outcome
        if plan is not None:
            return self._under_way(request, plan, shown)
        if outcome is None:
            return PlanReply(request)
        return PlanReply(
            request,
            outcome.plan,
            self._plans.state.value,
            outcome.done,
            outcome.done,
            shown,
            is_reached=outcome.is_reached,
            reason=outcome.reason,
            found=() if outcome.present is None else outcome.present.edges,
        )

    def _under_way(
        self, request: int, plan: PlanRecord, shown: tuple[PlanStepState, ...]
    ) -> PlanReply:
        done = plan.first + plan.next
        left = plan.steps[plan.next :]
        return PlanReply(
            request,
            plan.order.plan,
            self._plans.state.value,
            done,
            done + len(left),
            shown,
            PlanStepState(left[0].kind, left[0].cells) if left else None,
        )


def order_of(call: ApplyPlan) -> PlanOrder:
    """Return the order of a request."""
    return PlanOrder(
        call.plan,
        call.present,
        call.cells,
        call.edges,
        tuple(Newcomer(each.cell, each.broker) for each in call.newcomers),
        call.degree,
        call.diameter,
        call.keep,
        tuple(NearCells(each.cell, each.other, each.distance) for each in call.near),
    )


def _ignore(outcome: PlanOutcome) -> None:
    """The executor keeps the outcome for those who ask."""
