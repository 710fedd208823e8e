"""Drawings of trees of cells as text.

The drawing starts at the centre of the tree. Cells in a row stand on one line, and so do all outer cells
of one neighbour, so that a star of forty cells takes a few lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from gapless.core.ids import CellId
from gapless.core.natural_order import natural_key
from gapless.reshape.planning.trees import CellTree

__all__ = ["drawn_tree"]

ROW_COLUMNS = 80
"""Columns of a row of outer cells, before it continues on the next line."""


def drawn_tree(tree: CellTree) -> list[str]:
    """Return the lines of a drawing.

    >>> edges = [("c1", "c2"), ("c2", "c3"), ("c2", "c4"), ("c4", "c5")]
    >>> for line in drawn_tree(CellTree.of(["c1", "c2", "c3", "c4", "c5"], edges)):
    ...     print(line.replace("\N{EN DASH}", "-"))
    c2
    ├── c1, c3
    └── c4 - c5
    """
    return [*_branch(tree, tree.centre, None)]


def _branch(tree: CellTree, cell: CellId, parent: CellId | None) -> Iterator[str]:
    """Yield the lines of a cell and all that is behind it, without the indentation."""
    row = [cell]
    behind = _behind(tree, cell, parent)
    while len(behind) == 1 and parent is not None:
        parent, cell = cell, behind[0]
        row.append(cell)
        behind = _behind(tree, cell, parent)
    yield " \N{EN DASH} ".join(row)
    outer = [each for each in behind if tree.degree_of(each) == 1]
    parts = [wrap(", ".join(outer), ROW_COLUMNS, break_long_words=False, break_on_hyphens=False)]
    parts += [[*_branch(tree, each, cell)] for each in behind if tree.degree_of(each) > 1]
    shown = [part for part in parts if part]
    for part in shown:
        first, further = ("├── ", "│   ") if part is not shown[-1] else ("└── ", "    ")
        yield first + part[0]
        yield from (further + line for line in part[1:])


def _behind(tree: CellTree, cell: CellId, parent: CellId | None) -> list[CellId]:
    return sorted((each for each in tree.neighbours(cell) if each != parent), key=natural_key)
