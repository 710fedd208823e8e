"""Progress notices: up to which tick a client was sent everything of a stream without matching
events.

A client resumes from the position that it has received. If no event matches for long, the log
releases that position, and a returning client would be sent a gap that contained no event. So the
client is sent, every ``progress_ms``, the tick up to which it was sent everything, and resumes from
there.

The client of a durable subscription acknowledges the notice like an event. Until then the log is
kept for it: if its SHB dies, no other broker knows that the range had no matching event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Timer
from gapless.core.ids import PubendId
from gapless.core.limits import PROGRESS_STREAMS_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import Progress

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["ProgressNotifier"]


class ProgressNotifier:
    """Sends the progress notices of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self._step_end = subscription.resources.step_end
        self._timer: Timer | None = None
        self._seen: dict[PubendId, Tick] = {}
        """The tick of the last event that the client was sent, at the last check."""
        self._noted: dict[PubendId, Tick] = {}
        """The tick of the last progress notice."""

    def start(self) -> None:
        """Start the timer: the request of a client was answered."""
        if self._timer is None:
            self._wait()

    def forget_client(self) -> None:
        """The client has disconnected; the next one brings its own position."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seen.clear()
        self._noted.clear()

    def noted(self, pubend: PubendId) -> Tick:
        """Return the tick of the last progress notice; 0 if there was none."""
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
        """Return the streams that advanced without an event since the last check."""
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
