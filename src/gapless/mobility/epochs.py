"""Subscription epochs: which of several brokers with a subscription has it now (MV-14, MV-16).

Every attempt of a client to continue at another broker counts as an epoch, so that a broker that the
client has left does not win over its hosting broker. The hosting reference of a client names the broker
that answered last: only that broker may continue with what it has. Everywhere else what the client brings
counts.
"""

from __future__ import annotations

from gapless.content.filter import Filter
from gapless.core.ids import BrokerId
from gapless.messages.clients import HostingReference, Subscribe
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["is_behind", "is_outdated"]


def is_behind(found: HostedSubscription, reference: HostingReference, here: BrokerId) -> bool:
    """Say whether a client may have continued elsewhere since it left a subscription of this broker."""
    return found.epoch < reference.epoch or (
        found.epoch == reference.epoch and reference.broker != here
    )


def is_outdated(found: HostedSubscription, call: Subscribe, wanted: Filter, here: BrokerId) -> bool:
    """Say whether a subscription of this broker has filters from before its client continued elsewhere."""
    if call.hosting is None or not is_behind(found, call.hosting, here):
        return False
    if call.hosting.broker == here:
        return False  # it was answered nowhere else since
    texts = [each.filter for each in call.past_filters]
    return found.newest.filter != wanted or texts != [each.text for each in found.segments[:-1]]
