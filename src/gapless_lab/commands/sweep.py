"""``gapless spark sweep``: simulator seeds or an experiment, distributed over Spark executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import console, listing, plain, print_json, print_note
from gapless.cli.spark import Master, Out
from gapless.cli.spark_sessions import session
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.spark.jobs.plotting import Plot
    from gapless_lab.sim.runner import RunResult
    from gapless_lab.sweep.distribution import PointOutcome
    from gapless_lab.sweep.experiments import Point
    from gapless_lab.sweep.sweeping import Sweep

__all__ = ["sweep"]

ROWS_SHOWN = 40
"""How many rows of a table are printed; the file has all."""


def sweep(
    context: typer.Context,
    *,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds to simulate.")] = None,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    machine: Annotated[
        str | None,
        typer.Option(help="The machine to simulate, as module:name; default: the broker."),
    ] = None,
    invariants: Annotated[
        bool, typer.Option(help="Check the invariants inside the brokers at every step.")
    ] = True,
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of seeds: an experiment, as module:function or by its lab name.",
        ),
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME=1,2,3", help="An axis of the grid; may be repeated."),
    ] = None,
    points: Annotated[
        Path | None, typer.Option(help="A file of points instead, one JSON object per line.")
    ] = None,
    plots: Annotated[
        list[str] | None,
        typer.Option("--plot", metavar="X:Y[:SERIES]", help="Draw into --out; may be repeated."),
    ] = None,
    master: Master = "local[*]",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run simulator seeds, or an experiment over a grid, distributed over executors."""
    from gapless.spark.jobs.locations import local_path
    from gapless.spark.jobs.plotting import Plot

    settle(context, as_json=as_json)
    drawn = [Plot.parse(text) for text in plots or ()]
    if drawn and out is None:
        raise UsageError("--plot needs a directory: name one with --out")
    if (seeds is None) == (experiment is None):
        raise UsageError("name either --seeds or an --experiment")
    directory = None if out is None else local_path(out, "the result")
    if seeds is not None:
        wanted = range(start, start + seeds)
        code = _sweep_seeds(
            wanted,
            machine,
            invariants=invariants,
            master=master,
            out=directory,
            plots=drawn,
            as_json=as_json,
        )
    else:
        assert experiment is not None
        dealt = _points(experiment, axes or [], points)
        code = _sweep_points(experiment, dealt, master, directory, drawn, as_json=as_json)
    raise typer.Exit(code)


def _sweep_seeds(
    seeds: range,
    machine: str | None,
    *,
    invariants: bool,
    master: str,
    out: Path | None,
    plots: list[Plot],
    as_json: bool,
) -> int:
    """Run seeds and print exactly what the local runner prints for them."""
    from gapless_lab.commands.sim_runs import report
    from gapless_lab.sim.machine import BROKER, load_factory
    from gapless_lab.sweep.sweeping import SEEDS, gather, seed_outcomes

    load_factory(machine or BROKER)
    gathered: list[PointOutcome] = []
    with session(master, "sweep") as made:
        found = seed_outcomes(made, seeds, machine or BROKER, invariants=invariants)

        def results() -> Iterator[RunResult]:
            for outcome, result in found:
                gathered.append(outcome)
                yield result

        code = report(results(), len(seeds), as_json=as_json)
    _keep(gather(SEEDS, gathered), out, plots)
    return code


def _points(experiment: str, axes: list[str], path: Path | None) -> list[Point]:
    """Return the points of an experiment; an experiment of the lab has default points."""
    from gapless_lab.sweep.experiments import grid, lab_points, parse_axes, read_points

    if path is not None and not axes:
        return read_points(path)
    chosen = parse_axes(axes)
    known = lab_points(experiment, chosen) if path is None else None
    if known is not None:
        return known
    if not axes or path is not None:
        raise UsageError("an experiment needs points: either --grid or --points")
    return grid(chosen)


def _sweep_points(
    experiment: str,
    points: list[Point],
    master: str,
    out: Path | None,
    plots: list[Plot],
    *,
    as_json: bool,
) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from gapless_lab.sweep.experiments import load
    from gapless_lab.sweep.sweeping import sweep as run_sweep

    load(experiment)
    quiet = as_json or not Console(stderr=True).is_terminal
    with (
        session(master, "sweep") as made,
        Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress,
    ):
        task = progress.add_task("points", total=len(points))
        found = run_sweep(made, experiment, points, on_outcome=lambda _: progress.advance(task))
    _keep(found, out, plots)
    if as_json:
        print_json(found)
    else:
        show_sweep(found)
    return 1 if found.failures else 0


def _keep(found: Sweep, out: Path | None, plots: list[Plot]) -> None:
    from gapless.spark.jobs.plotting import can_plot

    if out is None:
        return
    for path in found.save(out, plots):
        print_note(f"written: {path}")
    if plots and not can_plot():
        print_note('not drawn: matplotlib is not installed: pip install "gapless[lab]"')


def show_sweep(found: Sweep) -> None:
    """Show the table of a sweep, and its failures."""
    out = console()
    names = list(dict.fromkeys(name for row in found.rows for name in row))
    shown = [[_cell_text(row.get(name)) for name in names] for row in found.rows[:ROWS_SHOWN]]
    if shown:
        out.print(listing(*names, rows=shown))
    if len(found.rows) > ROWS_SHOWN:
        out.print(plain(f"… {len(found.rows) - ROWS_SHOWN:,} more rows; --out keeps all"))
    for failure in found.failures:
        out.print(plain(f"failed at {failure.point}: {failure.error}"), style="red")


def _cell_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)
