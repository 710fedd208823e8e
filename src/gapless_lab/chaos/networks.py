"""The network between brokers, which can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from gapless.core.ids import BrokerId
from gapless.runtime.broker_process import ProcessPlacement
from gapless.runtime.overlay_config import OverlayConfig

__all__ = ["BreakableNetwork", "ChaosNetworkKind"]


class ChaosNetworkKind(Enum):
    """The kinds of networks."""

    AUTO = "auto"
    """Namespaces if they are allowed, else proxies."""
    NAMESPACES = "namespaces"
    PROXIES = "proxies"


class BreakableNetwork(ProcessPlacement, Protocol):
    """A network that can be cut between any two brokers, in each direction by itself.

    A cut is silent: neither end is notified, and the data sent into it arrives after the heal if
    both ends still have the connection.
    """

    async def start(self, overlay: OverlayConfig) -> OverlayConfig:
        """Create the network; return the overlay with the addresses at which brokers listen."""

    async def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Cut the direction from the first of each pair to the second."""

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Heal the directions."""

    async def stop(self) -> None:
        """Remove the network."""
