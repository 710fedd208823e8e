"""An executor of plans over fakes: a tree of records that operations change, and a disk.

The fakes answer when a test lets them, and then at once. Operations change the records by the functions
that real ones use. The disk keeps what was written when the executor is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from gapless.core.context import Context, Identity
from gapless.core.effects import Write
from gapless.core.events import Written
from gapless.core.ids import CellId
from gapless.core.parameters import Parameters
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records import PlanRecord, PutRecord
from gapless.messages.records.plans import Newcomer, PlanOrder
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.changes import appended, detached, shifted
from gapless.reshape.plan_protocols import (
    OperationRefused,
    OperationStale,
    PlanOutcome,
    StepDone,
    StepOutcome,
    StepRequest,
)
from gapless.reshape.planned_cells import states_of
from gapless.reshape.planning.steps import StepKind
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import recorded_tree
from gapless.reshape.plans import PlanExecutor


class Waiting:
    """A question that the test answers."""

    def __init__(self, question: Any, then: Callable[..., None]) -> None:
        self.question = question
        self.then = then
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TreeOfRecords:
    """The overlay: its records, and the operations that were done, by their ids."""

    def __init__(self, tree: CellTree) -> None:
        topology = Topology.of({cell: [f"{cell}1"] for cell in tree}, tree.edges)
        self.records = {each.name: each for each in topology.cells}
        self.done: dict[tuple[str, int], StepDone] = {}
        self.requests: list[StepRequest] = []

    @property
    def tree(self) -> CellTree:
        return recorded_tree(self.records.values())

    def shift(self, *cells: CellId) -> None:
        """Another operator shifts an edge."""
        self._put(*shifted(*(self.records[each] for each in cells)))

    def perform(self, request: StepRequest) -> StepOutcome:
        """Do an operation, unless it was done or the tree is not as it expects."""
        self.requests.append(request)
        key = request.plan, request.number
        if key not in self.done:
            known = {each.cell: each for each in states_of(self.records.values())}
            if any(known.get(each.cell) != each for each in request.expected):
                return OperationStale()
            self.done[key] = StepDone(self._apply(request))
        return self.done[key]

    def _apply(self, request: StepRequest) -> CellId | None:
        cells = [self.records.get(each) for each in request.cells]
        match request.kind, cells:
            case StepKind.SHIFT, [CellRecord() as i, CellRecord() as j, CellRecord() as k]:
                self._put(*shifted(i, j, k))
            case StepKind.DETACH, [CellRecord() as i, CellRecord() as j]:
                self._put(detached(i, j)[1])
                del self.records[i.name]
            case StepKind.APPEND, [None, CellRecord() as j]:
                assert request.newcomer is not None
                name = f"{request.cells[0]}#{j.leader}.{len(self.done)}"
                self._put(*appended(name, (request.newcomer,), j))
                return name
            case _:
                raise AssertionError(f"not as expected: {request}")
        return None

    def _put(self, *records: CellRecord) -> None:
        for each in records:
            self.records[each.name] = each


class PlanWorld:
    """An executor, what it waits for, and its disk."""

    def __init__(self, tree: CellTree, **parameters: Any) -> None:
        self.overlay = TreeOfRecords(tree)
        self.parameters = Parameters(**parameters)
        self.disk: PlanRecord | None = None
        self.outcomes: list[PlanOutcome] = []
        self.now = 0
        self._make()

    def _make(self) -> None:
        self.context = Context(Identity("a1", "a", 1), self.parameters)
        self.walks: list[Waiting] = []
        self.operations: list[Waiting] = []
        self.settling: list[Waiting] = []
        self.executor = PlanExecutor(self.context, self.disk, self, self, self)

    # --- the Protocols of the executor ----------------------------------------------------------

    def walk(self, then: Callable[[Collection[CellRecord], Collection[CellId]], None]) -> Waiting:
        self.walks.append(Waiting(None, then))
        return self.walks[-1]

    def request(self, request: StepRequest, then: Callable[[StepOutcome], None]) -> Waiting:
        assert self.disk is not None, "a plan is durable before an operation is requested"
        assert self.disk.next + self.disk.first == request.number
        self.operations.append(Waiting(request, then))
        return self.operations[-1]

    def settle(self, cells: Collection[CellId], then: Callable[[], None]) -> Waiting:
        self.settling.append(Waiting(tuple(cells), then))
        return self.settling[-1]

    # --- what a test does -----------------------------------------------------------------------

    def order(self, wanted: CellTree, **changes: Any) -> PlanOrder:
        """Return an order for a tree, with a broker for each new cell."""
        present = self.overlay.tree
        newcomers = tuple(
            Newcomer(cell, CellMember(f"{cell}1")) for cell in wanted if cell not in present
        )
        order = PlanOrder("p", present.edges, (*wanted,), wanted.edges, newcomers)
        return msgspec.structs.replace(order, **changes)

    def apply(self, order: PlanOrder) -> None:
        self.executor.apply(order, self.outcomes.append)

    def write(self) -> None:
        """Finish all writes; each may lead to another."""
        while effects := self.context.take_effects():
            for effect in effects:
                assert isinstance(effect, Write)
                for change in effect.changes:
                    record = change.record if isinstance(change, PutRecord) else None
                    assert record is None or isinstance(record, PlanRecord)
                    self.disk = record
                self.context.resume(Written(effect.write_id))

    def answer_walk(self, silent: Collection[CellId] = ()) -> None:
        waiting = self._taken(self.walks)
        waiting.then(tuple(self.overlay.records.values()), silent)
        while self.executor.state.name == "PLANNING":
            self.pass_time(1)

    def answer_operation(self, outcome: StepOutcome | None = None) -> None:
        waiting = self._taken(self.operations)
        waiting.then(outcome or self.overlay.perform(waiting.question))

    def answer_settling(self) -> None:
        self._taken(self.settling).then()

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * 1_000
        self.context.begin_step((self.now, self.now))  # type: ignore[arg-type]
        self.context.run_timers()

    def crash(self) -> None:
        """Lose the executor and start another one from the disk."""
        self._make()
        self.executor.start()

    def advance(self) -> bool:
        """Answer whatever the executor waits for; return whether there was something."""
        self.write()
        for waiting, answer in (
            (self.walks, self.answer_walk),
            (self.operations, self.answer_operation),
            (self.settling, self.answer_settling),
        ):
            if any(not each.is_cancelled for each in waiting):
                answer()
                return True
        return False

    def run(self) -> None:
        """Answer everything until the executor waits for nothing."""
        while self.advance():
            pass

    @staticmethod
    def _taken(waiting: list[Waiting]) -> Waiting:
        (found,) = (each for each in waiting if not each.is_cancelled)
        waiting.clear()
        return found


REFUSED = OperationRefused("c is not empty: 1 durable subscription")
