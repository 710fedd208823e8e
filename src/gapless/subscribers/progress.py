"""How far the streams of a subscription are in which nothing comes for its client.

A client resumes from what it has received. Where nothing matches for long, that would stay behind until
the log has released it, and a client that comes back would be told of a gap in which nothing was. So the
client is told now and then up to which tick it was sent everything: it continues from there.

The client of a durable subscription acknowledges that like an event. Until it has, the log is kept for
it: its broker may die with the notice, and then nobody else knows that nothing was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.core.limits import PROGRESS_STREAMS_MAX
from gapless.core.machine import Timer
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import Progress

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["ProgressNotifier"]


class ProgressNotifier:
    """Tells the client of one subscription how far its quiet streams are."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self._step_end = subscription.resources.step_end
        self._timer: Timer | None = None
        self._seen: dict[PubendId, Tick] = {}
        """The tick of the last event that the client was sent, at the last look."""
        self._noted: dict[PubendId, Tick] = {}
        """The tick up to which the client was told that it was sent everything."""

    def start(self) -> None:
        """There is a client, and its request was answered."""
        if self._timer is None:
            self._wait()

    def forget_client(self) -> None:
        """The client is gone; the next one says where it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seen.clear()
        self._noted.clear()

    def noted(self, pubend: PubendId) -> Tick:
        """Return up to which tick the client was told that it was sent everything; 0 if it was not."""
        return self._noted.get(pubend, 0)

    def _wait(self) -> None:
        pause = microseconds(ms=self._context.parameters.progress_ms)
        self._timer = self._context.call_later(pause, self._look)

    def _look(self) -> None:
        self._timer = None
        subscription = self._subscription
        client = subscription.client
        if client is None or subscription.ended:
            return
        self._wait()
        if subscription.reply.is_pending or not self._step_end.takes_more(client):
            return
        updates = self._updates()
        for first in range(0, len(updates), PROGRESS_STREAMS_MAX):
            part = tuple(updates[first : first + PROGRESS_STREAMS_MAX])
            self._context.notify(client, Progress(subscription.name, part))

    def _updates(self) -> list[tuple[PubendId, Tick]]:
        """Return the streams of which no event came since the last look, and that advanced."""
        found = []
        for pubend, cursor in self._subscription.cursors.items():
            if not cursor.start_confirmed:
                continue
            is_quiet = self._seen.get(pubend) == cursor.last_sent
            self._seen[pubend] = cursor.last_sent
            sent_up_to = cursor.sent_up_to
            if is_quiet and sent_up_to > cursor.last_sent and sent_up_to != self._noted.get(pubend):
                self._noted[pubend] = sent_up_to
                found.append((pubend, sent_up_to))
        return found
