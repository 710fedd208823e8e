"""How a strand catches up: it reads the log and joins the live stream (R48).

Reading goes on while there is room in the buffer and something unread. Near the horizon, if the
live stream serves the strand's filter there, a tick J is chosen: up to J the log is read, and what
the subend hands over above J is held. When J is read, both are put together. If too much is held,
it is dropped and reading goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Publication
from gapless.subscribers.cursor_state import FOREVER, CursorPhase, GapRange
from gapless.subscribers.filter_segments import FilterSegment

if TYPE_CHECKING:
    from gapless.requests.carrier import PendingRequest
    from gapless.subscribers.cursor import Cursor

__all__ = ["CatchUp"]


class CatchUp:
    """What a strand has read, and what it holds back meanwhile."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._host = cursor.subscription.host
        self._parameters = self._host.context.parameters
        self.held: list[Publication] = []
        """What came live above J."""
        self.join_at: Tick = 0
        """J: up to here the log is read."""
        self._top: Tick | None = None
        """The stream's top when the log was last read."""
        self._pending_request: PendingRequest | None = None
        self._reading = 0
        """Counts reads: an answer to an older one is not for us."""
        self.fault = ""
        """Why the log cannot be read where the strand is; it is tried again and again (P8)."""

    @property
    def is_reading(self) -> bool:
        """Whether a read is under way."""
        return self._pending_request is not None

    def continue_reading(self) -> None:
        """Go on reading, or join the live stream."""
        cursor = self._cursor
        if self._pending_request is not None or cursor.subscription.client is None:
            return
        if cursor.merge_exclusion.is_excluded or cursor.is_start_unverified:
            return
        if not cursor.buffer.has_room:
            return  # nor join: the next event would be one too many, and all be read again
        cursor.merge_exclusion.skip_range()
        if (
            cursor.phase is CursorPhase.CATCHING_UP
            and not cursor.merge_exclusion.is_skipped_range_ahead
        ):
            self.try_to_join()
        if not cursor.reads_log:
            return
        known = max(cursor.subend.horizon or 0, self._top or 0)
        if self._top is not None and cursor.position >= known:
            return  # nothing more is there yet
        segment, end = cursor.segment_at(cursor.position + 1)
        if cursor.started_after is not None and not self._host.may_match(cursor.pubend, segment):
            # not beyond the horizon: what is advertised there may be more than is known here
            self._pass_over(min(end, cursor.subend.horizon or 0))
        else:
            high = min(end, self.join_at) if cursor.phase is CursorPhase.JOINING else end
            self._read(segment, cursor.merge_exclusion.up_to_skipped_range(high))

    def _pass_over(self, high: Tick) -> None:
        """Go on without reading: a filter that can match nothing of the stream governs here."""
        cursor = self._cursor
        if high > cursor.position:
            cursor.position = high
            self.join_if_read()
            self._host.mark_dirty(cursor.subscription)

    # --- joining ---------------------------------------------------------------------------------

    def try_to_join(self) -> None:
        """Join if the horizon is near, and the live stream serves the filter there."""
        cursor, subend = self._cursor, self._cursor.subend
        horizon = subend.horizon
        if (
            horizon is None
            or cursor.started_after is None
            or not cursor.segment.is_served_at(subend.served)
        ):
            return
        window = self._parameters.join_window_ms * TICKS_PER_MS
        position = cursor.position
        if position < horizon - window or cursor.segment_at(position + 1)[1] != FOREVER:
            return
        if position >= horizon:
            cursor.set_phase(CursorPhase.LIVE)
        else:
            self.join_at = horizon
            cursor.set_phase(CursorPhase.JOINING)

    def buffer_live(self, publications: list[Publication]) -> None:
        """Hold what came live until J is read, unless it becomes too much."""
        self.held += [each for each in publications if each.tick > self.join_at]
        if len(self.held) > self._parameters.join_buffer_events_max:
            self._host.context.mark("joining held too much")
            self.held.clear()
            self._cursor.set_phase(CursorPhase.CATCHING_UP)

    def join_if_read(self) -> None:
        """Be live if the log is read up to J."""
        cursor = self._cursor
        if cursor.phase is CursorPhase.JOINING and cursor.position >= self.join_at:
            cursor.buffer.extend(self.held)
            self.held.clear()
            cursor.set_phase(CursorPhase.LIVE)

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
                cursor.subscription.stalls.note(cursor.pubend)

        pending_request = self._host.requests.read(
            cursor.pubend,
            segment.text,
            cursor.position + 1,
            high,
            log_hold=log_hold,
            log_hold_tick=cursor.retained_from,
            then=read,
            fault=fault,
        )
        if turn == self._reading:
            self._pending_request = pending_request

    def take_read(self, reply: ReadReply, segment: FilterSegment, high: Tick) -> None:
        """Buffer what was read; what the log no longer has is a loss, never silence (A14)."""
        cursor = self._cursor
        self._top = reply.top
        cursor.set_earliest(reply.released)
        # not beyond what was asked for: what lies above may have come live, and is held
        released, last_released_match = (
            min(reply.released, high),
            min(reply.last_released_match, high),
        )
        if released > cursor.position:
            has_gap = last_released_match > cursor.position and cursor.started_after is not None
            if has_gap and self._host.may_match(cursor.pubend, segment):
                cursor.buffer.append_gap(GapRange(cursor.position + 1, last_released_match))
            cursor.position = released
        if cursor.started_after is None:
            cursor.start(max(cursor.position, cursor.subscription.merged))
        for knowledge in reply.ranges:
            cursor.buffer.extend(
                each for each in knowledge.publications if cursor.position < each.tick <= high
            )
        cursor.position = max(cursor.position, min(reply.done, high))
        self.join_if_read()
        # what is to be told of the strand itself is told before its events, when the step ends
        self._host.mark_dirty(cursor.subscription)

    def stop(self) -> None:
        """An answer that is under way is no longer wanted."""
        self._reading += 1
        self.fault = ""
        if self._pending_request is not None:
            self._pending_request.cancel()
            self._pending_request = None

    def forget_top(self) -> None:
        """Read again, whatever was known of the end of the log."""
        self._top = None
