"""What a pubend asks of its surroundings: the router, the reports, the tables and the sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.ticks import Tick
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange

__all__ = ["AckRequests", "Claim", "Claims", "ClockView", "Outlet"]

Claim: TypeAlias = Callable[[ShbId], VectorEntry | None]
"""What the tables at this broker claim of an SHB for one pubend."""


class Outlet(Protocol):
    """Where a pubend's knowledge goes: the router of its broker."""

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        """Take a range above all before; ``opened`` is the stream epoch that begins with it."""

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return what is in memory between two ticks, from the low one up to the first gap."""

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """The log no longer has ticks up to this one; it still has these stream epochs."""


class AckRequests(Protocol):
    """Asks for acknowledgements: the reports of this broker."""

    def request_acks(self, pubend: PubendId, tick: Tick, *, pressure: bool) -> None:
        """Ask members that have not acknowledged up to a tick to look for their gaps (R57, R58)."""


class Claims(Protocol):
    """What subscription tables claim of SHBs: the table store of this broker."""

    def claim(self, shb: ShbId, pubend: PubendId, version: int) -> VectorEntry | None:
        """Return what the tables that know an announcement version claim of an SHB (R31)."""


class ClockView(Protocol):
    """The clocks around: the peer sessions of this broker."""

    def clock_view(self) -> int:
        """Return the median of this broker's clock and those of its peers (R27)."""
