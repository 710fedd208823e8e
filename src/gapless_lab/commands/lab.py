"""``gapless lab``: the papers' experiments, with our figures beside the papers'."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless import __version__
from gapless.cli.options import AsJson, settle
from gapless.cli.output import console, counted, listing, plain, print_json, print_note

if TYPE_CHECKING:
    from gapless_lab.lab.experiment import Experiment
    from gapless_lab.lab.points import Point
    from gapless_lab.lab.report import ExperimentReport
    from gapless_lab.lab.running import ExperimentRun, Spread

__all__ = ["lab"]

EXIT_FAILED = 1
"""The exit code if a point could not be measured."""

lab = typer.Typer(
    help="Run the papers' experiments: tables and plots with our figures beside the papers'.",
    no_args_is_help=True,
)


@lab.command("list")
def _list(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List all experiments with paper, figure and number of points."""
    from gapless_lab.lab.catalogue import EXPERIMENTS

    settle(context, as_json=as_json)
    known = EXPERIMENTS.values()
    if as_json:
        print_json([_named(each) for each in known])
        return
    rows = [
        (each.name, each.paper, each.figure, each.title, f"{len(each.points()):,}")
        for each in known
    ]
    console().print(listing("name", "paper", "figure", "what", "points", rows=rows))


def _named(experiment: Experiment) -> dict[str, object]:
    from gapless_lab.lab.experiment import PAPERS

    return {
        "name": experiment.name,
        "paper": experiment.paper,
        "paper_title": PAPERS[experiment.paper],
        "figure": experiment.figure,
        "title": experiment.title,
        "points": len(experiment.points()),
        "axes": {name: list(values) for name, values in experiment.full.items()},
    }


@lab.command("run")
def _run(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The experiments; all runs every one.")
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version that takes seconds, as a test.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help="How often every point is measured.")
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="NAME=1,2,3", help="Other values of an axis; may be repeated."
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure all points again, also finished ones.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Distribute the points with Spark.")
    ] = False,
    master: Annotated[
        str,
        typer.Option(
            metavar="MASTER", envvar="GAPLESS_SPARK_MASTER", help="With --spark: the Spark master."
        ),
    ] = "local[*]",
    out: Annotated[
        Path, typer.Option("--out", metavar="DIRECTORY", help="Where results are kept.")
    ] = Path("lab-results"),
    as_json: AsJson = False,
) -> None:
    """Run experiments, or their missing points; print and keep a table and a plot of each."""
    from gapless_lab.lab.catalogue import EXPERIMENTS, find
    from gapless_lab.lab.points import parse_axes

    settle(context, as_json=as_json)
    chosen = [find(name) for name in (EXPERIMENTS if names == ["all"] else names)]
    changed = parse_axes(axes or ())
    # report an error of any experiment before the first starts
    wanted = [(each, each.points(quick=quick, runs=runs, changed=changed)) for each in chosen]
    made = [_prepared(each, points, out, fresh=fresh) for each, points in wanted]
    spread_out = spark and any(run.missing for run in made)
    reports: list[ExperimentReport] = []
    with _spread(master if spread_out else None) as spread:
        for run in made:
            _go(run, spread, quiet=as_json)
            reports.append(_write_report(run, as_json=as_json))
    if as_json:
        print_json(reports[0] if len(reports) == 1 else reports)
    raise typer.Exit(EXIT_FAILED if any(run.failures for run in made) else 0)


def _prepared(
    experiment: Experiment, points: list[Point], out: Path, *, fresh: bool
) -> ExperimentRun:
    from gapless_lab.lab.results import ResultStore, this_code
    from gapless_lab.lab.running import ExperimentRun

    shelf = ResultStore(out / experiment.name, this_code(__version__))
    if fresh:
        shelf.clear()
    return ExperimentRun(experiment, points, shelf)


@contextlib.contextmanager
def _spread(master: str | None) -> Iterator[Spread]:
    """Yield a function that measures points in this process or on a Spark cluster."""
    if master is None:
        from gapless_lab.lab.running import one_by_one

        yield one_by_one
        return
    from gapless.cli.spark_sessions import session
    from gapless_lab.lab.catalogue import MEASURE
    from gapless_lab.sweep.sweeping import outcomes

    with session(master, "lab") as made:
        yield lambda points: outcomes(made, MEASURE, points)


def _go(run: ExperimentRun, spread: Spread, *, quiet: bool) -> None:
    """Measure the missing points and show the progress; Ctrl-C keeps the finished ones."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    hidden = quiet or not screen.is_terminal
    total, missing = len(run.points), len(run.missing)
    if missing < total and not quiet:
        print_note(
            f"{run.experiment.name}: {total - missing} of {total} points were finished before"
        )
    with Progress(*columns, console=screen, transient=True, disable=hidden) as progress:
        task = progress.add_task(run.experiment.name, total=total, completed=total - missing)

        try:
            run.go(spread, lambda _: progress.advance(task))
        except KeyboardInterrupt:
            progress.stop()
            run.shelf.write(*run.report())
            kept = f"{total - len(run.missing)} of {total} points"
            print_note(f"{kept} are kept in {run.shelf.directory}; the same command continues")
            raise


def _shown(point: Point) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.items() if name != "experiment")


def _write_report(run: ExperimentRun, *, as_json: bool) -> ExperimentReport:
    """Write the report of a run, and print it unless it is wanted as JSON."""
    report, charts = run.report()
    written = run.shelf.write(report, charts)
    if not as_json:
        _show(report)
    for failure in run.failures:
        print_note(f"failed: {_shown(failure.point)}: {failure.error}")
    for path in written:
        print_note(f"written: {path}")
    _note_missing_plots(len(charts), written)
    return report


def _note_missing_plots(charts: int, written: Sequence[Path]) -> None:
    if charts and not any(path.suffix == ".png" for path in written):
        print_note('not drawn: matplotlib is not installed: pip install "gapless[lab]"')


def _show(report: ExperimentReport) -> None:
    """Print the tables, and the paper's result."""
    from gapless_lab.lab.report import COMPARED, axes_line, cell, compared_rows

    out = console()
    head = f"{report.name}: {report.title} ({f'{report.paper} {report.figure}'.strip()})"
    out.print(plain(head), style="bold")
    out.print(plain(f"at {axes_line(report)}"), style="dim")
    if report.done < report.points:
        missing = report.points - report.done
        out.print(plain(f"{counted(missing, 'point')} of {report.points:,} could not be measured"))
    for table in report.tables:
        shown = [[cell(value) for value in row] for row in table.rows]
        out.print()
        out.print(plain(table.title), style="bold")
        out.print(listing(*table.heads, rows=shown))
    if report.comparisons:
        out.print()
        out.print(listing(*COMPARED, rows=compared_rows(report.comparisons)))
    out.print()
