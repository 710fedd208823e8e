"""The output of all subcommands: results on standard output, errors and progress on standard error.

With ``--json`` both are one JSON document, or one per line if results are a stream. An error is one
block with the cause and its position, without internals.

Names and texts come from other programs. What is not printable in them is escaped here, so that no
control character reaches a terminal, and no name can pass for another line. So only this module
makes texts of the library for terminals; ``tests/test_style.py`` checks that.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, cast

import msgspec

from gapless.core.limits import RICH_ROWS_MAX
from gapless.core.printable import printable, printable_json, printable_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

FILE_WIDTH: Final = 1_000
"""Columns of a table that goes to a file or a pipe."""

_SIZES: Final = ("bytes", "KB", "MB", "GB", "TB")

_PADDING: Final = re.compile(r" +$", re.MULTILINE)


class _UnpaddedFile:
    """Writes tables to a file or a pipe without the spaces that fill the last column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines."""
        return self._stream.write(_PADDING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console() -> Console:
    """The console for results. Made for each use, so that a redirected stream is respected."""
    from rich.console import Console

    class SafeConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(
                *(plain(each) if isinstance(each, str) else each for each in objects), **options
            )

    if sys.stdout.isatty():
        return SafeConsole(highlight=False)
    # not a terminal: nothing is folded
    unpadded = cast("IO[str]", _UnpaddedFile(sys.stdout))
    return SafeConsole(file=unpadded, highlight=False, soft_wrap=True, width=FILE_WIDTH)


def json_text(document: object, *, indent: int = 0) -> str:
    """Return JSON in which all control characters are escaped."""
    encoded = msgspec.json.encode(document)
    return printable_json(msgspec.json.format(encoded, indent=indent) if indent else encoded)


def print_json(document: object) -> None:
    """Print one JSON document, indented."""
    sys.stdout.write(json_text(document, indent=2) + "\n")


def print_json_line(document: object) -> None:
    """Print one JSON document on a line, and flush it."""
    sys.stdout.write(json_text(document) + "\n")
    sys.stdout.flush()


def print_error(problem: str, *, as_json: bool) -> None:
    """Print one error block."""
    from rich.console import Console

    if as_json:
        sys.stderr.write(json_text({"error": problem}) + "\n")
        return
    # Soft wrap keeps the caret of a syntax error under its column.
    block = joined(styled("error: ", "bold red"), problem)
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


def print_traceback() -> None:
    """Print the traceback of the error that is being handled."""
    import traceback

    sys.stderr.write(printable(traceback.format_exc()))


def print_note(note: str) -> None:
    """Print a note, a line on standard error."""
    sys.stderr.write(printable_line(note) + "\n")
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
        table.add_row(name, _cell(fact))
    return table


def listing(*columns: str, rows: Iterable[Iterable[str | Text]]) -> Table:
    """Return a table with one line per entry."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def print_listing(*columns: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a table with one line per entry; a long one as plain lines, which is much faster."""
    if len(rows) <= RICH_ROWS_MAX:
        console().print(listing(*columns, rows=rows))
        return
    lines = [columns, *(tuple(map(printable_line, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(padded.rstrip() + "\n")


def styled(text: str, style: str = "") -> Text:
    """Return a text in a style, without markup and control characters."""
    from rich.text import Text

    return Text(printable(text), style)


def joined(*parts: str | Text) -> Text:
    """Return texts one after the other."""
    from rich.text import Text

    return Text().join(map(plain, parts))


def plain(text: str | Text) -> Text:
    """Return a text without markup and control characters; a Text is returned as it is."""
    return styled(text) if isinstance(text, str) else text


def _cell(text: str | Text) -> Text:
    """Return the content of a cell, which is one line whatever a name contains."""
    return styled(printable_line(text)) if isinstance(text, str) else text


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
    'the start'
    """
    if microseconds <= 0:
        return "the start"
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
