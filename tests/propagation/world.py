"""A tree of brokers that hold tables and exchange them; no sessions, streams or timers.

A test decides which broker receives what, and when. ``settle`` exchanges all tables until nothing
changes; ``exchange`` updates one copy. Fault budget: tests crash brokers, replace sources, and
withhold or repeat messages; the world itself loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from gapless import Filter
from gapless.content.merging import merge
from gapless.content.values import Attributes
from gapless.core.context import Identity
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters
from gapless.messages.propagation import TableDelta, TableFull, TableRequest
from gapless.messages.streams import AttachKind
from gapless.propagation import (
    Edge,
    LeafTable,
    Receiver,
    StreamVector,
    TableSender,
    TableStore,
    TransferOutcome,
)
from gapless.propagation.sufficiency import TableChoice

__all__ = ["Broker", "TreePaths", "World", "cell_receiver", "leaf_receiver", "tree"]

Tree = Mapping[CellId, tuple[CellId, ...]]


def tree(*edges: str) -> dict[CellId, tuple[CellId, ...]]:
    """Return the neighbours of each cell; an edge is written ``"a-b"``, a path ``"a-b-c"``."""
    neighbours: dict[CellId, tuple[CellId, ...]] = {}
    for path in edges:
        cells = path.split("-")
        for cell in cells:
            neighbours.setdefault(cell, ())
        for left, right in pairwise(cells):
            neighbours[left] = (*neighbours[left], right)
            neighbours[right] = (*neighbours[right], left)
    return neighbours


def path_between(cells: Tree, source: CellId, target: CellId) -> tuple[CellId, ...] | None:
    """Return the cells from a cell to another, the target included, the source not."""
    stack: list[tuple[CellId, tuple[CellId, ...]]] = [(source, ())]
    while stack:
        here, path = stack.pop()
        if here == target:
            return path
        before = path[-2] if len(path) > 1 else (source if path else None)
        stack += [(cell, (*path, cell)) for cell in cells.get(here, ()) if cell != before]
    return None


class TreePaths:
    """The neighbourhood of a cell: all cells up to a distance."""

    def __init__(self, cells: Tree, own: CellId, reach: int) -> None:
        self.version = 1
        self._paths = {
            cell: path
            for cell in cells
            if (path := path_between(cells, own, cell)) is not None and len(path) <= reach
        }

    def path_to(self, cell: CellId) -> tuple[CellId, ...] | None:
        return self._paths.get(cell)


def cell_receiver(cell: CellId) -> Receiver:
    return Receiver(AttachKind.CELL, cell)


def leaf_receiver(shb: ShbId) -> Receiver:
    return Receiver(AttachKind.LEAF, str(shb))


class Broker:
    """A broker in one incarnation: its leaf table and its table store."""

    def __init__(self, world: World, name: BrokerId, cell: CellId, incarnation: int) -> None:
        self.world = world
        self.name = name
        self.cell = cell
        self.incarnation = incarnation
        self.paths = TreePaths(world.cells, cell, world.parameters.neighbourhood_radius)
        self.known: dict[PubendId, int] = {}
        self.table_store = TableStore(
            Identity(name, cell, incarnation), world.parameters, self.paths
        )
        self.leaf = LeafTable(
            self.shb,
            incarnation,
            budget=world.parameters.table_conjunctions_max,
            merge=merge,
            log_max=world.parameters.delta_log_max,
            bytes_max=world.parameters.frame_bytes_max,
        )
        for neighbour in world.cells[cell]:
            self.table_store.add_cell(neighbour)
        for peer in world.brokers_of(cell, name):
            self.table_store.add_leaf(ShbId(peer, cell))

    @property
    def shb(self) -> ShbId:
        return ShbId(self.name, self.cell)

    def subscribe(self, owner: str, text: str) -> VirtualTime:
        return self.leaf.own(owner, Filter(text).conjunctions)

    def learn(self, pubend: PubendId, version: int | None = None) -> None:
        """Learn of a pubend, by default at its newest version."""
        phb_cell, adverts = self.world.pubends[pubend]
        version = max(adverts) if version is None else version
        path = self.world.path(self.cell, phb_cell)
        direction = path[0] if path else "home"
        self.known[pubend] = max(version, self.known.get(pubend, version))
        self.table_store.announce(pubend, version, Filter(adverts[version]), direction)

    def edge_to(self, cell: CellId) -> Edge:
        """Return the edge in the direction of a cell."""
        return self.table_store.edges[self.world.path(self.cell, cell)[0]]

    def choose(
        self,
        pubend: PubendId,
        vector: StreamVector | None,
        receiver: Receiver,
        control_version: int = 0,
    ) -> TableChoice:
        return self.table_store.chooser.choose(pubend, vector, control_version, receiver)

    def passes(
        self,
        pubend: PubendId,
        vector: StreamVector | None,
        receiver: Receiver,
        event: Attributes,
        control_version: int = 0,
    ) -> bool:
        """Return whether an event is forwarded to a receiver."""
        choice = self.choose(pubend, vector, receiver, control_version)
        if choice.tables is None:
            return True
        return bool(self.table_store.index.match(event) & choice.mask)

    def claims(self, pubend: PubendId, version: int = 1) -> dict[ShbId, VectorEntry]:
        """Return what the broker's tables claim for a pubend: the vector it could promise."""
        hosts = {shb for edge in self.table_store.edges.values() for shb in edge.hosts}
        found = {shb: self.table_store.claim(shb, pubend, version) for shb in sorted(hosts)}
        return {shb: entry for shb, entry in found.items() if entry is not None}


class World:
    """Cells, the brokers in them that are alive, and pubends."""

    def __init__(
        self,
        cells: Tree,
        brokers: Mapping[BrokerId, CellId] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> None:
        self.cells = cells
        self._paths: dict[tuple[CellId, CellId], tuple[CellId, ...]] = {}
        self.parameters = parameters or Parameters()
        self.cell_by_broker = (
            dict(brokers) if brokers is not None else {cell: cell for cell in cells}
        )
        self.pubends: dict[PubendId, tuple[CellId, dict[int, str]]] = {}
        self.incarnations: dict[BrokerId, int] = {}
        self.now = 0
        self.brokers: dict[BrokerId, Broker] = {}
        for name in self.cell_by_broker:
            self.start(name)

    def __getitem__(self, name: BrokerId) -> Broker:
        return self.brokers[name]

    def path(self, source: CellId, target: CellId) -> tuple[CellId, ...]:
        """Return the cells from a cell to another, the target included, the source not."""
        if (source, target) not in self._paths:
            found = path_between(self.cells, source, target)
            assert found is not None, f"there is no path from {source} to {target}"
            self._paths[source, target] = found
        return self._paths[source, target]

    def brokers_of(self, cell: CellId, *more: BrokerId) -> list[BrokerId]:
        """Return all brokers that belong to a cell, alive or not."""
        return sorted(
            {name for name, own in self.cell_by_broker.items() if own == cell} | set(more)
        )

    def start(self, name: BrokerId) -> Broker:
        """Start a broker, or restart it in a new incarnation, empty."""
        self.stop(name)
        incarnation = self.incarnations[name] = self.incarnations.get(name, 0) + 1
        broker = self.brokers[name] = Broker(self, name, self.cell_by_broker[name], incarnation)
        return broker

    def stop(self, name: BrokerId) -> None:
        """Crash a broker; others notice."""
        if self.brokers.pop(name, None) is not None:
            for broker in self.brokers.values():
                for edge in broker.table_store.edges.values():
                    edge.mark_stale(name, self.now)

    def advertise(
        self, name: str, phb_cell: CellId, text: str, *, known_to: Iterable[str]
    ) -> PubendId:
        """Open a pubend, or widen its advertisement."""
        pubend = PubendId(name)
        adverts = self.pubends.setdefault(pubend, (phb_cell, {}))[1]
        adverts[len(adverts) + 1] = text
        for broker in known_to:
            self[broker].learn(pubend)
        return pubend

    # --- exchange --------------------------------------------------------------------------------

    def sender(self, requester: Broker, sender: Broker) -> tuple[Edge, TableSender, str]:
        """Return the requester's edge, the sender's table for it, and that table's direction."""
        if requester.cell == sender.cell:
            edge = requester.table_store.edges[str(sender.shb)]
            return edge, sender.leaf.sender, str(sender.shb)
        back = self.path(sender.cell, requester.cell)
        return requester.edge_to(sender.cell), sender.table_store.out[back[0]].sender, back[0]

    def request(self, requester: str, sender: str) -> TableRequest:
        """Make a broker a source and return the request to it."""
        source = self[sender]
        edge, _, direction = self.sender(self[requester], source)
        return edge.source(sender, source.cell, source.incarnation, direction, self.now)

    def answer(
        self, requester: str, sender: str, request: TableRequest
    ) -> tuple[TableDelta, ...] | tuple[TableFull, ...]:
        """Return the answer of a broker to a request."""
        source = self[sender]
        source.leaf.flush()
        source.table_store.flush()
        return self.sender(self[requester], source)[1].answer(request)

    def exchange(self, requester: str, sender: str) -> bool:
        """Update one copy and the known pubends of a peer; return whether they changed."""
        edge = self.sender(self[requester], self[sender])[0]
        messages = self.answer(requester, sender, self.request(requester, sender))
        updates = [edge.note_known(sender, *each) for each in self[sender].known.items()]
        for message in messages:
            outcome = edge.receive(sender, message)
            assert outcome not in {TransferOutcome.REQUEST, TransferOutcome.REFUSED}, outcome
        self[requester].table_store.drop_stale(self.now)
        return bool(messages) or any(updates)

    def links(self) -> list[tuple[str, str]]:
        """Return pairs of requester and source: all of the own cell, and one of each neighbour."""
        links = []
        for requester in self.brokers.values():
            links += [(requester.name, peer) for peer in self.alive(requester.cell)]
            for cell in self.cells[requester.cell]:
                links += [(requester.name, peer) for peer in self.alive(cell)[:1]]
        return links

    def alive(self, cell: CellId) -> list[str]:
        return [name for name in self.brokers_of(cell) if name in self.brokers]

    def settle(self, *links: tuple[str, str]) -> None:
        """Exchange tables over these links, or over all, until nothing changes."""
        chosen = links or tuple(self.links())
        for _ in range(100):
            updates = [self.exchange(requester, sender) for requester, sender in chosen]
            if not any(updates):
                return
        raise AssertionError("the tables do not settle")
