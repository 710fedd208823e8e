"""The bounds that every tree of a plan keeps: degree, diameter, distances of pairs.

A bound on the distance of a pair is never relaxed. Those on degree and diameter are, if the planner
finds no other way; the plan names both the bounds that were asked for and those that it keeps.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import CellId
from gapless.reshape.planning.trees import CellTree

__all__ = ["DEGREE_ROOM", "NO_EXCESS", "BoundExcess", "PairBound", "PlanBounds", "bounds_between"]

DEGREE_ROOM = 2
"""How many neighbours a cell may have on the way above those that it has before or after."""


class PairBound(msgspec.Struct, frozen=True):
    """Two cells whose distance must not exceed a number on the way."""

    cell: CellId
    other: CellId
    distance: int


class BoundExcess(NamedTuple):
    """By how much a tree exceeds the bounds, the worst first."""

    pairs: int
    degree: int
    diameter: int


NO_EXCESS = BoundExcess(0, 0, 0)


class PlanBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The greatest degree and diameter of the trees of a plan, and distances of pairs."""

    degree: int
    diameter: int
    pairs: tuple[PairBound, ...] = ()

    def excess(self, tree: CellTree) -> BoundExcess:
        """Return by how much a tree exceeds the bounds."""
        return BoundExcess(
            max((self._pair_excess(tree, each) for each in self.pairs), default=0),
            max(0, tree.degree - self.degree),
            max(0, tree.diameter - self.diameter),
        )

    def relaxed(self, excess: BoundExcess) -> PlanBounds:
        """Return bounds that a tree with such an excess keeps."""
        return msgspec.structs.replace(
            self, degree=self.degree + excess.degree, diameter=self.diameter + excess.diameter
        )

    @staticmethod
    def _pair_excess(tree: CellTree, pair: PairBound) -> int:
        """A cell that the tree does not have yet, or no longer, is at no distance."""
        if pair.cell not in tree or pair.other not in tree:
            return 0
        return max(0, len(tree.path(pair.cell, pair.other)) - 1 - pair.distance)


def bounds_between(
    present: CellTree,
    wanted: CellTree,
    *,
    degree: int | None = None,
    diameter: int | None = None,
    pairs: tuple[PairBound, ...] = (),
) -> PlanBounds:
    """Return the bounds of a plan, by default somewhat above both trees; refuse impossible ones."""
    degrees, diameters = (present.degree, wanted.degree), (present.diameter, wanted.diameter)
    bounds = PlanBounds(
        degree=max(degrees) + DEGREE_ROOM if degree is None else degree,
        diameter=max(diameters) * 3 // 2 if diameter is None else diameter,
        pairs=pairs,
    )
    for name, tree in (("present", present), ("wanted", wanted)):
        if tree.degree > bounds.degree:
            raise UsageError(
                f"the degree bound is {bounds.degree}, and a cell of the {name} tree has "
                f"{tree.degree} neighbours: allow at least {max(degrees)}"
            )
        if tree.diameter > bounds.diameter:
            raise UsageError(
                f"the diameter bound is {bounds.diameter}, and the {name} tree has a diameter of "
                f"{tree.diameter}: allow at least {max(diameters)}"
            )
    for pair in pairs:
        _check_pair(pair, present, wanted)
    return bounds


def _check_pair(pair: PairBound, present: CellTree, wanted: CellTree) -> None:
    for each in (pair.cell, pair.other):
        if each not in present and each not in wanted:
            raise UsageError(
                f"the bound on a pair names {shortened(str(each))}, which is no cell of either tree"
            )
    for name, tree in (("present", present), ("wanted", wanted)):
        if pair.cell in tree and pair.other in tree:
            distance = len(tree.path(pair.cell, pair.other)) - 1
            if distance > pair.distance:
                raise UsageError(
                    f"{pair.cell} and {pair.other} may not be more than {pair.distance} apart, and "
                    f"are {distance} apart in the {name} tree"
                )
