"""The interfaces that moves use: the subscriptions of this broker and their filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gapless.core.ids import PubendId
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.protocols import Interest
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["HostedSubscriptions", "StartFilters"]


class HostedSubscriptions(Protocol):
    """The subscriptions of this broker."""

    def durable(self) -> list[HostedSubscription]:
        """Return the durable subscriptions."""

    def disconnect(self, subscription: HostedSubscription) -> None:
        """Disconnect a subscription from its client, or end it if it is not durable (R50)."""

    def end(self, subscription: HostedSubscription) -> None:
        """End a subscription, also on disk."""


class StartFilters(Protocol):
    """The filters of this broker, and the pubends that they may match."""

    @property
    def interest(self) -> Interest:
        """The leaf table of this broker."""

    @property
    def announced_pubends(self) -> Iterable[PubendId]:
        """The pubends that are announced to this broker."""

    def may_start(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Return whether a segment may match events of an announced pubend with a log."""
