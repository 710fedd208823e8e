"""The writer of an audit log. It collects records and writes them together.

To add a record costs an append to a list. A thread encodes and writes the collected records shortly
after the first. A caller that needs a record to be with the operating system calls :meth:`flush`,
which writes all collected records. Nothing is synced: the log survives a crash of the process, but
not always one of the computer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gapless.audit.options import AuditOptions
from gapless.audit.records import VERSION, AuditRecord, Closing, Header, Side
from gapless.audit.segments import CLOSED, MAGIC, OPEN, encode_frame, prefix_of, segment_name
from gapless.core.errors import UsageError
from gapless.core.limits import AUDIT_PENDING_RECORDS_MAX

__all__ = ["AuditWriter"]

_LOG: Final = logging.getLogger("gapless.audit")


def _nothing() -> Iterable[AuditRecord]:
    return ()


class AuditWriter:
    """One writer of a directory: a broker incarnation, or the clients of a name in one process."""

    def __init__(
        self,
        options: AuditOptions,
        side: Side,
        name: str,
        *,
        cell: str = "",
        restate: Callable[[], Iterable[AuditRecord]] = _nothing,
    ) -> None:
        """``restate`` returns records that start each segment, so that it can be read alone."""
        self.options = options
        self.failure: OSError | None = None
        """Why it writes no more, or None."""
        self.bytes = 0
        """The bytes written."""
        self._side = side
        self._name = name
        self._cell = cell
        self._restate = restate
        self._run = f"{time.time_ns() // 1_000:016x}.{os.getpid()}.{threading.get_ident():x}"
        self._records: list[AuditRecord] = []
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._number = 0
        self._descriptor = -1
        self._path = Path()
        self._size = 0
        self._idle_size = 0
        self._started_at = 0.0
        try:
            options.path.mkdir(parents=True, exist_ok=True)
            _adopt(options.path)
            self._start_segment()
        except (OSError, ValueError) as error:  # a path with a zero character
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"the audit log in {options.directory} cannot be written: {reason}"
            ) from None
        self._thread = threading.Thread(target=self._write_on, name="audit", daemon=True)
        self._thread.start()

    # --- for callers -------------------------------------------------------------------------------

    def add(self, record: AuditRecord) -> None:
        """Add a record, which is written soon."""
        records = self._records
        records.append(record)
        if len(records) == 1:
            self._wake.set()
        elif len(records) >= AUDIT_PENDING_RECORDS_MAX:
            self.flush()

    def flush(self) -> None:
        """Hand all collected records to the operating system."""
        with self._lock:
            records, self._records = self._records, []
            if not records or self.failure is not None or self._descriptor < 0:
                return
            try:
                self._write(records)
                if self._size >= self.options.segment_bytes:
                    self._rotate()
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Write the collected records and a Closing record, then stop."""
        with self._lock:
            if self._stopped.is_set():
                return
            self.add(Closing())
            self.flush()
            self._stop()
            if self.failure is None:
                with contextlib.suppress(OSError):
                    self._end_segment()

    def abandon(self) -> None:
        """Stop as a crash would: drop the collected records and write no Closing record."""
        with self._lock:
            self._stop()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _stop(self) -> None:
        self._stopped.set()
        self._wake.set()

    # --- the thread --------------------------------------------------------------------------------

    def _write_on(self) -> None:
        options = self.options
        while not self._stopped.is_set():
            is_woken = self._wake.wait(options.segment_s / 4)
            self._wake.clear()
            if is_woken:
                self._stopped.wait(options.flush_ms / 1_000)
                self.flush()
            self._rotate_old()

    def _rotate_old(self) -> None:
        with self._lock:
            is_old = time.monotonic() - self._started_at >= self.options.segment_s
            if is_old and self._size > self._idle_size and self._descriptor >= 0:
                try:
                    self._rotate()
                except OSError as error:
                    self._fail(error)

    # --- segments ----------------------------------------------------------------------------------

    def _write(self, records: list[AuditRecord]) -> None:
        frame = encode_frame(time.time_ns() // 1_000, records)
        written = os.write(self._descriptor, frame)
        while written < len(frame):
            written += os.write(self._descriptor, frame[written:])
        self._size += len(frame)
        self.bytes += len(frame)

    def _start_segment(self) -> None:
        """Open the next segment."""
        self._number += 1
        name = segment_name(self._side, self._name, self._run, self._number)
        self._path = self.options.path / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        _lock(self._descriptor, wait=True)  # the lock shows that the segment grows
        os.write(self._descriptor, MAGIC)
        self._size = len(MAGIC)
        self._started_at = time.monotonic()
        header = Header(
            VERSION,
            self._side,
            self._name,
            self._cell,
            self._run,
            self._number,
            time.time_ns() // 1_000,
        )
        self._write([header, *self._restate()])
        self._idle_size = self._size

    def _rotate(self) -> None:
        self._end_segment()
        self._start_segment()
        self._trim()

    def _end_segment(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._path.rename(self._path.with_suffix(CLOSED))
            os.close(descriptor)

    def _trim(self) -> None:
        """Remove the oldest segments of this name while the log is too large."""
        prefix = prefix_of(self._side, self._name)
        found = [
            path
            for path in self.options.path.glob(f"*{CLOSED}")
            # a run has no hyphen: with another hyphen it is a segment of a longer name
            if path.name.startswith(prefix) and path.stem.count("-") == prefix.count("-") + 1
        ]
        found.sort()  # a run starts with its time, so they sort by age
        sizes = [path.stat().st_size for path in found]
        total = sum(sizes) + self.options.segment_bytes
        for path, size in zip(found, sizes, strict=True):
            if total <= self.options.bytes_max:
                return
            path.unlink()
            total -= size

    def _fail(self, error: OSError) -> None:
        """Stop writing; the broker or client continues."""
        self.failure = error
        self._records = []
        _LOG.error("the audit log in %s ends: %s", self.options.directory, error)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(descriptor: int, *, wait: bool) -> None:
    """Lock a file; OSError if another process has the lock and ``wait`` is false."""
    import fcntl  # some systems lack it, and only writers need it

    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _adopt(directory: Path) -> None:
    """End the segments of dead writers, which no process has locked."""
    for path in directory.glob(f"*{OPEN}"):
        with contextlib.suppress(OSError):  # another process has ended it, or it grows
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _lock(descriptor, wait=False)
                if os.fstat(descriptor).st_size:  # an empty one is being created
                    path.rename(path.with_suffix(CLOSED))
            finally:
                os.close(descriptor)
