"""How a cursor catches up: it reads the log and joins the live stream (R48).

The cursor reads while its buffer is not full and the log has more. Near the horizon, if the live
stream serves its filter there, it chooses a tick J. It reads the log up to J and holds the events
that the subend hands over above J. When the read has reached J, it appends the held events to the
buffer. If it holds too many, it discards them and continues to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Publication
from gapless.subscribers.cursor_state import FOREVER, CursorInput, CursorPhase, GapRange, Started
from gapless.subscribers.filter_segments import FilterSegment

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor
    from gapless.subscribers.protocols import CancellableRequest

__all__ = ["CatchUp"]


class CatchUp:
    """The reads of one cursor, and the events that it holds meanwhile."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._subscription = cursor.subscription
        resources = cursor.subscription.resources
        self._context = resources.context
        self._requests = resources.requests
        self._filters = resources.filters
        self.held: list[Publication] = []
        """Events that the subend handed over above J."""
        self.join_at: Tick = 0
        """J: the tick up to which the log is read."""
        self._top: Tick | None = None
        """The top of the stream when the log was last read."""
        self._pending_request: CancellableRequest | None = None
        self._reading = 0
        """Counts reads, so that the answer to an older one is ignored."""
        self.fault = ""
        """Why the log cannot be read at the cursor's position; the read is repeated (P8)."""

    @property
    def is_reading(self) -> bool:
        """Whether a read is pending."""
        return self._pending_request is not None

    def continue_reading(self) -> None:
        """Send the next read, or join the live stream."""
        cursor = self._cursor
        if self._pending_request is not None or self._subscription.client is None:
            return
        if cursor.subend.is_over:
            cursor.ending.skip_rest()
            return
        if cursor.merge_exclusion.is_excluded or cursor.verification.is_outstanding:
            return
        if not cursor.buffer.has_space:
            return  # do not join either: the next live event would overflow the buffer
        cursor.merge_exclusion.skip_range()
        if (
            cursor.phase is CursorPhase.CATCHING_UP
            and not cursor.merge_exclusion.is_skipped_range_ahead
        ):
            self.try_to_join()
        if not cursor.reads_log:
            return
        horizon = cursor.subend.horizon
        if self._top is not None and cursor.position >= max(horizon, self._top):
            return  # the log has no more yet
        segment, end = cursor.segments.at(cursor.position + 1)
        is_started = isinstance(cursor.start, Started)
        if is_started and not self._filters.may_match(cursor.pubend, segment):
            # not beyond the horizon: the advertisement may be wider there than is known here
            self._pass_over(min(end, horizon))
        else:
            high = min(end, self.join_at) if cursor.phase is CursorPhase.JOINING else end
            self._read(segment, cursor.merge_exclusion.up_to_skipped_range(high))

    def _pass_over(self, high: Tick) -> None:
        """Continue without a read: the filter that applies here can match nothing of the stream."""
        cursor = self._cursor
        if high > cursor.position:
            cursor.pass_up_to(high)
            self.join_if_read()
            self._subscription.mark_dirty()

    # --- joining ---------------------------------------------------------------------------------

    def try_to_join(self) -> None:
        """Join if the horizon is near and the live stream serves the filter there."""
        cursor, subend = self._cursor, self._cursor.subend
        if (
            not subend.has_base
            or not isinstance(cursor.start, Started)
            or not cursor.segments.current.is_served_at(subend.served)
        ):
            return
        window = self._context.parameters.join_window_ms * TICKS_PER_MS
        horizon, position = subend.horizon, cursor.position
        if position < horizon - window or cursor.segments.at(position + 1)[1] != FOREVER:
            return
        if position >= horizon:
            cursor.enter(CursorPhase.LIVE, CursorInput.NEARED)
        else:
            self.join_at = horizon
            cursor.enter(CursorPhase.JOINING, CursorInput.NEARED)

    def buffer_live(self, publications: list[Publication]) -> None:
        """Hold live events until the log is read up to J, unless they become too many."""
        self.held += [each for each in publications if each.tick > self.join_at]
        if len(self.held) > self._context.parameters.join_buffer_events_max:
            self._context.mark("join buffer full")
            self.held.clear()
            self._cursor.enter(CursorPhase.CATCHING_UP, CursorInput.OVERFLOWED)

    def drop_held(self) -> None:
        """Discard the held events: they are read from the log later."""
        self.held.clear()

    def join_if_read(self) -> None:
        """Become live if the log was read up to J."""
        cursor = self._cursor
        if cursor.phase is CursorPhase.JOINING and cursor.position >= self.join_at:
            cursor.buffer.extend(self.held)
            self.held.clear()
            cursor.enter(CursorPhase.LIVE, CursorInput.READ)

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, segment: FilterSegment, high: Tick) -> None:
        cursor = self._cursor
        self._reading += 1
        turn, log_hold = self._reading, cursor.log_holds.named()

        def read(reply: ReadReply) -> None:
            if turn == self._reading:
                self._reading += 1
                self._pending_request, self.fault = None, ""
                cursor.log_holds.answered(log_hold)
                self.take_read(reply, segment, high)

        def fault(reason: str) -> None:
            if turn == self._reading:
                self.fault = reason
                self._subscription.stalls.note(cursor.pubend)

        pending_request = self._requests.read(
            cursor.pubend,
            segment.text,
            cursor.position + 1,
            high,
            log_hold=log_hold,
            log_hold_tick=cursor.retention.retained_from,
            then=read,
            fault=fault,
        )
        if turn == self._reading:
            self._pending_request = pending_request

    def take_read(self, reply: ReadReply, segment: FilterSegment, high: Tick) -> None:
        """Buffer the result of a read. A released range is a gap, never silence (A14)."""
        cursor = self._cursor
        self._top = reply.top
        cursor.set_earliest(reply.released)
        # not beyond the requested range: events above it may be held already
        released, last_released_match = (
            min(reply.released, high),
            min(reply.last_released_match, high),
        )
        if released > cursor.position:
            has_gap = last_released_match > cursor.position and isinstance(cursor.start, Started)
            if has_gap and self._filters.may_match(cursor.pubend, segment):
                cursor.buffer.append_gap(GapRange(cursor.position + 1, last_released_match))
            cursor.pass_up_to(released)
        if not isinstance(cursor.start, Started):
            cursor.start_after(max(cursor.position, self._subscription.merged))
        for knowledge in reply.ranges:
            cursor.buffer.extend(
                each for each in knowledge.publications if cursor.position < each.tick <= high
            )
        cursor.pass_up_to(min(reply.done, high))
        self.join_if_read()
        # at the end of the step the client is sent the start before the events
        self._subscription.mark_dirty()

    def stop(self) -> None:
        """Cancel a pending read and ignore its answer."""
        self._reading += 1
        self.fault = ""
        if self._pending_request is not None:
            self._pending_request.cancel()
            self._pending_request = None

    def forget_top(self) -> None:
        """Forget the known top of the stream, so that the log is read again."""
        self._top = None
