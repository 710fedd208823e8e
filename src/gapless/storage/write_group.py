"""The outcome of many writes that become durable together.

No reader sees a state inside a transaction, so only the outcome counts: the last of the records
with one key, the highest of the trims of one log, and no row that a later trim of the same group
removes. That is exact as long as trims come before rows, because a trim affects only rows
appended before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gapless.core.ids import PubendId
from gapless.messages.records import DeleteRecord, PutRecord, Record, TrimLog
from gapless.storage.codec import (
    NOTHING,
    LogMark,
    StoredRow,
    encode_key,
    encode_record,
    label_of,
    record_checksum,
)

__all__ = ["QueuedRow", "QueuedWrite", "WriteGroup"]

_ROWS_AT_ONCE = 32
"""Rows of one statement. A statement releases the interpreter lock a few times for any number."""


class QueuedRow(msgspec.Struct, frozen=True):
    """A row to append."""

    pubend: PubendId
    stored: StoredRow


QueuedChange: TypeAlias = PutRecord | DeleteRecord | TrimLog | QueuedRow


class QueuedWrite(msgspec.Struct, frozen=True):
    """A write in the queue of the writer."""

    write_id: int
    changes: tuple[QueuedChange, ...]
    size: int


class WriteGroup:
    """The writes of one transaction."""

    def __init__(self, marks: dict[PubendId, LogMark]) -> None:
        self._marks = marks
        self._records: dict[tuple[str, ...], Record | None] = {}
        self._rows: list[QueuedRow] = []
        self.marks: dict[PubendId, LogMark] = {}
        """The extent of the logs that this group changes, after the group."""
        self.trimmed: set[PubendId] = set()
        """The logs that this group trims."""

    def add(self, write: QueuedWrite) -> None:
        """Add a write, after those added before."""
        for change in write.changes:
            if type(change) is QueuedRow:
                self._append(change)
            elif type(change) is PutRecord:
                self._records[change.record.key] = change.record
            elif type(change) is DeleteRecord:
                self._records[change.key] = None
            else:
                assert type(change) is TrimLog, f"{change!r} is no change"
                self._trim(change)

    def apply(self, connection: sqlite3.Connection) -> None:
        """Make the changes, inside a transaction of the caller."""
        records = [(encode_key(key), record) for key, record in self._records.items()]
        erased = [(key,) for key, record in records if record is None]
        if erased:
            connection.executemany("DELETE FROM records WHERE key=?", erased)
        _put(connection, _STORE, [_stored(key, record) for key, record in records if record])
        _put(connection, _MARK, [(*mark, mark.checksum) for mark in self.marks.values()])
        _put(connection, _APPEND, [(*row.stored, row.stored.checksum) for row in self._rows])

    def _append(self, row: QueuedRow) -> None:
        mark = self._mark(row.pubend)
        self.marks[row.pubend] = LogMark(mark.label, mark.trimmed, row.stored.last)
        self._rows.append(row)

    def _trim(self, trim: TrimLog) -> None:
        mark = self._mark(trim.pubend)
        if trim.up_to <= mark.trimmed:
            return
        self.marks[trim.pubend] = mark._replace(trimmed=trim.up_to)
        self.trimmed.add(trim.pubend)
        if self._rows:
            self._rows = [
                row
                for row in self._rows
                if row.pubend != trim.pubend or row.stored.last > trim.up_to
            ]

    def _mark(self, pubend: PubendId) -> LogMark:
        mark = self.marks.get(pubend) or self._marks.get(pubend)
        return mark or LogMark(label_of(pubend), NOTHING, NOTHING)


class _Statement(NamedTuple):
    """An INSERT of any number of rows."""

    into: str
    columns: int
    conflict: str


_STORE = _Statement(
    "records(key, body, checksum)",
    3,
    "ON CONFLICT(key) DO UPDATE SET body=excluded.body, checksum=excluded.checksum",
)
_MARK = _Statement(
    "logs(pubend, trimmed, last, checksum)",
    4,
    "ON CONFLICT(pubend) DO UPDATE SET"
    " trimmed=excluded.trimmed, last=excluded.last, checksum=excluded.checksum",
)
_APPEND = _Statement("log(pubend, first, last, previous, events, frame, checksum)", 7, "")
"""Without ON CONFLICT: a row never replaces another (I1)."""


@cache
def _text(statement: _Statement, rows: int) -> str:
    into, columns, conflict = statement
    row = f"({','.join('?' * columns)})"
    rows_text = ",".join([row] * rows)
    return f"INSERT INTO {into} VALUES {rows_text} {conflict}"  # noqa: S608  all ours


def _put(
    connection: sqlite3.Connection, statement: _Statement, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows with few statements whose sizes are powers of two, so that they are cached."""
    if len(rows) == 1:
        connection.execute(_text(statement, 1), rows[0])
        return
    start = 0
    count = _ROWS_AT_ONCE
    while start < len(rows):
        while count > len(rows) - start:
            count //= 2
        values = [value for row in rows[start : start + count] for value in row]
        connection.execute(_text(statement, count), values)
        start += count


def _stored(key: str, record: Record) -> tuple[str, bytes, int]:
    body = encode_record(record)
    return key, body, record_checksum(key, body)
