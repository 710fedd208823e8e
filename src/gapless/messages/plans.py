"""Messages of plans: an operator orders a tree, asks how far it is, or stops it (RS-19 to RS-21).

A plan is executed by the broker that was asked, whether or not the client stays. So the client asks for
the state of the plan again and again, and may do so over another connection.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gapless.core.ids import CellId
from gapless.core.numbers import BrokerName, ClientCount, Count, Name
from gapless.core.plan_limits import PLAN_CELLS_MAX, PLAN_PAIRS_MAX
from gapless.messages.overlay import CellMember

__all__ = [
    "AbortPlan",
    "ApplyPlan",
    "AreEdgesSettled",
    "EdgesSettled",
    "GetPlan",
    "NearbyCells",
    "OrderedNewcomer",
    "PlanAborted",
    "PlanReply",
    "PlanStepState",
]

TreeEdges = Annotated[
    tuple[tuple[BrokerName, BrokerName], ...], msgspec.Meta(max_length=PLAN_CELLS_MAX)
]
TreeCells = Annotated[tuple[BrokerName, ...], msgspec.Meta(max_length=PLAN_CELLS_MAX)]


class OrderedNewcomer(msgspec.Struct, frozen=True, array_like=True):
    """The broker with which a new cell is appended."""

    cell: BrokerName
    broker: CellMember


class NearbyCells(msgspec.Struct, frozen=True, array_like=True):
    """Two cells whose distance must not exceed a number on the way."""

    cell: BrokerName
    other: BrokerName
    distance: ClientCount


Newcomers = Annotated[tuple[OrderedNewcomer, ...], msgspec.Meta(max_length=PLAN_CELLS_MAX)]
Pairs = Annotated[tuple[NearbyCells, ...], msgspec.Meta(max_length=PLAN_PAIRS_MAX)]


class ApplyPlan(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Orders a tree. The reply is a :class:`PlanReply`, as soon as the broker plans it."""

    request: ClientCount
    plan: Name
    """The id of the plan. The same order may be sent again under it."""
    present: TreeEdges
    """The edges of the tree that the operator has seen."""
    cells: TreeCells
    edges: TreeEdges
    newcomers: Newcomers = ()
    degree: ClientCount | None = None
    diameter: ClientCount | None = None
    keep: TreeCells = ()
    near: Pairs = ()


class GetPlan(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks for the state of the plan under way, or of the plan that ended last."""

    request: ClientCount
    after: ClientCount = 0
    """Steps up to this number are not listed."""


class PlanStepState(msgspec.Struct, frozen=True, array_like=True):
    """An operation of a plan."""

    kind: str
    cells: tuple[CellId, ...]
    time_us: Count = 0
    """How long it took from the request to the answer; 0 if that is not known any more."""


class PlanReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The state of a plan."""

    request: Count
    plan: Name = ""
    """Empty if the broker knows of no plan."""
    state: str = ""
    done: Count = 0
    """How many operations are done."""
    total: Count = 0
    """How many operations the plan takes, as far as it is planned."""
    steps: tuple[PlanStepState, ...] = ()
    """Some of the operations that are done, after the number that was asked for."""
    next: PlanStepState | None = None
    """The operation under way."""
    is_reached: bool = False
    """Whether the plan has ended and the wanted tree is there."""
    reason: str = ""
    """Why it has ended without the wanted tree."""
    found: tuple[tuple[CellId, CellId], ...] = ()
    """The edges that the last walk found, if it has ended without the wanted tree."""


class AbortPlan(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stops the plan after the operation under way (RS-21)."""

    request: ClientCount


class PlanAborted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The plan ends after the operation under way, or there was none."""

    request: Count
    was_under_way: bool


class AreEdgesSettled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks the leader of a cell whether its edges are settled."""


class EdgesSettled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whether no edge of the asked broker is unsettled."""

    settled: bool
