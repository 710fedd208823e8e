"""How much of a log is kept for a cursor: by reports, or by a log hold (R49, R52, R58).

Reports keep the log above their ack floor. A cursor that reads below the floor takes a log hold
(:mod:`.log_hold`). If the PHB is short of space, a cursor gives up the ticks that block the log's
release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import CursorPhase, Started

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["LogRetention"]


class LogRetention:
    """The part of its pubend's log that one cursor needs."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._subscription = cursor.subscription
        self._resources = cursor.subscription.resources
        self.given_up: Tick = 0
        """The log is not kept for the cursor up to this tick any more (R58)."""

    @property
    def retained_from(self) -> Tick:
        """The log is kept above this tick: the acknowledged tick, or the read position if lower."""
        cursor = self._cursor
        if not self._subscription.durable:
            return cursor.sent_up_to
        start = cursor.start
        # nothing below the start is needed
        acked = max(start.acked_stored, start.after) if isinstance(start, Started) else 0
        if cursor.phase is CursorPhase.DISCONNECTED:
            return acked
        return min(acked, cursor.sent_up_to)

    @property
    def needs_more(self) -> bool:
        """Whether the filters can match anything of the stream above what the client has."""
        may_match, pubend = self._resources.filters.may_match, self._cursor.pubend
        segments = self._cursor.segments.above(self.retained_from)
        return any(may_match(pubend, each) for each in segments)

    @property
    def needed(self) -> Tick | None:
        """The tick up to which the cursor needs nothing; None if it keeps nothing by reports."""
        cursor = self._cursor
        if cursor.verification.has_guarantee and not isinstance(cursor.start, Started):
            return cursor.position
        if cursor.is_pending or cursor.log_holds.is_safe:
            return None
        if not self.needs_more and not cursor.limits:
            return None
        return max(self.retained_from, self.given_up)

    @property
    def report_limit(self) -> Tick | None:
        """The greatest tick that may be reported, as far as this cursor is concerned; None if any.

        A live cursor has read the range of its log hold. Reports wait for its client then.
        Otherwise the acknowledged tick would remain below them, and the log hold could not be
        released.
        """
        cursor = self._cursor
        if cursor.phase is CursorPhase.LIVE and cursor.log_holds.is_safe:
            return max(self.retained_from, cursor.subend.reports.greatest or 0)
        return self.needed

    def limit_report(self, tick: Tick) -> Tick:
        """Return the greatest tick up to this one that may be reported."""
        if isinstance(self._cursor.start, Started) and self.retained_from >= tick:
            return tick  # no limit of a started cursor is lower, which is the usual case
        limit = self.report_limit
        return tick if limit is None else min(limit, tick)

    def is_kept_above(self, tick: Tick) -> bool:
        """Return whether the log is kept for this cursor above a tick."""
        return tick >= max(self.retained_from, self.given_up)

    def hold_log_if_needed(self) -> None:
        """Take a log hold if the cursor reads below what reports keep (R49)."""
        cursor = self._cursor
        if self._subscription.durable and isinstance(cursor.start, Started):
            # kept by reports, or by the current log hold
            kept = cursor.position >= cursor.start.acked_stored
        else:
            floor = cursor.subend.retained_above
            kept = floor is not None and cursor.position >= floor
        if not kept and self.needs_more:
            cursor.log_holds.take()
        elif not self._subscription.durable and cursor.log_holds.current is not None:
            # the log hold may lie higher; reports keep the log from the position on
            cursor.log_holds.release()

    def lower(self, tick: Tick) -> None:
        """The cursor continues after a tick: nothing above it is given up."""
        self.given_up = min(self.given_up, tick)

    def give_up(self, tick: Tick) -> None:
        """Stop keeping the log up to a tick: the PHB is short of space (R58)."""
        cursor = self._cursor
        if cursor.is_pending or max(self.retained_from, self.given_up) >= tick:
            return
        self._resources.context.mark("gave up a log under pressure")
        self.given_up = tick
        if cursor.log_holds.current is not None:
            cursor.log_holds.release()
