"""A store without a disk, for tests and for brokers without durable state.

It has the order and the completions of the real store. Nothing survives a stop.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

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
    TrimLog,
)
from gapless.packed.pick import packed, unpack_row

__all__ = ["MemoryStore"]


class MemoryStore:
    """Records and logs in memory."""

    def __init__(self, on_done: Callable[[list[Any]], None]) -> None:
        self._on_done = on_done
        self._records: dict[tuple[str, ...], Record] = {}
        self._logs: dict[PubendId, list[LogRow]] = {}
        self._gathered: list[Write] = []
        self._fetched: list[Fetched] = []

    @property
    def pending_bytes(self) -> int:
        """Always 0: nothing waits for a disk."""
        return 0

    def gather(self, write: Write) -> int:
        """Collect changes for the next flush."""
        self._gathered.append(write)
        return 0

    def flush(self, *, here: bool) -> list[Written]:
        """Apply the collected changes at once, whatever ``here`` is."""
        del here
        gathered, self._gathered = self._gathered, []
        for write in gathered:
            for change in write.changes:
                self._apply(change)
        return [Written(write.write_id) for write in gathered]

    @property
    def may_commit_inline(self) -> bool:
        """Always true: there is no disk to wait for."""
        return True

    def fetch(self, fetch: Fetch) -> None:
        """Read rows; the reply comes in the next turn of the loop."""
        rows = self._logs.get(fetch.pubend, [])
        found: list[LogRow] = []
        size = 0
        complete = True
        for index in range(bisect_left(rows, fetch.low, key=_last), len(rows)):
            row = rows[index]
            if row.first > fetch.high:
                break
            size += sum(64 + len(each.payload) for each in row.publications)
            if found and size > fetch.bytes_max:
                complete = False
                break
            found.append(row)
        read_rows = map(packed, found) if fetch.packed else found
        if not self._fetched:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._fetched.append(Fetched(fetch.fetch_id, tuple(read_rows), complete=complete))

    def close(self) -> None:
        """Remove everything."""
        self._records.clear()
        self._logs.clear()

    def _apply(self, change: Any) -> None:
        match change:
            case PutRecord(record):
                self._records[record.key] = record
            case DeleteRecord(key):
                self._records.pop(key, None)
            case AppendRow(row):
                self._logs.setdefault(row.pubend, []).append(row)
            case AppendPackedRow():
                self._apply(AppendRow(unpack_row(change)))
            case TrimLog(pubend, up_to):
                rows = self._logs.get(pubend, [])
                del rows[: bisect_right(rows, up_to, key=_last)]
            case _:
                raise AssertionError(f"{change!r} is no change")

    def _deliver(self) -> None:
        fetched, self._fetched = self._fetched, []
        self._on_done(fetched)


def _last(row: LogRow) -> int:
    return row.last
