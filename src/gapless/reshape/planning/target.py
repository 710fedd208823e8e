"""The wanted tree on all cells, and where new cells are appended.

Cells that leave stay in the tree until the end, because a cell can only be detached when it is an outer
cell. So the SHIFTs lead to a tree on all cells: the wanted tree, and the leaving cells as subtrees
that hang on it.
"""

from __future__ import annotations

from collections.abc import Collection

from gapless.core.ids import CellId
from gapless.reshape.planning.bounds import NO_EXCESS, PlanBounds
from gapless.reshape.planning.steps import PlanStep, append, detach
from gapless.reshape.planning.trees import CellTree

__all__ = ["appends", "detaches", "target_on_all"]


def appends(
    present: CellTree, wanted: CellTree, bounds: PlanBounds, keep: Collection[CellId]
) -> list[PlanStep]:
    """Return an APPEND for each cell that only the wanted tree has.

    The cells come in breadth-first order of the wanted tree. Each is appended to a neighbour that it
    has there, if that keeps the bounds; else to the nearest cell that does, or that exceeds them
    least.
    """
    tree, steps = present, list[PlanStep]()
    common = [cell for cell in wanted if cell in present]
    if not common:
        first = min(wanted)
        steps.append(append(first, _roomiest(tree, present, first, bounds, keep)))
        tree = steps[0].applied(tree)
        common = [first]
    reached = set(common)
    for cell in (order := common):
        for each in wanted.neighbours(cell):
            if each not in reached:
                reached.add(each)
                order.append(each)
                beside = [near for near in wanted.neighbours(each) if near in tree]
                steps.append(append(each, _roomiest(tree, beside, each, bounds, keep)))
                tree = steps[-1].applied(tree)
    return steps


def target_on_all(grown: CellTree, wanted: CellTree) -> CellTree:
    """Return the wanted tree with the cells that leave.

    ``grown`` is the present tree after the appends. Each connected part of the leaving cells keeps its
    edges, and one of its edges to a cell that stays: that with fewest neighbours in the target.
    """
    leaving = {cell for cell in grown if cell not in wanted}
    edges = [*wanted.edges]
    edges += [edge for edge in grown.edges if leaving.issuperset(edge)]
    degrees = {cell: wanted.degree_of(cell) for cell in wanted}
    for part in _parts(grown, leaving):
        ways = [
            (degrees[cell], cell, each)
            for each in part
            for cell in grown.neighbours(each)
            if cell in wanted
        ]
        _, cell, each = min(ways)
        degrees[cell] += 1
        edges.append((cell, each))
    return CellTree.of(grown, edges)


def detaches(tree: CellTree, wanted: CellTree) -> list[PlanStep]:
    """Return a DETACH for each cell that the wanted tree does not have, leaf by leaf."""
    nearest_first = tree.parents(min(wanted))
    return [detach(*each) for each in reversed(nearest_first.items()) if each[0] not in wanted]


def _parts(tree: CellTree, cells: Collection[CellId]) -> list[list[CellId]]:
    """Return the connected parts of some cells, by their least ids."""
    found: list[list[CellId]] = []
    seen: set[CellId] = set()
    for cell in sorted(cells):
        if cell not in seen:
            part = [cell]
            seen.add(cell)
            for each in part:
                beyond = [
                    near for near in tree.neighbours(each) if near in cells and near not in seen
                ]
                part += beyond
                seen.update(beyond)
            found.append(part)
    return found


def _roomiest(
    tree: CellTree,
    beside: Collection[CellId],
    cell: CellId,
    bounds: PlanBounds,
    keep: Collection[CellId],
) -> CellId:
    """Return the cell to append another one to: one beside it in the wanted tree, if it has room."""
    chosen = [(tree.degree_of(each), each) for each in beside if each not in keep]
    free = [each for _, each in sorted(chosen)]
    reached = {free[0]}
    for each, nearer in tree.parents(free[0]).items():
        if nearer in reached and each not in keep:  # no cell passes a kept one
            reached.add(each)
            free.append(each)
    worst = []
    for number, each in enumerate(free):
        excess = bounds.excess(tree.appended(cell, each))
        if excess == NO_EXCESS:
            return each
        worst.append((excess, number))
    return free[min(worst)[1]]
