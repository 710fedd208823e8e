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
from gapless.messages.records import DriftRecord
from gapless.subscribers.cursor_state import State

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Strand

__all__ = ["Drifting"]


class Drifting:
    """Whether a strand is adrift, and what came too late for it."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self.is_adrift = False
        """Whether its pubend is abandoned, or was until it has a client again."""
        self.is_passed_by = False
        """Whether the others go on without it: that it is adrift is on disk, where that matters."""
        self._stood_at: Tick = 0
        """Up to where it had taken everything when the others went on."""
        self._merged: Tick = 0
        """What was merged then; 0 if its client may have been given something since."""
        self._passed: Tick = 0
        """Up to where they went on, above where it stood; 0 if they did not, or still do."""
        self._count = 0
        """Counts how often it was cast off: an older write says nothing of now."""

    def record(self) -> DriftRecord | None:
        """Return what is to be on disk, if anything is."""
        if not self.is_adrift and self._passed <= self._strand.acked:
            return None
        return DriftRecord(self._strand.pubend, self._stood_at, self._merged, self._passed)

    def restore(self, record: DriftRecord) -> None:
        """Take over what was on disk."""
        self._stood_at, self._merged, self._passed = record.stood_at, record.merged, record.passed
        self.is_adrift = self.is_passed_by = record.passed == 0

    # --- adrift --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let the others go on without it; a durable one when that is on disk."""
        strand, subscription = self._strand, self._strand.subscription
        if subscription.order is not Order.TOTAL or strand.state is State.WAITING:
            return
        subscription.stalls.note(strand.pubend)
        is_away = subscription.client is None
        went_on = self._passed > strand.acked or (self.is_adrift and not self._merged)
        if self.is_adrift and (is_away or (went_on and strand.position >= self._stood_at)):
            return
        if strand.is_live:
            strand.leave_live()
            strand.switch_now()
        strand.catch_up.stop()
        self.is_adrift, self.is_passed_by, self._passed = True, False, 0
        if not went_on:
            # who is given nothing has merged nothing; one who comes back may be given it again
            self._stood_at = strand.acked if is_away else strand.position
            self._merged = subscription.merged if is_away else 0
        else:
            # what came too late before still does, for one who has forgotten that it was told
            self._merged = 0
            if not is_away:
                self._stood_at = min(self._stood_at, strand.position)
        self._store()

    def _store(self) -> None:
        subscription = self._strand.subscription
        self._count += 1
        count = self._count

        def stored() -> None:
            self.is_passed_by = self.is_adrift and self._count == count
            subscription.host.touch(subscription)

        if subscription.durable and self._strand.base is not None:
            subscription.host.save(subscription, stored)
        else:
            stored()  # where it has not begun, it begins above what was merged

    def end(self) -> None:
        """Its pubend is back, and it has a client: go on, above what was merged without it (R51)."""
        strand, subscription = self._strand, self._strand.subscription
        assert strand.state is State.CATCHING, "it has left the live stream"
        self.is_adrift = self.is_passed_by = False
        if strand.base is not None and subscription.merged > max(self._stood_at, self._merged):
            self._passed = subscription.merged
        strand.catch_up.stop()
        strand.catch_up.forget_top()
        subscription.dirty = True
        subscription.stalls.note(strand.pubend)

    # --- the hole ------------------------------------------------------------------------------

    @property
    def is_hole_ahead(self) -> bool:
        """Whether the strand has not passed its hole.

        Who was given an event of another pubend at the hole's last tick may stand one below: in total order what
        this one has at that tick comes after it, or has come.
        """
        return self._strand.position < self._passed - 1

    def suspect(self, back_at: Tick) -> None:
        """Its client has placed it: if that is from before its broker was back, and below what the client has
        merged, others may have gone on without it elsewhere.
        """
        strand, merged = self._strand, self._strand.subscription.merged
        if strand.position < min(back_at, merged - 1):
            if not self.is_hole_ahead:
                self._stood_at, self._merged, self._passed = strand.position, 0, 0
            self._passed = max(self._passed, merged)
            strand.subscription.dirty = True

    def up_to_hole(self, high: Tick) -> Tick:
        """Return up to where to read."""
        return min(high, self._stood_at) if self.is_hole_ahead else high

    def step_over_hole(self) -> None:
        """Go on behind the hole if the strand has come to it."""
        strand = self._strand
        if self.is_hole_ahead and strand.position >= self._stood_at:
            strand.lose(strand.position + 1, self._passed)
            strand.position = self._passed
            strand.subscription.host.touch(strand.subscription)

    def sought(self, tick: Tick) -> None:
        """It goes on elsewhere on purpose: what comes again from there is not too late."""
        self._passed = 0
        if self.is_adrift:
            self._stood_at, self._merged = tick, 0
            if self._strand.subscription.client is not None:
                self.is_passed_by = False
                self._store()
