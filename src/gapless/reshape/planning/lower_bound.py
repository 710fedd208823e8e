"""How many operations every plan between two trees needs at least."""

from __future__ import annotations

from gapless.core.ids import CellId
from gapless.reshape.planning.trees import CellTree

__all__ = ["least_operations"]


def least_operations(present: CellTree, wanted: CellTree) -> int:
    """Return LB: the APPENDs and DETACHes, and the SHIFTs that are needed for one of two reasons.

    A SHIFT makes one edge, so there are as many as wanted edges that are missing and that no APPEND
    makes. A SHIFT brings two cells nearer by one at most, and APPEND and DETACH bring no cells
    nearer.
    """
    new = sum(cell not in present for cell in wanted)
    leaving = sum(cell not in wanted for cell in present)
    missing = sum(not present.has_edge(*edge) for edge in wanted.edges)
    apart = max(
        (
            len(present.path(cell, other)) - 1 - distance
            for cell in wanted
            if cell in present
            for other, distance in _nearest_common(present, wanted, cell)
        ),
        default=0,
    )
    return new + leaving + max(missing - new, apart, 0)


def _nearest_common(present: CellTree, wanted: CellTree, cell: CellId) -> list[tuple[CellId, int]]:
    """Return the cells of both trees that a cell reaches in the wanted tree over new cells only."""
    found = {cell: 0}
    for each in (order := [cell]):
        if each == cell or each not in present:
            for beyond in wanted.neighbours(each):
                if beyond not in found:
                    found[beyond] = found[each] + 1
                    order.append(beyond)
    return [(each, found[each]) for each in order if each in present and each > cell]
