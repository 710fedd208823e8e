"""The choice of a single SHIFT: the one that lowers the potential most.

The potential Φ of a tree is the sum, over the edges of the target, of the distance of their cells less
one. It is 0 if and only if the tree is the target. SHIFT(i, j, k) makes a path that crosses the edge
between i and j longer by one, unless it continues to k: then it becomes shorter by one. So the change
of Φ is the number of target edges whose path crosses that edge, less twice the number of those whose
path passes i, j and k in a row. One walk along all paths finds both numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from gapless.core.ids import CellId
from gapless.reshape.planning.bounds import NO_EXCESS
from gapless.reshape.planning.cuts import Cuts
from gapless.reshape.planning.steps import PlanStep, shift
from gapless.reshape.planning.trees import CellTree, TreeEdge, tree_edge

__all__ = ["TargetPaths", "best_shift", "potential_changes", "target_paths"]

TargetPaths = Mapping[TreeEdge, Sequence[CellId]]
"""The path in a tree between the cells of each edge of the target that the tree does not have."""


def target_paths(tree: CellTree, target: CellTree) -> TargetPaths:
    """Return the paths of the missing edges.

    >>> line = CellTree.of("abc", [("a", "b"), ("b", "c")])
    >>> target_paths(line, CellTree.of("abc", [("a", "c"), ("b", "c")]))
    {('a', 'c'): ('a', 'b', 'c')}
    """
    parents = tree.parents(next(iter(tree)))
    depths: dict[CellId, int] = {}
    for cell, parent in parents.items():
        depths[cell] = depths[parent] + 1 if depths else 0
    return {
        edge: _path(parents, depths, *edge)
        for edge in target.edges
        if parents[edge[0]] != edge[1] and parents[edge[1]] != edge[0]
    }


def _path(
    parents: Mapping[CellId, CellId], depths: Mapping[CellId, int], cell: CellId, other: CellId
) -> tuple[CellId, ...]:
    """Return the path between two cells of a rooted tree."""
    up, down = [cell], [other]
    while up[-1] != down[-1]:
        side = up if depths[up[-1]] >= depths[down[-1]] else down
        side.append(parents[side[-1]])
    return (*up, *reversed(down[:-1]))


def potential_changes(
    paths: Iterable[Sequence[CellId]],
) -> dict[tuple[CellId, CellId, CellId], int]:
    """Return by how much Φ changes with each SHIFT along the paths of the missing edges.

    A SHIFT(i, j, k) of an edge that the target does not have, along no such path, does not lower Φ.
    """
    crossing: Counter[TreeEdge] = Counter()
    passing: Counter[tuple[CellId, CellId, CellId]] = Counter()
    for path in paths:
        for edge in pairwise(path):
            crossing[tree_edge(*edge)] += 1
        for i, j, k in zip(path, path[1:], path[2:], strict=False):
            passing[i, j, k] += 1
            passing[k, j, i] += 1
    return {
        cells: crossing[tree_edge(cells[0], cells[1])] - 2 * count
        for cells, count in passing.items()
    }


def best_shift(
    target: CellTree, paths: TargetPaths, cuts: Cuts, keep: Collection[CellId]
) -> PlanStep | None:
    """Return the SHIFT that lowers Φ most within the bounds, or None if none lowers it."""
    changes = potential_changes(paths.values())
    lowering = sorted(
        (change, *cells)
        for cells, change in changes.items()
        if change < 0 and not target.has_edge(cells[0], cells[1])
    )
    for _, i, j, k in lowering:
        is_kept = i in keep or j in keep or k in keep
        if not is_kept and cuts.excess(i, j, i, k) == NO_EXCESS:
            return shift(i, j, k)
    return None
