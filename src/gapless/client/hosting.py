"""The hosting reference of a durable subscription, as its client knows it (MV-13)."""

from __future__ import annotations

from gapless.messages.clients import HostingReference

__all__ = ["ClientHosting"]


class ClientHosting:
    """The hosting reference that a client presents, and whether this client has moved the subscription."""

    def __init__(self) -> None:
        self.reference: HostingReference | None = None
        """None until a broker has named one; a subscription that is not durable has none."""
        self._has_moved = False

    def confirmed(self, reference: HostingReference | None) -> None:
        """The reply to Subscribe has named the reference."""
        self.reference = reference

    def requested_at(self, broker: str) -> None:
        """The subscription is requested at a broker: at another one than before, the epoch rises."""
        if self.reference is not None and broker != self.reference.broker:
            self.reference = self.reference.next_epoch()
            self._has_moved = True

    def follow(self, newer: HostingReference) -> bool:
        """A broker has named a newer reference; return whether this client may subscribe with the next.

        The subscription had moved before, and the reply that said so was lost. The knowledge of this
        client is newer than what was taken along then. The broker that replied last stays in the
        reference, because only that broker knows what this client was told. The client's own attempts
        raise the epoch one by one. A greater step shows that another program has moved the
        subscription. Then the program that came last has it: one that has not moved it yet.
        """
        last = newer if self.reference is None else self.reference
        if self._has_moved and newer.epoch > last.epoch + 1:
            return False
        self._has_moved = True
        self.reference = HostingReference(newer.incarnation_key, newer.epoch + 1, last.broker)
        return True
