"""The plan of HA's proof: SEQUESTER a cell, change the rest by induction, CONNECT it (HA theorem 1).

The planner is compared with it. The proof leaves open which cells are taken. Here it is the last one
by id, and a neighbour that the cell has in both trees, if there is one, holds it meanwhile.
"""

from __future__ import annotations

from gapless.core.ids import CellId
from gapless.reshape.planning.composites import delete, move, sequester
from gapless.reshape.planning.steps import PlanStep, append, shift, trees_after
from gapless.reshape.planning.trees import CellTree

__all__ = ["baseline_plan"]


def baseline_plan(present: CellTree, wanted: CellTree) -> list[PlanStep]:
    """Return the steps of HA's proof from one tree to another."""
    steps: list[PlanStep] = []
    tree = present
    if not any(cell in present for cell in wanted):
        steps = [append(min(wanted), min(present))]
        tree = steps[0].applied(tree)
    for cell in sorted(set(tree) - set(wanted)):
        made = delete(tree, cell, _shared_neighbour(tree, wanted, cell))
        *_, tree = trees_after(tree, made)
        steps += made
    common = min(tree)
    for cell in sorted(set(wanted) - set(tree)):
        steps.append(append(cell, common))
        tree = steps[-1].applied(tree)
    return steps + _induction(tree, wanted)


def _induction(tree: CellTree, wanted: CellTree) -> list[PlanStep]:
    """Return the SHIFTs between two trees of the same cells."""
    steps: list[PlanStep] = []
    sequestered: list[tuple[CellId, CellId, CellId, CellTree]] = []
    goal = wanted
    while tree != goal:  # one cell less each time; trees of two cells are equal
        cell = max(tree)
        holder = _shared_neighbour(tree, goal, cell)
        steps += sequester(tree, cell, holder)
        tree = _without(tree, cell, holder)
        place = holder if goal.has_edge(cell, holder) else goal.neighbours(cell)[0]
        sequestered.append((cell, holder, place, goal))
        goal = _without(goal, cell, place)
    for cell, holder, place, reached in reversed(sequestered):
        steps += move(goal.appended(cell, holder), cell, holder, place)
        steps += [shift(each, place, cell) for each in reached.neighbours(cell) if each != place]
        goal = reached
    return steps


def _without(tree: CellTree, cell: CellId, neighbour: CellId) -> CellTree:
    """Return the tree without a cell, whose neighbours are now those of one of them."""
    *_, left = trees_after(tree, delete(tree, cell, neighbour))
    return left


def _shared_neighbour(tree: CellTree, wanted: CellTree, cell: CellId) -> CellId:
    """Return a neighbour of a cell: one that it has in both trees, else one in both, else any."""
    return min(
        tree.neighbours(cell),
        key=lambda each: (not wanted.has_edge(cell, each), each not in wanted, each),
    )
