"""The hosting reference of a durable subscription, as its client knows it (MV-13)."""

from __future__ import annotations

from gapless.core.numbers import next_epoch
from gapless.messages.clients import HostingReference

__all__ = ["ClientHosting"]


class ClientHosting:
    """The reference that a client presents, and whether this client has moved the subscription."""

    def __init__(self) -> None:
        self.reference: HostingReference | None = None
        """None until a broker has sent one; a subscription that is not durable has none."""
        self._has_moved = False

    def confirmed(self, reference: HostingReference | None) -> None:
        """The reply to Subscribe has brought the reference."""
        self.reference = reference

    def requested_at(self, broker: str) -> None:
        """The client subscribes at a broker: if it is another one than before, the epoch rises."""
        if self.reference is not None and broker != self.reference.broker:
            self.reference = self.reference.next_epoch()
            self._has_moved = True

    def follow(self, newer: HostingReference) -> bool:
        """Take a newer reference; return whether this client may subscribe with the next epoch.

        The subscription had moved before, and the reply that confirmed it was lost. This client
        knows more than the resume state that it presented then. The broker that replied last stays
        in the reference, because only that broker knows what was confirmed to this client. The
        client's own attempts raise the epoch by one each. A greater step shows that another program
        has moved the subscription. Then the program that subscribed last keeps it: one that has not
        moved it yet.
        """
        last = newer if self.reference is None else self.reference
        if self._has_moved and newer.epoch > last.epoch + 1:
            return False
        self._has_moved = True
        self.reference = HostingReference(
            newer.incarnation_key, next_epoch(newer.epoch), last.broker
        )
        return True
