"""The interfaces that a router uses: tables, paths, cell records, and the pubends of this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.ticks import Tick
from gapless.feeds.paths import FeedPaths
from gapless.messages.overlay import PathEpochs
from gapless.messages.streams import AttachKind, KnowledgeRange, Member, Publication
from gapless.overlay.path_epochs import ViewDifference
from gapless.propagation.sufficiency import Receiver
from gapless.stream.epochs import StreamVector

__all__ = ["Feeders", "Filtering", "HostedLog", "Paths", "RecordPeers", "ReportTargets"]


class Filtering(Protocol):
    """The subscription tables of this broker, as a filter for receivers."""

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        """Return the tables that decide for a receiver, a bit each, or None if none may (R25).

        ``vector`` is the vector of the range's stream epoch, or None if this broker does not know
        it.
        """

    def best_effort_tables(self, pubend: PubendId, receiver: Receiver) -> int | None:
        """Return the tables that decide under best effort, or None if none may (RS-14)."""

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the tables that match it, a bit each."""

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether a broker of another cell is fed."""


class Paths(FeedPaths, Protocol):
    """The paths to pubends and receivers."""

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return the kind of this router's attachment: of another cell, or inside the PHB cell."""

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        """Return whether a receiver is beyond this broker, as seen from the pubend (R10)."""

    def difference(self, receiver: Receiver, named: PathEpochs) -> ViewDifference:
        """Compare the epochs that a receiver has named with the path to it (RS-11)."""

    def path(self, pubend: PubendId) -> tuple[CellId, ...] | None:
        """Return the path to a pubend, or None if the pubend is not announced."""

    def is_announced(self, pubend: PubendId) -> bool:
        """Return whether the pubend is announced."""

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Return whether the pubend is best effort (R33)."""


class RecordPeers(Protocol):
    """The exchange of cell records with peers (RS-4)."""

    def push(self, peer: BrokerId, cells: Collection[CellId]) -> None:
        """Send a peer the records of these cells."""

    def want(self, peer: BrokerId, cells: Collection[CellId]) -> None:
        """Request the records of these cells from a peer."""


class HostedLog(Protocol):
    """A pubend of this broker, whose log is the istream (R32)."""

    @property
    def top(self) -> Tick:
        """The highest tick that may be sent."""

    @property
    def corruption(self) -> str | None:
        """The corruption of the log, if a row of it cannot be read (P8)."""

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        """Read the log; call back with knowledge ranges and the last tick covered."""

    def advance(self, tick: Tick) -> None:
        """Declare silence up to a tick that a receiver waits for (R51)."""

    def set_eager(self, eager: bool) -> None:
        """Set whether a receiver in total order waits, so that silence must be sent soon."""


class ReportTargets(Protocol):
    """The pubends of this broker, for acknowledgements."""

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        """Process a report of a member; return False if the pubend is not at this broker."""


class Feeders(Protocol):
    """The feeders of this broker's router."""

    def feeder(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that feeds the router, or None if no broker does."""
