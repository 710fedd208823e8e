"""Stall notices: streams of a subscription that are stalled because a log is corrupt.

A stalled stream waits, because an unreadable range is never skipped (P8). The other streams
continue, except in total order. In total order a client is also notified of a stream that is
excluded from the merge because its PHB was retired (R26). A client is notified once in a connection
why a stream is stalled, and again when the stream continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Stalled

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["StallNotifier"]


class StallNotifier:
    """Sends the stall notices of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self.noted: dict[PubendId, None] = {}
        """Streams to review: they are stalled, or were."""
        self._notified: dict[PubendId, tuple[str, Tick]] = {}
        """The reason that the client was sent, and the position of the cursor then."""

    def note(self, pubend: PubendId) -> None:
        """A stream has changed; review it when the step ends."""
        self.noted[pubend] = None
        self._subscription.mark_dirty()

    def forget_client(self) -> None:
        """The client has disconnected; the next one is notified again."""
        self._notified.clear()

    def review(self) -> None:
        """Send the notices that the client has not been sent, after its request was answered."""
        subscription = self._subscription
        if not self.noted or subscription.client is None or subscription.reply.is_pending:
            return
        for pubend in [*self.noted]:
            cursor = subscription.cursors.get(pubend)
            fault = "" if cursor is None else cursor.fault
            position = 0 if cursor is None else cursor.buffered_up_to
            reason, notified_at = self._notified.get(pubend, ("", 0))
            # a new read has no fault before its answer: a stall has ended only if the cursor moved
            if fault != reason and (fault or position != notified_at):
                self._notified[pubend] = (fault, position)
                excluded = cursor is not None and cursor.merge_exclusion.is_excluded
                notice = Stalled(subscription.name, pubend, fault, excluded)
                self._context.notify(subscription.client, notice)
            if not self._notified.get(pubend, ("", 0))[0] and not fault:
                self._notified.pop(pubend, None)
                del self.noted[pubend]
