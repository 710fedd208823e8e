"""``gapless topo plan``, ``apply`` and ``abort``: from the present tree of cells to another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.broker_calls import DEADLINE_S, call_broker
from gapless.cli.options import URL_DEFAULT, AsJson, Deadline, TokenFile, Url, settle

if TYPE_CHECKING:
    from gapless.client import Session
    from gapless.client.tree_orders import AppliedPlan, TreeOrder

__all__ = ["abort", "apply", "plan"]

Tree = Annotated[
    str,
    typer.Argument(metavar="TREE", help="The wanted tree: a .toml file, or line:3, star:5, …"),
]
Degree = Annotated[
    int | None,
    typer.Option(min=1, help="How many neighbours a cell may have on the way."),
]
Diameter = Annotated[
    int | None,
    typer.Option(min=1, help="How far two cells may be apart on the way."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="CELL", help="A cell whose edges must not change. Repeatable."),
]
Near = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CELL,CELL,N", help="Two cells that stay at most N edges apart. Repeatable."
    ),
]


def plan(
    context: typer.Context,
    tree: Tree,
    *,
    present: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TREE",
            help="The present tree, in the same form.",
            show_default="that of the overlay",
        ),
    ] = None,
    degree: Degree = None,
    diameter: Diameter = None,
    keep: Keep = None,
    near: Near = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write a drawing of the tree after each step."),
    ] = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Show the operations that change one tree of cells to another, and change nothing.

    Without --from the present tree is asked from a broker. A shape such as star:5 takes the present
    cells in their order; the centre is chosen so that the plan is short. A file names cells: new ones
    are appended, missing ones are detached.
    """
    from gapless.cli import planning as command

    settle(context, as_json=as_json)
    bounds = command.bound_options(degree, diameter, keep or (), near or ())
    if present is not None:
        found = command.planned(tree, present, bounds)
    else:
        order = call_broker(
            url,
            lambda session: session.overlay.plan(tree, bounds=bounds),
            deadline_s=deadline,
            token_file=token_file,
        )
        found = order.plan
    command.show(found, svg=svg, as_json=as_json)


def apply(
    context: typer.Context,
    tree: Tree,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it begins.")] = False,
    degree: Degree = None,
    diameter: Diameter = None,
    keep: Keep = None,
    near: Near = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Lead a running overlay to another tree of cells, operation by operation.

    The plan is shown first, and a question asked; --json needs --yes. Events are delivered meanwhile. The
    broker goes on if this command is interrupted: see `gapless topo abort`. New cells of a file need
    brokers that run and wait to be appended, with their addresses in the file.
    """
    from gapless.cli import planning as command
    from gapless.cli.output import print_json, print_note
    from gapless.core.errors import UsageError

    settle(context, as_json=as_json)
    if as_json and not yes:
        raise UsageError("--json asks no question: confirm with --yes")
    bounds = command.bound_options(degree, diameter, keep or (), near or ())

    async def run(session: Session) -> tuple[TreeOrder, AppliedPlan | None]:
        order = await session.overlay.plan(tree, bounds=bounds)
        if not as_json:
            command.show_plan(order.plan)
        if not order.plan.steps:
            return order, None
        if not yes and not typer.confirm("\nchange the tree of the running overlay?", err=True):
            raise typer.Exit(1)
        with command.plan_progress(shown=not as_json) as progress:
            return order, await session.overlay.apply(order, progress)

    order, applied = call_broker(url, run, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({**command.plan_document(order.plan), **command.applied_document(applied)})
    elif applied is not None:
        command.show_applied(applied)
    else:
        print_note("nothing to do")


def abort(
    context: typer.Context,
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Stop the plan that a broker executes, after the operation under way.

    Ask the broker that `gapless topo apply` was connected to. Every step leaves a valid tree.
    """
    from gapless.cli.output import print_json, print_note

    settle(context, as_json=as_json)
    stopped = call_broker(
        url, lambda session: session.overlay.abort(), deadline_s=deadline, token_file=token_file
    )
    if as_json:
        print_json({"was_under_way": stopped})
    elif stopped:
        print_note("the plan ends after the operation under way")
    else:
        print_note("this broker executes no plan")
