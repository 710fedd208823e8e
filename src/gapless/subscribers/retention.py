"""How much of a log is kept for a cursor: by reports, or by a log hold (R49, R52, R58).

Reports keep the log above what the cursors of this SHB need. A cursor that reads from below that takes
a log hold (:mod:`.log_hold`). If the PHB is short of space, a cursor gives up what others wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import CursorPhase, Started

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["LogRetention"]


class LogRetention:
    """What one cursor needs of its pubend's log."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._subscription = cursor.subscription
        self._resources = cursor.subscription.resources
        self.given_up: Tick = 0
        """Up to this tick the log is not kept for the cursor any more (R58)."""

    @property
    def retained_from(self) -> Tick:
        """Above this tick the log is kept: from what is acknowledged, or from where the cursor reads."""
        cursor = self._cursor
        if not self._subscription.durable:
            return cursor.sent_up_to
        start = cursor.start
        # nothing below its start is ever needed
        acked = max(start.acked_stored, start.after) if isinstance(start, Started) else 0
        if cursor.phase is CursorPhase.DISCONNECTED:
            return acked
        return min(acked, cursor.sent_up_to)

    @property
    def wants_more(self) -> bool:
        """Whether the filters can match anything of the stream above what the client has."""
        may_match, pubend = self._resources.filters.may_match, self._cursor.pubend
        segments = self._cursor.segments.above(self.retained_from)
        return any(may_match(pubend, each) for each in segments)

    @property
    def needed(self) -> Tick | None:
        """Up to this tick the cursor does not need the stream; None if it keeps nothing by reports."""
        cursor = self._cursor
        if cursor.verification.has_guarantee and not isinstance(cursor.start, Started):
            return cursor.position
        if cursor.is_pending or cursor.log_holds.is_safe:
            return None
        if not self.wants_more and not cursor.limits:
            return None
        return max(self.retained_from, self.given_up)

    @property
    def report_limit(self) -> Tick | None:
        """Up to this tick reports may go for this cursor; None if it sets no limit.

        A live cursor has read what its log hold was for. Reports wait for its client. Otherwise the
        acknowledgements would stay below them for ever, and the log hold could not be released.
        """
        cursor = self._cursor
        if cursor.phase is CursorPhase.LIVE and cursor.log_holds.is_safe:
            return max(self.retained_from, cursor.subend.reported or 0)
        return self.needed

    def is_kept_above(self, tick: Tick) -> bool:
        """Say whether the log is kept for this cursor above a tick."""
        return tick >= max(self.retained_from, self.given_up)

    def hold_log_if_needed(self) -> None:
        """Take a log hold if the cursor reads from below what reports keep (R49)."""
        cursor = self._cursor
        if self._subscription.durable and isinstance(cursor.start, Started):
            # reports keep it, or the log hold that the cursor has
            kept = cursor.position >= cursor.start.acked_stored
        else:
            floor = cursor.subend.retained_above
            kept = floor is not None and cursor.position >= floor
        if not kept and self.wants_more:
            cursor.log_holds.take()
        elif not self._subscription.durable and cursor.log_holds.current is not None:
            # the log hold may be above; reports keep the log from here on
            cursor.log_holds.release()

    def lower(self, tick: Tick) -> None:
        """The cursor continues after a tick: what lies above it is not given up."""
        self.given_up = min(self.given_up, tick)

    def give_up(self, tick: Tick) -> None:
        """Do not keep the log up to a tick any more: the PHB is short of space (R58)."""
        cursor = self._cursor
        if cursor.is_pending or max(self.retained_from, self.given_up) >= tick:
            return
        self._resources.context.mark("gave up under pressure")
        self.given_up = tick
        if cursor.log_holds.current is not None:
            cursor.log_holds.release()
