"""Reclaiming space, some with every transaction: trimmed rows first, then the pages they free.

New rows reuse free pages, so a log of steady size needs nothing more. Only when much of the file is
free, such as after a long outage of a subscriber, pages at the end of the file are returned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from gapless.core.limits import FREE_PAGES_KEPT
from gapless.storage.codec import LogMark
from gapless.storage.schema import PAGE_BYTES

__all__ = ["SpaceReclaimer"]

_ROWS_AT_ONCE = 256
"""Trimmed rows that one transaction deletes."""

_PAGES_AT_ONCE = 128
"""Pages that one transaction returns to the file system: 1 MiB, copied at worst."""


class SpaceReclaimer:
    """The trimmed rows and free pages that are still to be reclaimed."""

    def __init__(self, marks: Iterable[LogMark], free_part: int = 4) -> None:
        self._free_part = free_part
        """Free pages are returned if they are more than this part of the file; 0: always."""
        self._trimmed = {mark.label: mark.trimmed for mark in marks}
        self._looking = True
        """Whether free pages are to be counted."""

    @property
    def waits(self) -> bool:
        """Whether there is space to reclaim."""
        return bool(self._trimmed) or self._looking

    def trimmed(self, mark: LogMark) -> None:
        """Record that rows of a log no longer count."""
        self._trimmed[mark.label] = mark.trimmed

    def step(self, connection: sqlite3.Connection) -> int:
        """Reclaim some space, inside a transaction of the caller.

        Return about how many bytes that adds to the WAL.
        """
        if self._trimmed:
            self._delete_rows(connection)
        elif self._looking:
            self._looking = self._give_back(connection)
        return _PAGES_AT_ONCE * PAGE_BYTES

    def _delete_rows(self, connection: sqlite3.Connection) -> None:
        label, up_to = next(iter(self._trimmed.items()))
        deleted = connection.execute(
            "DELETE FROM log WHERE rowid IN (SELECT rowid FROM log"
            " WHERE pubend=? AND first<=? AND last<=? ORDER BY first LIMIT ?)",
            (label, up_to, up_to, _ROWS_AT_ONCE),
        ).rowcount
        if deleted < _ROWS_AT_ONCE:
            del self._trimmed[label]
            self._looking = True

    def _give_back(self, connection: sqlite3.Connection) -> bool:
        """Return some free pages to the file system if many are free; return whether it did."""
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        kept = max(FREE_PAGES_KEPT, pages // self._free_part) if self._free_part else 0
        if free <= kept:
            return False
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
        return True
