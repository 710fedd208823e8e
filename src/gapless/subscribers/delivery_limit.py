"""Delivery limits: ticks beyond which a cursor sends nothing until a write is durable (I13).

A durable subscription stores the start of a cursor, and the end of a filter on it, before its
client is sent anything beyond. So the same filters apply at the same ticks after a crash.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import FOREVER

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["DeliveryLimits"]


class DeliveryLimits:
    """The delivery limits of one cursor."""

    __slots__ = ("_subscription", "_ticks", "start_stored")

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._ticks: deque[Tick] = deque()
        """One tick for each pending write, in the order of the writes."""
        self.start_stored = False
        """Whether the start is in the record of a durable subscription."""

    def __bool__(self) -> bool:
        """Return whether a write is pending."""
        return bool(self._ticks)

    @property
    def tick(self) -> Tick:
        """The tick beyond which nothing is sent."""
        return min(self._ticks, default=FOREVER)

    def until_stored(self, tick: Tick, *, started: bool = False) -> None:
        """Send nothing beyond a tick until the record of a durable subscription is on disk."""
        subscription = self._subscription
        if subscription.durable:
            self.add(tick)

            def durable() -> None:
                self.lift()
                self.start_stored |= started
                subscription.mark_dirty()

            subscription.save(durable)
        subscription.mark_dirty()

    def add(self, tick: Tick) -> None:
        """Send nothing beyond a tick until :meth:`lift`."""
        self._ticks.append(tick)

    def lift(self) -> None:
        """Remove the limit of the oldest pending write, which is durable now."""
        self._ticks.popleft()

    def restore(self) -> None:
        """The start was restored from the record."""
        self.start_stored = True
