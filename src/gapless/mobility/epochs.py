"""Subscription epochs: they decide which broker hosts a subscription (MV-14, MV-16).

Every attempt of a client to continue at another broker raises the epoch, so that a broker that the
client has left does not win over the hosting broker. The hosting reference of a client contains the
broker that answered last. Only that broker may continue with its own state. Any other broker uses
the resume state of the client.
"""

from __future__ import annotations

from gapless.content.filter import Filter
from gapless.core.ids import BrokerId
from gapless.messages.clients import HostingReference, Subscribe
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["is_behind", "is_outdated"]


def is_behind(found: HostedSubscription, reference: HostingReference, here: BrokerId) -> bool:
    """Return whether the client may have used another broker since it left this one."""
    return found.epoch < reference.epoch or (
        found.epoch == reference.epoch and reference.broker != here
    )


def is_outdated(
    found: HostedSubscription, call: Subscribe, new_filter: Filter, here: BrokerId
) -> bool:
    """Return whether the client used another broker, with filters that are missing here."""
    if call.hosting is None or not is_behind(found, call.hosting, here):
        return False
    if call.hosting.broker == here:
        return False  # no other broker has answered the client since
    texts = [each.filter for each in call.past_filters]
    return found.newest.filter != new_filter or texts != [each.text for each in found.segments[:-1]]
