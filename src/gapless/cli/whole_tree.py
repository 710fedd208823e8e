"""The whole tree of an overlay, for ``gapless topo show --all``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.cli.output import console, print_json, print_note, records, styled

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from gapless.client.overlay import OverlayTree
    from gapless.messages.overlay import CellRecord

__all__ = ["show_tree"]


def show_tree(found: OverlayTree, *, as_json: bool) -> None:
    """Print a tree, and a note of the cells that did not answer."""
    if as_json:
        print_json({"cells": [*map(_described, found.cells)], "silent": [*found.silent]})
        return
    for root in _drawn(found.cells):
        console().print(root)
    if found.silent:
        print_note(f"no answer from {', '.join(found.silent)}: the tree is not complete")


def _described(cell: CellRecord) -> dict[str, Any]:
    """A cell with the fields of ``topo show`` that are the same at all brokers, and its record."""
    fields = records(cell)
    name = fields.pop("name")
    return {"cell": name, "brokers": [*cell.brokers], "neighbours": [*cell.neighbours], **fields}


def _drawn(cells: tuple[CellRecord, ...]) -> list[Tree]:
    """The cells as a tree, with the first in the order of names at the top.

    There are several if the records of cells are missing, or are of different times.
    """
    from rich.tree import Tree

    by_name = {cell.name: cell for cell in cells}
    branches: dict[str, Tree] = {}
    roots: list[Tree] = []
    for start in cells:
        if start.name in branches:
            continue
        root = branches[start.name] = Tree(_label(start))
        roots.append(root)
        queue = [start]
        for cell in queue:
            branch = branches[cell.name]
            for name in cell.neighbours:
                if name not in by_name:
                    branch.add(styled(f"{name} (no answer)", "red"))
                elif name not in branches:
                    branches[name] = branch.add(_label(by_name[name]))
                    queue.append(by_name[name])
    return roots


def _label(cell: CellRecord) -> Text:
    from gapless.messages.overlay import CellRole

    label = styled(cell.name, "bold")
    for member in cell.members:
        label.append_text(styled(f"  {member.broker}", "default"))
        if member.role is CellRole.REPLACED:
            label.append(" (replaced)", style="dim")
        elif member.broker == cell.leader and len(cell.members) > 1:
            label.append(" (leader)", style="dim")
    return label
