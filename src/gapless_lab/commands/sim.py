"""The commands of ``gapless sim``; :mod:`.sim_runs` implements them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.options import AsJson, settle

__all__ = ["sim"]

sim = typer.Typer(
    help="Run simulated overlays with faults, and check every guarantee.",
    no_args_is_help=True,
)

Machine = Annotated[
    str | None, typer.Option(help="The machine to simulate, as module:name; default: the broker.")
]


@sim.command("run")
def _sim_run(
    context: typer.Context,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 100,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes to run them in.")] = 1,
    machine: Machine = None,
    invariants: Annotated[
        bool, typer.Option(help="Check the invariants inside the brokers at every step.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Run seeds; print one line per run and a summary, with --json one document of both."""
    from gapless_lab.commands import sim_runs

    settle(context, as_json=as_json)
    code = sim_runs.run(
        seeds=seeds,
        start=start,
        workers=workers,
        machine=machine,
        invariants=invariants,
        as_json=as_json,
    )
    raise typer.Exit(code)


@sim.command("replay")
def _sim_replay(
    context: typer.Context,
    seed: Annotated[int, typer.Argument(help="The seed to run again.")],
    *,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show what happens, one line per step.")
    ] = False,
    shrunk: Annotated[
        bool, typer.Option("--shrink", help="Find a smaller run with the same violation.")
    ] = False,
    options_text: Annotated[
        str | None,
        typer.Option(
            "--options", help="Options as JSON, or a file with JSON; default: drawn from the seed."
        ),
    ] = None,
    machine: Machine = None,
    as_json: AsJson = False,
) -> None:
    """Run one seed again and show what happens."""
    from gapless_lab.commands import sim_runs

    settle(context, as_json=as_json)
    code = sim_runs.replay(
        seed,
        options_text=options_text,
        trace=trace,
        shrunk=shrunk,
        machine=machine,
        as_json=as_json,
    )
    raise typer.Exit(code)


@sim.command("digest")
def _sim_digest(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(help="The file with the recorded digests.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 600,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes to run them in.")] = 1,
    record: Annotated[
        bool, typer.Option("--record", help="Write the digests to the file instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the brokers' decisions with recorded runs, for changes that must not alter them."""
    from gapless_lab.commands import sim_runs

    settle(context, as_json=as_json)
    seeds_wanted = range(start, start + seeds)
    code = sim_runs.digest(seeds_wanted, file, workers=workers, record=record, as_json=as_json)
    raise typer.Exit(code)
