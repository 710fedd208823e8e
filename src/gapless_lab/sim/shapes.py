"""Shapes of trees of cells."""

from __future__ import annotations

from random import Random
from typing import Final

from gapless.core.errors import UsageError
from gapless.overlay.neighbourhood import Topology

__all__ = ["SHAPES", "tree"]

SHAPES: Final = ("line", "star", "fan", "random", "broom")


def tree(
    shape: str,
    cells: int,
    fan_out: int,
    brokers_per_cell: int,
    seed: int,
    *,
    mixed: bool = False,
) -> Topology:
    """Return a tree of cells; ``fan_out`` limits the children of a cell.

    With ``mixed`` cells have from one broker up to ``brokers_per_cell``.
    """
    if shape not in SHAPES:
        raise UsageError(f"{shape} is not a shape; use one of {', '.join(SHAPES)}")
    random = Random(f"{seed}/shape")  # noqa: S311
    names = [f"n{number}" for number in range(cells)]
    children = [0] * cells
    edges = []
    for child in range(1, cells):
        parent = _parent(shape, child, cells, fan_out, children, random)
        children[parent] += 1
        edges.append((names[parent], names[child]))
    sizes = _mixed_sizes(cells, brokers_per_cell, seed) if mixed else [brokers_per_cell] * cells
    brokers = {
        name: [f"{name}{letter}" for letter in "abcdefgh"[:size]]
        for name, size in zip(names, sizes, strict=True)
    }
    return Topology.of(brokers, edges)


def _mixed_sizes(cells: int, largest: int, seed: int) -> list[int]:
    """Draw sizes of cells; with two cells or more, one has one broker and one has the maximum."""
    random = Random(f"{seed}/sizes")  # noqa: S311
    sizes = [largest, 1, *(random.randint(1, largest) for _ in range(cells))][:cells]
    random.shuffle(sizes)
    return sizes


def _parent(
    shape: str, child: int, cells: int, fan_out: int, children: list[int], random: Random
) -> int:
    match shape:
        case "line":
            return child - 1
        case "star":
            return 0
        case "fan":
            return (child - 1) // fan_out
        case "broom":  # a line with all other cells at its end
            return min(child - 1, cells // 2)
        case _:
            open_cells = [cell for cell in range(child) if children[cell] < fan_out]
            return random.choice(open_cells)
