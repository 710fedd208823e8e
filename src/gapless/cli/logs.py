"""``gapless log``: logs in a data directory, or read through a broker."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.broker_calls import DEADLINE_S, call_broker
from gapless.cli.options import (
    URL_DEFAULT,
    AsJson,
    DataDirectory,
    Deadline,
    TokenFile,
    Url,
    settle,
    store_directories,
    store_directory,
)
from gapless.cli.output import (
    console,
    json_text,
    listing,
    print_json,
    records,
    size,
    styled,
    timestamp,
)
from gapless.core.printable import printable_line

if TYPE_CHECKING:
    from gapless.client import Session
    from gapless.messages.streams import Publication
    from gapless.storage import LogSummary, VerificationReport

__all__ = ["event_line", "log"]

EXIT_CORRUPT = 1
"""The exit code of a check that found corruption."""

log = typer.Typer(
    help="Show the logs of pubends, in a data directory or through a broker.",
    no_args_is_help=True,
)

PubendArgument = Annotated[str, typer.Argument(metavar="PUBEND", help="The name of the pubend.")]
Low = Annotated[int, typer.Option("--from", metavar="TICK", help="The first tick.")]
StoppedDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIRECTORY",
        help="The data directory of a stopped broker.",
        callback=store_directory,
    ),
]
TRIM_HELP = "The last tick to release, or a time such as 2026-03-01T09:30; latest: everything."
High = Annotated[int | None, typer.Option("--up-to", metavar="TICK", help="The last tick.")]


def event_line(pubend: str, publication: Publication) -> bytes:
    """Return an event as a line of JSON; a payload that is not text is in base64."""
    line: dict[str, Any] = {"attributes": publication.attributes}
    try:
        line["payload"] = publication.payload.decode()
    except UnicodeDecodeError:
        line["payload_base64"] = base64.b64encode(publication.payload).decode()
    line |= {
        "pubend": pubend,
        "tick": publication.tick,
        "publisher": publication.publisher,
        "sequence": publication.sequence,
    }
    return json_text(line).encode() + b"\n"


@log.command("ls")
def _ls(context: typer.Context, directory: DataDirectory, *, as_json: AsJson = False) -> None:
    """List the logs of a data directory. It may be in use; nothing is changed."""
    from gapless.storage import list_logs

    settle(context, as_json=as_json)
    stores = store_directories(directory)
    found = {store: list_logs(store) for store in stores}
    if as_json:
        logs = [(store, each) for store, its_logs in found.items() for each in its_logs]
        print_json([{**records(each), "directory": str(store)} for store, each in logs])
        return
    out = console()
    for store, its_logs in found.items():
        if len(found) > 1:
            out.print(f"{store}:", style="bold")
        out.print(_log_table(its_logs) if its_logs else f"no logs in {store}")


def _log_table(found: list[LogSummary]) -> Any:
    rows = [
        (
            str(each.pubend),
            f"{each.events:,}",
            f"{each.rows:,}",
            size(each.frame_bytes),
            timestamp(each.first or 0) if each.rows else "",
            timestamp(each.last or 0) if each.rows else "",
        )
        for each in found
    ]
    return listing("pubend", "events", "rows", "size", "first", "last", rows=rows)


@log.command("verify")
def _verify(
    context: typer.Context,
    directory: DataDirectory,
    *,
    structure: Annotated[
        bool, typer.Option("--structure", help="Also let SQLite check its file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read and check every row and record of a data directory. Exit code 1 if any is corrupt.

    It may be in use; nothing is changed.
    """
    settle(context, as_json=as_json)
    stores = store_directories(directory)
    reports = {str(store): _checked(store, structure=structure) for store in stores}
    if as_json:
        shown = {
            store: {**records(report), "corruptions": report.corruptions}
            for store, report in reports.items()
        }
        print_json(shown if len(shown) > 1 else shown.popitem()[1])
    else:
        for store, report in reports.items():
            if len(reports) > 1:
                console().print(f"{store}:", style="bold")
            _show_report(report)
    if any(report.corruptions for report in reports.values()):
        raise typer.Exit(EXIT_CORRUPT)


def _checked(directory: Path, *, structure: bool) -> VerificationReport:
    """Check a data directory, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from gapless.storage import verify

    screen = Console(stderr=True)
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), TextColumn("{task.completed:,} rows"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[Any, Any] = {}

        def show(pubend: Any, done: int, total: int) -> None:
            if pubend not in tasks:
                tasks[pubend] = bars.add_task(printable_line(str(pubend)), total=total)
            bars.update(tasks[pubend], completed=done, total=total)

        return verify(directory, progress=show, structure=structure)


def _show_report(report: VerificationReport) -> None:
    out = console()
    rows = [
        (
            str(each.pubend),
            f"{each.events:,}",
            f"{each.rows:,}",
            size(each.frame_bytes),
            styled("corrupt", "bold red") if each.corruptions else styled("valid", "green"),
        )
        for each in report.logs
    ]
    out.print(listing("pubend", "events", "rows", "size", "state", rows=rows))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.records.items())
    out.print(f"records: {kinds or 'none'}")
    for corruption in report.corruptions:
        out.print(corruption, style="red")


@log.command("export")
def _export(
    context: typer.Context,
    directory: DataDirectory,
    pubend: PubendArgument,
    *,
    low: Low = 0,
    high: High = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a log as JSON lines, oldest first. It may be in use.

    It ends with an error at the first corrupt row; the events before it are printed.
    """
    from gapless.client.position import pubend_id
    from gapless.core.errors import UsageError
    from gapless.core.limits import INT_MAX
    from gapless.storage import export, list_logs

    settle(context, as_json=as_json)
    pubend_key = pubend_id(pubend)
    stores = store_directories(directory)
    known = {str(each.pubend): store for store in stores for each in list_logs(store)}
    if pubend not in known:
        raise UsageError(f"{directory} has no log of {pubend}; it has {', '.join(known) or 'none'}")
    last = INT_MAX if high is None else high
    target = sys.stdout.buffer if output is None else output.open("wb")
    try:
        for row in export(known[pubend], pubend_key, low, last):
            for each in row.publications:
                if low <= each.tick <= last:
                    target.write(event_line(pubend, each))
    finally:
        target.flush()
        if output is not None:
            target.close()


@log.command("trim")
def _trim(
    context: typer.Context,
    directory: StoppedDirectory,
    pubends: Annotated[
        list[str] | None, typer.Argument(metavar="[PUBEND]...", help="The names of the pubends.")
    ] = None,
    *,
    up_to: Annotated[str, typer.Option("--up-to", metavar="TICK|TIME", help=TRIM_HELP)],
    every: Annotated[bool, typer.Option("--all", help="All logs of the directory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Release events of a stopped broker's logs, also on a full disk, whoever needs them.

    Subscriptions and readers that needed a released event are told of a gap.
    """
    from gapless.cli.stopped import read_tick, show_trimmed, trim_logs
    from gapless.core.errors import UsageError

    settle(context, as_json=as_json)
    if bool(pubends) is every:
        raise UsageError("name the pubends whose logs are to be trimmed, or write --all")
    show_trimmed(trim_logs(directory, pubends or [], read_tick(up_to)), as_json=as_json)


@log.command("read")
def _read(
    context: typer.Context,
    pubend: PubendArgument,
    filter_text: Annotated[str, typer.Argument(metavar="FILTER", help="Which events.")] = "TRUE",
    *,
    low: Low = 0,
    high: High = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Print the events of a log that match a filter, as JSON lines, read through any broker.

    It reads to the current end of the log. With --from, a range that was released is an error.
    """
    settle(context, as_json=as_json)

    async def read(session: Session) -> None:
        first = low or None  # by default the oldest event of the log
        async for each in session.read(pubend, first, high, filter_text):
            sys.stdout.buffer.write(event_line(pubend, each.publication))
        sys.stdout.buffer.flush()

    call_broker(url, read, deadline_s=deadline, token_file=token_file)
