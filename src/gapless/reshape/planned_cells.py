"""What a plan knows of the cells between its steps: their states, and the ids of appended ones."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord, ShapeVersion, Term
from gapless.messages.records.plans import NamedCell, PlannedCell, PlanRecord
from gapless.reshape.planning.steps import StepKind
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import named_tree

__all__ = ["after_step", "states_of", "target_of"]

APPENDED = ShapeVersion(Term(), 2)
"""The shape version of a cell after its APPEND."""


def states_of(records: Collection[CellRecord]) -> tuple[PlannedCell, ...]:
    """Return the states of cells, in the order of their ids."""
    ordered = sorted(records, key=lambda each: each.name)
    return tuple(PlannedCell(each.name, each.term, each.shape_version) for each in ordered)


def target_of(plan: PlanRecord, present: CellTree) -> CellTree:
    """Return the wanted tree with the ids that cells have in the present one."""
    ids = {each.name: each.cell for each in plan.names if each.cell in present}
    order = plan.order
    return named_tree(
        CellTree.of(
            [ids.get(each, each) for each in order.cells],
            [(ids.get(one, one), ids.get(other, other)) for one, other in order.edges],
        ),
        present,
    )


def after_step(plan: PlanRecord, appended: CellId | None) -> PlanRecord:
    """Return the plan after its next step was done, by an operation that raised its cells' versions.

    ``appended`` is the id that the cell of an APPEND got.
    """
    step = plan.steps[plan.next]
    ids = {each.name: each.cell for each in plan.names}
    changed = {ids.get(each, each) for each in step.cells}
    names, expected = plan.names, [_raised(each, changed) for each in plan.expected]
    if step.kind == StepKind.APPEND:
        new = appended or step.cells[0]
        expected.append(PlannedCell(new, Term(), APPENDED))
        names = (*names, NamedCell(step.cells[0], new))
    elif step.kind == StepKind.DETACH:
        gone = ids.get(step.cells[0], step.cells[0])
        expected = [each for each in expected if each.cell != gone]
    return replace(plan, next=plan.next + 1, expected=tuple(expected), names=names)


def _raised(state: PlannedCell, changed: Collection[CellId]) -> PlannedCell:
    if state.cell not in changed:
        return state
    raised = ShapeVersion(state.term, state.shape_version.count + 1)
    return PlannedCell(state.cell, state.term, raised)
