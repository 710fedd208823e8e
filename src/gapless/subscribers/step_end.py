"""The end of a step: waiting cursors, the subscriptions to review, and the paused clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Context
from gapless.subscribers.cursor_starts import offer_horizon

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["StepEnd"]


class StepEnd:
    """Subscriptions that a step has touched, in order, and the paused clients."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.touched: dict[str, HostedSubscription] = {}
        """The subscriptions to review when the step ends."""
        self._waiting: dict[Cursor, None] = {}
        """Cursors that have begun to wait until their stream serves a filter."""
        self._full: set[str] = set()
        """Paused clients: their connections are full, and their events wait in the buffers."""

    def mark(self, subscription: HostedSubscription) -> None:
        """Review a subscription when the step ends."""
        self.touched[subscription.name] = subscription

    def note_waiting(self, cursor: Cursor) -> None:
        """Start a cursor, or switch its filter, when the step ends if its stream serves it."""
        self._waiting[cursor] = None

    def flush(self) -> None:
        """Send the results of the step."""
        while self.touched or self._waiting:
            waiting, self._waiting = self._waiting, {}
            for cursor in waiting:
                offer_horizon(cursor)
            touched, self.touched = self.touched, {}
            for subscription in touched.values():
                if not subscription.ended:
                    subscription.step_ended()

    # --- paused clients ------------------------------------------------------------------------

    def takes_more(self, client: str) -> bool:
        """Return whether a client is not paused."""
        return client not in self._full

    def pause_client(self, client: str) -> None:
        """Send a client no events until it has read its pending data, whatever credit it gave."""
        self._context.mark("client paused")
        self._full.add(client)

    def resume_client(self, client: str) -> bool:
        """End the pause of a client that reads again or left. Return whether it was paused."""
        was_full = client in self._full
        self._full.discard(client)
        return was_full
