"""HA's composite operations, each as a plan of SHIFT, APPEND and DETACH (HA table II).

Each function returns the steps and applies nothing. SHIFT keeps the tree a tree, so every prefix of
such a plan does too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import CellId
from gapless.reshape.planning.steps import PlanStep, append, detach, shift, trees_after
from gapless.reshape.planning.trees import CellTree, TreeEdge, tree_edge

__all__ = ["connect", "delete", "insert", "move", "sequester", "slides"]


def move(tree: CellTree, moved: CellId, old: CellId, new: CellId) -> list[PlanStep]:
    """Return MOVE(i, j, k): as SHIFT, but k is any cell that is not behind i.

    >>> line = CellTree.of("ijxk", [("i", "j"), ("j", "x"), ("x", "k")])
    >>> [*map(str, move(line, "i", "j", "k"))]
    ['SHIFT(i, j, x)', 'SHIFT(i, x, k)']
    """
    _check_known(tree, moved, old, new)
    if not tree.has_edge(moved, old):
        raise UsageError(f"MOVE needs two neighbours: {moved} and {old} are none")
    path = tree.path(old, new)
    if moved in path:
        raise UsageError(
            f"MOVE({moved}, {old}, {new}): {new} is behind {moved}, so it cannot be "
            "its new neighbour"
        )
    return [shift(moved, *each) for each in pairwise(path)]


def sequester(tree: CellTree, cell: CellId, neighbour: CellId) -> list[PlanStep]:
    """Return SEQUESTER(n, j): the cell keeps its edge to one neighbour, which gets all others."""
    _check_known(tree, cell, neighbour)
    if not tree.has_edge(cell, neighbour):
        raise UsageError(f"SEQUESTER needs two neighbours: {cell} and {neighbour} are none")
    return [shift(each, cell, neighbour) for each in tree.neighbours(cell) if each != neighbour]


def delete(tree: CellTree, cell: CellId, neighbour: CellId) -> list[PlanStep]:
    """Return DELETE(n): SEQUESTER, then DETACH."""
    return [*sequester(tree, cell, neighbour), detach(cell, neighbour)]


def connect(tree: CellTree, cell: CellId, others: Sequence[CellId]) -> list[PlanStep]:
    """Return CONNECT(n, N): the cell becomes a neighbour of all others."""
    _check_known(tree, cell, *others)
    if cell in others:
        raise UsageError(f"CONNECT: {cell} cannot be its own neighbour")
    kept = {tree_edge(cell, each) for each in others}
    steps: list[PlanStep] = []
    for each in others:
        if not tree.has_edge(cell, each):
            made = _connected(tree, cell, each, kept)
            *_, tree = trees_after(tree, made)
            steps += made
    return steps


def insert(tree: CellTree, cell: CellId, others: Sequence[CellId]) -> list[PlanStep]:
    """Return INSERT(n, N): APPEND at the first of the others, then CONNECT."""
    if not others:
        raise UsageError(f"INSERT needs a neighbour for {cell}: name at least one cell")
    first = append(cell, others[0])
    return [first, *connect(first.applied(tree), cell, others)]


def slides(path: Sequence[CellId], number: int) -> list[PlanStep]:
    """Return the SHIFTs that put one edge of a path between its ends.

    Edge ``number`` joins the cells of that index and the next. Its far end slides to the last cell,
    then its near end to the first one. A path of m edges needs m - 1 SHIFTs.

    >>> [*map(str, slides("abcd", 1))]
    ['SHIFT(b, c, d)', 'SHIFT(d, b, a)']
    """
    near, last = path[number], path[-1]
    far_end = [shift(near, *each) for each in pairwise(path[number + 1 :])]
    back = path[number::-1]
    near_end = [shift(last, *each) for each in pairwise(back)]
    return [*far_end, *near_end]


def _connected(
    tree: CellTree, cell: CellId, other: CellId, kept: Collection[TreeEdge]
) -> list[PlanStep]:
    """Return the SHIFTs that join two cells by an edge of their path that need not be kept."""
    path = tree.path(other, cell)
    free = [
        (tree_edge(*ends), number)
        for number, ends in enumerate(pairwise(path))
        if tree_edge(*ends) not in kept
    ]
    return slides(path, min(free)[1])


def _check_known(tree: CellTree, *cells: CellId) -> None:
    for each in cells:
        if each not in tree:
            raise UsageError(f"the tree has no cell {shortened(str(each))}")
