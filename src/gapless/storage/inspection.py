"""Inspection of a data directory from outside: list, verify and export its logs.

Everything here only reads, and works while a broker uses the directory. A log is read in parts,
each from one snapshot, because a long snapshot would prevent a restart of the broker's WAL.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from gapless.core.errors import CorruptionError
from gapless.core.ids import PubendId
from gapless.core.limits import INT_MAX
from gapless.messages.records import LogRow
from gapless.storage.codec import NOTHING, LogMark, StoredRow, decode_row, label_of
from gapless.storage.loading import CorruptRecord, load_marks, walk_records
from gapless.storage.reading import read_log, read_mark
from gapless.storage.schema import open_read_only, snapshot

__all__ = [
    "LogSummary",
    "LogVerification",
    "VerificationProgress",
    "VerificationReport",
    "export",
    "list_logs",
    "verify",
]

VerificationProgress: TypeAlias = Callable[[PubendId, int, int], None]
"""Receives the progress of a verification: the pubend, the rows checked, and all rows."""

_CHUNK_BYTES = 4 * 1024 * 1024


class LogSummary(msgspec.Struct, frozen=True):
    """The content of a log, according to its rows; nothing is verified."""

    pubend: PubendId
    first: int | None
    """The first tick of the first row, None if there is no row."""
    last: int | None
    rows: int
    events: int
    frame_bytes: int
    trimmed: int | None
    """The tick up to which the log was trimmed, None if it was not."""


class LogVerification(msgspec.Struct, frozen=True):
    """The result of verifying a log."""

    pubend: PubendId
    rows: int
    """Valid rows."""
    events: int
    frame_bytes: int
    corruptions: tuple[str, ...]


class VerificationReport(msgspec.Struct, frozen=True):
    """The result of verifying a data directory."""

    logs: tuple[LogVerification, ...]
    records: dict[str, int]
    """The number of valid records of each kind."""
    record_corruptions: tuple[str, ...]
    structure_corruptions: tuple[str, ...]
    """Problems that SQLite reports in its own file; checked only on request."""

    @property
    def corruptions(self) -> tuple[str, ...]:
        """All problems, one sentence each."""
        in_logs = tuple(corruption for log in self.logs for corruption in log.corruptions)
        return self.structure_corruptions + self.record_corruptions + in_logs


def list_logs(directory: Path) -> list[LogSummary]:
    """Return a summary of each log, sorted by pubend."""
    with open_read_only(directory) as connection:
        return [_summary(connection, pubend) for pubend in _pubends(connection)]


def verify(
    directory: Path, *, progress: VerificationProgress | None = None, structure: bool = False
) -> VerificationReport:
    """Read and check every record and every row.

    ``structure`` has SQLite check its own file too. That takes a while in one snapshot, during
    which the WAL of a running broker grows.
    """
    with open_read_only(directory) as connection:
        records, record_corruptions = _check_records(connection)
        logs = [_check_log(connection, pubend, progress) for pubend in _pubends(connection)]
        found = _check_structure(connection) if structure else ()
    return VerificationReport(tuple(logs), records, record_corruptions, found)


def export(
    directory: Path, pubend: PubendId, low: int = 0, high: int = INT_MAX
) -> Iterator[LogRow]:
    """Yield the rows of a log that touch a range, lowest first.

    CorruptionError at the first corrupt or missing row; the rows before it have been yielded.
    """
    with open_read_only(directory) as connection:
        while True:
            found = read_log(connection, pubend, low, high, _CHUNK_BYTES)
            yield from found.rows
            if found.corruption is not None:
                raise CorruptionError(found.corruption)
            if found.complete:
                return
            low = found.rows[-1].last + 1


def _pubends(connection: sqlite3.Connection) -> list[PubendId]:
    """Return all pubends that have a log, or had one."""
    marks = load_marks(connection)
    return sorted({*marks.valid, *marks.corrupt})


def _summary(connection: sqlite3.Connection, pubend: PubendId) -> LogSummary:
    label = label_of(pubend)
    with snapshot(connection):
        try:
            mark = read_mark(connection, label)
        except CorruptionError:
            mark = None
        trimmed = mark.trimmed if mark else NOTHING
        first, last, rows, events, size = connection.execute(
            "SELECT min(first), max(last), count(*), total(events), total(length(frame))"
            " FROM log WHERE pubend=? AND last>?",
            (label, trimmed),
        ).fetchone()
    shown = None if trimmed == NOTHING else trimmed
    return LogSummary(pubend, first, last, rows, int(events), int(size), shown)


def _check_records(connection: sqlite3.Connection) -> tuple[dict[str, int], tuple[str, ...]]:
    kinds: Counter[str] = Counter()
    corruptions: list[str] = []
    with snapshot(connection):
        for found in walk_records(connection):
            if isinstance(found, CorruptRecord):
                corruptions.append(found.problem)
            else:
                kinds[found.key[0]] += 1
    return dict(sorted(kinds.items())), tuple(corruptions)


def _check_structure(connection: sqlite3.Connection) -> tuple[str, ...]:
    found = connection.execute("PRAGMA integrity_check").fetchall()
    return tuple(problem for (problem,) in found if problem != "ok")


def _check_log(
    connection: sqlite3.Connection, pubend: PubendId, progress: VerificationProgress | None
) -> LogVerification:
    label = label_of(pubend)
    (rows,) = connection.execute("SELECT count(*) FROM log WHERE pubend=?", (label,)).fetchone()
    check = _LogCheck(pubend)
    try:
        while check.read_chunk(connection):
            if progress:
                progress(pubend, check.looked, max(rows, check.looked))
    except sqlite3.Error as error:
        check.corruptions.append(f"{pubend}: the rest of its log cannot be read: {error}")
    return LogVerification(
        pubend, check.rows, check.events, check.frame_bytes, tuple(check.corruptions)
    )


class _LogCheck:
    """Checks a log row by row, and continues after corruption."""

    def __init__(self, pubend: PubendId) -> None:
        self._pubend = pubend
        self._label = label_of(pubend)
        self._first = NOTHING
        """The first tick of the row that was checked last."""
        self._end = NOTHING
        """The last tick of that row."""
        self.looked = self.rows = self.events = self.frame_bytes = 0
        self.corruptions: list[str] = []

    def read_chunk(self, connection: sqlite3.Connection) -> bool:
        """Check some rows of one snapshot; return whether there may be more."""
        size = 0
        with snapshot(connection):
            mark = self._read_mark(connection)
            for *columns, checksum in connection.execute(
                "SELECT first, last, previous, events, frame, checksum FROM log"
                " WHERE pubend=? AND first>? AND last>? ORDER BY first",
                (self._label, self._first, mark.trimmed if mark else NOTHING),
            ):
                stored = StoredRow(self._label, *columns)
                self._take(stored, checksum, mark)
                size += len(stored.frame)
                if size >= _CHUNK_BYTES:
                    return True
            if mark and mark.last > max(self._end, mark.trimmed):
                self._found(f"rows are missing: it ends at {self._end}, not at {mark.last}")
        return False

    def _read_mark(self, connection: sqlite3.Connection) -> LogMark | None:
        try:
            return read_mark(connection, self._label)
        except CorruptionError as error:
            if not self.looked:
                self._found(str(error))
            return None

    def _take(self, stored: StoredRow, checksum: object, mark: LogMark | None) -> None:
        self.looked += 1
        name = f"row {stored.first} to {stored.last}"
        if mark and stored.previous != self._end and stored.previous > mark.trimmed:
            self._found(f"rows are missing: the one before {name} ended at {stored.previous}")
        self._first, self._end = stored.first, stored.last
        try:
            decode_row(stored, checksum)
        except CorruptionError as error:
            self._found(f"{name} is corrupt: {error}")
        else:
            self.rows += 1
            self.events += stored.events
            self.frame_bytes += len(stored.frame)

    def _found(self, problem: str) -> None:
        self.corruptions.append(f"{self._pubend}: {problem}")
