"""Total order: the cursors of a subscription merged by (tick, pubend) (R51).

Events are sent up to the least position of all started cursors, because no event can come below it
any more. If the merge waits for a silent stream, an AdvanceRequest is sent for its pubend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Timer
from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, StartPoint
from gapless.subscribers.cursor_state import FOREVER

if TYPE_CHECKING:
    from gapless.subscribers.delivery import DeliveryRuns
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["Merge", "merged_by_client"]


def merged_by_client(start: StartPoint, position: dict[PubendId, Tick]) -> Tick:
    """Return the tick up to which a client in total order was sent everything."""
    farthest = max(position.values(), default=0)
    return farthest if start.merged is None else min(max(start.merged, 0), farthest)


class Merge:
    """The merge of one subscription. In publisher order ``merged`` is always 0."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self._is_total = subscription.order is Order.TOTAL
        self.merged: Tick = 0
        """The tick of the last event that was sent."""
        self._advance_timer: Timer | None = None
        self._pause_us = 0

    def reset(self, merged: Tick) -> None:
        """Continue above a tick, from a record or a client's position; 0 after a seek."""
        self.merged = merged

    def note_sent(self, tick: Tick) -> None:
        """Note the tick of an event that was sent."""
        if self._is_total:
            self.merged = max(self.merged, tick)

    def drain(self, runs: DeliveryRuns) -> None:
        """Send the events that may be sent, in order."""
        subscription = self._subscription
        started = [each for each in subscription.cursors.values() if not each.is_pending]
        awaited = [each for each in started if not each.merge_exclusion.is_in_effect]
        limit = min(
            (min(each.ending.complete_up_to, each.limits.tick) for each in awaited), default=FOREVER
        )
        while ready := [cursor for cursor in started if cursor.buffer]:
            cursor = min(ready, key=lambda each: (each.buffer.next_tick, each.pubend))
            if cursor.buffer.next_tick > limit or not cursor.start_confirmed:
                return
            # all events of this cursor that lie below the first events of the other streams
            others = [each.buffer.next_tick - 1 for each in ready if each is not cursor]
            up_to = max(cursor.buffer.next_tick, min([limit, *others]))
            delivery = subscription.delivery
            if not delivery.drain_cursor(cursor, delivery.credit, runs, up_to):
                return

    # --- silent streams ------------------------------------------------------------------------

    def watch(self) -> None:
        """Set a timer for an AdvanceRequest if the merge waits for a silent stream."""
        if self._awaited() is None:
            self.stop()
        elif self._advance_timer is None:
            self._pause_us = microseconds(ms=self._context.parameters.eager_silence_ms)
            self._advance_timer = self._context.call_later(self._pause_us, self._request_advance)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._advance_timer is not None:
            self._advance_timer.cancel()
            self._advance_timer = None

    def _awaited(self) -> Tick | None:
        """Return the tick that the merge waits to send; None if it does not wait for a stream."""
        subscription = self._subscription
        heads = [each.buffer.next_tick for each in subscription.cursors.values() if each.buffer]
        if (
            not heads
            or subscription.delivery.credit <= 0
            or subscription.client is None
            or subscription.reply.is_pending
        ):
            return None
        return min(heads)

    def _request_advance(self) -> None:
        self._advance_timer = None
        tick = self._awaited()
        if tick is None:
            return
        for cursor in self._subscription.cursors.values():
            if not cursor.is_pending and cursor.ending.complete_up_to < tick:
                cursor.subend.request_advance(tick)
        longest = microseconds(ms=self._context.parameters.silence_ms)
        self._pause_us = min(2 * self._pause_us, longest)
        self._advance_timer = self._context.call_later(self._pause_us, self._request_advance)
