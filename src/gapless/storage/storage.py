"""The storage of a running broker, with a writer thread and a reader thread.

While the disk is fast, the caller's thread commits a small write itself: to wake a thread and be
woken by it takes as long as the sync.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeAlias

import msgspec

from gapless.core.effects import Fetch, Write
from gapless.core.errors import StorageError
from gapless.core.events import Fetched, Written
from gapless.core.ids import PubendId
from gapless.core.limits import GROUP_BYTES_MAX
from gapless.messages.records import (
    AppendPackedRow,
    AppendRow,
    LogRow,
    PutRecord,
    StagedRecord,
    TrimLog,
)
from gapless.storage.codec import (
    NOTHING,
    LogMark,
    StoredRow,
    encode_packed,
    encode_row,
    label_of,
)
from gapless.storage.inline_commits import InlineCommitPolicy
from gapless.storage.loading import Loaded, load_marks, load_records
from gapless.storage.lock import DirectoryLock
from gapless.storage.reading import ReadResult, read_log
from gapless.storage.reserve import drop_reserve, make_reserve
from gapless.storage.schema import (
    connect_reader,
    connect_writer,
    storage_error,
    translated,
)
from gapless.storage.space_reclaim import SpaceReclaimer
from gapless.storage.wal import WalCheckpointer
from gapless.storage.write_group import QueuedChange, QueuedRow, QueuedWrite, WriteGroup

__all__ = ["Failed", "Statistics", "Storage", "WriteCallback"]

WriteCallback: TypeAlias = Callable[[list[Written | Fetched]], None]
"""Receives the completions. The storage's threads call it; it must neither block nor raise."""

Failed: TypeAlias = Callable[[StorageError], None]
"""Receives the failure of a write, once. A thread of the storage calls it."""

_RECORD_BYTES = 256
"""The assumed size of a queued change of a record."""

_NUDGE: Final = QueuedWrite(-1, (), 0)
"""An empty write that wakes the writer to check for reclaim and checkpoint work."""


class Statistics(msgspec.Struct, frozen=True):
    """The work of a storage since it was opened."""

    writes: int
    """Writes that are durable."""
    commits: int
    """Transactions that made them durable, without those that only freed space."""
    fetches: int
    pending_bytes: int


class Storage:
    """The data directory of a broker, in use until it is closed."""

    def __init__(
        self, directory: Path, *, on_done: WriteCallback, on_failure: Failed, durable: bool = True
    ) -> None:
        self._directory = directory
        self._on_done = on_done
        self._on_failure = on_failure
        with contextlib.ExitStack() as opened:
            self._lock = DirectoryLock(directory)
            opened.callback(self._lock.release)
            self._writer = connect_writer(directory, durable=durable)
            opened.callback(self._writer.close)
            self._reader = connect_reader(directory)
            opened.callback(self._reader.close)
            with translated(directory):
                marks = load_marks(self._reader)
            opened.pop_all()
        self._corrupt_logs = marks.corrupt
        self._reported = dict(marks.valid)
        """The extent of each log, as far as writes were reported. Only a commit changes it."""
        self._requested_marks = dict(marks.valid)
        """The extent of each log after all requested writes. Only the caller changes it."""
        self._reclaimer = SpaceReclaimer(
            mark for pubend, mark in marks.valid.items() if pubend not in marks.corrupt
        )
        self._gathered: list[QueuedWrite] = []
        """Writes that wait for a flush. Only the caller changes it."""
        self._gathered_bytes = 0
        self._writes: SimpleQueue[QueuedWrite | None] = SimpleQueue()
        self._writing = threading.Lock()
        """Held by the thread that uses the writer's connection and the state of a commit."""
        self._inline_commits = InlineCommitPolicy()
        self._fetches: SimpleQueue[Fetch | None] = SimpleQueue()
        self._reading = threading.Lock()
        """Held while a fetch reads, so that the writer can truncate the WAL between fetches."""
        self._reporting = threading.Lock()
        """Held while writes are reported and their rows become visible, so that both happen at
        once. A fetch after the report of a write finds its rows, and no fetch finds a row before
        its write is reported."""
        self._failing = threading.Lock()
        self._failure: StorageError | None = None
        self._closed = False
        self._last_group = False
        self._bytes_requested = self._bytes_done = 0
        self._written = self._commits = self._fetched = 0
        self._wal = WalCheckpointer(directory)
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            for name, work in (
                ("gapless-writer", self._write_group),
                ("gapless-reader", self._answer_fetch),
            )
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def open(
        cls, directory: Path, *, on_done: WriteCallback, on_failure: Failed, durable: bool = True
    ) -> Self:
        """Open a data directory, or create it.

        ``durable=False`` is for tests and benchmarks: a crash of the machine may then lose reported
        writes. No setting of a broker leads here.
        """
        try:
            _make_directory(directory)
        except OSError as error:
            raise StorageError(
                f"{directory} cannot be created: {error.strerror}; choose another data directory, "
                "or let the user of the broker write its parent"
            ) from error
        return cls(directory, on_done=on_done, on_failure=on_failure, durable=durable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the caller's side: only load, close and a flush here block ---------------------------

    def load(self) -> Loaded:
        """Return the records that were durable when the directory was opened; call it first.

        Raises CorruptionError if the broker must not start.
        """
        connection = connect_reader(self._directory)
        try:
            with translated(self._directory):
                return load_records(connection, self._corrupt_logs)
        finally:
            connection.close()

    def make_reserve(self) -> None:
        """Reserve space for changes on a full disk; it is given back when the storage is closed.

        After a failed write it stays.
        """
        make_reserve(self._directory)

    def write(self, write: Write) -> None:
        """Queue a write; it is reported when it is durable. After a failure it is dropped."""
        self.gather(write)
        self.flush()

    def gather(self, write: Write) -> int:
        """Add a write that waits for :meth:`flush`; return its approximate size in bytes."""
        assert not self._closed, "the storage is closed"
        if self._failure is not None:
            return 0
        size = 0
        changes: list[QueuedChange] = []
        for change in write.changes:
            if type(change) is AppendRow or type(change) is AppendPackedRow:
                row = self._queued_row(change)
                size += len(row.stored.frame)
                changes.append(row)
                continue
            if type(change) is TrimLog:
                mark = self._requested_mark(change.pubend)
                self._requested_marks[change.pubend] = mark._replace(
                    trimmed=max(mark.trimmed, change.up_to)
                )
            size += _RECORD_BYTES
            if type(change) is PutRecord and type(change.record) is StagedRecord:
                size += len(change.record.events)
            changes.append(change)
        self._bytes_requested += size
        self._gathered_bytes += size
        self._gathered.append(QueuedWrite(write.write_id, tuple(changes), size))
        return size

    def flush(self, *, here: bool = False) -> list[Written]:
        """Make the gathered writes durable: by the writer, or ``here`` and now if that is fast.

        Returns the writes made durable here, for the caller to report. A caller may pass ``here``
        only if all earlier writes were reported to it; otherwise the order would be wrong.
        """
        batch, self._gathered = self._gathered, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if here and batch and self._commit_here(batch, size):
            return [Written(write.write_id) for write in batch]
        for write in batch:  # after a failure the writer drops them
            self._writes.put(write)
        return []

    @property
    def may_commit_inline(self) -> bool:
        """Whether the gathered writes will be durable quickly if they are flushed here."""
        return self._inline_commits.may_commit_inline(self._gathered_bytes, time.monotonic())

    def fetch(self, fetch: Fetch) -> None:
        """Queue a request for rows; the result has the rows reported before the read."""
        assert not self._closed, "the storage is closed"
        self._fetches.put(fetch)

    @property
    def pending_bytes(self) -> int:
        """The approximate bytes of requested writes that are not yet durable."""
        return self._bytes_requested - self._bytes_done

    @property
    def failure(self) -> StorageError | None:
        """Why nothing is written any more, or None."""
        return self._failure

    def statistics(self) -> Statistics:
        """Return the work done since the directory was opened."""
        return Statistics(self._written, self._commits, self._fetched, self.pending_bytes)

    def close(self) -> None:
        """Finish all writes and fetches, then release the directory. Not from a callback."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._writes.put(None)
        self._fetches.put(None)
        for thread in self._threads:
            thread.join()
        self._reader.close()
        self._writer.close()
        if self._failure is None:
            drop_reserve(self._directory)
        self._lock.release()

    def _queued_row(self, change: AppendRow | AppendPackedRow) -> QueuedRow:
        if isinstance(change, AppendRow):
            row: LogRow | AppendPackedRow = change.row
            events, frame = (
                len(change.row.publications),
                encode_row(change.row, change.packed_events),
            )
        else:
            row, events, frame = change, change.events, encode_packed(change)
        mark = self._requested_mark(row.pubend)
        assert max(mark.last, mark.trimmed) < row.first <= row.last, (
            f"{row.pubend}: row {row.first} to {row.last} is not above the log, which ends at "
            f"{mark.last} and is trimmed up to {mark.trimmed} (I1)"
        )
        self._requested_marks[row.pubend] = LogMark(mark.label, mark.trimmed, row.last)
        return QueuedRow(
            row.pubend, StoredRow(mark.label, row.first, row.last, mark.last, events, frame)
        )

    def _requested_mark(self, pubend: PubendId) -> LogMark:
        return self._requested_marks.get(pubend) or LogMark(label_of(pubend), NOTHING, NOTHING)

    # --- the threads -------------------------------------------------------------------------

    def _run(self, work: Callable[[], bool]) -> None:
        try:
            while work():
                pass
        except Exception as error:  # noqa: BLE001  nothing may be written after any failure
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        with self._failing:
            if self._failure is not None:
                return
            self._failure = storage_error(error, f"{self._directory}: a write failed")
        self._failure.__cause__ = error
        self._on_failure(self._failure)

    def _commit_here(self, batch: list[QueuedWrite], size: int) -> bool:
        """Make writes durable in the caller's thread if that is fast; return whether it did."""
        started = time.monotonic()
        if not self._inline_commits.may_commit_inline(size, started) or not self._writing.acquire(
            blocking=False
        ):
            return False
        try:
            if self._reclaimer.waits or self._failure is not None:
                return False
            group = self._commit(batch, size)
            with self._reporting:
                self._reported.update(group.marks)
            if group.trimmed or self._wal.is_due:
                self._writes.put(_NUDGE)
        except Exception as error:  # noqa: BLE001  as in a thread: nothing may be written after it
            self._fail(error)
            return False
        finally:
            self._writing.release()
        self._inline_commits.waited(started, time.monotonic())
        return True

    def _write_group(self) -> bool:
        """Make the queued writes durable and report them; return whether to continue."""
        batch = self._take_batch()
        with self._writing:
            if self._failure is not None:
                return False
            if batch or self._reclaimer.waits:
                group = self._commit(batch, sum(write.size for write in batch))
                with self._reporting:
                    if batch:
                        self._on_done([Written(write.write_id) for write in batch])
                    self._reported.update(group.marks)
            if self._wal.is_due:
                self._wal.checkpoint(self._writer, self._reading)
        return not self._last_group

    def _take_batch(self) -> list[QueuedWrite]:
        """Wait for a write, unless space is to be reclaimed, and return all queued ones."""
        batch: list[QueuedWrite] = []
        size = 0
        while size < GROUP_BYTES_MAX:
            if self._writes.empty() and (batch or self._reclaimer.waits):
                break
            try:
                write = self._writes.get(timeout=self._wal.idle_s)
            except Empty:
                self._wal.note_idle()
                break
            if write is None:
                self._last_group = True
                break
            if write is _NUDGE:
                break
            batch.append(write)
            size += write.size
        return batch

    def _commit(self, batch: list[QueuedWrite], size: int) -> WriteGroup:
        """Make writes durable in one transaction and reclaim some space; return the group."""
        group = WriteGroup(self._reported)
        for write in batch:
            group.add(write)
        self._writer.execute("BEGIN IMMEDIATE")
        group.apply(self._writer)
        reclaimed = self._reclaimer.step(self._writer) if self._reclaimer.waits else 0
        self._writer.execute("COMMIT")
        self._bytes_done += size
        self._written += len(batch)
        self._commits += bool(batch)
        self._wal.grew(size + reclaimed)
        for pubend in group.trimmed:
            self._reclaimer.trimmed(group.marks[pubend])
        return group

    def _answer_fetch(self) -> bool:
        """Answer a fetch; return whether to continue."""
        fetch = self._fetches.get()
        if fetch is None:
            return False
        found = self._found(fetch)
        self._fetched += 1
        if self._failure is None:
            self._on_done([Fetched(fetch.fetch_id, *found)])
        return True

    def _found(self, fetch: Fetch) -> ReadResult:
        with self._reporting:
            mark = self._reported.get(fetch.pubend)
        if mark is None:
            problem = self._corrupt_logs.get(fetch.pubend)
            return ReadResult((), problem, complete=problem is None)
        high = min(fetch.high, mark.last)
        with self._reading:
            return read_log(
                self._reader,
                fetch.pubend,
                fetch.low,
                high,
                fetch.bytes_max,
                packed=fetch.packed,
            )


def _make_directory(directory: Path) -> None:
    """Create a directory durably: SQLite syncs its content, but not its entry in the parent.

    Only the owner may read a new directory, because it will contain other people's events.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        descriptor = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
