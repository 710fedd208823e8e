"""Reads of a pubend's log, and what is known of its corruption (R32, P8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gapless.core.context import Context
from gapless.core.events import Fetched
from gapless.core.ticks import Tick
from gapless.messages.records import LogRow, PackedRow, PubendRecord, StreamEpochRecord
from gapless.messages.streams import KnowledgeRange
from gapless.pubend.epochs import exact_ranges
from gapless.pubend.protocols import Outlet

__all__ = ["LogReader", "ReadStream"]


class ReadStream(Protocol):
    """The stream whose log is read."""

    top: Tick
    stream_epochs: list[StreamEpochRecord]

    @property
    def record(self) -> PubendRecord:
        """The pubend as it is on disk."""


class LogReader:
    """Reads one log."""

    def __init__(self, context: Context, stream: ReadStream, outlet: Outlet) -> None:
        self._context = context
        self._stream = stream
        self._outlet = outlet
        self._pubend = stream.record.pubend
        self.corruption: str | None = None
        """The corruption of the log, if a row could not be read and is still there (P8)."""
        self._corrupt_from: Tick = 0
        """The tick at or above which the first row could not be read."""

    def ranges_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[list[KnowledgeRange], Tick], None],
        bytes_max: int,
    ) -> None:
        """Read the log from ``low``; call back with knowledge ranges and the last tick covered.

        Ticks between rows are silence, cut where stream epochs start. Ranges that are cached in
        memory are not read from disk.
        """
        stream = self._stream
        low = max(low, stream.record.released + 1)
        high = min(high, stream.top)
        if low > high:
            then([], high)
            return
        cached = self._outlet.cached(self._pubend, low, high)
        if cached:
            then(cached, cached[-1].high)
            return

        def fetched(event: Fetched) -> None:
            rows: tuple[LogRow, ...] = event.rows
            start, done = self._reached(event, low, high)
            released = stream.record.released
            found = [
                each for row in rows for each in row.publications if start <= each.tick <= done
            ]
            then(exact_ranges(stream.stream_epochs, released, start, done, found), done)

        most = max(bytes_max, self._context.parameters.read_chunk_bytes)
        self._context.fetch(self._pubend, low, high, most, fetched)

    def rows_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[tuple[PackedRow, ...], Tick, Tick], None],
        bytes_max: int,
    ) -> None:
        """Read the log from ``low``; call back with the packed rows that overlap the range.

        The callback also gets the first and the last tick for which the rows are complete.
        """
        low, high = max(low, self._stream.record.released + 1), min(high, self._stream.top)
        if low > high:
            then((), low, high)
            return

        def fetched(event: Fetched) -> None:
            then(event.rows, *self._reached(event, low, high))

        self._context.fetch(self._pubend, low, high, bytes_max, fetched, packed=True)

    def _reached(self, event: Fetched, low: Tick, high: Tick) -> tuple[Tick, Tick]:
        """Return the first and the last tick for which the rows are complete; note corruption."""
        rows: tuple[LogRow | PackedRow, ...] = event.rows
        whole = event.complete and event.corruption is None
        done = high if whole else (min(high, rows[-1].last) if rows else low - 1)
        if event.corruption is not None:
            self.note_corruption(event.corruption, done + 1)
        # ticks released during the read may be trimmed: they are released, not silent (A14)
        return max(low, self._stream.record.released + 1), done

    def note_corruption(self, corruption: str, low: Tick) -> None:
        """Note that the first row at or above a tick cannot be read; the latest note counts."""
        self._context.mark("corrupt log row")
        self.corruption, self._corrupt_from = corruption, low

    def review_corruption(self) -> None:
        """After a release, check whether the corrupt row is still in the log."""
        low, released = self._corrupt_from, self._stream.record.released
        if self.corruption is None or low > released:
            return

        def looked(event: Fetched) -> None:
            if event.corruption is None and low == self._corrupt_from:
                self._context.mark("corrupt log row released")
                self.corruption = None

        first = max(low, released + 1)
        self._context.fetch(self._pubend, first, max(first, self._stream.top), 1, looked)
