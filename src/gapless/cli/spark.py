"""``gapless spark``: jobs on a Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import URL_DEFAULT, AsJson, To, TokenFile, settle
from gapless.cli.output import (
    console,
    counted,
    plain,
    print_json,
    print_note,
)
from gapless.cli.spark_audit import add_audit_commands
from gapless.cli.spark_sessions import session, tasks_shown
from gapless.cli.spark_tables import show_archive, show_backtest, show_sweep
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.sim.runner import Result
    from gapless.spark.jobs.archiving import Progress
    from gapless.spark.jobs.dealing import Outcome
    from gapless.spark.jobs.experiments import Point
    from gapless.spark.jobs.plotting import Plot
    from gapless.spark.jobs.sweeping import Sweep

__all__ = ["spark"]

spark = typer.Typer(
    help="Run jobs on Spark: simulations, archives of streams, backtests of filters, audits.",
    no_args_is_help=True,
)

Master = Annotated[
    str,
    typer.Option(
        metavar="MASTER",
        envvar="GAPLESS_SPARK_MASTER",
        help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://…",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIRECTORY", help="Keep results here, as Parquet.")
]


# --- sweep ------------------------------------------------------------------------------------------


@spark.command("sweep")
def _sweep(
    context: typer.Context,
    *,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds to simulate.")] = None,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    machine: Annotated[
        str | None, typer.Option(help="What to simulate, as module:name; else the broker.")
    ] = None,
    probes: Annotated[
        bool, typer.Option(help="Check the invariants inside the brokers at every step.")
    ] = True,
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of seeds: what to run at points, as module:function or as the lab calls it.",
        ),
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME=1,2,3", help="An axis of the grid; may be repeated."),
    ] = None,
    points: Annotated[
        Path | None, typer.Option(help="Points from a file instead, a JSON object a line.")
    ] = None,
    plots: Annotated[
        list[str] | None,
        typer.Option("--plot", metavar="X:Y[:SERIES]", help="Draw into --out; may be repeated."),
    ] = None,
    master: Master = "local[*]",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run simulator seeds, or an experiment over a grid, spread over executors."""
    from gapless.spark.jobs.plotting import Plot

    settle(context, as_json=as_json)
    drawn = [Plot.parse(text) for text in plots or ()]
    if drawn and out is None:
        raise UsageError("--plot draws into a directory: name one with --out")
    if (seeds is None) == (experiment is None):
        raise UsageError("name either --seeds or an --experiment")
    if seeds is not None:
        wanted = range(start, start + seeds)
        code = _sweep_seeds(
            wanted, machine, probes=probes, master=master, out=out, plots=drawn, as_json=as_json
        )
    else:
        assert experiment is not None
        dealt = _points(experiment, axes or [], points)
        code = _sweep_points(experiment, dealt, master, out, drawn, as_json=as_json)
    raise typer.Exit(code)


def _sweep_seeds(
    seeds: range,
    machine: str | None,
    *,
    probes: bool,
    master: str,
    out: Path | None,
    plots: list[Plot],
    as_json: bool,
) -> int:
    """Print exactly what the local runner prints of these seeds."""
    from gapless.cli.sim import report
    from gapless.sim.machine import BROKER, load_factory
    from gapless.spark.jobs.sweeping import SEEDS, gather, seed_outcomes

    load_factory(machine or BROKER)
    gathered: list[Outcome] = []
    with session(master, "sweep") as made:
        found = seed_outcomes(made, seeds, machine or BROKER, probes=probes)

        def results() -> Iterator[Result]:
            for outcome, result in found:
                gathered.append(outcome)
                yield result

        code = report(results(), len(seeds), as_json=as_json)
    _keep(gather(SEEDS, gathered), out, plots)
    return code


def _points(experiment: str, axes: list[str], path: Path | None) -> list[Point]:
    """Return where an experiment is to be run; one of the lab knows its points by itself."""
    from gapless.spark.jobs.experiments import grid, lab_points, parse_axes, read_points

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

    from gapless.spark.jobs.experiments import load
    from gapless.spark.jobs.sweeping import sweep

    load(experiment)
    quiet = as_json or not Console(stderr=True).is_terminal
    with (
        session(master, "sweep") as made,
        Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress,
    ):
        task = progress.add_task("points", total=len(points))
        found = sweep(made, experiment, points, watch=lambda _: progress.advance(task))
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
        print_note('not drawn: matplotlib is not installed: pip install "gapless[bench]"')


# --- archive ----------------------------------------------------------------------------------------

Archive = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The archive.")]
Keep = Annotated[
    float,
    typer.Option(
        "--keep", metavar="HOURS", min=0, help="How long replaced files stay for readers."
    ),
]
OnRelease = Annotated[
    str,
    typer.Option(
        metavar="fail|skip", help="What brokers have released: an error, or left out and counted."
    ),
]
Deadline = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="How long a broker may be away.")
]
EventsMax = Annotated[int, typer.Option(min=1, help="Events of a batch.")]
PartitionBytes = Annotated[
    int | None,
    typer.Option(min=1, show_default="by the filter", help="What a task reads of a log, about."),
]


@spark.command("archive")
def _archive(
    context: typer.Context,
    directory: Archive,
    *,
    to: To = URL_DEFAULT,
    token_file: TokenFile = None,
    pubends: Annotated[
        list[str] | None, typer.Option("--pubend", help="Only this one; may be repeated.")
    ] = None,
    filter_text: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help="Only events that match.")
    ] = "TRUE",
    start: Annotated[
        str, typer.Option(help="Where a new archive begins: earliest, latest, a position, a time.")
    ] = "earliest",
    reader: Annotated[
        str, typer.Option(help="A durable reader; logs are kept for it until they are archived.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="With --follow: how often.")
    ] = 10.0,
    on_release: OnRelease = "fail",
    deadline: Deadline = 60.0,
    events_max: EventsMax = 1_000_000,
    partition_bytes: PartitionBytes = None,
    compact: Annotated[bool, typer.Option(help="Merge small files when there are many.")] = True,
    keep: Keep = 24.0,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Copy streams into Parquet by pubend and day, every event once, from where it ended."""
    from rich.console import Console

    from gapless.spark.jobs.archiving import archive

    settle(context, as_json=as_json)
    if on_release not in {"fail", "skip"}:
        raise UsageError(f"--on-release {on_release!r} is neither 'fail' nor 'skip'")
    screen = Console(stderr=True, quiet=as_json)

    def told(done: Progress) -> None:
        screen_line.update(f"{counted(done.events, 'event')} in batch {done.batches:,}")

    with session(master, "archive") as made, screen.status("reading") as screen_line:
        found = archive(
            made,
            to,
            directory,
            pubends=pubends or (),
            filter=filter_text,
            start=start,
            reader=reader,
            follow=follow,
            every_s=every,
            events_max=events_max,
            partition_bytes=partition_bytes,
            on_release="skip" if on_release == "skip" else "fail",
            deadline_s=deadline,
            token_file=None if token_file is None else token_file.absolute(),
            compact=compact,
            keep_s=keep * 3_600,
            watch=told,
        )
    if as_json:
        print_json(found)
    else:
        show_archive(found)


@spark.command("compact")
def _compact(
    context: typer.Context,
    directory: Archive,
    *,
    keep: Keep = 24.0,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Merge the small files of an archive; who reads it is not disturbed."""
    from gapless.spark.jobs.compacting import compact_archive

    settle(context, as_json=as_json)
    with session(master, "compact") as made:
        found = compact_archive(made, directory, keep_s=keep * 3_600)
    if as_json:
        print_json(found)
        return
    said = (
        f"{counted(found.merged, 'file')} became {found.made:,} ({counted(found.rows, 'event')}); "
    )
    console().print(plain(said + f"{counted(found.removed, 'old file')} removed"))


# --- backtest ---------------------------------------------------------------------------------------


@spark.command("backtest")
def _backtest(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="An archive, or Parquet with its columns.")
    ],
    *,
    filters: Annotated[
        Path,
        typer.Option(help='A filter a line, or {"name": …, "filter": …} a line.', dir_okay=False),
    ],
    top: Annotated[
        int, typer.Option(min=0, help="How many filters and pairs to show; 0 leaves pairs out.")
    ] = 20,
    sketch: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=65_536,
            show_default="512 or more",
            help="Pairs with no more matches are compared exactly.",
        ),
    ] = None,
    master: Master = "local[*]",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Tell what filters would have matched in an archive, and which match the same events."""
    from rich.console import Console

    from gapless.spark.jobs.backtesting import backtest, events_at
    from gapless.spark.jobs.filters import read_filters

    settle(context, as_json=as_json)
    chosen = read_filters(filters)
    screen = Console(stderr=True, quiet=as_json)
    with (
        session(master, "backtest") as made,
        screen.status(f"matching {counted(len(chosen), 'filter')}") as status,
        tasks_shown(made, status),
    ):
        found = backtest(made, events_at(made, directory), chosen, top=top, sketch=sketch)
    for path in found.save(out) if out is not None else ():
        print_note(f"written: {path}")
    if as_json:
        print_json(found)
    else:
        show_backtest(found, top)


# --- audit, profile ---------------------------------------------------------------------------------

add_audit_commands(spark)
