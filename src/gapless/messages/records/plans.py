"""The record of a plan, at the broker that executes it (RS-19)."""

from __future__ import annotations

import msgspec

from gapless.core.ids import CellId
from gapless.messages.overlay import CellMember, ShapeVersion, Term

__all__ = [
    "NamedCell",
    "NearCells",
    "Newcomer",
    "PlanOrder",
    "PlanRecord",
    "PlannedCell",
    "PlannedStep",
]


class PlannedStep(msgspec.Struct, frozen=True, array_like=True):
    """One operation of a plan."""

    kind: str
    """``append``, ``detach`` or ``shift``."""
    cells: tuple[CellId, ...]


class Newcomer(msgspec.Struct, frozen=True, array_like=True):
    """The broker with which a cell is appended."""

    cell: CellId
    broker: CellMember


class NearCells(msgspec.Struct, frozen=True, array_like=True):
    """Two cells whose distance must not exceed a number on the way."""

    cell: CellId
    other: CellId
    distance: int


class PlanOrder(msgspec.Struct, frozen=True, array_like=True):
    """What an operator orders: the tree to reach, and what holds on the way."""

    plan: str
    """The id of the plan; operations are requested under this id and a number."""
    present: tuple[tuple[CellId, CellId], ...]
    """The edges of the tree that the operator has seen."""
    cells: tuple[CellId, ...]
    edges: tuple[tuple[CellId, CellId], ...]
    newcomers: tuple[Newcomer, ...] = ()
    degree: int | None = None
    diameter: int | None = None
    keep: tuple[CellId, ...] = ()
    near: tuple[NearCells, ...] = ()


class PlannedCell(msgspec.Struct, frozen=True, array_like=True):
    """The state of a cell as the plan knows it."""

    cell: CellId
    term: Term
    shape_version: ShapeVersion


class NamedCell(msgspec.Struct, frozen=True, array_like=True):
    """The id that a cell got when it was appended, and the name that was asked for."""

    name: CellId
    cell: CellId


class PlanRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A plan that is executed, and how far it is."""

    order: PlanOrder
    steps: tuple[PlannedStep, ...]
    first: int
    """The number of the first step. No step of an order has the number of another one."""
    next: int
    """How many of the steps are done."""
    expected: tuple[PlannedCell, ...]
    """The states that the cells have before the next step."""
    names: tuple[NamedCell, ...] = ()
    replans: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind: a broker executes one plan at a time."""
        return ("plan",)
