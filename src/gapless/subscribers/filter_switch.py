"""The switch from one filter to the next on one cursor (R47).

A live cursor switches where its stream serves the next filter: in the same step if the present
stream epoch does. Any other cursor switches at once,
and reads from the log what the next filter matches above the switch. In both cases the end of the
filter is stored before the client is sent anything beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import VirtualTime
from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import CursorInput, CursorPhase, Started
from gapless.subscribers.filter_segments import FilterSegment, ImportedSegments

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["FilterSwitch"]


class FilterSwitch:
    """The changes of filter on one cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._segments = cursor.segments
        resources = cursor.subscription.resources
        self._filters = resources.filters
        self._note_waiting = resources.step_end.note_waiting

    def import_segments(self, imported: ImportedSegments) -> None:
        """Add the filters that ended at a former hosting broker."""
        self._segments.add_imported(self._cursor.pubend, imported)

    def replace_segments(self, imported: ImportedSegments) -> None:
        """Replace the filters by those of a former hosting broker, which the client knows."""
        cursor = self._cursor
        self._segments.replace_all(cursor.subscription.newest, cursor.pubend, imported)
        cursor.subend.register(cursor)
        cursor.limits.until_stored(cursor.position)

    def set_next(self, segment: FilterSegment) -> None:
        """Switch to a new filter where the stream serves it, or at once if not live."""
        cursor = self._cursor
        if not isinstance(cursor.start, Started):
            self._segments.replace_current(segment)
            cursor.catch_up.stop()  # a pending read uses the previous filter
        else:
            self._segments.set_next(segment)
            cursor.subend.register(cursor)
            if cursor.phase is CursorPhase.LIVE:
                self._note_waiting(cursor)
            else:
                self.switch_now()

    def switch_if_served(self, low: Tick, time: VirtualTime) -> None:
        """Switch to the next filter at tick ``low`` if the stream serves it there."""
        cursor, following = self._cursor, self._segments.next
        is_live = cursor.phase is CursorPhase.LIVE
        if following is not None and is_live and following.is_served_at(time):
            # reads with the previous filter may have passed the horizon
            self.switch(max(low - 1, cursor.position))

    def end_at(self, last: Tick) -> None:
        """Switch at the end of a sealed pubend: nothing above it serves the next filter."""
        cursor = self._cursor
        if self._segments.next is not None and cursor.phase is CursorPhase.LIVE:
            self.switch(max(last, cursor.position))

    def switch(self, end: Tick) -> None:
        """End the current filter at a tick."""
        cursor = self._cursor
        self._segments.switch(end)
        cursor.subend.register(cursor)
        cursor.limits.until_stored(end)

    def switch_now(self, *, surely: bool = False) -> None:
        """Switch to the next filter at the current position, and read from the log above it.

        A filter that can match nothing keeps nothing of the log, so the switch cannot lie below the
        horizon. If the horizon is not known yet, the switch waits, unless ``surely`` is set.
        """
        if self._segments.next is None:
            return
        cursor = self._cursor
        keeps = self._filters.may_match(cursor.pubend, self._segments.current)
        if not cursor.subend.has_base and not keeps and not surely:
            return
        end = max(
            cursor.subend.horizon,
            cursor.position,
            cursor.start.acked,
            cursor.last_sent,
            cursor.subscription.merged,  # in total order no event comes below it
        )
        if cursor.is_live:
            cursor.fall_behind(CursorInput.SWITCHED)
        cursor.catch_up.stop()  # a pending read may go beyond the switch
        self.switch(end)

    def prune(self) -> None:
        """Forget segments that are not needed again.

        After a seek back, segments below the acknowledged tick may be needed.
        """
        self._segments.prune(self._cursor.retention.retained_from)
