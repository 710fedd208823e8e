"""The interfaces that a pubend uses: the router, the reports, the tables and the peer sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.ticks import Tick
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange

__all__ = ["AckRequests", "Claim", "Claims", "ClockView", "Outlet"]

Claim: TypeAlias = Callable[[ShbId], VectorEntry | None]
"""Returns the claim of the tables at this broker for an SHB and one pubend."""


class Outlet(Protocol):
    """Forwards and caches the knowledge of a pubend: the router of its broker."""

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        """Forward a range above all earlier ones; ``opened`` is the stream epoch that it starts."""

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return the cached ranges between two ticks, from the low one up to the first gap."""

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """Note that the log is released up to a tick; these stream epochs remain."""


class AckRequests(Protocol):
    """Requests acknowledgements: the report aggregation of this broker."""

    def request_acks(self, pubend: PubendId, tick: Tick, *, pressure: bool) -> None:
        """Request acknowledgements up to a tick of the members that are behind (R57, R58)."""


class Claims(Protocol):
    """The claims of subscription tables: the table store of this broker."""

    def claim(self, shb: ShbId, pubend: PubendId, version: int) -> VectorEntry | None:
        """Return the claim for an SHB of the tables that know an announcement version (R31)."""


class ClockView(Protocol):
    """The clocks of the neighbours: the peer sessions of this broker."""

    def clock_view(self) -> int:
        """Return the median of this broker's clock and those of its peers (R27)."""
