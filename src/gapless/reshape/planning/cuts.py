"""What a tree becomes when one of its edges gets other ends.

SHIFT and the exchange move one edge and leave the two sides of that edge as they are. So the diameter
of the new tree, and every distance in it, follow from the sides and the two new ends.
"""

from __future__ import annotations

from gapless.core.ids import CellId
from gapless.reshape.planning.bounds import BoundExcess, PlanBounds
from gapless.reshape.planning.trees import CellTree

__all__ = ["Cuts"]


class Cuts:
    """The sides of the edges of one tree; each edge is measured when it is first asked for."""

    def __init__(self, tree: CellTree, bounds: PlanBounds) -> None:
        self._tree = tree
        self._bounds = bounds
        self._sides: dict[tuple[CellId, CellId], _Sides] = {}
        self._from_pairs = {
            each: tree.distances(each)
            for pair in bounds.pairs
            for each in (pair.cell, pair.other)
            if each in tree
        }

    def excess(self, near: CellId, far: CellId, new_near: CellId, new_far: CellId) -> BoundExcess:
        """Return by how much the bounds are exceeded when an edge gets these ends.

        The new ends are on the sides of the old ones. Of the degrees only those of the new ends are
        counted, because no other rises.
        """
        sides = self._sides.get((near, far))
        if sides is None:
            sides = self._sides[near, far] = _Sides(self._tree, near, far)
        degrees = [
            self._tree.degree_of(each) + 1
            for each, old in ((new_near, near), (new_far, far))
            if each != old
        ]
        return BoundExcess(
            self._pairs_excess(sides.near_side, new_near, new_far),
            max(0, max(degrees, default=0) - self._bounds.degree),
            max(0, sides.diameter(new_near, new_far) - self._bounds.diameter),
        )

    def _pairs_excess(self, near_side: frozenset[CellId], near: CellId, far: CellId) -> int:
        worst = 0
        for pair in self._bounds.pairs:
            first, second = pair.cell, pair.other
            if first in self._from_pairs and second in self._from_pairs:
                if (first in near_side) == (second in near_side):
                    distance = self._from_pairs[first][second]
                else:
                    if first not in near_side:
                        first, second = second, first
                    distance = self._from_pairs[first][near] + 1 + self._from_pairs[second][far]
                worst = max(worst, distance - pair.distance)
        return worst


class _Sides:
    """The two sides of an edge."""

    def __init__(self, tree: CellTree, near: CellId, far: CellId) -> None:
        self._eccentricity: dict[CellId, int] = {}
        self._diameter = 0
        self.near_side = frozenset(self._measure(tree, near, far))
        self._measure(tree, far, near)

    def diameter(self, near: CellId, far: CellId) -> int:
        """Return the diameter of the tree whose edge has these ends."""
        return max(self._diameter, self._eccentricity[near] + 1 + self._eccentricity[far])

    def _measure(self, tree: CellTree, end: CellId, other: CellId) -> dict[CellId, int]:
        """Find the greatest distance of each cell of one side to another one of that side."""
        from_end = _distances(tree, end, (end, other))
        from_first = _distances(tree, max(from_end, key=from_end.__getitem__), (end, other))
        second = max(from_first, key=from_first.__getitem__)
        from_second = _distances(tree, second, (end, other))
        for cell, distance in from_first.items():
            self._eccentricity[cell] = max(distance, from_second[cell])
        self._diameter = max(self._diameter, from_first[second])
        return from_end


def _distances(tree: CellTree, root: CellId, without: tuple[CellId, CellId]) -> dict[CellId, int]:
    """Return the distances from a cell to all that it reaches without crossing one edge."""
    found = {root: 0}
    for cell in (order := [root]):
        for each in tree.neighbours(cell):
            if each not in found and (cell, each) != without:
                found[each] = found[cell] + 1
                order.append(each)
    return found
