"""Notices that a pubend is closed (RS-32).

The notice is the last item of a stream, after everything up to the last tick L. The client of a
durable subscription acknowledges it by L + 1, and that is stored. A client that subscribes again names
the pubends of which it was notified. So a client is notified once in a connection, and again after a
reconnect only if it does not name the pubend and has not acknowledged the notice: it cannot know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.messages.clients import Closed

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["ClosedNotices"]


class ClosedNotices:
    """Sends the notices of closed pubends of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self.noted: dict[PubendId, None] = {}
        """The sealed pubends on which the subscription has a cursor."""

    def note(self, pubend: PubendId) -> None:
        """A pubend is sealed, or a tombstone; review its cursor when steps end."""
        self.noted[pubend] = None
        self._subscription.mark_dirty()

    def forget_client(self) -> None:
        """The client has disconnected; the next one is notified again unless it knows."""
        for pubend in self.noted:
            cursor = self._subscription.cursors.get(pubend)
            if cursor is not None:
                cursor.ending.forget_client()

    def review(self) -> None:
        """Send the notices that are due, and drop the cursors that are not needed any more."""
        subscription = self._subscription
        for pubend in [*self.noted]:
            cursor = subscription.cursors.get(pubend)
            if cursor is None:
                del self.noted[pubend]
                continue
            last = cursor.subend.sealed_at
            may_send = subscription.client is not None and not subscription.reply.is_pending
            if last is not None and may_send and cursor.ending.is_due:
                cursor.ending.tell()
                subscription.notify(Closed(subscription.name, pubend, last))
            if cursor.ending.is_done:
                subscription.cursor_set.drop(cursor)
                subscription.forget_position(pubend)
                subscription.note_change()
                del self.noted[pubend]
