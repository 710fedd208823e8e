"""Trees of labelled cells, and the three operations on them (HA table I).

A tree never changes: an operation returns another tree. Each operation maps a tree to a tree, or
raises UsageError if its precondition does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self, TypeAlias

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import CellId

__all__ = ["CellTree", "TreeEdge", "tree_edge"]

TreeEdge: TypeAlias = tuple[CellId, CellId]
"""The two cells of an edge, the lesser one first."""


def tree_edge(cell: CellId, other: CellId) -> TreeEdge:
    """Return the edge between two cells.

    >>> tree_edge("b", "a")
    ('a', 'b')
    """
    return (cell, other) if cell < other else (other, cell)


class CellTree:
    """A tree of cells; the neighbours of each cell are in the order of their ids.

    >>> tree = CellTree.of(["a", "b", "c"], [("a", "b"), ("b", "c")])
    >>> tree.shifted("a", "b", "c").edges
    (('a', 'c'), ('b', 'c'))
    """

    __slots__ = ("_neighbours",)

    def __init__(self, neighbours: dict[CellId, tuple[CellId, ...]]) -> None:
        self._neighbours: Final = neighbours

    @classmethod
    def of(cls, cells: Iterable[CellId], edges: Iterable[TreeEdge]) -> Self:
        """Return the tree of some cells and edges; raise UsageError if it is none."""
        found: dict[CellId, set[CellId]] = {cell: set() for cell in cells}
        if not found:
            raise UsageError("a tree without a cell: name at least one")
        count = 0
        for cell, other in edges:
            for each in (cell, other):
                if each not in found:
                    raise UsageError(
                        f"the edge {_shown(cell)} - {_shown(other)} names "
                        f"{_shown(each)}, which is no cell of the tree"
                    )
            if cell == other or other in found[cell]:
                raise UsageError(
                    f"the edge {_shown(cell)} - {_shown(other)} is no edge between "
                    "two cells, or is listed twice"
                )
            found[cell].add(other)
            found[other].add(cell)
            count += 1
        tree = cls({cell: tuple(sorted(found[cell])) for cell in sorted(found)})
        missing = sorted(set(found) - set(tree.distances(min(found))))
        if missing:
            raise UsageError(f"the cells are not connected: no path to {_shown(missing[0])}")
        if count != len(found) - 1:
            raise UsageError(f"{len(found)} cells with {count} edges are no tree: take out a cycle")
        return tree

    def __contains__(self, cell: object) -> bool:
        return cell in self._neighbours

    def __iter__(self) -> Iterator[CellId]:
        return iter(self._neighbours)

    def __len__(self) -> int:
        return len(self._neighbours)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellTree) and self._neighbours == other._neighbours

    def __hash__(self) -> int:
        return hash(self.edges)

    def __repr__(self) -> str:
        return f"CellTree({[*self]}, {[*self.edges]})"

    # --- what a tree is -------------------------------------------------------------------------

    @property
    def edges(self) -> tuple[TreeEdge, ...]:
        """Every edge once, in order."""
        return tuple(
            sorted(
                (cell, other)
                for cell, others in self._neighbours.items()
                for other in others
                if cell < other
            )
        )

    @property
    def degree(self) -> int:
        """The greatest number of neighbours of a cell."""
        return max(map(len, self._neighbours.values()))

    @property
    def diameter(self) -> int:
        """The greatest distance between two cells."""
        far = self.distances(next(iter(self._neighbours)))
        return max(self.distances(max(far, key=far.__getitem__)).values())

    @property
    def centre(self) -> CellId:
        """The cell in the middle of a longest path; of two, the one with the lesser id."""
        first = self.distances(next(iter(self._neighbours)))
        start = max(first, key=first.__getitem__)
        second = self.distances(start)
        end = max(second, key=second.__getitem__)
        path = self.path(start, end)
        return min(path[(len(path) - 1) // 2], path[len(path) // 2])

    def neighbours(self, cell: CellId) -> tuple[CellId, ...]:
        """Return the neighbours of a cell."""
        return self._neighbours[cell]

    def degree_of(self, cell: CellId) -> int:
        """Return how many neighbours a cell has."""
        return len(self._neighbours[cell])

    def has_edge(self, cell: CellId, other: CellId) -> bool:
        """Whether two cells are neighbours."""
        return other in self._neighbours.get(cell, ())

    def parents(self, root: CellId) -> dict[CellId, CellId]:
        """Return the neighbour of each cell on its path to a root, nearest cells first.

        The root is its own parent.
        """
        found = {root: root}
        for cell in (order := [root]):
            for each in self._neighbours[cell]:
                if each not in found:
                    found[each] = cell
                    order.append(each)
        return found

    def distances(self, root: CellId) -> dict[CellId, int]:
        """Return the distances from a cell, nearest cells first."""
        found: dict[CellId, int] = {}
        for cell, parent in self.parents(root).items():
            found[cell] = found[parent] + 1 if found else 0
        return found

    def path(self, cell: CellId, other: CellId) -> tuple[CellId, ...]:
        """Return the path between two cells, with both."""
        parents = self.parents(other)
        path = [cell]
        while path[-1] != other:
            path.append(parents[path[-1]])
        return tuple(path)

    def subtree(self, cells: Iterable[CellId]) -> CellTree:
        """Return the tree of some cells and the edges between them."""
        kept = set(cells)
        edges = [edge for edge in self.edges if edge[0] in kept and edge[1] in kept]
        return CellTree.of(kept, edges)

    # --- the operations -------------------------------------------------------------------------

    def appended(self, cell: CellId, neighbour: CellId) -> CellTree:
        """Return the tree after APPEND(i, j): the new cell i is a neighbour of j."""
        self._check_cells("APPEND", neighbour)
        if cell in self:
            raise UsageError(
                f"APPEND({_shown(cell)}, {_shown(neighbour)}): the tree has the cell "
                f"{_shown(cell)} already; name a new one"
            )
        return self._with({cell: (neighbour,), neighbour: self._joined(neighbour, cell)})

    def detached(self, cell: CellId, neighbour: CellId) -> CellTree:
        """Return the tree after DETACH(i): the outer cell i, a neighbour of j, is gone."""
        self._check_cells("DETACH", cell, neighbour)
        if self._neighbours[cell] != (neighbour,):
            raise UsageError(
                f"DETACH({_shown(cell)}) needs a cell whose only neighbour is {_shown(neighbour)}; "
                f"its neighbours are {', '.join(map(_shown, self._neighbours[cell])) or 'none'}"
            )
        left = {each: near for each, near in self._neighbours.items() if each != cell}
        return CellTree({**left, neighbour: self._left(neighbour, cell)})

    def shifted(self, moved: CellId, old: CellId, new: CellId) -> CellTree:
        """Return the tree after SHIFT(i, j, k): the edge between i and j is one between i and k."""
        self._check_cells("SHIFT", moved, old, new)
        if moved == new or not self.has_edge(moved, old) or not self.has_edge(old, new):
            raise UsageError(
                f"SHIFT({_shown(moved)}, {_shown(old)}, {_shown(new)}): {_shown(moved)} and "
                f"{_shown(new)} must be two neighbours of {_shown(old)}"
            )
        others = (each for each in self._neighbours[moved] if each != old)
        return self._with(
            {
                moved: tuple(sorted((*others, new))),
                old: self._left(old, moved),
                new: self._joined(new, moved),
            }
        )

    def _check_cells(self, operation: str, *cells: CellId) -> None:
        unknown = [each for each in cells if each not in self]
        if unknown:
            shown = ", ".join(map(_shown, cells))
            raise UsageError(f"{operation}({shown}): the tree has no cell {_shown(unknown[0])}")

    def _joined(self, cell: CellId, other: CellId) -> tuple[CellId, ...]:
        return tuple(sorted((*self._neighbours[cell], other)))

    def _left(self, cell: CellId, other: CellId) -> tuple[CellId, ...]:
        return tuple(each for each in self._neighbours[cell] if each != other)

    def _with(self, changes: Mapping[CellId, tuple[CellId, ...]]) -> CellTree:
        return CellTree({**self._neighbours, **changes})


def _shown(cell: CellId) -> str:
    return shortened(str(cell))
