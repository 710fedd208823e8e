"""Changes to the data directory of a stopped broker, also on a full disk.

Opening gives the space reserve back (:mod:`.reserve`). Rows are deleted some at a time and their
pages returned to the file system. On a nearly full disk each of these transactions is copied to the
database at once, so the space that they need does not depend on the size of the log.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gapless.core.errors import StorageError
from gapless.core.ids import PubendId
from gapless.messages.records import DeleteRecord, PutRecord, StorageChange, TrimLog
from gapless.messages.stored import StoredState
from gapless.storage.codec import NOTHING
from gapless.storage.loading import Loaded, load_marks, load_records
from gapless.storage.lock import DirectoryLock
from gapless.storage.reserve import drop_reserve
from gapless.storage.schema import DATABASE, connect_writer, translated, truncate_wal
from gapless.storage.space_reclaim import SpaceReclaimer
from gapless.storage.write_group import QueuedWrite, WriteGroup

__all__ = ["StoppedStore", "open_stopped"]

_WAL_BYTES = 16 * 1024 * 1024
"""About how long the WAL may become while space is reclaimed."""


@contextmanager
def open_stopped(directory: Path) -> Iterator[StoppedStore]:
    """Open the data directory of a broker that does not run.

    DirectoryLockedError if a broker uses it; CorruptionError if a broker must not start from it.
    """
    if not (directory / DATABASE).is_file():
        raise StorageError(f"{directory} has no {DATABASE}: it is not a data directory of a broker")
    with contextlib.ExitStack() as opened:
        lock = DirectoryLock(directory)
        opened.callback(lock.release)
        drop_reserve(directory)
        connection = connect_writer(directory, durable=True)
        opened.callback(connection.close)
        with translated(directory):
            yield StoppedStore(directory, connection)


class StoppedStore:
    """The records and logs of a stopped broker."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self._directory = directory
        self._connection = connection
        marks = load_marks(connection)
        self._marks = dict(marks.valid)
        self.loaded: Loaded = load_records(connection, marks.corrupt)
        self.state = StoredState.of(self.loaded.records)
        self._reclaimer = SpaceReclaimer(
            (mark for pubend, mark in marks.valid.items() if pubend not in marks.corrupt), 0
        )

    def log_end(self, pubend: PubendId) -> int:
        """Return the last tick of the last row that was written, or -1 if there was none."""
        mark = self._marks.get(pubend)
        return NOTHING if mark is None else mark.last

    def write(self, changes: tuple[StorageChange, ...]) -> None:
        """Make changes of records and trims durable in one transaction."""
        queued: list[PutRecord | DeleteRecord | TrimLog] = []
        for change in changes:
            assert isinstance(change, PutRecord | DeleteRecord | TrimLog), "no rows are appended"
            queued.append(change)
        group = WriteGroup(self._marks)
        group.add(QueuedWrite(0, tuple(queued), 0))
        with self._transaction():
            group.apply(self._connection)
        truncate_wal(self._connection)
        self._marks.update(group.marks)
        for pubend in group.trimmed:
            self._reclaimer.trimmed(group.marks[pubend])

    def reclaim(self) -> None:
        """Delete all trimmed rows, and return the free pages to the file system."""
        grown = 0
        while self._reclaimer.waits:
            with self._transaction():
                grown += self._reclaimer.step(self._connection)
            if grown >= _WAL_BYTES or self._is_short_of_space():
                truncate_wal(self._connection)
                grown = 0
        truncate_wal(self._connection)

    def _is_short_of_space(self) -> bool:
        space = os.statvfs(self._directory)
        return space.f_bavail * space.f_frsize < 4 * _WAL_BYTES

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # SQLite ends it itself if the disk is full
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
