"""``gapless demo``: brokers under a market's traffic, some of them killed, and an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.options import AsJson, settle
from gapless.core.errors import UsageError
from gapless_lab.commands.demo_audit import audit_and_profile

__all__ = ["demo"]


def demo(
    context: typer.Context,
    *,
    seconds: Annotated[float, typer.Option(min=2, help="How long quotes are published.")] = 40.0,
    topology: Annotated[
        str, typer.Option(metavar="TREE", help="line:3, star:5x2, tree:2x3 or a .toml file.")
    ] = "tree:2x3",
    seed: Annotated[int, typer.Option(help="The seed of the quotes and of the kills.")] = 1,
    rate: Annotated[float, typer.Option(min=1, help="Events a second, of all publishers.")] = 500.0,
    data: Annotated[
        Path | None,
        typer.Option(help="An empty directory in which records and logs are kept."),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Afterwards audit and profile the audit logs with Spark."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a tree of brokers under traffic, kill some of them, and audit every delivery.

    The audit reads the records of publishers and subscribers and evaluates the filters by itself.
    Exit code 1 if an event was lost, duplicated, out of order or spurious.
    """
    from gapless_lab.demo.run import DemoOptions, perform_and_show

    settle(context, as_json=as_json)
    if spark and as_json:
        raise UsageError("--spark prints tables, not JSON; use --data and then gapless spark audit")
    options = DemoOptions(seconds=seconds, topology=topology, seed=seed, rate=rate)
    then = audit_and_profile if spark else None
    raise typer.Exit(perform_and_show(options, data, as_json=as_json, then=then))
