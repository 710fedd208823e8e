"""A simulated disk: atomic changes, syncs that take a while, loss of unsynced writes.

Writes queue. A sync takes all writes that are queued when it starts (group commit). When it
completes, the disk applies them in order and answers with ``Written``. A fetch reads the state that
is durable when it is answered.

Fault budget. A crash loses the unsynced writes, except for a prefix that may have reached the disk
(a write may survive without its ``Written``). The write after that prefix may be torn; opening the
disk detects that and drops it. A row may be corrupt: every fetch that reaches it stops before it
and reports it. A full disk fails the next sync, which ends the process: a broker whose write failed
must not continue (R27). The disk never loses a synced write, reorders writes, serves a corrupt row
as sound, or corrupts records.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.effects import Fetch, Write
from gapless.core.events import Fetched, Written
from gapless.core.ids import PubendId
from gapless.messages.records import (
    AppendPackedRow,
    AppendRow,
    DeleteRecord,
    LogRow,
    PutRecord,
    Record,
    StorageChange,
    TrimLog,
)
from gapless.packed.pick import pack, packed, unpack_row

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["DiskListener", "SimulatedDisk", "row_bytes"]

DiskListener: TypeAlias = Callable[["SimulatedHost", StorageChange], None]
"""Is called with a host and a change that became durable on its disk."""


class SimulatedDisk:
    """The disk of one host."""

    def __init__(self, world: World, host: SimulatedHost, random: Random) -> None:
        self._world = world
        self._host = host
        self._random = random
        self.records: dict[tuple[str, ...], Record] = {}
        self.logs: dict[PubendId, list[LogRow]] = {}
        self.corrupt_rows: dict[PubendId, list[int]] = {}
        """By pubend: the first ticks of the rows that cannot be read."""
        self.once_corrupt: set[PubendId] = set()
        """Pubends that ever had an unreadable row, even if that row has since been trimmed."""
        self.full = False
        self._listeners = world.disk_listeners
        self._queued: deque[Write] = deque()
        self._syncing: list[Write] = []

    @property
    def unsynced(self) -> list[Write]:
        """The writes that a crash would lose, oldest first."""
        return [*self._syncing, *self._queued]

    def load(self) -> list[Record]:
        """Return all records, in the order of their keys."""
        return [self.records[key] for key in sorted(self.records)]

    # --- writing -----------------------------------------------------------------------------

    def write(self, process: SimulatedProcess, write: Write) -> None:
        """Queue a write; ``Written`` follows when it is durable."""
        self._queued.append(write)
        if not self._syncing:
            self._start_sync(process)

    def _start_sync(self, process: SimulatedProcess) -> None:
        self._syncing = list(self._queued)
        self._queued.clear()
        options = self._world.options
        low, high = options.sync_us_min, options.sync_us_max
        delay = low + int(self._random.random() * (high - low))
        self._world.push(self._world.now + delay, self._synced, process, None)

    def _synced(self, process: SimulatedProcess, _: None) -> None:
        if not process.alive:
            return
        if self.full:
            self._world.crash(self._host, "a write failed: no space left on the disk")
            return
        batch, self._syncing = self._syncing, []
        for write in batch:
            self._apply(write.changes)
        if self._queued:
            self._start_sync(process)
        written = [Written(write.write_id) for write in batch]
        if self._world.options.together:
            self._world.happen(process, *written)
        else:
            for each in written:
                self._world.happen(process, each)

    def crash(self) -> int:
        """Lose the unsynced writes, except for a prefix that reached the disk; return how many were
        lost.
        """
        pending = self.unsynced
        self._syncing = []
        self._queued.clear()
        if not pending:
            return 0
        kept = 0
        if self._random.random() < self._world.options.survive:
            kept = self._random.randint(0, len(pending))
        for write in pending[:kept]:
            self._apply(write.changes)
        if kept < len(pending) and self._random.random() < self._world.options.torn:
            # a torn write: its checksum does not match, so opening the disk drops it
            self._world.count_fault("torn write")
        return len(pending) - kept

    def _apply(self, changes: tuple[Any, ...]) -> None:
        for each in changes:
            # listeners get unpacked rows, also for packed ones
            change = AppendRow(unpack_row(each)) if type(each) is AppendPackedRow else each
            if type(change) is PutRecord:
                self.records[change.record.key] = change.record
            elif type(change) is AppendRow:
                assert change.packed_events in {b"", pack(change.row.publications)}, (
                    "the packed events differ from the row"
                )
                self._append(change.row)
            elif type(change) is DeleteRecord:
                self.records.pop(change.key, None)
            elif type(change) is TrimLog:
                self._trim(change)
            else:
                raise AssertionError(f"{change!r} is not a storage change")
            for listener in self._listeners:
                listener(self._host, change)

    def _append(self, row: LogRow) -> None:
        rows = self.logs.setdefault(row.pubend, [])
        if not row.first <= row.last or (rows and row.first <= rows[-1].last):
            self._world.violate("duplicate", f"{row.pubend}: {row} is not above the log (I1)")
        rows.append(row)

    def _trim(self, trim: TrimLog) -> None:
        rows = self.logs.get(trim.pubend, [])
        del rows[: bisect.bisect_right(rows, trim.up_to, key=_last)]
        corrupt_rows = self.corrupt_rows.get(trim.pubend)
        if corrupt_rows:
            lowest = rows[0].first if rows else trim.up_to + 1
            self.corrupt_rows[trim.pubend] = [first for first in corrupt_rows if first >= lowest]

    # --- reading -----------------------------------------------------------------------------

    def fetch(self, process: SimulatedProcess, fetch: Fetch) -> None:
        """Take a request for rows; the answer comes after a delay."""
        options = self._world.options
        delay = options.sync_us_min + int(self._random.random() * options.sync_us_min)
        self._world.push(self._world.now + delay, self._fetched, process, fetch)

    def _fetched(self, process: SimulatedProcess, fetch: Fetch) -> None:
        if process.alive:
            read = self.read(fetch.pubend, fetch.low, fetch.high, fetch.bytes_max)
            rows, corruption, complete = read
            answer = tuple(map(packed, rows)) if fetch.packed else rows
            self._world.happen(process, Fetched(fetch.fetch_id, answer, corruption, complete))

    def read(
        self, pubend: PubendId, low: int, high: int, bytes_max: int
    ) -> tuple[tuple[LogRow, ...], str | None, bool]:
        """Return the rows that overlap the range: at least one, then up to the byte limit.

        Also return which row could not be read, and whether the rows are complete.
        """
        rows = self.logs.get(pubend, [])
        corrupt_rows = self.corrupt_rows.get(pubend, ())
        found: list[LogRow] = []
        size = 0
        for index in range(bisect.bisect_left(rows, low, key=_last), len(rows)):
            row = rows[index]
            if row.first > high:
                break
            if row.first in corrupt_rows:
                return tuple(found), f"{pubend}: row {row.first} to {row.last} is corrupt", False
            size += row_bytes(row)
            if found and size > bytes_max:
                return tuple(found), None, False
            found.append(row)
        return tuple(found), None, True

    def corrupt_row(self, pubend: PubendId, first: int) -> None:
        """Corrupt the row that starts at a tick."""
        self.corrupt_rows.setdefault(pubend, []).append(first)
        self.once_corrupt.add(pubend)


def _last(row: LogRow) -> int:
    return row.last


def row_bytes(row: LogRow) -> int:
    """Return the approximate size of a row on disk."""
    return 48 + sum(
        24 + len(publication.payload) + 16 * len(publication.attributes)
        for publication in row.publications
    )
