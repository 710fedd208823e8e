"""Where the planner's two trees come from: records of cells, names, or a shape such as ``star:9``.

A file names its cells. A cell that an APPEND has made is called NAME#broker.counter, and the file may call
it NAME while one present cell has that name.

A shape names no cells: its cells are c1, c2, … . They are the present cells in natural order (c2 before
c10), so there must be as many. If c1 has several neighbours in the shape, as the centre of a star or
the top of a tree, any present cell may take its place: the one that leaves fewest edges to make, then
the one with the least distances to go, then the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import CellId
from gapless.core.natural_order import natural_key
from gapless.messages.overlay import CellRecord
from gapless.reshape.planning.shifts import target_paths
from gapless.reshape.planning.trees import CellTree

__all__ = ["named_tree", "recorded_tree", "shaped_tree"]

ID_MARK = "#"
"""Stands between the name that was asked for and the operation that appended the cell."""


def recorded_tree(records: Iterable[CellRecord]) -> CellTree:
    """Return the tree of the live edges of some records, one of each cell (RS-2).

    While an operation is under way its participants may have different records. Then the live edges
    may form no tree, and UsageError is raised.
    """
    by_name = {each.name: each for each in records}
    edges = [
        (cell.name, edge.cell)
        for cell in by_name.values()
        for edge in cell.edges
        if cell.name < edge.cell
        and edge.cell in by_name
        and by_name[edge.cell].epoch(cell.name) == edge.epoch
    ]
    return CellTree.of(by_name, edges)


def named_tree(wanted: CellTree, present: CellTree) -> CellTree:
    """Return a wanted tree with the present cells under their ids.

    >>> present = CellTree.of(["a", "b#b1.7"], [("a", "b#b1.7")])
    >>> named_tree(CellTree.of("abc", [("a", "b"), ("b", "c")]), present).edges
    (('a', 'b#b1.7'), ('b#b1.7', 'c'))
    """
    by_name: dict[str, list[CellId]] = {}
    for cell in present:
        by_name.setdefault(cell.partition(ID_MARK)[0], []).append(cell)
    ids = {}
    for cell in wanted:
        found = [cell] if cell in present else by_name.get(cell, [cell])
        if len(found) > 1:
            raise UsageError(
                f"{shortened(cell)} is the name of several cells, write the id of one: "
                f"{shortened(', '.join(found))}"
            )
        ids[cell] = found[0]
    twice = sorted({each for each in ids.values() if [*ids.values()].count(each) > 1})
    if twice:
        raise UsageError(f"the wanted tree has the cell {shortened(twice[0])} under two names")
    return _renamed(wanted, ids)


def shaped_tree(shape: CellTree, present: CellTree) -> CellTree:
    """Return the present cells in a shape."""
    if len(shape) != len(present):
        raise UsageError(
            f"the shape has {len(shape)} cells and the overlay has {len(present)}: a shape takes "
            "exactly the present cells; write a file to name cells that come or leave"
        )
    places = sorted(shape, key=natural_key)
    cells = sorted(present, key=natural_key)
    if shape.degree_of(places[0]) < 2:
        return _renamed(shape, dict(zip(places, cells, strict=True)))
    trees = [
        _renamed(
            shape, dict(zip(places, [top, *(each for each in cells if each != top)], strict=True))
        )
        for top in cells
    ]
    return min(trees, key=lambda tree: _effort(present, tree))


def _effort(present: CellTree, wanted: CellTree) -> tuple[int, int]:
    """Return how many edges are missing, and how far their ends are apart in total."""
    paths = target_paths(present, wanted).values()
    return len(paths), sum(map(len, paths))


def _renamed(tree: CellTree, names: dict[CellId, CellId]) -> CellTree:
    return CellTree.of(names.values(), ((names[one], names[other]) for one, other in tree.edges))
