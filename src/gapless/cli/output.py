"""The output of all subcommands: results on standard output, errors and progress on standard error.

With ``--json`` both are one JSON document, or one per line if results are a stream. An error is one
block with the cause and its position, without internals.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

FILE_WIDTH = 1_000
"""Columns of a table that goes to a file or a pipe."""

_SIZES = ("bytes", "KB", "MB", "GB", "TB")


def console() -> Console:
    """The console for results. Made for each use, so that a redirected stream is respected."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    # not a terminal: nothing is folded
    return Console(highlight=False, soft_wrap=True, width=FILE_WIDTH)


def print_json(document: object) -> None:
    """Print one JSON document, indented."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_json_line(document: object) -> None:
    """Print one JSON document on a line, and flush it."""
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def print_error(problem: str, *, as_json: bool) -> None:
    """Print one error block."""
    from rich.console import Console
    from rich.text import Text

    if as_json:
        sys.stderr.write(msgspec.json.encode({"error": problem}).decode() + "\n")
        return
    # Soft wrap keeps the caret of a syntax error under its column.
    block = Text.assemble(("error: ", "bold red"), problem)
    Console(stderr=True, highlight=False, soft_wrap=True).print(block)


@contextlib.contextmanager
def while_read() -> Iterator[None]:
    """End without an error when the output is no longer read, as after ``| head``."""
    import typer

    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # otherwise Python would report an error when it flushes at exit
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def print_note(note: str) -> None:
    """Print a note on standard error."""
    sys.stderr.write(note + "\n")
    sys.stderr.flush()


def records(value: Any) -> Any:
    """Return message structs, which are arrays on the wire, as objects with named fields.

    >>> from gapless.messages.clients import PendingStart
    >>> from gapless.core.ids import PubendId
    >>> records((PendingStart(PubendId("quotes"), "cut off"),))
    [{'pubend': 'quotes', 'reason': 'cut off', 'after': None}]
    """
    from enum import IntEnum

    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {each.name: records(getattr(value, each.name)) for each in fields}
    if isinstance(value, IntEnum):
        return value.name.lower()
    if hasattr(value, "_fields"):  # an id, whose text is complete
        return str(value)
    if isinstance(value, dict):
        return {str(key): records(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [records(each) for each in value]
    return value


# --- tables and texts ---------------------------------------------------------------------------


def facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Return a table of names and values."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, fact in rows:
        table.add_row(name, plain(fact))
    return table


def listing(*columns: str, rows: Iterable[Iterable[str | Text]]) -> Table:
    """Return a table with one line per entry."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def plain(text: str | Text) -> Text:
    """Return a text without interpreting markup in it."""
    from rich.text import Text

    return text if isinstance(text, Text) else Text(text)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "event"), counted(1_200, "event")
    ('1 event', '1,200 events')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def timestamp(microseconds: int) -> str:
    """Return a tick, or another time in microseconds, in ISO 8601.

    >>> timestamp(1_700_000_000_000_000)
    '2023-11-14T22:13:20.000Z'
    >>> timestamp(0)
    'the beginning'
    """
    if microseconds <= 0:
        return "the beginning"
    try:
        found = dt.datetime.fromtimestamp(microseconds / 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(microseconds)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(microseconds: int) -> str:
    """Return a duration in a suitable unit.

    >>> span(900), span(1_500_000), span(7_300_000_000)
    ('0.9 ms', '1.5 s', '2 h 1 min')
    """
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.1f} ms"
    seconds = microseconds / 1_000_000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds // 60) % 60, int(seconds // 3_600)
    if hours < 48:
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return f"{hours // 24} days"


def size(count: int) -> str:
    """Return a number of bytes in a suitable unit.

    >>> size(17), size(12_345_678)
    ('17 bytes', '12.3 MB')
    """
    amount, unit = float(count), 0
    while amount >= 1_000 and unit + 1 < len(_SIZES):
        amount, unit = amount / 1_000, unit + 1
    return f"{count} bytes" if unit == 0 else f"{amount:.1f} {_SIZES[unit]}"
