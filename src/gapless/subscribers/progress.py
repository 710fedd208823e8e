"""How far the streams of a subscription are in which nothing comes for its client.

A client resumes from what it has received. Where nothing matches for long, that would stay behind
until the log no longer has it, and who comes back would be told of a gap in which nothing was. So the
client is told now and then up to where it was sent everything: it goes on from there.

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
        self._timer: Timer | None = None
        self._seen: dict[PubendId, Tick] = {}
        """The last tick that the client was told an event of, when it was looked at last."""
        self._noted: dict[PubendId, Tick] = {}
        """How far the client was told that a stream is."""

    def start(self) -> None:
        """There is a client, and it was answered."""
        if self._timer is None:
            self._wait()

    def forget_client(self) -> None:
        """The client is gone; the next one says itself where it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seen.clear()
        self._noted.clear()

    def noted(self, pubend: PubendId) -> Tick:
        """Return how far the client was told that a quiet stream is; 0 if it was not."""
        return self._noted.get(pubend, 0)

    def _wait(self) -> None:
        context = self._subscription.host.context
        self._timer = context.call_later(
            microseconds(ms=context.parameters.progress_ms), self._look
        )

    def _look(self) -> None:
        self._timer = None
        subscription = self._subscription
        client = subscription.client
        if client is None or subscription.ended:
            return
        self._wait()
        if subscription.pending_reply is not None or not subscription.host.takes_more(client):
            return
        updates = self._updates()
        for first in range(0, len(updates), PROGRESS_STREAMS_MAX):
            part = tuple(updates[first : first + PROGRESS_STREAMS_MAX])
            subscription.host.context.notify(client, Progress(subscription.name, part))

    def _updates(self) -> list[tuple[PubendId, Tick]]:
        """Return the streams of which no event came since the last look, and that went on."""
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
