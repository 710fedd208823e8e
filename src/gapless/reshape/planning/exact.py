"""The shortest plan of a small tree, by breadth-first search from both ends.

A plan may as well make all its APPENDs first and all its DETACHes last. So the search starts from every
tree on all cells that contains the present tree, and ends at every one that contains the wanted
tree. Between them are SHIFTs, each of which another SHIFT undoes. A tree is a number here: a bit for
each pair of cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations, pairwise

from gapless.core.ids import CellId
from gapless.reshape.planning.bounds import NO_EXCESS, PlanBounds
from gapless.reshape.planning.steps import PlanStep, append, shift
from gapless.reshape.planning.target import detaches
from gapless.reshape.planning.trees import CellTree, tree_edge

__all__ = ["shortest_plan"]


def shortest_plan(
    present: CellTree, wanted: CellTree, bounds: PlanBounds, keep: Collection[CellId]
) -> list[PlanStep] | None:
    """Return a shortest plan within the bounds, or None if there is none."""
    search = _Search(sorted({*present, *wanted}), bounds, keep)
    found = search.path(search.containing(present), search.containing(wanted))
    if found is None:
        return None
    first, steps, last = found
    return [*search.appends(present, first), *steps, *detaches(search.tree(last), wanted)]


class _Search:
    """The trees on some cells, as numbers."""

    def __init__(self, cells: list[CellId], bounds: PlanBounds, keep: Collection[CellId]) -> None:
        self._cells = cells
        self._bounds = bounds
        self._kept = {number for number, cell in enumerate(cells) if cell in keep}
        pairs = list(combinations(range(len(cells)), 2))
        self._pairs = pairs
        self._bit = {pair: 1 << number for number, pair in enumerate(pairs)}
        self._bit |= {(second, first): bit for (first, second), bit in self._bit.items()}
        self._allowed: dict[int, bool] = {}

    # --- the ends of the plan -------------------------------------------------------------------

    def containing(self, tree: CellTree) -> set[int]:
        """Return the trees on all cells that have a tree's edges between that tree's cells."""
        inside = frozenset(self._cells.index(cell) for cell in tree)
        start = sum(self._bit[self._cells.index(a), self._cells.index(b)] for a, b in tree.edges)
        level = {(inside, start)}
        for _ in range(len(self._cells) - len(tree)):
            level = {
                (cells | {leaf}, number | self._bit[leaf, near])
                for cells, number in level
                for leaf in range(len(self._cells))
                if leaf not in cells
                for near in cells
                if near not in self._kept
            }
        return {number for _, number in level if self._is_allowed(number)}

    def appends(self, present: CellTree, number: int) -> list[PlanStep]:
        """Return the APPENDs from the present tree to one on all cells that contains it."""
        tree = self.tree(number)
        parents = tree.parents(min(present))
        return [append(cell, near) for cell, near in parents.items() if cell not in present]

    # --- the search -----------------------------------------------------------------------------

    def path(self, starts: set[int], ends: set[int]) -> tuple[int, list[PlanStep], int] | None:
        """Return the first tree, the SHIFTs and the last tree of a shortest way, or None."""
        before = {number: number for number in sorted(starts)}
        after = {number: number for number in sorted(ends)}
        fronts = [[*before], [*after]]
        while True:
            meeting = min((each for each in before if each in after), default=None)
            if meeting is not None:
                return self._joined(before, after, meeting)
            side = min((0, 1), key=lambda each: len(fronts[each]))
            known = (before, after)[side]
            reached: list[int] = []
            for number in fronts[side]:
                for beyond in self._shifted(number):
                    if beyond not in known and self._is_allowed(beyond):
                        known[beyond] = number
                        reached.append(beyond)
            if not reached:
                return None
            fronts[side] = reached

    def _joined(
        self, before: dict[int, int], after: dict[int, int], meeting: int
    ) -> tuple[int, list[PlanStep], int]:
        numbers = [meeting]
        while before[numbers[0]] != numbers[0]:
            numbers.insert(0, before[numbers[0]])
        while after[numbers[-1]] != numbers[-1]:
            numbers.append(after[numbers[-1]])
        steps = [self._step(*each) for each in pairwise(numbers)]
        return numbers[0], steps, numbers[-1]

    def _shifted(self, number: int) -> Iterator[int]:
        """Yield the trees that one SHIFT makes of a tree."""
        near: list[list[int]] = [[] for _ in self._cells]
        for pair in self._pairs:
            if number & self._bit[pair]:
                near[pair[0]].append(pair[1])
                near[pair[1]].append(pair[0])
        for j, around in enumerate(near):
            if j not in self._kept:
                for i in around:
                    for k in around:
                        if i != k and i not in self._kept and k not in self._kept:
                            yield number ^ self._bit[i, j] ^ self._bit[i, k]

    def _step(self, number: int, beyond: int) -> PlanStep:
        """Return the SHIFT from one tree to another."""
        (old,) = self._ends(number & ~beyond)
        (new,) = self._ends(beyond & ~number)
        (moved,) = set(old) & set(new)
        (from_,), (to,) = set(old) - {moved}, set(new) - {moved}
        return shift(moved, from_, to)

    def _is_allowed(self, number: int) -> bool:
        found = self._allowed.get(number)
        if found is None:
            found = self._bounds.excess(self.tree(number)) == NO_EXCESS
            self._allowed[number] = found
        return found

    def tree(self, number: int) -> CellTree:
        """Return the tree of a number."""
        return CellTree.of(self._cells, self._ends(number))

    def _ends(self, number: int) -> list[tuple[CellId, CellId]]:
        return [
            tree_edge(self._cells[first], self._cells[second])
            for first, second in self._pairs
            if number & self._bit[first, second]
        ]
