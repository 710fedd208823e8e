"""What a router asks of its surroundings: tables, paths, and the pubends of this broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.ticks import Tick
from gapless.feeds.paths import FeedPaths
from gapless.messages.streams import AttachKind, KnowledgeRange, Member, Publication
from gapless.propagation.sufficiency import Receiver
from gapless.stream.epochs import StreamVector

__all__ = ["Feeders", "Filtering", "HostedLog", "Paths", "ReportTargets", "ShapeVersions"]

ShapeVersions: TypeAlias = tuple[tuple[CellId, int], ...]
"""How often the cells between two brokers were reshaped; those never reshaped are left out (R13)."""


class Filtering(Protocol):
    """What the subscription tables of this broker say of events and receivers."""

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        """Return the tables that decide for a receiver, a bit each; None if no table may (R25).

        ``vector`` is that of the range's stream epoch, None if this broker does not know the epoch.
        Under best effort it is empty (R33).
        """

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the tables that match it, a bit each."""

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note that a broker of another cell is fed from now on, or is no longer fed."""


class Paths(FeedPaths, Protocol):
    """Where pubends and receivers lie, as seen from this broker."""

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return what this router is to its feeder: of another cell, or of the PHB's own cell."""

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        """Say whether a receiver lies beyond this broker, as seen from the pubend (R10)."""

    def has_shape(self, receiver: Receiver, versions: ShapeVersions) -> bool:
        """Say whether a receiver knows the shapes of the cells between as this broker does (R13)."""

    def is_announced(self, pubend: PubendId) -> bool:
        """Say whether the pubend is known."""

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Say whether the pubend is of quality best effort (R33)."""


class HostedLog(Protocol):
    """A pubend of this broker: its log is the input stream (R32)."""

    @property
    def top(self) -> Tick:
        """The highest tick that may be sent."""

    @property
    def corruption(self) -> str | None:
        """The corruption of the log, if a row of it cannot be read (P8)."""

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        """Read the log; call back with knowledge ranges and the tick that they reach."""

    def advance(self, tick: Tick) -> None:
        """Promise silence up to a tick that a receiver waits for (R51)."""

    def set_eager(self, eager: bool) -> None:
        """Say whether a receiver waits in total order, so that silence has to be sent at once."""


class ReportTargets(Protocol):
    """The pubends of this broker, for acknowledgements."""

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        """Take a report of a member; False if the pubend is not at this broker."""


class Feeders(Protocol):
    """The feeders of this broker's router."""

    def feeder(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that feeds the router, None if no broker does."""
