"""What the executor of plans asks of others, and what it tells: requests, outcomes, Protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol, TypeAlias

from gapless.core.ids import CellId
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records.plans import PlannedCell
from gapless.reshape.planning.steps import PlanStep, StepKind
from gapless.reshape.planning.trees import CellTree

__all__ = [
    "Cancellable",
    "EdgeSettling",
    "FinishedStep",
    "OperationRefused",
    "OperationStale",
    "PlanOperations",
    "PlanOutcome",
    "StepDone",
    "StepOutcome",
    "StepRequest",
    "TreeRecords",
]


class Cancellable(Protocol):
    """Something under way."""

    def cancel(self) -> None:
        """End it without a result."""


class StepRequest(NamedTuple):
    """An operation to request from its coordinator."""

    plan: str
    number: int
    """With the plan the id of the request: it is the same after a restart."""
    kind: StepKind
    cells: tuple[CellId, ...]
    newcomer: CellMember | None
    """The broker of the new cell of an APPEND."""
    expected: tuple[PlannedCell, ...]


class StepDone(NamedTuple):
    """The operation is done."""

    cell: CellId | None = None
    """The id that the cell of an APPEND got."""


class OperationStale(NamedTuple):
    """The tree is not as the operation expects."""


class OperationRefused(NamedTuple):
    """The operation is refused for good."""

    reason: str


StepOutcome: TypeAlias = StepDone | OperationStale | OperationRefused


class PlanOperations(Protocol):
    """Requests operations from the leaders that coordinate them."""

    def request(self, request: StepRequest, then: Callable[[StepOutcome], None]) -> Cancellable:
        """Request an operation until it is answered; call back in a later step, once."""


class TreeRecords(Protocol):
    """Walks over the whole tree."""

    def walk(
        self, then: Callable[[Collection[CellRecord], Collection[CellId]], None]
    ) -> Cancellable:
        """Call back with the records of all cells, and with the cells that did not answer."""


class EdgeSettling(Protocol):
    """Knows whether edges are settled."""

    def settle(self, cells: Collection[CellId], then: Callable[[], None]) -> Cancellable:
        """Call back, in a later step, when no edge of these cells is unsettled."""


class PlanOutcome(NamedTuple):
    """How a plan has ended."""

    plan: str
    done: int
    """How many operations it took."""
    is_reached: bool
    reason: str = ""
    present: CellTree | None = None
    """The tree that the last walk found, unless it is the wanted one."""
    wanted: CellTree | None = None


class FinishedStep(NamedTuple):
    """An operation of a plan that is done."""

    step: PlanStep
    time_us: int
    """From the request to the answer."""
