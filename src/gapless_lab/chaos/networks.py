"""What lies between brokers, so that it can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from gapless.core.ids import BrokerId
from gapless.runtime.broker_process import ProcessPlacement
from gapless.runtime.overlay_config import OverlayConfig

__all__ = ["BreakableNetwork", "ChaosNetworkKind"]


class ChaosNetworkKind(Enum):
    """What can be between brokers."""

    AUTO = "auto"
    """Namespaces where they are allowed, else proxies."""
    NAMESPACES = "namespaces"
    PROXIES = "proxies"


class BreakableNetwork(ProcessPlacement, Protocol):
    """A network that can be cut between any two brokers, in each direction by itself.

    A cut is silent: nobody is told, and what was sent into it arrives when it has healed, if both
    ends still wait for it.
    """

    async def start(self, overlay: OverlayConfig) -> OverlayConfig:
        """Make the network; return the overlay with the addresses at which brokers listen."""

    async def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Let nothing through from the first of each pair to the second."""

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Let everything through again."""

    async def stop(self) -> None:
        """Leave nothing behind."""
