"""Delivery: a subscription sends its client events within the client's credit, and gaps (R48, R50).

Events without credit wait in the buffers of the cursors, which are bounded. In publisher order the
cursors take turns. Total order is in :mod:`.merge`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from gapless.core.ids import PubendId
from gapless.core.limits import SEQUENCE_MAX
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
    """Events to send, in order, as runs of one pubend: the cost is per run, not per event."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[PubendId, list[Publication]]] = []

    def add(self, pubend: PubendId, publications: list[Publication]) -> None:
        """Append events of a pubend. The caller must not use the list afterwards."""
        if self._runs and self._runs[-1][0] == pubend:
            self._runs[-1][1].extend(publications)
        else:
            self._runs.append((pubend, publications))

    def take(self, most: int) -> Iterator[tuple[DeliveryRun, ...]]:
        """Take all collected events, in parts of at most ``most`` events."""
        runs, self._runs = self._runs, []
        part: list[DeliveryRun] = []
        remaining = most
        for pubend, publications in runs:
            taken = 0
            while taken < len(publications):
                if not remaining:
                    yield tuple(part)
                    part, remaining = [], most
                more = tuple(publications[taken : taken + remaining])
                part.append((pubend, more))
                taken += len(more)
                remaining -= len(more)
        if part:
            yield tuple(part)


class ClientDelivery:
    """Sends the events of one subscription to its client."""

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
        """Counts turns, so that another cursor is first each time."""

    @property
    def best_effort_waiting(self) -> int:
        """How many best-effort events wait for credit."""
        return len(self._best_effort)

    def add_credit(self, events: int) -> None:
        """The client accepts more events."""
        self.credit = min(self.credit + events, SEQUENCE_MAX)

    def connect(self, credit: int) -> None:
        """A client has connected, with a first credit."""
        self.credit = credit

    def forget_client(self) -> None:
        """The client has disconnected."""
        self.credit = 0
        self._best_effort.clear()

    def take_best_effort(self, pubend: PubendId, publications: list[Publication]) -> None:
        """Queue best-effort events for credit, up to ``prefetch_max``; drop the rest (R33)."""
        remaining = self._context.parameters.prefetch_max - len(self._best_effort)
        if remaining < len(publications):
            self._context.mark("best effort dropped")
        self._best_effort.extend((pubend, each) for each in publications[: max(0, remaining)])
        self._subscription.mark_dirty()

    # --- sending -------------------------------------------------------------------------------

    def send_available(self) -> None:
        """Send the events for which there is credit, in order, and let the cursors continue to
        read.

        Nothing is sent before the client's request is answered. In total order this is necessary: a
        cursor that starts after events were merged could not deliver anything below them.
        """
        subscription = self._subscription
        client = subscription.client
        if client is None:
            return
        if subscription.stalls.noted:  # a merge exclusion is sent before the events that follow it
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
        """Send a share of each cursor's events, so that a busy stream does not use all credit."""
        # no events are sent before the start is confirmed: the client has no position yet
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
        """Send at most ``most`` events of a cursor, or a gap. Return whether anything was sent."""
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
        """The buffer of a cursor is full: discard it and read the log later (R48)."""
        subscription = self._subscription
        waits_for_broker = subscription.reply.is_pending or (
            subscription.order is Order.TOTAL and self.credit > 0
        )
        self._context.mark("slow subscriber reads the log")
        cursor.rewind()
        if not subscription.durable and not waits_for_broker:
            self._slow_consumers.fell_behind(subscription)
