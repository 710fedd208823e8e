"""The streams of a subscription that stand still because a log is corrupt, and what its client knows.

Such a stream waits: what cannot be read is not passed over (P8). The others continue, except in total
order. There a client is also told of a stream that the merge continues without, because its PHB was
retired (R26). The client is told once in a connection why a stream stands still, and when it continues.
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
    """Tells the client of one subscription which streams stand still."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self.noted: dict[PubendId, None] = {}
        """Streams to look at: they stand still, or did."""
        self._notified: dict[PubendId, tuple[str, Tick]] = {}
        """What the client was told, and where the cursor stood then."""

    def note(self, pubend: PubendId) -> None:
        """Something changed at a stream; look at it when the step ends."""
        self.noted[pubend] = None
        self._subscription.mark_dirty()

    def forget_client(self) -> None:
        """The client is gone; the next one knows nothing."""
        self._notified.clear()

    def review(self) -> None:
        """Tell the client what it does not know, after its request was answered."""
        subscription = self._subscription
        if not self.noted or subscription.client is None or subscription.reply.is_pending:
            return
        for pubend in [*self.noted]:
            cursor = subscription.cursors.get(pubend)
            fault = "" if cursor is None else cursor.fault
            position = 0 if cursor is None else cursor.buffered_up_to
            reason, notified_at = self._notified.get(pubend, ("", 0))
            # a new read has no fault until it is answered: only a cursor that has moved continues
            if fault != reason and (fault or position != notified_at):
                self._notified[pubend] = (fault, position)
                excluded = cursor is not None and cursor.merge_exclusion.is_excluded
                notice = Stalled(subscription.name, pubend, fault, excluded)
                self._context.notify(subscription.client, notice)
            if not self._notified.get(pubend, ("", 0))[0] and not fault:
                self._notified.pop(pubend, None)
                del self.noted[pubend]
