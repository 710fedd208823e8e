"""What a router has of one pubend, and what it asks of its surroundings.

An *attachment* is one receiver of one pubend: how far it was sent, and what it is curious about. All
attachments of a pubend share the router's input stream, its regimes, and its source: a feed, or the
log where the pubend is at this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate, Feed
from gapless.messages.streams import AttachKind, KnowledgeRange, Publication
from gapless.propagation.sufficiency import Receiver
from gapless.stream.curiosity import OutstandingNacks, RequestedTicks
from gapless.stream.epochs import StreamEpochs, StreamVector
from gapless.stream.istream import IStream, MemoryAccount

__all__ = ["Attachment", "HostedLog", "RoutedPubend", "RoutingPolicy", "ShapeVersions"]

ShapeVersions: TypeAlias = tuple[tuple[CellId, int], ...]
"""How often the cells between two brokers were reshaped; those never reshaped are left out (R13)."""


class RoutingPolicy(Protocol):
    """What the tables of this broker say of events and receivers."""

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        """Return the tables that decide for a receiver, a bit each; None if none may (R25).

        ``vector`` is what the piece's regime means, None if that is not known here. Under best
        effort it is empty (R33).
        """

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return the tables that want a publication, a bit each."""

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed this router, best first (R7)."""

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return what this router is to its feeder: of another cell, or at home with the pubend."""

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        """Say whether a receiver lies beyond this broker, as seen from the pubend (R10)."""

    def shape_versions(self, feeder: BrokerId) -> ShapeVersions:
        """Return the shapes of the cells between a feeder and this broker, as this one knows them."""

    def has_shape(self, receiver: Receiver, versions: ShapeVersions) -> bool:
        """Say whether a receiver knows the shapes of the cells between as this broker does (R13)."""

    def is_announced(self, pubend: PubendId) -> bool:
        """Say whether the pubend is known."""

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Say whether the pubend is of quality best effort (R33)."""


class HostedLog(Protocol):
    """A pubend that this broker hosts: its log is the input stream (R32)."""

    @property
    def top(self) -> Tick:
        """The highest tick that may be told."""

    @property
    def corruption(self) -> str | None:
        """What is wrong with the log, if something in it cannot be read (P8)."""

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        """Read the log; call back with pieces and up to where they go."""

    def advance(self, tick: Tick) -> None:
        """Promise silence up to a tick that somebody waits for (R51)."""

    def set_eager(self, eager: bool) -> None:
        """Say whether somebody waits in total order, so that silence has to flow at once."""


class Attachment:
    """One receiver of one pubend."""

    __slots__ = (
        "curious",
        "eager",
        "number",
        "peer",
        "receiver",
        "refreshed",
        "sent",
        "shape_versions",
        "silent",
        "waiting",
    )

    def __init__(
        self,
        peer: BrokerId,
        number: int,
        receiver: Receiver,
        curious: RequestedTicks,
        shape_versions: ShapeVersions = (),
    ) -> None:
        self.peer = peer
        self.shape_versions = shape_versions
        self.number = number
        self.receiver = receiver
        self.eager = False
        self.sent: Tick = 0
        self.silent: Tick = 0
        """Up to here all that is known above ``sent`` was found to hold nothing for the receiver.

        Such a verdict stays true: tables were sufficient for the regime of those ticks (R24).
        """
        self.curious = curious
        self.refreshed = 0
        self.waiting = True
        """Whether it still waits for this router to have a feed itself."""

    def doubt_from(self, tick: Tick) -> None:
        """Something came late: what was found silent is to be looked at again from there on."""
        self.silent = min(self.silent, tick - 1)


class RoutedPubend:
    """All that a router has of one pubend."""

    __slots__ = (
        "advanced",
        "attachments",
        "feed",
        "is_idle",
        "log",
        "outstanding_nacks",
        "passed",
        "pubend",
        "released",
        "stream",
        "stream_epochs",
        "stream_epochs_requested",
    )

    def __init__(self, pubend: PubendId, parameters: Parameters, account: MemoryAccount) -> None:
        self.pubend = pubend
        self.stream = IStream(pubend, account)
        self.is_idle = False
        """Whether there was no receiver when that was last looked at."""
        self.outstanding_nacks = OutstandingNacks(parameters)
        self.log: HostedLog | None = None
        self.feed: Feed | None = None
        self.attachments: dict[tuple[BrokerId, int], Attachment] = {}
        self.stream_epochs_requested: dict[int, int] = {}
        """When each regime was asked for that is not known yet."""
        self.stream_epochs = StreamEpochs()
        self.released: Tick = 0
        self.advanced: tuple[Tick, int] = (0, 0)
        """The greatest tick that the feeder was asked to advance to, and when."""
        self.passed: tuple[int, Tick] = (0, 0)
        """Under best effort: the life of the pubend's broker and the last tick passed on in it."""

    @property
    def feeder(self) -> BrokerId | None:
        """Who feeds this router now."""
        return None if self.feed is None else self.feed.feeder

    @property
    def has_source(self) -> bool:
        """Whether new knowledge comes: from the log, or from a feeder."""
        return self.log is not None or self.feeder is not None

    @property
    def relayed(self) -> bool:
        """Whether some hop above is relayed."""
        return self.feed is not None and self.feed.relayed

    @property
    def is_eager(self) -> bool:
        """Whether a receiver waits in total order."""
        return any(each.eager for each in self.attachments.values())

    def attached_to(self, peer: BrokerId) -> list[Attachment]:
        """Return the attachments of a peer that are fed."""
        return [
            each for each in self.attachments.values() if each.peer == peer and not each.waiting
        ]
