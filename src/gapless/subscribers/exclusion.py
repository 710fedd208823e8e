"""Merge exclusion: in total order the merge continues without a pubend whose PHB was retired (R26, R51).

While its pubend is abandoned a cursor is *excluded*. It takes nothing, because what is still under way
may lie below what the merge has reached, and the others are merged as if it were not there. When the
pubend is back, what it has between where the cursor stood and what was merged comes too late. This
*skipped range* is told to the client as a gap.

For a durable subscription all this is stored: that its cursor is excluded before the client gets
anything beyond, and the skipped range until the client has acknowledged what lies above it. If a client
that forgot events comes back, what lies below the skipped range is delivered again as always.
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
    """Whether one cursor is excluded from the merge, and what came too late for it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.is_excluded = False
        """Whether its pubend is abandoned, or was until it has a client again."""
        self.is_in_effect = False
        """Whether the merge continues without it: that it is excluded is stored, if it is durable."""
        self._excluded_after: Tick = 0
        """Up to this tick it had taken everything when the merge continued without it."""
        self._merged: Tick = 0
        """What was merged then; 0 if its client may have got something since."""
        self._skipped_up_to: Tick = 0
        """The end of the skipped range; 0 if nothing was skipped, or it is still excluded."""
        self._count = 0
        """Counts exclusions: the write of an older one says nothing of now."""

    def record(self) -> MergeExclusionRecord | None:
        """Return what is to be stored, if anything is."""
        if not self.is_excluded and self._skipped_up_to <= self._cursor.start.acked:
            return None
        return MergeExclusionRecord(
            self._cursor.pubend, self._excluded_after, self._merged, self._skipped_up_to
        )

    def restore(self, record: MergeExclusionRecord) -> None:
        """Take over what was stored."""
        self._excluded_after, self._merged, self._skipped_up_to = (
            record.excluded_after,
            record.merged,
            record.skipped_up_to,
        )
        self.is_excluded = self.is_in_effect = record.skipped_up_to == 0

    # --- excluded ------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the merge continue without the cursor; a durable one when that is stored."""
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
            # a client that gets nothing has merged nothing; one that comes back may get it again
            self._excluded_after = cursor.start.acked if is_disconnected else cursor.position
            self._merged = subscription.merged if is_disconnected else 0
        else:
            # what came too late before still does, for a client that forgot the gap
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
            stored()  # where it has not started, it starts above what was merged

    def end(self) -> None:
        """The pubend is back, and there is a client: continue above what was merged (R51)."""
        cursor, subscription = self._cursor, self._cursor.subscription
        assert cursor.phase is CursorPhase.CATCHING_UP, "it has left the live stream"
        self.is_excluded = self.is_in_effect = False
        is_started = isinstance(cursor.start, Started)
        if is_started and subscription.merged > max(self._excluded_after, self._merged):
            self._skipped_up_to = subscription.merged
        cursor.catch_up.stop()
        cursor.catch_up.forget_top()
        subscription.note_change()
        subscription.stalls.note(cursor.pubend)

    # --- the skipped range ---------------------------------------------------------------------

    @property
    def is_skipped_range_ahead(self) -> bool:
        """Whether the cursor has not passed the skipped range.

        A client that got an event of another pubend at the last tick of the range may stand one below:
        in total order what this pubend has at that tick comes after it, or has come.
        """
        return self._cursor.position < self._skipped_up_to - 1

    def suspect(self, returned_at: Tick) -> None:
        """The client has named a position: if it is from before the PHB returned, and below what the
        client has merged, a merge elsewhere may have continued without the pubend.
        """
        cursor, merged = self._cursor, self._cursor.subscription.merged
        if cursor.position < min(returned_at, merged - 1):
            if not self.is_skipped_range_ahead:
                self._excluded_after, self._merged, self._skipped_up_to = cursor.position, 0, 0
            self._skipped_up_to = max(self._skipped_up_to, merged)
            cursor.subscription.note_change()

    def up_to_skipped_range(self, high: Tick) -> Tick:
        """Return up to which tick to read."""
        return min(high, self._excluded_after) if self.is_skipped_range_ahead else high

    def skip_range(self) -> None:
        """Continue above the skipped range if the cursor has come to it."""
        cursor = self._cursor
        if self.is_skipped_range_ahead and cursor.position >= self._excluded_after:
            cursor.add_gap(cursor.position + 1, self._skipped_up_to)
            cursor.pass_up_to(self._skipped_up_to)
            cursor.subscription.mark_dirty()

    def repositioned(self, tick: Tick) -> None:
        """The cursor continues elsewhere on purpose: what comes again from there is not too late."""
        self._skipped_up_to = 0
        if self.is_excluded:
            self._excluded_after, self._merged = tick, 0
            if self._cursor.subscription.client is not None:
                self.is_in_effect = False
                self._store()
