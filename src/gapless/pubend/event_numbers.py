"""The publications of a log, numbered from the first one that was ever logged.

Theory of operation. Every row has the number of publications before it (``before``), and the ticks
of a row are consecutive. So the number of publications up to a tick follows from one row, the first
above the tick, wherever in the log it is, and it never changes. How far a reader is behind is a
difference of two numbers. The total is written with its publisher's record, in the transaction of
the row, so it is exact after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gapless.core.context import Context
from gapless.core.events import Fetched
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import EventCount
from gapless.messages.records import PackedRow
from gapless.pubend.log_reader import ReadStream

__all__ = ["CountedEvents", "EventNumbers"]


class CountedEvents(NamedTuple):
    """The number of publications ever logged, and up to some ticks."""

    total: int
    counts: tuple[EventCount, ...]
    """Without the ticks above which the log cannot be read."""


class EventNumbers:
    """Numbers the publications of one log."""

    def __init__(self, context: Context, stream: ReadStream, total: int, last: Tick) -> None:
        self._context = context
        self._stream = stream
        self._last = last
        """The tick of the last publication, or one above it and below the next."""
        self.total = total
        """How many publications were ever logged, also those that wait for the disk."""

    def add(self, last: Tick, events: int) -> int:
        """Number the publications of a row that ends at a tick; return how many are before it."""
        before = self.total
        self._last, self.total = last, before + events
        return before

    def count(self, ticks: Iterable[Tick], then: Callable[[CountedEvents], None]) -> None:
        """Call back with the number of publications up to each tick.

        Released publications count as passed: no reader can still get them.
        """
        found: dict[Tick, EventCount] = {}
        waiting = dict.fromkeys(sorted(ticks))
        if not waiting:
            then(CountedEvents(self.total, ()))
            return

        def counted(tick: Tick, count: EventCount | None) -> None:
            del waiting[tick]
            if count is not None:
                found[tick] = count
            if not waiting:
                then(CountedEvents(self.total, tuple(found[each] for each in sorted(found))))

        for tick in [*waiting]:
            self._count(tick, lambda count, tick=tick: counted(tick, count))  # type: ignore[misc]

    def _count(self, tick: Tick, then: Callable[[EventCount | None], None]) -> None:
        low, high = max(tick, self._stream.record.released) + 1, self._stream.top
        if low > min(high, self._last):
            then(EventCount(tick, self.total, 0))
            return

        def fetched(event: Fetched) -> None:
            rows: tuple[PackedRow, ...] = event.rows
            if rows:
                oldest = max(low, rows[0].first)
                then(EventCount(tick, rows[0].before + oldest - rows[0].first, oldest))
            elif event.corruption is None:
                then(EventCount(tick, self.total, 0))  # released, or not yet on disk
            else:
                then(None)

        self._context.fetch(self._stream.record.pubend, low, high, 1, fetched, packed=True)
