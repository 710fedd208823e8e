"""Slow consumers: subscriptions that are not durable and do not keep up (R48, P7).

No log is kept for long for a subscription that is not durable. A subscription that has to read the
log and does not catch up within ``slow_consumer_timeout_s`` is ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.messages.clients import RefusalCause, SubscriptionEnded

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["SlowConsumers"]


class SlowConsumers:
    """The slow consumers of this SHB."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._behind: dict[str, tuple[HostedSubscription, int]] = {}
        """Subscriptions that have to read the log, and since when."""
        self.due: list[HostedSubscription] = []
        """Subscriptions to end when the step ends."""

    def fell_behind(self, subscription: HostedSubscription) -> None:
        """Note that a subscription that is not durable has to read the log."""
        self._behind.setdefault(subscription.name, (subscription, self._context.now))

    def review(self) -> None:
        """Find the subscriptions that did not catch up in time."""
        limit = microseconds(s=self._context.parameters.slow_consumer_timeout_s)
        for name, (subscription, since) in [*self._behind.items()]:
            cursors = subscription.cursors.values()
            reads_log = any(
                each.reads_log and not each.merge_exclusion.is_excluded for each in cursors
            )
            if subscription.ended or not reads_log:
                del self._behind[name]
            elif self._context.now - since > limit:
                del self._behind[name]
                self.due.append(subscription)

    def take(self) -> list[HostedSubscription]:
        """Take the subscriptions to end."""
        due, self.due = self.due, []
        return due

    def notify(self, subscription: HostedSubscription, client: str) -> None:
        """Notify a client why its subscription ends."""
        self._context.mark("slow subscription ended")
        parameters = self._context.parameters
        reason = (
            f"it fell more than {parameters.prefetch_max:,} events behind and did not catch "
            f"up within {parameters.slow_consumer_timeout_s} s; read faster, or make it durable"
        )
        notice = SubscriptionEnded(subscription.name, reason, RefusalCause.SLOW_CONSUMER)
        self._context.notify(client, notice)
