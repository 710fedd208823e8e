"""A strand that the others go on without, in total order: its broker was retired (R26, R51).

While its pubend is abandoned a strand is *adrift*. It takes nothing, for what is still under way may lie below what
the others come to, and they are merged as if it were not there. When the pubend is back, whatever it has between
where the strand stood and what was merged comes too late: that is a *hole*, which is told as a gap.

All this is on disk for a durable subscription: that its strand is adrift before its client is told anything beyond,
and the hole until the client has acknowledged what lies behind it. What was read below the hole, because a client
that has forgotten it comes back, is delivered again as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.messages.clients import Order
from gapless.messages.records import MergeExclusionRecord
from gapless.subscribers.cursor_state import CursorPhase

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["MergeExclusion"]


class MergeExclusion:
    """Whether a strand is adrift, and what came too late for it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.is_excluded = False
        """Whether its pubend is abandoned, or was until it has a client again."""
        self.is_in_effect = False
        """Whether the others go on without it: that it is adrift is on disk, where that matters."""
        self._excluded_after: Tick = 0
        """Up to where it had taken everything when the others went on."""
        self._merged: Tick = 0
        """What was merged then; 0 if its client may have been given something since."""
        self._skipped_up_to: Tick = 0
        """Up to where they went on, above where it stood; 0 if they did not, or still do."""
        self._count = 0
        """Counts how often it was cast off: an older write says nothing of now."""

    def record(self) -> MergeExclusionRecord | None:
        """Return what is to be on disk, if anything is."""
        if not self.is_excluded and self._skipped_up_to <= self._cursor.acked:
            return None
        return MergeExclusionRecord(
            self._cursor.pubend, self._excluded_after, self._merged, self._skipped_up_to
        )

    def restore(self, record: MergeExclusionRecord) -> None:
        """Take over what was on disk."""
        self._excluded_after, self._merged, self._skipped_up_to = (
            record.excluded_after,
            record.merged,
            record.skipped_up_to,
        )
        self.is_excluded = self.is_in_effect = record.skipped_up_to == 0

    # --- adrift --------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the others go on without it; a durable one when that is on disk."""
        cursor, subscription = self._cursor, self._cursor.subscription
        if subscription.order is not Order.TOTAL or cursor.phase is CursorPhase.PENDING:
            return
        subscription.stalls.note(cursor.pubend)
        is_disconnected = subscription.client is None
        went_on = self._skipped_up_to > cursor.acked or (self.is_excluded and not self._merged)
        if self.is_excluded and (
            is_disconnected or (went_on and cursor.position >= self._excluded_after)
        ):
            return
        if cursor.is_live:
            cursor.fall_behind()
            cursor.switch_now()
        cursor.catch_up.stop()
        self.is_excluded, self.is_in_effect, self._skipped_up_to = True, False, 0
        if not went_on:
            # who is given nothing has merged nothing; one who comes back may be given it again
            self._excluded_after = cursor.acked if is_disconnected else cursor.position
            self._merged = subscription.merged if is_disconnected else 0
        else:
            # what came too late before still does, for one who has forgotten that it was told
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
            subscription.host.mark_dirty(subscription)

        if subscription.durable and self._cursor.started_after is not None:
            subscription.host.save(subscription, stored)
        else:
            stored()  # where it has not begun, it begins above what was merged

    def end(self) -> None:
        """Its pubend is back, and it has a client: go on, above what was merged without it (R51)."""
        cursor, subscription = self._cursor, self._cursor.subscription
        assert cursor.phase is CursorPhase.CATCHING_UP, "it has left the live stream"
        self.is_excluded = self.is_in_effect = False
        if cursor.started_after is not None and subscription.merged > max(
            self._excluded_after, self._merged
        ):
            self._skipped_up_to = subscription.merged
        cursor.catch_up.stop()
        cursor.catch_up.forget_top()
        subscription.dirty = True
        subscription.stalls.note(cursor.pubend)

    # --- the hole ------------------------------------------------------------------------------

    @property
    def is_skipped_range_ahead(self) -> bool:
        """Whether the strand has not passed its hole.

        Who was given an event of another pubend at the hole's last tick may stand one below: in total order what
        this one has at that tick comes after it, or has come.
        """
        return self._cursor.position < self._skipped_up_to - 1

    def suspect(self, returned_at: Tick) -> None:
        """Its client has placed it: if that is from before its broker was back, and below what the client has
        merged, others may have gone on without it elsewhere.
        """
        cursor, merged = self._cursor, self._cursor.subscription.merged
        if cursor.position < min(returned_at, merged - 1):
            if not self.is_skipped_range_ahead:
                self._excluded_after, self._merged, self._skipped_up_to = cursor.position, 0, 0
            self._skipped_up_to = max(self._skipped_up_to, merged)
            cursor.subscription.dirty = True

    def up_to_skipped_range(self, high: Tick) -> Tick:
        """Return up to where to read."""
        return min(high, self._excluded_after) if self.is_skipped_range_ahead else high

    def skip_range(self) -> None:
        """Go on behind the hole if the strand has come to it."""
        cursor = self._cursor
        if self.is_skipped_range_ahead and cursor.position >= self._excluded_after:
            cursor.add_gap(cursor.position + 1, self._skipped_up_to)
            cursor.position = self._skipped_up_to
            cursor.subscription.host.mark_dirty(cursor.subscription)

    def repositioned(self, tick: Tick) -> None:
        """It goes on elsewhere on purpose: what comes again from there is not too late."""
        self._skipped_up_to = 0
        if self.is_excluded:
            self._excluded_after, self._merged = tick, 0
            if self._cursor.subscription.client is not None:
                self.is_in_effect = False
                self._store()
