"""A few brokers that have only the overlay components, and links between them that a test controls.

Time moves in steps of a millisecond. A link carries packets in order after a delay; a test cuts it
in one direction or both, drops packets in the middle, or restarts a broker with a new incarnation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gapless.core.context import Context, Identity
from gapless.core.effects import Send
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.parameters import DEFAULTS, Parameters, microseconds
from gapless.directory.announcements import Announcements
from gapless.directory.locations import PubendLocations
from gapless.messages.overlay import Announce, PartitionInfo, ShapeVersion, TableState
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.partitions import Partitions
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import Tree, TreeChange

DELAY_US = microseconds(ms=2)


class Node:
    """A broker with sessions, announcements and partitions; records what it receives."""

    def __init__(
        self, topology: Topology, identity: Identity, parameters: Parameters, now: int
    ) -> None:
        self.context = Context(identity, parameters)
        self.context.now = now
        neighbourhood = topology.neighbourhood(identity.cell, parameters.neighbourhood_radius)
        self.sessions = PeerSessions(self.context, neighbourhood, self)
        self.tree = Tree(neighbourhood)
        locations = PubendLocations(self.context, ())
        self.announcements = Announcements(self.context, self.tree, self.sessions, locations, self)
        self.partitions = Partitions(self.context, self.tree, self.sessions)
        self.opened: list[BrokerId] = []
        self.closed: list[BrokerId] = []
        self.congested: set[BrokerId] = set()
        """The peers to which the route is congested."""
        self.received_messages: list[tuple[BrokerId, Any]] = []
        self.sessions.start()
        self.announcements.start()
        self.partitions.start()

    @property
    def neighbourhood(self) -> Neighbourhood:
        return self.tree.neighbourhood

    def change_tree(self, neighbourhood: Neighbourhood) -> TreeChange:
        """Make another neighbourhood the current one; return the change for the components."""
        change = TreeChange(self.neighbourhood, neighbourhood)
        self.tree.replace(neighbourhood)
        return change

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        self.opened.append(peer)
        self.announcements.session_opened(peer, cell)
        self.partitions.session_opened(peer, cell)

    def session_closed(self, peer: BrokerId) -> None:
        self.closed.append(peer)
        cell = self.neighbourhood.cell_of(peer)
        if cell is not None:
            self.partitions.session_closed(peer, cell)

    def peer_congested(self, peer: BrokerId) -> None:
        assert self.sessions.is_open(peer)
        assert peer not in self.congested
        self.congested.add(peer)

    def peer_drained(self, peer: BrokerId) -> None:
        self.congested.remove(peer)

    def received(self, peer: BrokerId, message: Any) -> None:
        if isinstance(message, Announce):
            self.announcements.received(peer, message)
        elif isinstance(message, PartitionInfo):
            self.partitions.received(peer, message)
        else:
            self.received_messages.append((peer, message))

    def pubend_announced(self, pubend: PubendId) -> None:
        """Ignore it: there are no other components."""

    def pubend_redirected(self, pubend: PubendId) -> None:
        """Ignore it: there are no other components."""

    def records_differ(self, peer: BrokerId, own: int, theirs: int) -> None:
        """Ignore it: there is no other component for records."""

    def packet_received_outside(self, peer: BrokerId, packet: Any) -> None:  # noqa: ARG002
        self.context.mark("packet from an unknown broker")

    def unsent(self, peer: BrokerId, messages: list[Any]) -> None:  # noqa: ARG002
        self.context.mark("sent without a session")

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:  # noqa: ARG002
        return ()

    def table_states_received(
        self,
        peer: BrokerId,  # noqa: ARG002
        states: tuple[TableState, ...],
    ) -> None:
        assert states == ()


class SmallWorld:
    """The nodes, the packets in transit between them, and the time."""

    def __init__(self, topology: Topology, parameters: Parameters = DEFAULTS) -> None:
        self.topology = topology
        self.parameters = parameters
        self.now = 0
        self.nodes: dict[BrokerId, Node] = {}
        self.flying: list[tuple[int, BrokerId, BrokerId, Any]] = []
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()
        self.sent: list[tuple[BrokerId, BrokerId, Any]] = []
        for cell in topology.cells:
            for broker in cell.brokers:
                self.start(broker, cell.name, incarnation=1)

    def start(self, broker: BrokerId, cell: CellId, incarnation: int) -> Node:
        """Start a broker, or restart it with a new incarnation and no other state."""
        node = Node(self.topology, Identity(broker, cell, incarnation), self.parameters, self.now)
        self.nodes[broker] = node
        for peer in node.neighbourhood.all_brokers():
            if peer != broker:
                node.sessions.link_up(peer)
        self._collect(node)
        return node

    def cut(self, source: BrokerId, target: BrokerId) -> None:
        """Drop all packets from source to target from now on."""
        self.cuts.add((source, target))

    def heal(self, source: BrokerId, target: BrokerId) -> None:
        """Let packets pass again."""
        self.cuts.discard((source, target))

    def part(self, one: BrokerId, other: BrokerId) -> None:
        """Cut a link in both directions; both ends notice."""
        for source, target in ((one, other), (other, one)):
            self.cut(source, target)
            self._at_now(source).sessions.link_down(target)
            self._collect(self.nodes[source])

    def mend(self, one: BrokerId, other: BrokerId) -> None:
        """Restore a link; both ends notice."""
        for source, target in ((one, other), (other, one)):
            self.heal(source, target)
        for source, target in ((one, other), (other, one)):
            self._at_now(source).sessions.link_up(target)
            self._collect(self.nodes[source])

    def crowd(self, source: BrokerId, target: BrokerId, *, full: bool = True) -> None:
        """Congest a link, or drain it; its sender notices."""
        sessions = self._at_now(source).sessions
        (sessions.link_full if full else sessions.link_drained)(target)
        self._collect(self.nodes[source])

    def lose_packets(self) -> None:
        """Lose all packets in transit."""
        self.flying.clear()

    def run(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(ms):
            self.now += microseconds(ms=1)
            due = [each for each in self.flying if each[0] <= self.now]
            self.flying = [each for each in self.flying if each[0] > self.now]
            for _, source, target, packet in due:
                if (source, target) not in self.cuts and target in self.nodes:
                    node = self._at_now(target)
                    node.sessions.received(source, packet)
                    self._collect(node)
            for broker in list(self.nodes):
                node = self._at_now(broker)
                node.context.run_timers()
                self._collect(node)

    def wait(self, happened: Callable[[], bool], *, ms: int = 5_000) -> None:
        """Let time pass until a condition holds; fail if that takes too long."""
        for _ in range(ms):
            if happened():
                return
            self.run(ms=1)
        raise AssertionError(f"it has not happened within {ms} ms")

    def _at_now(self, broker: BrokerId) -> Node:
        node = self.nodes[broker]
        node.context.now = node.context.clock = self.now
        return node

    def _collect(self, node: Node) -> None:
        node.sessions.flush()
        source = node.context.identity.broker
        for effect in node.context.effects:
            assert isinstance(effect, Send)
            self.sent.append((source, effect.peer, effect.packet))
            self.flying.append((self.now + DELAY_US, source, effect.peer, effect.packet))
        node.context.effects.clear()


def line(*cells: CellId) -> Topology:
    """Return a line of cells of one broker each, named as their cells."""
    return Topology.of({cell: [cell] for cell in cells}, itertools.pairwise(cells))


def neighbourhood_of(own: str, *edges: str, version: int = 1, **shapes: int) -> Neighbourhood:
    """Return the neighbourhood of a cell within one edge; cells are their only brokers.

    A shape is the count of the shape version of a cell, or of the epoch of an edge.
    """
    pairs = [(edge[0], edge[1]) for edge in edges]
    cells = {cell: [cell] for pair in pairs for cell in pair}
    made = Topology.of(cells, pairs)
    infos = [
        replace(
            each,
            shape_version=ShapeVersion(count=shapes.get(each.name, 1)),
            edges=tuple(
                replace(edge, epoch=ShapeVersion(count=_epoch(each.name, edge.cell, shapes)))
                for edge in each.edges
            ),
        )
        for each in made.cells
    ]
    return Topology(tuple(infos)).neighbourhood(own, 1, version)


def _epoch(cell: CellId, other: CellId, shapes: dict[str, int]) -> int:
    return shapes.get(cell + other, shapes.get(other + cell, 1))
