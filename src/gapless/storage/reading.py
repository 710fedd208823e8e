"""Reading a range of a log; every row is checked and every missing row is detected.

A row has the end of the row before it, so two adjacent rows prove that nothing is missing between
them. A range is therefore read with its neighbours: the row before it, and the row after it or, at
the end of the log, the mark, which has the end of the last row.

The number of rows in a reply is decided by their lengths, which SQLite returns without reading the
rows: no row is read and summed needlessly.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from gapless.core.errors import CorruptionError
from gapless.core.ids import PubendId
from gapless.storage.codec import (
    NOTHING,
    LogMark,
    StoredRow,
    decode_row,
    is_valid,
    label_of,
    packed_row,
)
from gapless.storage.schema import snapshot

__all__ = ["ReadResult", "read_log", "read_mark"]

T = TypeVar("T")

_NEIGHBOUR = "SELECT first, last FROM log WHERE pubend=? AND first<=? ORDER BY first DESC LIMIT 1"
_BEHIND = "SELECT previous FROM log WHERE pubend=? AND first>? ORDER BY first LIMIT 1"
_ROWS = (
    "SELECT first, last, previous, events, frame, checksum FROM log"
    " WHERE pubend=? AND first>=? AND first<=? ORDER BY first"
)
_LENGTHS = (
    "SELECT first, length(frame) FROM log WHERE pubend=? AND first>=? AND first<=? ORDER BY first"
)
_MARK = "SELECT trimmed, last, checksum FROM logs WHERE pubend=?"
_ANY = "SELECT 1 FROM log WHERE pubend=? LIMIT 1"


class ReadResult(NamedTuple):
    """The result of reading a log; the fields of :class:`gapless.core.events.Fetched`."""

    rows: tuple[Any, ...]
    corruption: str | None = None
    complete: bool = True


class _RangeStart(NamedTuple):
    """The start of the rows of a range."""

    mark: LogMark
    low: int
    first: int
    """The first tick of the first row that touches the range is this one or a later one."""
    end: int
    """The end of the row before it, or NOTHING if that row does not matter."""


def read_log(
    connection: sqlite3.Connection,
    pubend: PubendId,
    low: int,
    high: int,
    bytes_max: int,
    *,
    packed: bool = False,
) -> ReadResult:
    """Return the rows that touch the range: at least one, then up to so many bytes of frames."""
    decode: Callable[[StoredRow, object], Any] = packed_row if packed else decode_row
    found: list[Any] = []
    try:
        with snapshot(connection):
            start = _range_start(connection, label_of(pubend), low, high)
            if start is None:
                return ReadResult(())
            last = _last_fitting(connection, start, high, bytes_max)
            # the rows before a corrupt one stay in the list
            found.extend(_walk(connection, start, high if last is None else last, decode))
    except (CorruptionError, sqlite3.Error) as error:
        return ReadResult(tuple(found), f"{pubend}: {error}", complete=False)
    return ReadResult(tuple(found), None, complete=last is None)


def _range_start(
    connection: sqlite3.Connection, label: str, low: int, high: int
) -> _RangeStart | None:
    """Return where to start reading a range, or None if it has no rows."""
    mark = read_mark(connection, label)
    if mark is None or high < low:
        return None
    low = max(low, mark.trimmed + 1)
    before = connection.execute(_NEIGHBOUR, (label, low)).fetchone()
    first, end = before or (low, NOTHING)
    if end >= low:
        # it touches the range, so it is read itself, and rows before it do not matter
        return _RangeStart(mark, low, first, NOTHING)
    return _RangeStart(mark, low, first + 1 if before else first, end)


def _last_fitting(
    connection: sqlite3.Connection, start: _RangeStart, high: int, bytes_max: int
) -> int | None:
    """Return the first tick of the last row that fits into the bytes, or None if all rows fit."""
    last: int | None = None
    # the rows up to a corrupt page fit; the reader meets the page again and reports it
    with contextlib.suppress(sqlite3.Error):
        for first, size in connection.execute(_LENGTHS, (start.mark.label, start.first, high)):
            bytes_max -= size or 0
            if last is not None and bytes_max < 0:
                return last
            last = first
    return None


def _walk(
    connection: sqlite3.Connection,
    start: _RangeStart,
    high: int,
    decode: Callable[[StoredRow, object], T],
) -> Iterator[T]:
    mark, low, first, end = start
    label = mark.label
    for *columns, checksum in connection.execute(_ROWS, (label, first, high)):
        stored = StoredRow(label, *columns)
        try:
            row = decode(stored, checksum)
        except CorruptionError as error:
            raise CorruptionError(
                f"row {stored.first} to {stored.last} is corrupt: {error}"
            ) from error
        if stored.first > low:
            _check_joint(stored.previous, end, low, f"row {stored.first} to {stored.last}")
        end = stored.last
        yield row
    behind = connection.execute(_BEHIND, (label, high)).fetchone()
    if behind:
        _check_joint(behind[0], end, low, "the next row")
    else:
        _check_joint(mark.last, end, low, "the end of the log")


def read_mark(connection: sqlite3.Connection, label: str) -> LogMark | None:
    """Return the extent of a log, or None if there is no log; CorruptionError if it is corrupt."""
    found = connection.execute(_MARK, (label,)).fetchone()
    if found is None:
        if connection.execute(_ANY, (label,)).fetchone():
            raise CorruptionError("the mark of its log is missing")
        return None
    mark = LogMark(label, *found[:2])
    if not is_valid(mark, found[2]):
        raise CorruptionError("the mark of its log is corrupt: its checksum does not fit")
    return mark


def _check_joint(previous: int, end: int, low: int, follower: str) -> None:
    """Check that no row is missing from ``low`` on between the last row read and the next."""
    if previous != end and max(previous, end) >= low:
        raise CorruptionError(f"rows are missing: the one before {follower} ended at {previous}")
