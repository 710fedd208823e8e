"""Filters of subscriptions, as the pieces of time in which each governs (R47)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.content.filter import Filter
from gapless.core.ids import PubendId, VirtualTime
from gapless.messages.clients import HostTime

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["FilterSegment"]


class FilterSegment:
    """One filter of a subscription; where it begins and ends is said by the strands."""

    __slots__ = (
        "filter",
        "former_host_times",
        "may_match",
        "number",
        "required_from",
        "start",
        "subscription",
        "text",
    )

    def __init__(self, subscription: HostedSubscription, number: int, wanted: Filter) -> None:
        self.subscription = subscription
        self.number = number
        """Its name as an owner in the leaf table, and as a key in the matching index."""
        self.filter = wanted
        self.text = str(wanted)
        self.may_match: dict[PubendId, bool] = {}
        """Which announced pubends could have something that matches, as far as that was asked."""
        self.start: VirtualTime | None = None
        """From which virtual time the live stream can be trusted; None while it is in no table."""
        self.required_from: VirtualTime | None = None
        """From which virtual time a durable subscription is owed events, also while its client is
        away; what its record says."""
        self.former_host_times: tuple[HostTime, ...] = ()
        """When hosts had it where the subscription lived before; it was owed events then too (R46)."""

    def is_served_at(self, time: VirtualTime | None) -> bool:
        """Say whether a stream that serves this host up to a virtual time serves the segment."""
        return time is not None and self.start is not None and self.start <= time
