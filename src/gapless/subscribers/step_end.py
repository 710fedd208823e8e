"""What is left to do when a step ends: the subscriptions to look at, and the clients that take no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.machine import Context

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["StepEnd"]


class StepEnd:
    """Subscriptions that a step has touched, in the order in which it did."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.touched: dict[str, HostedSubscription] = {}
        """The subscriptions to look at when the step ends. The end of a step reads it."""
        self._full: set[str] = set()
        """Clients whose connections take no more now; what is for them waits here."""

    def mark(self, subscription: HostedSubscription) -> None:
        """Look at a subscription when the step ends."""
        self.touched[subscription.name] = subscription

    def flush(self) -> None:
        """Send what the step brought."""
        while self.touched:
            touched, self.touched = self.touched, {}
            for subscription in touched.values():
                if not subscription.ended:
                    subscription.step_ended()

    # --- clients that take no more -------------------------------------------------------------

    def takes_more(self, client: str) -> bool:
        """Say whether the connection of a client can take more."""
        return client not in self._full

    def pause_client(self, client: str) -> None:
        """Send a client no events until it has read what waits for it, whatever credit it gave."""
        self._context.mark("client paused")
        self._full.add(client)

    def resume_client(self, client: str) -> bool:
        """Send to a client again, or forget one that is gone; say whether it was paused."""
        was_full = client in self._full
        self._full.discard(client)
        return was_full
