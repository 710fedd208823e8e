"""The interfaces that moves and searches use: subscriptions, their filters, claims, retirements."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from gapless.core.ids import PubendId, ShbId
from gapless.messages.mobility import Superseded
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.protocols import Interest
from gapless.subscribers.subscription import HostedSubscription

__all__ = [
    "AwayBrokers",
    "ConnectedClients",
    "CorruptNames",
    "HostedSubscriptions",
    "KnownClaims",
    "StartFilters",
    "SubscriptionsByName",
]


class HostedSubscriptions(Protocol):
    """The subscriptions of this broker."""

    def durable(self) -> list[HostedSubscription]:
        """Return the durable subscriptions."""

    def disconnect(self, subscription: HostedSubscription) -> None:
        """Disconnect a subscription from its client, or end it if it is not durable (R50)."""

    def end(self, subscription: HostedSubscription) -> None:
        """End a subscription, also on disk."""


class CorruptNames(Protocol):
    """The durable subscriptions of this broker whose records are corrupt (P8)."""

    @property
    def names(self) -> Collection[str]:
        """Their names."""


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


class AwayBrokers(Protocol):
    """The brokers that were retired and have not returned (R26)."""

    def is_away(self, shb: ShbId) -> bool:
        """Return whether a broker was retired, however long ago, and has not returned."""


class KnownClaims(Protocol):
    """The claims of hosting brokers that this broker knows."""

    def claim_of(self, incarnation_key: str) -> Superseded | None:
        """Return the newest known claim of a subscription."""


class SubscriptionsByName(Protocol):
    """The durable subscriptions of this broker."""

    def durable_named(self, name: str) -> HostedSubscription | None:
        """Return the durable subscription of a name, or None."""

    def durable(self) -> list[HostedSubscription]:
        """Return the durable subscriptions."""


class ConnectedClients(Protocol):
    """The clients of this broker."""

    def is_connected(self, client: str) -> bool:
        """Return whether a client is connected."""
