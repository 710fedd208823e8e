"""What a subscription sends to its client: events for which the client gave credit, and gaps (R48, R50).

What there is no credit for waits in the buffers of the cursors, which are bounded. In publisher order each
cursor is sent as it comes, by turns. Total order is in :mod:`.merge`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Delivery, Gap, Order
from gapless.messages.streams import Publication
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import FOREVER

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["ClientDelivery", "DeliveryRun", "DeliveryRuns"]

DeliveryRun: TypeAlias = tuple[PubendId, tuple[Publication, ...]]


class DeliveryRuns:
    """Collects events in the order in which they are to be sent: a run costs, an event hardly does."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[PubendId, list[Publication]]] = []

    def add(self, pubend: PubendId, publications: list[Publication]) -> None:
        """Append events of a pubend; the list must not be used elsewhere from now on."""
        if self._runs and self._runs[-1][0] == pubend:
            self._runs[-1][1].extend(publications)
        else:
            self._runs.append((pubend, publications))

    def take(self, most: int) -> Iterator[tuple[DeliveryRun, ...]]:
        """Take all that was collected, in parts of at most so many events."""
        runs, self._runs = self._runs, []
        part: list[DeliveryRun] = []
        room = most
        for pubend, publications in runs:
            taken = 0
            while taken < len(publications):
                if not room:
                    yield tuple(part)
                    part, room = [], most
                more = tuple(publications[taken : taken + room])
                part.append((pubend, more))
                taken += len(more)
                room -= len(more)
        if part:
            yield tuple(part)


class ClientDelivery:
    """The events of one subscription on their way to its client."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        resources = subscription.resources
        self._context = resources.context
        self._step_end = resources.step_end
        self._slow_consumers = resources.slow_consumers
        self.credit = 0
        """How many events the client accepts now."""
        self._best_effort: deque[tuple[PubendId, Publication]] = deque()
        """Best-effort events that wait for credit."""
        self._turn = 0
        """Counts turns: whose is first to be sent changes."""

    @property
    def best_effort_waiting(self) -> int:
        """How many best-effort events wait for credit."""
        return len(self._best_effort)

    def add_credit(self, events: int) -> None:
        """The client accepts more events."""
        self.credit += events

    def connect(self, credit: int) -> None:
        """There is a client, which accepts some events."""
        self.credit = credit

    def forget_client(self) -> None:
        """The client is gone."""
        self.credit = 0
        self._best_effort.clear()

    def take_best_effort(self, pubend: PubendId, publications: list[Publication]) -> None:
        """Let best-effort events wait for credit, as many as there is room for (R33)."""
        room = self._context.parameters.prefetch_max - len(self._best_effort)
        if room < len(publications):
            self._context.mark("best effort dropped")
        self._best_effort.extend((pubend, each) for each in publications[: max(0, room)])
        self._subscription.mark_dirty()

    # --- sending -------------------------------------------------------------------------------

    def send_available(self) -> None:
        """Send what there is credit for, in order, and let the cursors read on.

        Nothing is sent before the client's request is answered. In total order this matters for more
        than tidiness: what was merged before all cursors have started would lock the late ones out.
        """
        subscription = self._subscription
        client = subscription.client
        if client is None:
            return
        if (
            subscription.stalls.noted
        ):  # that the merge excludes a stream is told before what follows
            subscription.stalls.review()
        is_merged = subscription.order is Order.TOTAL
        if subscription.reply.pending is None and self._step_end.takes_more(client):
            runs = DeliveryRuns()
            if is_merged:
                subscription.merge.drain(runs)
            else:
                self._drain_in_turn(runs)
            while self._best_effort and self.credit > 0:
                pubend, publication = self._best_effort.popleft()
                runs.add(pubend, [publication])
                self.credit -= 1
            self._send(runs)
        for cursor in subscription.cursors.values():
            if cursor.reads_log:
                cursor.catch_up.continue_reading()
        if is_merged:
            subscription.merge.watch()

    def _send(self, runs: DeliveryRuns) -> None:
        for part in runs.take(self._context.parameters.frame_events_max):
            self._subscription.notify(Delivery(self._subscription.name, part))

    def _drain_in_turn(self, runs: DeliveryRuns) -> None:
        """Send of each cursor its share, so that a busy stream does not take all credit."""
        # of a stream nothing comes before its start is confirmed: the client has no position there
        cursors = self._subscription.cursors.values()
        waiting = [cursor for cursor in cursors if cursor.buffer and cursor.start_confirmed]
        first = self._turn % len(waiting) if waiting else 0
        ring = deque(waiting[first:] + waiting[:first])
        while ring:
            cursor = ring.popleft()
            share = min(self.credit, max(1, self.credit // (len(ring) + 1)))
            if self.drain_cursor(cursor, share, runs, FOREVER):
                self._turn += 1
                if cursor.buffer:
                    ring.append(cursor)

    def drain_cursor(self, cursor: Cursor, most: int, runs: DeliveryRuns, up_to: Tick) -> bool:
        """Send at most so many events of a cursor, or a gap; return whether there was anything."""
        events = cursor.take_events(most, up_to)
        if events:
            self._subscription.merge.note_sent(events[-1].tick)
            self.credit -= len(events)
            runs.add(cursor.pubend, events)
            return True
        gap = cursor.take_gap(up_to)
        if gap is not None:
            self._send(runs)
            notice = Gap(self._subscription.name, cursor.pubend, gap.low, gap.high)
            self._subscription.notify(notice)
        return gap is not None

    def too_slow(self, cursor: Cursor) -> None:
        """A buffer is full: what is in it is read from the log later (R48)."""
        subscription = self._subscription
        waits_for_broker = subscription.reply.is_pending or (
            subscription.order is Order.TOTAL and self.credit > 0
        )
        self._context.mark("slow subscriber reads the log")
        cursor.rewind()
        if not subscription.durable and not waits_for_broker:
            self._slow_consumers.fell_behind(subscription)
