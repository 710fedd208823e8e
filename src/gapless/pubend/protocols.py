"""The interfaces that pubends and their requests use: router, reports, tables, sessions, directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry
from gapless.core.ticks import Tick
from gapless.messages.overlay import NameStatus, PubendProperties
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange
from gapless.routing.protocols import HostedLog

__all__ = [
    "AckRequests",
    "Claim",
    "Claims",
    "ClockView",
    "NameQuerier",
    "OtherBrokers",
    "Outlet",
    "PubendAnnouncer",
    "PubendNaming",
    "PubendRouter",
]

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

    def forget_stream_epochs(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        """Forget the cached ranges up to a tick with their stream epochs; these epochs remain."""


class PubendRouter(Outlet, Protocol):
    """The router, which also takes new pubends of this broker."""

    def host(self, pubend: PubendId, log: HostedLog, released: Tick) -> None:
        """Serve a pubend from its own log, and feed the receivers that wait for a source."""

    def learn_stream_epochs(self, pubend: PubendId, records: Iterable[StreamEpochRecord]) -> None:
        """Add the stored stream epochs of a pubend of this broker."""


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


class PubendAnnouncer(Protocol):
    """Announces the pubends of this broker."""

    def host(
        self,
        pubend: PubendId,
        version: int,
        properties: PubendProperties,
        *,
        tombstone: bool = False,
        sealed: Tick | None = None,
        last_event: Tick = 0,
    ) -> None:
        """Announce a pubend of this broker, a new version of it, or its end."""

    def bury_later(self, pubend: PubendId, version: int, after_us: int) -> None:
        """Forget a tombstone after a time, when every broker has received it."""


class OtherBrokers(Protocol):
    """Which other broker has a pubend that this broker does not serve."""

    def other_broker(self, pubend: PubendId) -> BrokerId | None:
        """Return the other broker that has a pubend, or None if there is none or it is retired."""

    def not_here(self, pubend: PubendId) -> str:
        """Return why this broker does not serve a pubend."""

    def is_closed(self, pubend: PubendId) -> bool:
        """Return whether a pubend was closed, as far as that is remembered (RS-34)."""


class PubendNaming(Protocol):
    """The names of pubends at this broker."""

    def find(self, name: str) -> PubendId | None:
        """Return the pubend that a name means, or None if this broker knows none."""

    def find_closed(self, name: str) -> PubendId | None:
        """Return the closed pubend that a name means if no pubend has the name now, or None."""

    @property
    def closed_here(self) -> int:
        """How many pubends this incarnation of the broker has closed."""

    def is_remembered(self, name: str) -> bool:
        """Return whether there was a pubend of exactly that name, even if no broker has it now."""

    def reserve(self, name: str) -> None:
        """Reserve a name for a pubend that this broker is creating."""

    def release(self, name: str) -> None:
        """Release a name: the pubend is created."""


class NameQuerier(Protocol):
    """Queries the other brokers for a name."""

    @property
    def is_full(self) -> bool:
        """Whether no further query is accepted now."""

    def query(self, name: str, done: Callable[[NameStatus, BrokerId], None]) -> None:
        """Query all other brokers whether a name is free."""
