"""Executes a plan: one operation after the other, until the wanted tree is there (RS-19 to RS-21).

An operator has seen a plan for the present tree. This broker walks the tree and plans again, which
gives the same steps if the tree is the same; if it is not, the order is refused. The steps are durable before
the first operation is requested, and so is each step that is done. Every prefix of a plan leaves a
valid tree, so a plan may stop after any step.

Another operator may reshape at the same time. Then an operation is refused as stale, or the last walk
finds another tree than the wanted one. In both cases the plan is made anew for the same target, at
most ``plan_replans`` times. It never forces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from gapless.core.context import Context, Timer
from gapless.core.errors import UsageError
from gapless.core.ids import CellId
from gapless.core.parameters import microseconds
from gapless.core.plan_limits import PLAN_CELLS_MAX
from gapless.messages.overlay import CellRecord
from gapless.messages.records import DeleteRecord, PlanRecord, PutRecord
from gapless.messages.records.plans import PlannedCell, PlannedStep, PlanOrder
from gapless.reshape.plan_protocols import (
    Cancellable,
    EdgeSettling,
    FinishedStep,
    OperationRefused,
    OperationStale,
    PlanOperations,
    PlanOutcome,
    StepDone,
    StepOutcome,
    StepRequest,
    TreeRecords,
)
from gapless.reshape.plan_state import TRANSITIONS, PlanInput, PlanState
from gapless.reshape.planned_cells import after_step, states_of, target_of
from gapless.reshape.planning.bounds import DEGREE_ROOM, PairBound
from gapless.reshape.planning.plan import TreePlanner
from gapless.reshape.planning.steps import PlanStep, StepKind
from gapless.reshape.planning.trees import CellTree, tree_edge
from gapless.reshape.planning.wanted import recorded_tree

__all__ = ["PlanExecutor"]

SLICE_US = 1_000
"""The pause between two slices of planning, in which the broker serves others."""


class PlanExecutor:
    """Executes one plan at a time."""

    def __init__(
        self,
        context: Context,
        stored: PlanRecord | None,
        records: TreeRecords,
        operations: PlanOperations,
        settling: EdgeSettling,
    ) -> None:
        self._context = context
        self._records = records
        self._operations = operations
        self._settling = settling
        self._plan = stored
        self._state = PlanState.ENDED if stored is None else PlanState.SETTLING
        self._tree: CellTree | None = None
        self._under_way: Cancellable | None = None
        self._timer: Timer | None = None
        self._waiting: list[Callable[[PlanOutcome], None]] = []
        """Called at the end of the plan. Nobody waits for one that was resumed from the disk."""
        self.last_outcome: PlanOutcome | None = None
        """Of the plan that ended last, since the start of the broker."""
        self.finished: list[FinishedStep] = []
        """The steps of the present or the last plan that were done since the start of the broker."""
        self._requested_at = 0

    @property
    def state(self) -> PlanState:
        """The state of the plan."""
        return self._state

    @property
    def plan(self) -> PlanRecord | None:
        """The plan under way."""
        return self._plan

    # --- what operators ask for -----------------------------------------------------------------

    def start(self) -> None:
        """Continue the plan of the disk, if there is one, with the first step that is not done."""
        if self._state is PlanState.SETTLING:
            self._settle()

    def apply(self, order: PlanOrder, ended: Callable[[PlanOutcome], None]) -> None:
        """Execute an order; raise UsageError if another plan is under way or the order is no tree."""
        if self._state is not PlanState.ENDED:
            raise UsageError("this broker executes another plan: wait for its end, or abort it")
        if len(order.cells) > PLAN_CELLS_MAX:
            raise UsageError(
                f"the wanted tree has {len(order.cells):,} cells; {PLAN_CELLS_MAX:,} are the maximum"
            )
        CellTree.of(order.cells, order.edges)
        self._plan = PlanRecord(order, (), 0, 0, ())
        self.finished = []
        self._waiting.append(ended)
        self._state = PlanState.WALKING
        self._walk()

    def abort(self) -> bool:
        """Stop after the operation under way; return whether there was a plan to stop."""
        state = self._state
        if state in {PlanState.ENDED, PlanState.STOPPING}:
            return False
        self._enter(PlanInput.ABORTED)
        if state is PlanState.REQUESTING:
            self._context.write((DeleteRecord(self._record.key),))
        else:
            self._end("aborted by an operator")
        return True

    # --- the tree -------------------------------------------------------------------------------

    def _walk(self) -> None:
        self._under_way = self._records.walk(self._walked)

    def _walked(self, records: Collection[CellRecord], silent: Collection[CellId]) -> None:
        self._under_way = None
        try:
            tree = self._tree = self._found(records, silent)
            self._check_shown(tree)
            target = target_of(self._record, tree)
            planner = None if tree == target else self._planner(tree, target)
        except UsageError as error:
            self._fail(str(error))
            return
        if planner is None:
            self._enter(PlanInput.REACHED)
            self._end("")
        else:
            self._enter(PlanInput.DIFFERS)
            self._advance(planner, states_of(records))

    @staticmethod
    def _found(records: Collection[CellRecord], silent: Collection[CellId]) -> CellTree:
        """Return the tree of a walk; raise UsageError if it is not complete or too large."""
        if silent:
            raise UsageError(f"cells do not answer: {', '.join(sorted(silent))}")
        if len(records) > PLAN_CELLS_MAX:
            raise UsageError(f"the tree has more than {PLAN_CELLS_MAX:,} cells")
        return recorded_tree(records)

    def _check_shown(self, tree: CellTree) -> None:
        """Raise UsageError if a plan that begins is for another tree than the operator has seen."""
        shown = {tree_edge(*each) for each in self._record.order.present}
        if not self._record.steps and shown != {*tree.edges}:
            raise UsageError("the tree has changed since the plan was shown: plan again")

    def _planner(self, present: CellTree, target: CellTree) -> TreePlanner:
        plan = self._record
        if plan.replans >= self._context.parameters.plan_replans and plan.steps:
            raise UsageError(
                f"the tree was changed by others, and planned anew {plan.replans} times"
            )
        degree_max = self._context.parameters.cell_degree_max
        degree = plan.order.degree or max(present.degree, target.degree) + DEGREE_ROOM
        return TreePlanner(
            present,
            target,
            degree=min(degree, degree_max),
            diameter=plan.order.diameter,
            pairs=[PairBound(each.cell, each.other, each.distance) for each in plan.order.near],
            keep=plan.order.keep,
            exact_cells=self._context.parameters.plan_exact_cells,
        )

    def _advance(self, planner: TreePlanner, states: tuple[PlannedCell, ...]) -> None:
        """Do a slice of planning; begin the steps if it was the last one."""
        try:
            planner.advance()
            self._check(planner)
        except UsageError as error:
            self._fail(str(error))
            return
        if planner.plan is None:
            self._timer = self._context.call_later(SLICE_US, lambda: self._advance(planner, states))
            return
        self._enter(PlanInput.PLANNED)
        plan = self._record
        self._write(
            replace(
                plan,
                steps=tuple(
                    PlannedStep(each.kind.value, each.cells) for each in planner.plan.steps
                ),
                first=plan.first + plan.next + bool(plan.steps),
                next=0,
                expected=states,
                names=tuple(each for each in plan.names if each.cell in planner.plan.present),
                replans=plan.replans + bool(plan.steps),
            )
        )

    def _check(self, planner: TreePlanner) -> None:
        """Refuse a plan that needs too many edges at a cell, or a broker that is not named."""
        degree_max = self._context.parameters.cell_degree_max
        if planner.plan is not None and planner.plan.peak_degree > degree_max:
            raise UsageError(
                f"a cell would have {planner.plan.peak_degree} neighbours on the way, and "
                f"cell_degree_max is {degree_max}"
            )
        named = {each.cell for each in self._record.order.newcomers}
        for step in () if planner.plan is None else planner.plan.steps:
            if step.kind is StepKind.APPEND and step.cells[0] not in named:
                raise UsageError(f"the order names no broker for the new cell {step.cells[0]}")

    # --- the steps ------------------------------------------------------------------------------

    def _write(self, plan: PlanRecord) -> None:
        self._plan = plan
        self._context.write((PutRecord(plan),), lambda: self._written(plan))

    def _written(self, plan: PlanRecord) -> None:
        if self._plan is plan and self._state is PlanState.WRITING:
            self._enter(PlanInput.WRITTEN)
            self._settle()

    def _settle(self) -> None:
        """Wait until edges are settled that the last step has changed and the next one needs."""
        plan = self._record
        if plan.next == len(plan.steps):
            self._enter(PlanInput.EXHAUSTED)
            self._walk()
            return
        common = self._common_cells()
        if not common:
            self._settled()
            return
        self._under_way = self._settling.settle(common, self._settled)
        settle_us = microseconds(ms=self._context.parameters.settle_ms)
        self._timer = self._context.call_later(settle_us, self._settled)

    def _common_cells(self) -> list[CellId]:
        plan = self._record
        if not plan.next:
            return []
        last = plan.steps[plan.next - 1]
        return sorted(set(last.cells) & set(plan.steps[plan.next].cells))

    def _settled(self) -> None:
        self._cancel()
        self._enter(PlanInput.SETTLED)
        plan = self._record
        step = plan.steps[plan.next]
        ids = {each.name: each.cell for each in plan.names}
        members = {each.cell: each.broker for each in plan.order.newcomers}
        kind = StepKind(step.kind)
        cells = tuple(ids.get(each, each) for each in step.cells)
        request = StepRequest(
            plan.order.plan,
            plan.first + plan.next,
            kind,
            cells,
            members.get(step.cells[0]) if kind is StepKind.APPEND else None,
            tuple(each for each in plan.expected if each.cell in cells),
        )
        self._requested_at = self._context.now
        self._under_way = self._operations.request(request, self._answered)

    def _answered(self, outcome: StepOutcome) -> None:
        self._under_way = None
        stopping = self._state is PlanState.STOPPING
        match outcome:
            case StepDone():
                self._enter(PlanInput.DONE)
                took_us = self._context.now - self._requested_at
                self.finished.append(FinishedStep(self._next_step(), took_us))
                plan = after_step(self._record, outcome.cell)
                if stopping:
                    self._plan = plan
                    self._end("aborted by an operator")
                else:
                    self._write(plan)
            case OperationStale():
                self._enter(PlanInput.STALE)
                if stopping:
                    self._end("aborted by an operator")
                else:
                    self._walk()
            case OperationRefused(reason):
                self._fail(f"{self._next_step()}: {reason}")

    def _next_step(self) -> PlanStep:
        step = self._record.steps[self._record.next]
        return PlanStep(StepKind(step.kind), step.cells)

    # --- the end --------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        self._enter(PlanInput.FAILED)
        self._end(reason)

    def _end(self, reason: str) -> None:
        """Delete the record, then tell how the plan has ended."""
        self._cancel()
        plan = self._record
        wanted = CellTree.of(plan.order.cells, plan.order.edges)
        outcome = PlanOutcome(
            plan.order.plan,
            plan.first + plan.next,
            not reason,
            reason,
            self._tree if reason else None,
            wanted if reason else None,
        )
        waiting, self._waiting = self._waiting, []
        self._plan, self._tree = None, None
        self.last_outcome = outcome

        def deleted() -> None:
            for ended in waiting:
                ended(outcome)

        self._context.write((DeleteRecord(plan.key),), deleted)

    def _cancel(self) -> None:
        for each in (self._under_way, self._timer):
            if each is not None:
                each.cancel()
        self._under_way = self._timer = None

    @property
    def _record(self) -> PlanRecord:
        assert self._plan is not None, "a plan is under way"
        return self._plan

    def _enter(self, happened: PlanInput) -> None:
        table = TRANSITIONS[self._state]
        assert happened in table, f"a plan that is {self._state.name} takes no {happened.name}"
        self._state = table[happened]
