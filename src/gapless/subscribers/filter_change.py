"""Changes of a subscription's filter, one at a time (R47).

The client or an operator requests a change. The new filter is stored, and every cursor switches to
it where its stream serves it. A cursor that has not switched after ``filter_change_timeout_s``
switches at the horizon. Then the reply names the tick of the switch on every pubend, and the next
change begins.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gapless.content.filter import Filter
from gapless.core.context import Timer
from gapless.core.parameters import microseconds
from gapless.messages.clients import (
    FilterChanged,
    FilterSet,
    PositionTuple,
    RefusalCause,
    Refused,
)
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.filter_segments import FilterSegment

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["FilterChange", "FilterChanges"]


class FilterChange:
    """A filter change that has not taken effect on all cursors."""

    def __init__(
        self,
        request: int,
        requester: str,
        segment: FilterSegment,
        timer: Timer,
        *,
        stored: bool,
        repeated: bool,
    ) -> None:
        self.request = request
        self.requester = requester
        """The client of the subscription, or an operator."""
        self.segment = segment
        self.timer = timer
        self.stored = stored
        """Whether the new filter is in the record of a durable subscription."""
        self.repeated = repeated
        """Whether the filter was set before."""

    def note_stored(self) -> None:
        """The new filter is on disk."""
        self.stored = True


class FilterChanges:
    """The filter changes of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self._filters = subscription.resources.filters
        self.current: FilterChange | None = None
        self.queue: deque[tuple[str, int, Filter]] = deque()
        """Changes that wait for the current one: the requester, its request number, the filter."""

    def request(self, requester: str, request: int, new_filter: Filter) -> None:
        """Change the filter, now or after the changes before it, and answer the requester."""
        subscription = self._subscription
        most = self._context.parameters.segments_max
        again = new_filter == subscription.newest.filter and not self.queue
        if not again and len(subscription.segments) + len(self.queue) > most:
            reason = (
                f"{most} earlier filters still apply to unacknowledged events (segments_max); "
                "acknowledge and try again later"
                if subscription.durable
                else f"{most} filter changes are not complete yet (segments_max); try again later"
            )
            refused = Refused(request, reason, RefusalCause.UNAVAILABLE)
            self._context.notify(requester, refused)
        elif self.current is not None or not subscription.stored:
            self.queue.append((requester, request, new_filter))
        else:
            self._start(requester, request, new_filter)

    def refuse_all(self, reason: str) -> None:
        """The subscription has ended: refuse the changes that have not taken effect."""
        waiting = [(requester, request) for requester, request, _ in self.queue]
        if self.current is not None:
            waiting.insert(0, (self.current.requester, self.current.request))
            self.current.timer.cancel()
        self.current = None
        self.queue.clear()
        for requester, request in waiting:
            self._context.notify(requester, Refused(request, reason))

    def forget_client(self, client: str | None) -> None:
        """A client has disconnected: drop its changes; those of operators continue."""
        if self.current is not None and self.current.requester == client:
            self.current.timer.cancel()
            self.current = None
        self.queue = deque(each for each in self.queue if each[0] != client)

    # --- one change ----------------------------------------------------------------------------

    def _start(self, requester: str, request: int, new_filter: Filter) -> None:
        if new_filter == self._subscription.newest.filter:
            self._repeat(requester, request)
        else:
            self._change(requester, request, new_filter)

    def _repeat(self, requester: str, request: int) -> None:
        """Answer again with the ticks of the switch: the first reply may have been lost."""
        subscription = self._subscription
        newest = subscription.newest
        self.current = FilterChange(
            request,
            requester,
            newest,
            self._timer(),
            stored=not subscription.durable,
            repeated=True,
        )
        if subscription.durable:
            # after the first write, which may be pending for a client that has disconnected (I13)
            self._context.write((), lambda: self._stored(newest))
        subscription.mark_dirty()

    def _change(self, requester: str, request: int, new_filter: Filter) -> None:
        subscription = self._subscription
        # after a crash before the cursors existed, only the start in the record has their positions
        subscription.cursor_set.update_all()
        for cursor in subscription.cursors.values():
            cursor.note_earliest()
        segment = subscription.add_segment(new_filter)
        self._filters.own(segment)
        if subscription.client is None:
            self._filters.disown(segment)  # the filter of a disconnected client is in no table
        subscription.forget_start()
        self.current = FilterChange(
            request,
            requester,
            segment,
            self._timer(),
            stored=not subscription.durable,
            repeated=False,
        )
        for cursor in subscription.cursors.values():
            cursor.filter_switch.set_next(segment)
        subscription.cursor_set.update_all()
        if subscription.durable:
            subscription.save(lambda: self._stored(segment))
        subscription.mark_dirty()

    def _timer(self) -> Timer:
        wait = microseconds(s=self._context.parameters.filter_change_timeout_s)
        return self._context.call_later(wait, self._switch_by_position)

    def _stored(self, segment: FilterSegment) -> None:
        if self.current is not None and self.current.segment is segment:
            self.current.note_stored()
            self._subscription.mark_dirty()

    def _switch_by_position(self) -> None:
        """Switch the streams that do not serve the new filter yet at their horizons."""
        self._context.mark("filter switched by position")
        for cursor in self._subscription.cursors.values():
            cursor.filter_switch.switch_now(surely=True)
        self._subscription.mark_dirty()

    def finish(self) -> None:
        """Answer a change that has taken effect on all cursors, and start the next."""
        change, subscription = self.current, self._subscription
        if change is None:
            self._start_next()
            return
        started = [
            each for each in subscription.cursors.values() if isinstance(each.start, Started)
        ]
        is_switching = any(each.segments.next is not None or each.limits for each in started)
        if not change.stored or is_switching:
            return
        self.current = None
        change.timer.cancel()
        self._answer(change)
        subscription.review_segments()
        for pubend in [*subscription.cursors]:
            subscription.cursor_set.update(pubend)  # only the former filter may have needed it
        self._start_next()

    def _answer(self, change: FilterChange) -> None:
        subscription = self._subscription
        position = self._switch_position(repeated=change.repeated)
        cursors = subscription.cursors.items()
        pending = tuple(pubend for pubend, cursor in cursors if cursor.awaits_earliest)
        guarantees = subscription.guarantees.message()
        answer = FilterSet(change.request, position, pending, guarantees)
        self._context.notify(change.requester, answer)
        if subscription.client not in {change.requester, None}:
            text = subscription.newest.text
            subscription.notify(FilterChanged(subscription.name, text, position, guarantees))
        if subscription.client is not None and not subscription.reply.is_pending:
            subscription.guarantees.confirm_newest()

    def _start_next(self) -> None:
        if self.queue and self._subscription.stored and self.current is None:
            self._start(*self.queue.popleft())

    def _switch_position(self, *, repeated: bool) -> PositionTuple:
        """Return the last tick of the previous filter, by pubend.

        If it is no longer known, it is at most the acknowledged tick; a higher one would be kept.
        """
        found = []
        for pubend, cursor in self._subscription.cursors.items():
            if isinstance(cursor.start, Started):
                known = cursor.start.acked if repeated else cursor.start.after
                switched_at = cursor.segments.switched_at
                found.append((pubend, known if switched_at is None else switched_at))
        return tuple(found)
