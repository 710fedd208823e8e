"""A line of routers from a pubend to a receiver that a test plays; tables are set by the test.

Posted messages arrive after a millisecond, in order; a test may lose what is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context, Identity
from gapless.core.parameters import DEFAULTS, Parameters, us
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate
from gapless.messages.streams import (
    Advance,
    Attach,
    Attached,
    AttachKind,
    Detach,
    Frame,
    Nack,
    Piece,
    Publication,
    Regime,
    RegimeWant,
    Released,
    Silence,
    Unfed,
)
from gapless.propagation import Receiver, Vector
from gapless.routing.attachments import ShapeVersions
from gapless.routing.router import Router

STOCKS, BONDS = PubendId("stocks"), PubendId("bonds")


def event(tick: Tick, value: int) -> Publication:
    """Return a publication with an attribute ``a``."""
    return Publication(tick, "ann", tick, {"a": value}, b"")


def piece(low: Tick, high: Tick, *events: Publication, regime: int = 0) -> Piece:
    """Return a piece of knowledge."""
    return Piece(low, high, regime, 0, events)


def nobody_asks(peer: BrokerId, *, fed: bool) -> None:
    """Take note of who is fed, where nobody asks for tables."""


class Node:
    """A router and the tables that a test gives it."""

    def __init__(self, world: Line, name: BrokerId, feeder: BrokerId | None) -> None:
        self.world = world
        self.name = name
        self.feeder = feeder
        self.context = Context(Identity(name, name, 1), world.parameters)
        self.context.now = world.now
        self.wanted: Callable[[Publication], bool] | None = None
        """What the receiver's table wants; None if tables are not sufficient."""
        self.matched: list[Tick] = []
        """The ticks of all publications that were matched, once for each match."""
        self.vectors: list[Vector | None] = []
        """By which vectors tables were chosen."""
        self.shapes: ShapeVersions = ()
        """What it says of the cells between it and its feeder."""
        self.reshaped: dict[str, ShapeVersions] = {}
        """What it knows of the cells between it and some receivers; others may say what they like."""
        self.router = Router(self.context, self, nobody_asks)

    def tables_for(
        self, pubend: PubendId, piece: Piece, vector: Vector | None, receiver: Receiver
    ) -> int | None:
        del pubend, piece, receiver
        self.vectors.append(vector)
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

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        del pubend
        return AttachKind.CELL

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        del pubend
        return receiver.name != "nearer"

    def shape_versions(self, feeder: BrokerId) -> ShapeVersions:
        del feeder
        return self.shapes

    def has_shape(self, receiver: Receiver, versions: ShapeVersions) -> bool:
        return receiver.name not in self.reshaped or versions == self.reshaped[receiver.name]

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
        elif isinstance(message, RegimeWant):
            router.regime_want(peer, message)
        elif isinstance(message, Attached):
            router.attached(peer, message)
        elif isinstance(message, Unfed):
            router.unfed(peer, message)
        elif isinstance(message, Frame):
            router.receive(message.pubend, message.number, message.piece, message.first)
        elif isinstance(message, Silence):
            for pubend, number, each, first in message.pieces:
                router.receive(pubend, number, each, first)
        elif isinstance(message, Regime):
            router.regime(message)
        elif isinstance(message, Released):
            router.released(message)
        elif isinstance(message, Advance):
            router.advance(peer, message)


class Log:
    """A log that a test fills; it serves what it has."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.reads = 0
        self.advances: list[Tick] = []
        self.eager = False
        self.damage: str | None = None

    @property
    def top(self) -> Tick:
        return max((each.high for each in self.pieces), default=0)

    def pieces_between(
        self, low: Tick, high: Tick, then: Callable[[list[Piece], Tick], None]
    ) -> None:
        self.reads += 1
        found = [each for each in self.pieces if low <= each.high and each.low <= high]
        then(found, high)

    def advance(self, tick: Tick) -> None:
        self.advances.append(tick)

    def set_eager(self, eager: bool) -> None:
        self.eager = eager


class Line:
    """Routers named by letters, the first with the pubend, and a receiver behind the last."""

    def __init__(self, names: str, parameters: Parameters = DEFAULTS) -> None:
        self.parameters = parameters
        self.now = us(s=10)
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
        self.heard: dict[BrokerId, list[Any]] = {}

    def say(self, receiver: BrokerId, message: Any) -> None:
        """Let a receiver say something to the last router."""
        self._fly(receiver, self.last, message)

    def attach(
        self,
        receiver: BrokerId = "r",
        number: int = 2,
        *,
        eager: bool = False,
        pubend: PubendId = STOCKS,
    ) -> None:
        """Let a receiver be fed."""
        self.say(receiver, Attach(pubend, number, AttachKind.CELL, receiver, eager))

    def publish(self, new: Piece, pubend: PubendId = STOCKS) -> None:
        """Let a pubend tell a piece; that of stocks is in its log."""
        if pubend == STOCKS:
            self.log.pieces.append(new)
        node = self.nodes[self.first]
        node.context.now = self.now
        node.router.spread(pubend, new, None)
        self._collect(node)

    def run(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(ms):
            self.now += us(ms=1)
            due = [each for each in self.flying if each[0] <= self.now]
            self.flying = [each for each in self.flying if each[0] > self.now]
            for _, source, target, message in due:
                node = self.nodes.get(target)
                if node is None:
                    self.heard.setdefault(target, []).append(message)
                elif (source, target) not in self.cuts:
                    node.context.now = self.now
                    node.take(source, message)
                    self._collect(node)
            for node in self.nodes.values():
                node.context.now = self.now
                node.context.run_timers()
                self._collect(node)

    def pieces(self, receiver: BrokerId = "r") -> list[Piece]:
        """Return the knowledge that a receiver has heard, in the order of hearing."""
        found: list[Piece] = []
        for message in self.heard.get(receiver, []):
            if isinstance(message, Frame):
                found.append(message.piece)
            elif isinstance(message, Silence):
                found += [each for _, _, each, _ in message.pieces]
        return found

    def ticks(self, receiver: BrokerId = "r") -> list[Tick]:
        """Return the ticks of the events that a receiver has heard."""
        return [each.tick for known in self.pieces(receiver) for each in known.publications]

    def count(self, kind: type[Any], source: BrokerId, target: BrokerId) -> int:
        """Return how many messages of a kind went from one to another."""
        pair = (source, target)
        return sum(isinstance(m, kind) for s, t, m in self.sent if (s, t) == pair)

    def _collect(self, node: Node) -> None:
        for peer, messages in node.context.take_posted():
            for message in messages:
                self._fly(node.name, peer, message)

    def _fly(self, source: BrokerId, target: BrokerId, message: Any) -> None:
        self.sent.append((source, target, message))
        self.flying.append((self.now + us(ms=1), source, target, message))
