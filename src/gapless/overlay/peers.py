"""The interface of the peer sessions for other components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gapless.core.ids import BrokerId

__all__ = ["Peers"]


class Peers(Protocol):
    """The peer sessions, as other components see them."""

    def is_open(self, peer: BrokerId) -> bool:
        """Return whether messages to the peer are sent now."""

    def is_direct(self, peer: BrokerId) -> bool:
        """Return whether messages to the peer use the link to it."""

    def open_peers(self) -> list[BrokerId]:
        """Return the peers with an open session, nearest cells first."""

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        """Return those of the brokers with an open session."""

    def route(self, peer: BrokerId) -> tuple[BrokerId, ...]:
        """Return the relays on the route to a peer, without the two ends."""

    def incarnation_of(self, peer: BrokerId) -> int:
        """Return the incarnation of the peer of an open session."""

    def clock_view(self) -> int:
        """Return the clock of this broker, limited by the clocks of its peers."""
