"""``gapless topo plan``: the command; :mod:`gapless.cli.planning` does its work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.options import AsJson, settle

__all__ = ["plan"]


def plan(
    context: typer.Context,
    tree: Annotated[
        str,
        typer.Argument(metavar="TREE", help="The wanted tree: a .toml file, or line:3, star:5, …"),
    ],
    *,
    present: Annotated[
        str,
        typer.Option("--from", metavar="TREE", help="The present tree, in the same form."),
    ],
    degree: Annotated[
        int | None,
        typer.Option(min=1, help="How many neighbours a cell may have on the way."),
    ] = None,
    diameter: Annotated[
        int | None,
        typer.Option(min=1, help="How far two cells may be apart on the way."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="CELL", help="A cell whose edges must not change. Repeatable."),
    ] = None,
    near: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CELL,CELL,N", help="Two cells that stay at most N edges apart. Repeatable."
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write a drawing of the tree after each step."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the operations that change one tree of cells to another, and change nothing.

    A shape such as star:5 takes the present cells in their order; the centre is chosen so that the
    plan is short. A file names cells: new ones are appended, missing ones are detached.
    """
    from gapless.cli import planning as command

    settle(context, as_json=as_json)
    found = command.planned(
        tree, present, degree=degree, diameter=diameter, keep=keep or (), near=near or ()
    )
    command.show(found, svg=svg, as_json=as_json)
