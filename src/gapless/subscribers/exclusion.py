"""Merge exclusion: in total order the merge continues without a pubend whose PHB was retired (R26,
R51).

A cursor is *excluded* while its pubend is abandoned. It takes no events, because late ones may lie
below what was merged, and the other cursors are merged without it. When the pubend returns, the
events between the position of the cursor and what was merged come too late. The client is sent this
*skipped range* as a gap.

A durable subscription stores the exclusion before the client is sent anything beyond it, and the
skipped range until the client has acknowledged a tick above it. If a client that lost events
returns, the events below the skipped range are delivered again as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.messages.clients import Order
from gapless.messages.records import MergeExclusionRecord
from gapless.subscribers.cursor_state import CursorInput, CursorPhase, Started

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["MergeExclusion"]


class MergeExclusion:
    """The merge exclusion of one cursor, and its skipped range."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.is_excluded = False
        """Whether the pubend is abandoned, or was and no client has connected since."""
        self.is_in_effect = False
        """Whether the merge continues without the cursor. A durable exclusion is stored first."""
        self._excluded_after: Tick = 0
        """The tick up to which the cursor had taken everything when it was excluded."""
        self._merged: Tick = 0
        """The tick merged at that time; 0 if the client may have received events since."""
        self._skipped_up_to: Tick = 0
        """The end of the skipped range; 0 if there is none, or the cursor is still excluded."""
        self._count = 0
        """Counts exclusions, so that the write of an older one has no effect."""

    def record(self) -> MergeExclusionRecord | None:
        """Return the record of the exclusion or of the skipped range, if there is one."""
        if not self.is_excluded and self._skipped_up_to <= self._cursor.start.acked:
            return None
        return MergeExclusionRecord(
            self._cursor.pubend, self._excluded_after, self._merged, self._skipped_up_to
        )

    def restore(self, record: MergeExclusionRecord) -> None:
        """Restore the exclusion from its record."""
        self._excluded_after, self._merged, self._skipped_up_to = (
            record.excluded_after,
            record.merged,
            record.skipped_up_to,
        )
        self.is_excluded = self.is_in_effect = record.skipped_up_to == 0

    # --- excluded ------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the merge continue without the cursor; if it is durable, once that is stored."""
        cursor, subscription = self._cursor, self._cursor.subscription
        if subscription.order is not Order.TOTAL or cursor.is_pending:
            return
        subscription.stalls.note(cursor.pubend)
        is_disconnected = subscription.client is None
        continued = self._skipped_up_to > cursor.start.acked or (
            self.is_excluded and not self._merged
        )
        if self.is_excluded and (
            is_disconnected or (continued and cursor.position >= self._excluded_after)
        ):
            return
        if cursor.is_live:
            cursor.fall_behind(CursorInput.EXCLUDED)
            cursor.filter_switch.switch_now()
        cursor.catch_up.stop()
        self.is_excluded, self.is_in_effect, self._skipped_up_to = True, False, 0
        if not continued:
            # a disconnected client merges nothing; when it returns it may receive events again
            self._excluded_after = cursor.start.acked if is_disconnected else cursor.position
            self._merged = subscription.merged if is_disconnected else 0
        else:
            # an earlier skipped range is still skipped, also for a client that lost the gap
            self._merged = 0
            if not is_disconnected:
                self._excluded_after = min(self._excluded_after, cursor.position)
        self._store()

    def _store(self) -> None:
        subscription = self._cursor.subscription
        self._count += 1
        count = self._count

        def stored() -> None:
            self.is_in_effect = self.is_excluded and self._count == count
            subscription.mark_dirty()

        if subscription.durable and isinstance(self._cursor.start, Started):
            subscription.save(stored)
        else:
            stored()  # a cursor without a start starts above what was merged

    def end(self) -> None:
        """The pubend has returned, and there is a client: continue above what was merged (R51)."""
        cursor, subscription = self._cursor, self._cursor.subscription
        assert cursor.phase is CursorPhase.CATCHING_UP, "an excluded cursor is not live"
        self.is_excluded = self.is_in_effect = False
        is_started = isinstance(cursor.start, Started)
        if is_started and subscription.merged > max(self._excluded_after, self._merged):
            self._skipped_up_to = subscription.merged
        cursor.catch_up.stop()
        cursor.catch_up.forget_top()
        subscription.note_change()
        subscription.stalls.note(cursor.pubend)

    def pubend_ended(self) -> None:
        """The pubend is a tombstone: nothing of it can be merged any more (RS-34)."""
        self.is_excluded = self.is_in_effect = False
        self._skipped_up_to = 0

    # --- the skipped range ---------------------------------------------------------------------

    @property
    def is_skipped_range_ahead(self) -> bool:
        """Whether the cursor has not passed the skipped range.

        The position may be one below the end of the range if the client received an event of
        another pubend at that tick: the event of this pubend at the tick follows it or was sent
        before.
        """
        return self._cursor.position < self._skipped_up_to - 1

    def suspect(self, returned_at: Tick) -> None:
        """Skip a range if the client's position is older than the PHB's return and below what it
        merged.

        Then the merge may have continued without the pubend at another broker.
        """
        cursor, merged = self._cursor, self._cursor.subscription.merged
        if cursor.position < min(returned_at, merged - 1):
            if not self.is_skipped_range_ahead:
                self._excluded_after, self._merged, self._skipped_up_to = cursor.position, 0, 0
            self._skipped_up_to = max(self._skipped_up_to, merged)
            cursor.subscription.note_change()

    def up_to_skipped_range(self, high: Tick) -> Tick:
        """Return the tick up to which to read: not into the skipped range."""
        return min(high, self._excluded_after) if self.is_skipped_range_ahead else high

    def skip_range(self) -> None:
        """Continue above the skipped range, with a gap, if the cursor has reached it."""
        cursor = self._cursor
        if self.is_skipped_range_ahead and cursor.position >= self._excluded_after:
            cursor.add_gap(cursor.position + 1, self._skipped_up_to)
            cursor.pass_up_to(self._skipped_up_to)
            cursor.subscription.mark_dirty()

    def repositioned(self, tick: Tick) -> None:
        """A seek has moved the cursor: forget the skipped range, which may be delivered again."""
        self._skipped_up_to = 0
        if self.is_excluded:
            self._excluded_after, self._merged = tick, 0
            if self._cursor.subscription.client is not None:
                self.is_in_effect = False
                self._store()
