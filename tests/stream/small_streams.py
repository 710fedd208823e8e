"""A line of routers from a pubend to a receiver that a test plays; the test sets the tables.

Messages arrive after a millisecond, in order; a test may lose messages in transit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import DEFAULTS, Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate
from gapless.messages.overlay import PathEpochs
from gapless.messages.streams import (
    AdvanceRequest,
    Attach,
    Attached,
    AttachKind,
    Detach,
    FeedUnavailable,
    KnowledgeRange,
    Nack,
    Publication,
    Released,
    StreamData,
    StreamEpoch,
    StreamEpochRequest,
    StreamSilence,
)
from gapless.overlay.path_epochs import SAME_VIEW, ViewDifference
from gapless.propagation import Receiver, StreamVector
from gapless.routing.router import Router

STOCKS, BONDS = PubendId("stocks"), PubendId("bonds")


def event(tick: Tick, value: int) -> Publication:
    """Return a publication with an attribute ``a``."""
    return Publication(tick, "ann", tick, {"a": value}, b"")


def knowledge_range(
    low: Tick, high: Tick, *events: Publication, stream_epoch: int = 0
) -> KnowledgeRange:
    """Return a knowledge range."""
    return KnowledgeRange(low, high, stream_epoch, 0, events)


class Node:
    """A router and the tables that a test gives it."""

    def __init__(self, world: Line, name: BrokerId, feeder: BrokerId | None) -> None:
        self.world = world
        self.name = name
        self.feeder = feeder
        self.context = Context(Identity(name, name, 1), world.parameters)
        self.context.now = world.now
        self.wanted: Callable[[Publication], bool] | None = None
        """The filter of the receiver's table; None if tables are not sufficient."""
        self.matched: list[Tick] = []
        """The ticks of all matched publications, once for each match."""
        self.vectors: list[StreamVector | None] = []
        """The vectors by which tables were chosen."""
        self.epochs: PathEpochs = ()
        """The epochs that it sends for the edges between it and its feeder."""
        self.differences: dict[str, ViewDifference] = {}
        """How the views of some receivers differ from its own; those of others are equal."""
        self.direction: str = name
        """The only cell on the path to every pubend."""
        self.pushed: list[tuple[BrokerId, tuple[str, ...]]] = []
        self.requested: list[tuple[BrokerId, tuple[str, ...]]] = []
        """The cells whose records it has sent to peers, and has requested from them."""
        self.router = Router(self.context, self, self, self)
        self.router.start()

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        del pubend, knowledge, receiver
        self.vectors.append(vector)
        return None if self.wanted is None else 1

    def best_effort_tables(self, pubend: PubendId, receiver: Receiver) -> int | None:
        del pubend, receiver
        return None if self.wanted is None else 1

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        assert self.wanted is not None
        self.matched += [each.tick for each in publications]
        return [int(self.wanted(each)) for each in publications]

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        del pubend
        if self.feeder is None or (self.name, self.feeder) in self.world.cuts:
            return []
        return [Candidate(self.feeder, 0)]

    def is_sealed(self, pubend: PubendId) -> bool:
        """Return False: no pubend is closed here."""
        del pubend
        return False

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        raise NotImplementedError(f"there is no leaf for {pubend}")

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Ignore it: no tables are exchanged."""

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        del pubend
        return AttachKind.CELL

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        del pubend
        return receiver.name != "nearer"

    def path(self, pubend: PubendId) -> tuple[str, ...]:
        del pubend
        return (self.direction,)

    def path_epochs(self, feeder: BrokerId) -> PathEpochs:
        del feeder
        return self.epochs

    def difference(self, receiver: Receiver, named: PathEpochs) -> ViewDifference:
        del named
        return self.differences.get(receiver.name, SAME_VIEW)

    def push(self, peer: BrokerId, cells: Collection[str]) -> None:
        self.pushed.append((peer, tuple(cells)))

    def want(self, peer: BrokerId, cells: Collection[str]) -> None:
        self.requested.append((peer, tuple(cells)))

    def is_announced(self, pubend: PubendId) -> bool:
        return pubend in {STOCKS, BONDS}

    def is_best_effort(self, pubend: PubendId) -> bool:
        return pubend in self.world.best_effort

    def take(self, peer: BrokerId, message: Any) -> None:
        """Hand a message to the router."""
        router = self.router
        if isinstance(message, Attach):
            router.attach(peer, message)
        elif isinstance(message, Detach):
            router.detach(peer, message)
        elif isinstance(message, Nack):
            router.nack(peer, message)
        elif isinstance(message, StreamEpochRequest):
            router.stream_epoch_requested(peer, message)
        elif isinstance(message, Attached):
            router.attached(peer, message)
        elif isinstance(message, FeedUnavailable):
            router.feed_unavailable(peer, message)
        elif isinstance(message, StreamData):
            router.receive(message.pubend, message.number, message.knowledge, message.first)
        elif isinstance(message, StreamSilence):
            for pubend, number, each, first in message.ranges:
                router.receive(pubend, number, each, first)
        elif isinstance(message, StreamEpoch):
            router.stream_epoch_received(message)
        elif isinstance(message, Released):
            router.released(message)
        elif isinstance(message, AdvanceRequest):
            router.advance(peer, message)


class Log:
    """A log that a test fills and that serves reads."""

    def __init__(self) -> None:
        self.ranges: list[KnowledgeRange] = []
        self.reads = 0
        self.advances: list[Tick] = []
        self.eager = False
        self.corruption: str | None = None

    @property
    def top(self) -> Tick:
        return max((each.high for each in self.ranges), default=0)

    def ranges_between(
        self, low: Tick, high: Tick, then: Callable[[list[KnowledgeRange], Tick], None]
    ) -> None:
        self.reads += 1
        found = [each for each in self.ranges if low <= each.high and each.low <= high]
        then(found, high)

    def advance(self, tick: Tick) -> None:
        self.advances.append(tick)

    def set_eager(self, eager: bool) -> None:
        self.eager = eager


class Line:
    """Routers named by letters, the first with the pubend, and a receiver behind the last."""

    def __init__(self, names: str, parameters: Parameters = DEFAULTS) -> None:
        self.parameters = parameters
        self.now = microseconds(s=10)
        self.best_effort: set[PubendId] = set()
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()
        self.nodes: dict[BrokerId, Node] = {}
        feeder = None
        for name in names:
            self.nodes[name] = Node(self, name, feeder)
            feeder = name
        self.log = Log()
        self.first, self.last = names[0], names[-1]
        self.nodes[self.first].router.host(STOCKS, self.log, 0)
        self.flying: list[tuple[int, BrokerId, BrokerId, Any]] = []
        self.sent: list[tuple[BrokerId, BrokerId, Any]] = []
        self.received: dict[BrokerId, list[Any]] = {}

    def send(self, receiver: BrokerId, message: Any) -> None:
        """Let a receiver send a message to the last router."""
        self._fly(receiver, self.last, message)

    def attach(
        self,
        receiver: BrokerId = "r",
        number: int = 2,
        *,
        eager: bool = False,
        pubend: PubendId = STOCKS,
    ) -> None:
        """Attach a receiver."""
        self.send(receiver, Attach(pubend, number, AttachKind.CELL, receiver, eager))

    def publish(self, new: KnowledgeRange, pubend: PubendId = STOCKS) -> None:
        """Let a pubend send a knowledge range; that of stocks is in its log."""
        if pubend == STOCKS:
            self.log.ranges.append(new)
        node = self.nodes[self.first]
        node.context.now = self.now
        node.router.forward(pubend, new, None)
        self._collect(node)

    def run(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(ms):
            self.now += microseconds(ms=1)
            due = [each for each in self.flying if each[0] <= self.now]
            self.flying = [each for each in self.flying if each[0] > self.now]
            for _, source, target, message in due:
                node = self.nodes.get(target)
                if node is None:
                    self.received.setdefault(target, []).append(message)
                elif (source, target) not in self.cuts:
                    node.context.now = self.now
                    node.take(source, message)
                    self._collect(node)
            for node in self.nodes.values():
                node.context.now = self.now
                node.context.run_timers()
                self._collect(node)

    def ranges(self, receiver: BrokerId = "r") -> list[KnowledgeRange]:
        """Return the knowledge ranges that a receiver received, in order."""
        found: list[KnowledgeRange] = []
        for message in self.received.get(receiver, []):
            if isinstance(message, StreamData):
                found.append(message.knowledge)
            elif isinstance(message, StreamSilence):
                found += [each for _, _, each, _ in message.ranges]
        return found

    def ticks(self, receiver: BrokerId = "r") -> list[Tick]:
        """Return the ticks of the events that a receiver received."""
        return [each.tick for known in self.ranges(receiver) for each in known.publications]

    def count(self, kind: type[Any], source: BrokerId, target: BrokerId) -> int:
        """Return how many messages of a kind one sent to another."""
        pair = (source, target)
        return sum(isinstance(m, kind) for s, t, m in self.sent if (s, t) == pair)

    def _collect(self, node: Node) -> None:
        for peer, messages in node.context.take_messages():
            for message in messages:
                self._fly(node.name, peer, message)

    def _fly(self, source: BrokerId, target: BrokerId, message: Any) -> None:
        self.sent.append((source, target, message))
        self.flying.append((self.now + microseconds(ms=1), source, target, message))
