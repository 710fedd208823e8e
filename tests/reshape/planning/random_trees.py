"""Trees for tests of plans: random ones, all labelled ones, and one of each shape."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from random import Random

from hypothesis import strategies as st

from gapless.reshape.planning.trees import CellTree


def letters(count: int) -> list[str]:
    return [chr(ord("a") + number) for number in range(count)]


def tree_of(*edges: str) -> CellTree:
    """Return the tree of some edges, each two letters."""
    return CellTree.of({cell for edge in edges for cell in edge}, [(e[0], e[1]) for e in edges])


def line(cells: str | Sequence[str]) -> CellTree:
    return CellTree.of(cells, pairwise(cells))


def star(cells: str | Sequence[str]) -> CellTree:
    return CellTree.of(cells, [(cells[0], each) for each in cells[1:]])


def decoded(cells: Sequence[str], code: Sequence[int]) -> CellTree:
    """Return the tree of a Prüfer code: there is one code for each labelled tree."""
    if len(cells) == 1:
        return CellTree.of(cells, [])
    missing = [1] * len(cells)
    for number in code:
        missing[number] += 1
    leaves = [number for number, count in enumerate(missing) if count == 1]
    heapq.heapify(leaves)
    edges = []
    for number in code:
        edges.append((cells[heapq.heappop(leaves)], cells[number]))
        missing[number] -= 1
        if missing[number] == 1:
            heapq.heappush(leaves, number)
    edges.append((cells[heapq.heappop(leaves)], cells[heapq.heappop(leaves)]))
    return CellTree.of(cells, edges)


def random_tree(cells: Sequence[str], random: Random) -> CellTree:
    """Return a tree of some cells; each labelled tree is as likely as every other."""
    code = [random.randrange(len(cells)) for _ in range(len(cells) - 2)]
    return decoded(cells, code)


@cache
def all_trees(count: int) -> tuple[CellTree, ...]:
    """Return every labelled tree of the first letters."""
    codes = product(range(count), repeat=max(0, count - 2))  # of one cell too: an empty code
    return tuple(decoded(letters(count), code) for code in codes)


@cache
def one_of_each_shape(count: int) -> tuple[CellTree, ...]:
    """Return trees of which every labelled tree is a relabelling."""
    found: dict[str, CellTree] = {}
    for tree in all_trees(count):
        found.setdefault(min(_nested(tree, cell, None) for cell in tree), tree)
    return tuple(found.values())


def _nested(tree: CellTree, cell: str, parent: str | None) -> str:
    children = [_nested(tree, each, cell) for each in tree.neighbours(cell) if each != parent]
    return f"({''.join(sorted(children))})"


@st.composite
def trees(draw: st.DrawFn, names: str) -> CellTree:
    """Draw a tree of some of the cells that single letters name."""
    cells = sorted(draw(st.sets(st.sampled_from(names), min_size=1, max_size=len(names))))
    numbers = st.integers(0, len(cells) - 1)
    size = max(0, len(cells) - 2)
    return decoded(cells, draw(st.lists(numbers, min_size=size, max_size=size)))
