"""A tree of cells over which events travel few hops: the search, without Spark.

An event that is published in one cell and delivered in others travels once over every edge of the
smallest subtree that connects them. So the cost of a tree is a sum over *groups*: events with the
same source and the same destinations, counted. An edge divides the cells in two, and an event
travels over it if it has ends on both sides.

The search removes one edge and adds the best one that connects the two parts again, as long as the
cost decreases; in small trees it also swaps cells. The best end of a new edge on one side does not
depend on the other side, so both ends are found independently, each with one traversal of its part.
The search starts from the current tree, and from a tree that first connects the cells that have
most in common. The best tree is perturbed a few times, and the search repeated. The result is
deterministic: the same groups give the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gapless.core.errors import UsageError

__all__ = ["CellEdge", "TrafficGroup", "better_tree", "hops", "present_degree"]

SWAPPED_MAX: Final = 32
"""With more cells than this no cells are swapped: there are too many pairs."""

SHAKES: Final = 16
"""How often the best tree is perturbed to find a better one."""

SHAKEN_EDGES: Final = 3
"""How many edges a perturbation moves at most."""

CellEdge: TypeAlias = tuple[str, str]
_Bools: TypeAlias = NDArray[np.bool_]
_Counts: TypeAlias = NDArray[np.int64]
_Tree: TypeAlias = list[set[int]]
"""The neighbours of each cell."""


class TrafficGroup(msgspec.Struct, frozen=True):
    """Events that were published in one cell and delivered in the same set of cells."""

    source: str
    targets: tuple[str, ...]
    count: int


def hops(groups: Sequence[TrafficGroup], edges: Iterable[CellEdge]) -> int:
    """Return the total number of edges that all events travel over.

    >>> line = [("a", "b"), ("b", "c")]
    >>> hops([TrafficGroup("a", ("b", "c"), 10), TrafficGroup("c", (), 5)], line)
    20
    """
    chosen = [*edges]
    cells = sorted({cell for edge in chosen for cell in edge} | _cells_of(groups))
    return _Search(cells, groups).cost(_tree_of(cells, chosen))


def better_tree(
    cells: Sequence[str], groups: Sequence[TrafficGroup], present: Sequence[CellEdge], degree: int
) -> list[CellEdge]:
    """Return edges of a tree over all cells, none with more neighbours than ``degree``.

    It is never worse than the current tree, if that is within the degree.
    """
    names = sorted(cells)
    if unknown_brokers := sorted(_cells_of(groups) - set(names)):
        raise UsageError(f"the tree has no cell {', '.join(unknown_brokers)}")
    if degree < 2 and len(names) > 2:
        raise UsageError(f"with a degree of {degree} there is no tree of {len(names)} cells")
    search = _Search(names, groups)
    start = _tree_of(names, present)
    starts = [search.grown(degree)]
    if present_degree(present) <= degree:
        starts.insert(0, start)
    best = min((search.settled(tree, degree) for tree in starts), key=search.cost)
    best = search.shaken(best, degree, Random(0))  # noqa: S311  # the same tree every time
    return [(names[a], names[b]) for a, others in enumerate(best) for b in sorted(others) if a < b]


def present_degree(edges: Iterable[CellEdge]) -> int:
    """Return the largest number of neighbours of a cell."""
    ends = [cell for edge in edges for cell in edge]
    return max(map(ends.count, ends), default=0)


def _cells_of(groups: Iterable[TrafficGroup]) -> set[str]:
    return {cell for group in groups for cell in (group.source, *group.targets)}


def _tree_of(cells: Sequence[str], edges: Iterable[CellEdge]) -> _Tree:
    indices: Mapping[str, int] = {cell: index for index, cell in enumerate(cells)}
    tree: _Tree = [set() for _ in cells]
    for left, right in edges:
        tree[indices[left]].add(indices[right])
        tree[indices[right]].add(indices[left])
    return tree


class _Search:
    """Groups as columns: which cells are ends of which group, and its number of events."""

    def __init__(self, cells: Sequence[str], groups: Sequence[TrafficGroup]) -> None:
        indices = {cell: index for index, cell in enumerate(cells)}
        merged: dict[frozenset[int], int] = {}
        for group in groups:
            ends = frozenset(indices[cell] for cell in (group.source, *group.targets))
            if len(ends) > 1:  # an event within its cell travels over no edge
                merged[ends] = merged.get(ends, 0) + group.count
        self._count = len(cells)
        self._ends: _Bools = np.zeros((len(cells), len(merged)), np.bool_)
        self._events: _Counts = np.array([*merged.values()], np.int64)
        for column, ends in enumerate(merged):
            self._ends[[*ends], column] = True
        self._sizes = self._ends.sum(axis=0)

    # --- the cost of a tree -----------------------------------------------------------------------

    def cost(self, tree: _Tree) -> int:
        """Return the total number of edges that all events travel over."""
        if not len(self._events):
            return 0
        below = np.array([*self._below(tree, 0).values()])
        return int((((below > 0) & (below < self._sizes)) @ self._events).sum())

    def _below(self, tree: _Tree, root: int) -> dict[int, Any]:
        """Return per cell except the root how many ends of each group are in its subtree."""
        order = [*_walk(tree, root)]
        below = {cell: self._ends[cell].astype(np.int32) for cell, _ in order}
        for cell, parent in reversed(order):
            if parent >= 0:
                below[parent] += below[cell]
        del below[root]
        return below

    # --- exchanging edges -------------------------------------------------------------------------

    def settled(self, tree: _Tree, degree: int) -> _Tree:
        """Exchange edges as long as the cost decreases."""
        tree = [set(others) for others in tree]
        while True:
            found = min(self._exchanges(tree, degree), default=None)
            if found is not None:
                _, left, right, a, b = found
                _cut(tree, left, right)
                _join(tree, a, b)
            elif (swapped := self._swapped(tree)) is not None:
                tree = swapped
            else:
                return tree

    def _swapped(self, tree: _Tree) -> _Tree | None:
        """Swap two cells if the cost decreases; with low degrees exchanging edges is not enough."""
        if self._count > SWAPPED_MAX:
            return None
        best, lowest = None, self.cost(tree)
        for left, right in combinations(range(self._count), 2):
            names = {left: right, right: left}
            swapped: _Tree = [set() for _ in tree]
            for a, b in _edges(tree):
                _join(swapped, names.get(a, a), names.get(b, b))
            if (cost := self.cost(swapped)) < lowest:
                best, lowest = swapped, cost
        return best

    def _exchanges(self, tree: _Tree, degree: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield for each edge the best replacement, with its saving as a negative number."""
        for left, right in _edges(tree):
            _cut(tree, left, right)
            sides = self._leaving_costs(tree, left), self._leaving_costs(tree, right)
            now = sides[0][left] + sides[1][right]
            best = [
                min(
                    ((cost, cell) for cell, cost in side.items() if len(tree[cell]) < degree),
                    default=None,
                )
                for side in sides
            ]
            _join(tree, left, right)
            if best[0] is not None and best[1] is not None:
                saving = best[0][0] + best[1][0] - now
                if saving < 0:
                    yield saving, left, right, best[0][1], best[1][1]

    def _leaving_costs(self, tree: _Tree, root: int) -> dict[int, int]:
        """Return per cell of one part the cost inside the part if the new edge is at this cell.

        The cost is relative to that at the root, so only differences are meaningful.
        """
        order = [*_walk(tree, root)]
        here = self._ends[[cell for cell, _ in order]].sum(axis=0)
        crossing = (here > 0) & (here < self._sizes)
        below = self._below(tree, root)
        found = {root: 0}
        for cell, parent in order[1:]:
            inside = below[cell]
            only_above = self._events[crossing & (inside == 0)].sum()
            only_below = self._events[crossing & (inside == here)].sum()
            found[cell] = found[parent] + int(only_above) - int(only_below)
        return found

    # --- starting trees ---------------------------------------------------------------------------

    def grown(self, degree: int) -> _Tree:
        """Connect the cells with most common events first, as far as the degree allows."""
        common = (self._ends * self._events) @ self._ends.T
        pairs = sorted(combinations(range(self._count), 2), key=lambda pair: -int(common[pair]))
        tree: _Tree = [set() for _ in range(self._count)]
        part = [*range(self._count)]
        for left, right in pairs:
            if part[left] != part[right] and max(len(tree[left]), len(tree[right])) < degree:
                _join(tree, left, right)
                old, new = part[right], part[left]
                part = [new if each == old else each for each in part]
        return tree

    def shaken(self, best: _Tree, degree: int, dice: Random) -> _Tree:
        """Move a few edges and search again, several times; return the best tree."""
        lowest = self.cost(best)
        if self._count < 4:
            return best
        for _ in range(SHAKES):
            tree = [set(others) for others in best]
            for _ in range(dice.randint(1, SHAKEN_EDGES)):
                self._shake(tree, degree, dice)
            tree = self.settled(tree, degree)
            if (cost := self.cost(tree)) < lowest:
                best, lowest = tree, cost
        return best

    def _shake(self, tree: _Tree, degree: int, dice: Random) -> None:
        left, right = dice.choice([*_edges(tree)])
        _cut(tree, left, right)
        sides = ([cell for cell, _ in _walk(tree, each)] for each in (left, right))
        ends = (dice.choice([cell for cell in side if len(tree[cell]) < degree]) for side in sides)
        _join(tree, *ends)


def _walk(tree: _Tree, root: int) -> Iterator[tuple[int, int]]:
    """Yield the cells of a part from the root on, each with its parent."""
    waiting = [(root, -1)]
    while waiting:
        cell, parent = waiting.pop()
        yield cell, parent
        waiting += [(each, cell) for each in sorted(tree[cell]) if each != parent]


def _edges(tree: _Tree) -> list[tuple[int, int]]:
    return [(a, b) for a, others in enumerate(tree) for b in sorted(others) if a < b]


def _cut(tree: _Tree, left: int, right: int) -> None:
    tree[left].remove(right)
    tree[right].remove(left)


def _join(tree: _Tree, left: int, right: int) -> None:
    tree[left].add(right)
    tree[right].add(left)
