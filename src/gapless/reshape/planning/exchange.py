"""The exchange: one edge that is not wanted becomes one that is.

It is the planner's second choice, for trees in which no single SHIFT lowers the potential. The edge
lies on the path between the cells of a missing edge. Its ends slide along the path to these cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gapless.core.ids import CellId
from gapless.reshape.planning.bounds import NO_EXCESS, BoundExcess
from gapless.reshape.planning.composites import slides
from gapless.reshape.planning.cuts import Cuts
from gapless.reshape.planning.shifts import TargetPaths
from gapless.reshape.planning.steps import PlanStep
from gapless.reshape.planning.trees import CellTree

__all__ = ["best_exchange"]


def best_exchange(
    target: CellTree, paths: TargetPaths, cuts: Cuts
) -> tuple[list[PlanStep], BoundExcess]:
    """Return the SHIFTs of an exchange, and by how much they exceed the bounds.

    The exchange that exceeds the bounds least is taken, then the shortest one, then by ids.
    """
    best: tuple[BoundExcess, int, tuple[CellId, ...], int] | None = None
    for path in sorted(paths.values(), key=lambda each: (len(each), each)):
        if best is not None and best[:2] < (NO_EXCESS, len(path)):
            break  # the paths that follow are longer
        for way in (path, path[::-1]):
            for number, (near, far) in enumerate(pairwise(way)):
                if not target.has_edge(near, far):
                    found = max(_excesses(way, number, cuts), default=NO_EXCESS)
                    best = min(
                        best or (found, len(way), tuple(way), number),
                        (found, len(way), tuple(way), number),
                    )
    assert best is not None, "a tree that is not the target has no path of a missing edge"
    excess, _, chosen, number = best
    return slides(chosen, number), excess


def _excesses(path: Sequence[CellId], number: int, cuts: Cuts) -> Iterator[BoundExcess]:
    """Yield by how much each tree of an exchange exceeds the bounds."""
    near, far = path[number], path[number + 1]
    for each in path[number + 2 :]:
        yield cuts.excess(near, far, near, each)
    for each in path[:number][::-1]:
        yield cuts.excess(near, far, each, path[-1])
