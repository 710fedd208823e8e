"""``gapless spark``: jobs on a Spark cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import URL_DEFAULT, AsJson, TokenFile, Url, settle
from gapless.cli.output import (
    console,
    counted,
    plain,
    print_json,
    print_note,
)
from gapless.cli.spark_audit import add_audit_commands
from gapless.cli.spark_sessions import session, tasks_shown
from gapless.cli.spark_tables import show_archive, show_backtest
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.spark.jobs.archiving import ArchiveProgress

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
    str | None, typer.Option("--out", metavar="DIRECTORY", help="Keep results here, as Parquet.")
]


# --- archive --------------------------------------------------------------------------------------

Archive = Annotated[str, typer.Argument(metavar="DIRECTORY", help="The archive.")]
Keep = Annotated[
    float,
    typer.Option(
        "--keep", metavar="HOURS", min=0, help="How long replaced files are kept for readers."
    ),
]
OnRelease = Annotated[
    str,
    typer.Option(metavar="fail|skip", help="Released events: an error, or skipped and counted."),
]
Deadline = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="How long a broker may be unreachable.")
]
EventsMax = Annotated[int, typer.Option(min=1, help="Events per batch.")]
PartitionBytes = Annotated[
    int | None,
    typer.Option(min=1, show_default="by the filter", help="Log bytes per task, about."),
]


@spark.command("archive")
def _archive(
    context: typer.Context,
    directory: Archive,
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    pubends: Annotated[
        list[str] | None, typer.Option("--pubend", help="Only this one; may be repeated.")
    ] = None,
    filter_text: Annotated[
        str, typer.Option("--filter", metavar="FILTER", help="Only events that match.")
    ] = "TRUE",
    start: Annotated[
        str, typer.Option(help="Start of a new archive: earliest, latest, a position, a time.")
    ] = "earliest",
    reader: Annotated[
        str, typer.Option(help="A durable reader; logs are kept for it until they are archived.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Continue until Ctrl-C.")] = False,
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
    """Copy streams into Parquet by pubend and day, every event once, from the last position."""
    from rich.console import Console

    from gapless.spark.jobs.archiving import archive

    settle(context, as_json=as_json)
    if on_release not in {"fail", "skip"}:
        raise UsageError(f"--on-release {on_release!r} is neither 'fail' nor 'skip'")
    screen = Console(stderr=True, quiet=as_json)

    def show_progress(done: ArchiveProgress) -> None:
        screen_line.update(f"{counted(done.events, 'event')} in batch {done.batches:,}")

    with session(master, "archive") as made, screen.status("reading") as screen_line:
        found = archive(
            made,
            url,
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
            on_progress=show_progress,
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
    """Merge the small files of an archive; readers are not disturbed."""
    from gapless.spark.jobs.compacting import compact_archive

    settle(context, as_json=as_json)
    with session(master, "compact") as made:
        found = compact_archive(made, directory, keep_s=keep * 3_600)
    if as_json:
        print_json(found)
        return
    text = (
        f"{counted(found.merged, 'file')} became {found.made:,} ({counted(found.rows, 'event')}); "
    )
    console().print(plain(text + f"{counted(found.removed, 'old file')} removed"))


# --- backtest -------------------------------------------------------------------------------------


@spark.command("backtest")
def _backtest(
    context: typer.Context,
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY", help="An archive, or Parquet with its columns, also at a URI."
        ),
    ],
    *,
    filters: Annotated[
        Path,
        typer.Option(help='Lines of a filter, or of {"name": …, "filter": …}.', dir_okay=False),
    ],
    top: Annotated[
        int, typer.Option(min=0, help="How many filters and pairs to show; 0 omits pairs.")
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
    """Show what filters would have matched in an archive, and which match the same events."""
    from rich.console import Console

    from gapless.spark.jobs.backtesting import backtest, events_at
    from gapless.spark.jobs.filters import read_filters
    from gapless.spark.jobs.locations import local_path

    settle(context, as_json=as_json)
    chosen = read_filters(filters)
    directory_out = None if out is None else local_path(out, "the result")
    screen = Console(stderr=True, quiet=as_json)
    with (
        session(master, "backtest") as made,
        screen.status(f"matching {counted(len(chosen), 'filter')}") as status,
        tasks_shown(made, status),
    ):
        found = backtest(made, events_at(made, directory), chosen, top=top, sketch=sketch)
    for path in found.save(directory_out) if directory_out is not None else ():
        print_note(f"written: {path}")
    if as_json:
        print_json(found)
    else:
        show_backtest(found, top)


# --- audit, profile -------------------------------------------------------------------------------

add_audit_commands(spark)
