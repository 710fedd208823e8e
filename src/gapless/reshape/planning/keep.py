"""Cells whose edges a plan may not change: what that asks of the wanted tree."""

from __future__ import annotations

from collections.abc import Collection

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import CellId
from gapless.reshape.planning.trees import CellTree

__all__ = ["check_keep"]


def check_keep(present: CellTree, wanted: CellTree, keep: Collection[CellId]) -> None:
    """Refuse a wanted tree that no plan reaches without changing an edge of a kept cell.

    A kept cell has the same neighbours in both trees. A SHIFT past a kept cell would change its edges, so
    the kept cells divide the other cells into parts that no cell leaves.
    """
    for cell in sorted(keep):
        for name, tree in (("present", present), ("wanted", wanted)):
            if cell not in tree:
                raise UsageError(
                    f"keep names {shortened(cell)}, which is no cell of the {name} tree"
                )
        if present.neighbours(cell) != wanted.neighbours(cell):
            raise UsageError(
                f"keep names {cell}, whose neighbours change: {_shown(present, cell)} now, "
                f"{_shown(wanted, cell)} in the wanted tree"
            )
    if not keep:
        return
    before, after = _part_of(present, keep), _part_of(wanted, keep)
    first_of: dict[CellId, CellId] = {}
    for cell, part in before.items():
        if cell in after:
            first = first_of.setdefault(part, cell)
            if after[first] != after[cell]:
                raise UsageError(
                    f"{first} and {cell} are on one side of the kept cells now, and not in the "
                    "wanted tree: no cell passes a kept cell"
                )
    joined: dict[CellId, CellId] = {}
    for cell, part in after.items():
        if cell in before:
            first = joined.setdefault(part, cell)
            if before[first] != before[cell]:
                raise UsageError(
                    f"{first} and {cell} are on one side of the kept cells in the wanted tree, and "
                    "not now: no cell passes a kept cell"
                )


def _part_of(tree: CellTree, keep: Collection[CellId]) -> dict[CellId, CellId]:
    """Return for each cell that is not kept the first cell of its part, in the order of ids."""
    found: dict[CellId, CellId] = {}
    for cell in tree:
        if cell not in keep and cell not in found:
            found[cell] = cell
            for each in (order := [cell]):
                for near in tree.neighbours(each):
                    if near not in keep and near not in found:
                        found[near] = cell
                        order.append(near)
    return found


def _shown(tree: CellTree, cell: CellId) -> str:
    return ", ".join(tree.neighbours(cell)) or "none"
