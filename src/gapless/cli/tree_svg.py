"""Drawings of trees of cells as SVG: the centre in the middle, every further cell on a wider ring."""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from math import cos, pi, sin

from gapless.core.ids import CellId
from gapless.core.natural_order import natural_key
from gapless.reshape.planning.trees import CellTree, TreeEdge, tree_edge

__all__ = ["svg_of_tree"]

RADIUS = 6
"""Pixels from the middle of a cell to its border."""

RING = 64
"""Pixels between two rings, if the outer cells have room so."""

SPACING = 26
"""Pixels between two outer cells on the widest ring."""

MARGIN = 80
"""Pixels around the rings, for the names of the outer cells."""

STYLE = (
    "line{stroke:#889;stroke-width:1.5}line.marked{stroke:#d40;stroke-width:3}"
    "circle{fill:#fff;stroke:#334;stroke-width:1.5}circle.marked{fill:#fc9}"
    "text{font:12px sans-serif;fill:#223}"
)


def svg_of_tree(
    tree: CellTree,
    *,
    edges: Collection[TreeEdge] = (),
    cells: Collection[CellId] = (),
    centre: CellId | None = None,
) -> str:
    """Return an SVG document of a tree, with some edges and cells marked.

    A series of drawings with one ``centre`` keeps that cell in place.
    """
    centre = tree.centre if centre is None else centre
    places, size = _places(tree, centre)
    lines = []
    for one, other in tree.edges:
        (x1, y1), (x2, y2) = places[one], places[other]
        mark = ' class="marked"' if tree_edge(one, other) in edges else ""
        lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"{mark}/>')
    for cell, (x, y) in places.items():
        mark = ' class="marked"' if cell in cells else ""
        lines.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}"{mark}/>')
        end = ' text-anchor="end"' if x < size / 2 - 1 else ""
        beside = -RADIUS - 4 if end else RADIUS + 4
        lines.append(f'<text x="{x + beside:.1f}" y="{y + 4:.1f}"{end}>{escape(cell)}</text>')
    frame = f'width="{size}" height="{size}" viewBox="0 0 {size} {size}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>'
    return "\n".join([opening, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def _places(tree: CellTree, centre: CellId) -> tuple[dict[CellId, tuple[float, float]], int]:
    """Return the place of each cell, and the width and height of the drawing."""
    depths = tree.distances(centre)
    turns = _turns(tree, centre)
    outer = sum(tree.degree_of(cell) <= 1 for cell in tree)
    ring = max(RING, outer * SPACING / (2 * pi) / max(1, *depths.values()))
    middle = MARGIN + ring * max(depths.values())
    places = {
        cell: (
            round(middle + ring * depth * cos(turns[cell]), 1),
            round(middle + ring * depth * sin(turns[cell]), 1),
        )
        for cell, depth in depths.items()
    }
    return places, round(2 * middle)


def _turns(tree: CellTree, centre: CellId) -> dict[CellId, float]:
    """Return the direction of each cell: outer cells at equal angles, others amid those behind."""
    parents = tree.parents(centre)
    outer: list[CellId] = []
    waiting = [centre]
    while waiting:  # depth first, so that branches do not cross
        cell = waiting.pop()
        behind = [each for each in tree.neighbours(cell) if each != parents[cell]]
        waiting += sorted(behind, key=natural_key, reverse=True)
        if not behind:
            outer.append(cell)
    spans = {cell: (number, number) for number, cell in enumerate(outer)}
    for cell, parent in reversed(parents.items()):  # farthest first
        low, high = spans[cell]
        before = spans.get(parent, (low, high))
        spans[parent] = min(low, before[0]), max(high, before[1])
    return {cell: pi * (low + high) / len(outer) for cell, (low, high) in spans.items()}
