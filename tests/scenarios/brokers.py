"""Whole brokers in a small world that a test drives by hand.

Brokers are in a tree that is given as text (``"p-a-n", "a-m"``; one broker a cell unless ``cells``
gives more). Time is virtual and moves only by :meth:`World.run`. A message takes a millisecond over a
link, a write a millisecond to the disk; nothing is random, so a scenario always runs the same way.

A scenario may cut a link, in both directions or one, or clog it in one direction; lose, hold or repeat
messages that it describes; stop a disk; crash a broker, which loses unsynced writes; set a clock;
change the tree and let brokers apply it one by one. Sessions do not number their packets here (the
datagram model of R1), so single messages can be lost. Clients only record. Events have labels, so that
a scenario can name them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from gapless.broker import Broker
from gapless.content.values import Value
from gapless.core.context import StepTime
from gapless.core.effects import DisconnectClient, Effect, Fetch, Notify, Send, SetPeers, Write
from gapless.core.events import (
    ClientDown,
    ClientRequest,
    ClientUp,
    Fetched,
    LinkDown,
    LinkUp,
    MachineEvent,
    Received,
    Written,
)
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Credit,
    Delivery,
    FilterSet,
    Gap,
    HostingReference,
    OpenPubend,
    OpenPublisher,
    Order,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    Refused,
    SetFilter,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionStarted,
    Unsubscribe,
)
from gapless.messages.overlay import Packet, Quality, RecordList, RecordPush, RecordWant
from gapless.messages.records import (
    AppendPackedRow,
    AppendRow,
    DeleteRecord,
    LogRow,
    MemberRecord,
    PubendRecord,
    PutRecord,
    Record,
    StorageChange,
    TrimLog,
)
from gapless.messages.streams import Publication
from gapless.overlay.neighbourhood import Topology
from gapless.packed.pick import packed, unpack_row
from gapless.pubend.pubend import Pubend
from gapless.reshape.changes import shifted
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.subend import Subend

CLOCK_START = microseconds(s=1_000_000)
HOP_US = microseconds(ms=1)
SYNC_US = microseconds(ms=1)
REDIAL_US = microseconds(ms=50)

_RECORDS = RecordPush | RecordList | RecordWant

Wanted = Callable[[BrokerId, BrokerId, Any], bool]
"""Tests whether a fault applies to a message from one broker to another."""


def of(*kinds: type, source: BrokerId | None = None, target: BrokerId | None = None) -> Wanted:
    """Describe messages by their kinds, and by their link."""

    def wanted(sender: BrokerId, receiver: BrokerId, message: Any) -> bool:
        return (
            isinstance(message, kinds) and source in {None, sender} and target in {None, receiver}
        )

    return wanted


def shb(broker: BrokerId) -> ShbId:
    """Return the SHB of a broker that is alone in its cell."""
    return ShbId(broker, broker)


class Fault:
    """A fault that applies to messages until it ends."""

    def __init__(self, world: World, kind: str, wanted: Wanted) -> None:
        self.kind = kind
        self.wanted = wanted
        self.struck: list[tuple[BrokerId, BrokerId, Packet]] = []
        """Every message it affected, in its packet."""
        self._world = world

    @property
    def messages(self) -> list[Any]:
        """The messages that it affected."""
        return [message for _, _, packet in self.struck for message in packet.messages]

    def end(self) -> None:
        """Let messages pass again; held ones stay held."""
        self._world.faults.remove(self)

    def release(self, *, reverse: bool = False) -> None:
        """End it and deliver held messages, or in reverse order."""
        self.end()
        self.deliver(reverse=reverse)

    def deliver(self, *, reverse: bool = False) -> None:
        """Deliver held messages; more may be held from now on."""
        struck, self.struck = self.struck, []
        for source, target, packet in reversed(struck) if reverse else struck:
            self._world.fly(source, target, packet)


class Disk:
    """A disk: records and logs that are durable, and writes that are not yet."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, ...], Record] = {}
        self.logs: dict[PubendId, list[LogRow]] = {}
        self.corrupt: set[Tick] = set()
        """The first ticks of rows that cannot be read."""
        self.stopped = False
        """Whether writes stay unsynced."""
        self.unsynced: list[Write] = []

    def load(self) -> list[Record]:
        """Return all records, in the order of their keys."""
        return [self.records[key] for key in sorted(self.records)]

    def sync(self) -> list[int]:
        """Make all writes durable; return their write ids."""
        writes, self.unsynced = self.unsynced, []
        for write in writes:
            for change in write.changes:
                self._apply(change)
        return [write.write_id for write in writes]

    def fetched(self, fetch: Fetch) -> Fetched:
        """Return the rows of a fetch, up to the first corrupt row."""
        rows, fault = self.rows(fetch), None
        for index, row in enumerate(rows):
            if row.first in self.corrupt:
                rows, fault = rows[:index], f"row {row.first} is corrupt"
                break
        return Fetched(fetch.fetch_id, tuple(map(packed, rows)) if fetch.packed else rows, fault)

    def rows(self, fetch: Fetch) -> tuple[LogRow, ...]:
        """Return the rows of a range."""
        rows = self.logs.get(fetch.pubend, [])
        return tuple(row for row in rows if row.last >= fetch.low and row.first <= fetch.high)

    def _apply(self, change: StorageChange) -> None:
        if isinstance(change, PutRecord):
            self.records[change.record.key] = change.record
        elif isinstance(change, DeleteRecord):
            self.records.pop(change.key, None)
        elif isinstance(change, AppendRow):
            self.logs.setdefault(change.row.pubend, []).append(change.row)
        elif isinstance(change, AppendPackedRow):
            self._apply(AppendRow(unpack_row(change)))
        elif isinstance(change, TrimLog):
            kept = [row for row in self.logs.get(change.pubend, []) if row.last > change.up_to]
            self.logs[change.pubend] = kept


class Node:
    """A computer: its disk, its clock, and its broker, if one runs."""

    def __init__(self, name: BrokerId, cell: CellId) -> None:
        self.name = name
        self.cell = cell
        self.disk = Disk()
        self.clock_error = 0
        self.broker: Broker | None = None
        self.clients: dict[str, Client] = {}
        self.peers: tuple[BrokerId, ...] = ()
        """The peers to which it wants links."""
        self.dialled: tuple[BrokerId, ...] = ()
        """The brokers that it dials for control sessions."""
        self.admitted: tuple[BrokerId, ...] = ()
        self.linked: set[BrokerId] = set()
        """The brokers with which it has a link, cut or not."""


class World:
    """Brokers, links, disks, clients and the time."""

    def __init__(
        self,
        *chains: str,
        cells: dict[CellId, list[BrokerId]] | None = None,
        **parameters: int,
    ) -> None:
        defaults = {"delta": 0, "retention_s": 0, "find_timeout_ms": 50}
        defaults |= {"idle_silence_max_ms": 1_000}
        settings: dict[str, Any] = {**defaults, **parameters}
        self.parameters = Parameters(ordered_sessions=False, **settings)
        edges = []
        names: dict[CellId, list[BrokerId]] = {}
        for chain in chains:
            line = chain.split("-")
            edges += [*pairwise(line)]
            names |= {cell: [cell] for cell in line if cell not in names}
        topology = self.topology = Topology.of(names | (cells or {}), edges)
        self.records_travel = False
        """Whether brokers tell each other records of cells (RS-4); else only a test tells them."""
        self.now = microseconds(s=10)
        self.nodes: dict[BrokerId, Node] = {}
        self.faults: list[Fault] = []
        self.sent: list[tuple[int, BrokerId, BrokerId, Any]] = []
        """Every message between brokers: time, sender, receiver."""
        self._neighbourhoods = {
            each.name: topology.neighbourhood(each.name, self.parameters.neighbourhood_radius)
            for each in topology.cells
        }
        self._cuts: set[tuple[BrokerId, BrokerId]] = set()
        self._clogged_since: dict[tuple[BrokerId, BrokerId], int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        for cell in topology.cells:
            for name in cell.brokers:
                self.nodes[name] = Node(name, cell.name)
        for name in self.nodes:
            self.start(name)
        self.run(s=1)

    def __getitem__(self, name: BrokerId) -> Broker:
        broker = self.nodes[name].broker
        assert broker is not None, f"{name} is down"
        return broker

    # --- time --------------------------------------------------------------------------------

    def run(self, *, ms: int = 0, s: int = 0) -> None:
        """Let time pass."""
        self._run_until(self.now + microseconds(ms=ms, s=s), lambda: False)

    def receive(self, name: BrokerId, peer: BrokerId, message: Any) -> None:
        """Give a message to a broker as if it had arrived over its session with a peer."""
        self[name].components.sessions._listener.received(peer, message)

    def wait(self, happened: Callable[[], bool], *, s: int = 1) -> bool:
        """Let time pass until a condition holds, at most so long; return whether it holds."""
        self._run_until(self.now + microseconds(s=s), happened)
        return happened()

    def _run_until(self, deadline: int, happened: Callable[[], bool]) -> None:
        while not happened():
            at, node = min(self._timers(), default=(deadline + 1, ""))
            if self._queue and self._queue[0][0] <= at:
                at, node = self._queue[0][0], ""
            if at > deadline:
                self.now = deadline
                return
            self.now = max(self.now, at)
            if node:
                self.happen(node, None)
            else:
                heapq.heappop(self._queue)[2]()

    def _timers(self) -> Iterator[tuple[int, BrokerId]]:
        for name, node in self.nodes.items():
            due = None if node.broker is None else node.broker.next_timer()
            if due is not None:
                yield due, name

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Run an action later."""
        self._order += 1
        heapq.heappush(self._queue, (self.now + delay_us, self._order, action))

    # --- brokers -----------------------------------------------------------------------------

    def start(self, name: BrokerId) -> None:
        """Start an incarnation of a broker from its disk."""
        node = self.nodes[name]
        assert node.broker is None, f"{name} runs already"
        neighbourhood = self._neighbourhoods[node.cell]
        now = self._step_time(node)
        node.broker = Broker(name, node.cell, self.parameters, neighbourhood, node.disk.load(), now)
        node.peers = tuple(peer for peer in neighbourhood.all_brokers() if peer != name)
        self.happen(name, None)
        node.dialled = node.admitted = ()
        dialling = (each for each, other in self.nodes.items() if name in other.dialled)
        for peer in (*node.peers, *dialling):
            self._connect(name, peer)

    def crash(self, name: BrokerId) -> None:
        """Crash a broker: memory and unsynced writes are lost, links and clients notice."""
        node = self.nodes[name]
        node.broker = None
        node.disk.unsynced = []
        node.disk.stopped = False
        node.clients = {}
        for peer in node.peers:
            self.happen(peer, LinkDown(name))
        for peer in sorted(node.linked.difference(node.peers)):
            self.happen(peer, LinkDown(name))
        for peer in node.linked:
            self.nodes[peer].linked.discard(name)
        node.linked = set()

    def restart(self, name: BrokerId, *, clock_back_s: int = 0) -> None:
        """Crash a broker and start it again, optionally with its clock set back."""
        self.crash(name)
        self.set_clock(name, -clock_back_s)
        self.start(name)

    def set_clock(self, name: BrokerId, change_s: int) -> None:
        """Set the wall clock of a broker forward or back."""
        self.nodes[name].clock_error += microseconds(s=change_s)

    def _step_time(self, node: Node) -> StepTime:
        return StepTime(self.now, CLOCK_START + self.now + node.clock_error)

    def happen(self, name: BrokerId, event: MachineEvent) -> None:
        """Pass an event to a broker; a broker that is down gets nothing."""
        node = self.nodes[name]
        if node.broker is not None:
            for effect in node.broker.step(event, self._step_time(node)):
                self._carry_out(node, node.broker, effect)

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        match effect:
            case Send(peer, packet):
                self._send(node.name, peer, packet)
            case Notify(client, notice):
                if client in node.clients:
                    node.clients[client].take_notice(notice)
            case DisconnectClient(client, _):
                node.clients.pop(client, None)
            case Write():
                node.disk.unsynced.append(effect)
                self.after(SYNC_US, lambda: self._synced(node, broker))
            case Fetch():
                self.after(SYNC_US, lambda: self._fetched(node, broker, effect))
            case SetPeers():
                self._set_peers(node, effect)

    def _synced(self, node: Node, broker: Broker) -> None:
        if node.broker is broker and not node.disk.stopped:
            for write_id in node.disk.sync():
                self.happen(node.name, Written(write_id))

    def _fetched(self, node: Node, broker: Broker, fetch: Fetch) -> None:
        if node.broker is broker:
            self.happen(node.name, node.disk.fetched(fetch))

    # --- the tree ----------------------------------------------------------------------------

    def shift(self, moved: CellId, old: CellId, new: CellId) -> None:
        """Move a cell from its neighbour to a neighbour of that; no broker knows of it yet."""
        cells = {each.name: each for each in self.topology.cells}
        cells |= {each.name: each for each in shifted(cells[moved], cells[old], cells[new])}
        self.topology = Topology(tuple(cells.values()))

    def apply_tree(self, *names: BrokerId) -> None:
        """Let brokers apply the current tree; it is on their disks a millisecond later."""
        for name in names:
            self[name].apply_records(self.topology.cells)
            self.happen(name, None)

    def _set_peers(self, node: Node, wanted: SetPeers) -> None:
        """Open links between a broker and those that want them too; close the others.

        What the broker has sent before arrives first.
        """
        node.peers = tuple(each.broker for each in wanted.peers)
        node.dialled = tuple(each.broker for each in wanted.control)
        node.admitted = wanted.admitted
        linked = {*node.peers, *node.dialled, *node.admitted}
        for peer in sorted(node.linked - linked):
            self._disconnect(node.name, peer)
        for peer in (*node.peers, *node.dialled):
            if peer not in node.linked and peer in self.nodes:
                self._connect(node.name, peer)

    # --- links -------------------------------------------------------------------------------

    def cut(self, one: BrokerId, other: BrokerId) -> None:
        """Cut a link in both directions; both ends notice."""
        self._cuts |= {(one, other), (other, one)}
        self.nodes[one].linked.discard(other)
        self.nodes[other].linked.discard(one)
        self.happen(one, LinkDown(other))
        self.happen(other, LinkDown(one))

    def mute(self, source: BrokerId, target: BrokerId) -> None:
        """Cut a link in one direction; no end notices."""
        self._cuts.add((source, target))

    def clog(self, source: BrokerId, target: BrokerId) -> None:
        """Let a link carry half of its load in one direction: packets arrive later and later."""
        self._clogged_since[source, target] = self.now

    def heal(self, one: BrokerId, other: BrokerId) -> None:
        """Restore a link that was cut."""
        self._cuts -= {(one, other), (other, one)}
        self._connect(one, other)

    def _connect(self, one: BrokerId, other: BrokerId) -> None:
        left, right = self.nodes[one], self.nodes[other]
        wanted = one in right.peers and other in left.peers
        wanted = wanted or one in right.dialled or other in left.dialled
        is_up = left.broker is not None and right.broker is not None
        if wanted and is_up and (one, other) not in self._cuts:
            left.linked.add(other)
            right.linked.add(one)
            self.happen(one, LinkUp(other))
            self.happen(other, LinkUp(one))

    def _disconnect(self, one: BrokerId, other: BrokerId) -> None:
        """Close a link; the other end notices when the last packet has arrived."""
        left, right = self.nodes[one], self.nodes[other]
        left.linked.discard(other)
        right.linked.discard(one)
        self.after(0, lambda: self.happen(one, LinkDown(other)))

        def noticed() -> None:
            if one not in right.linked:
                self.happen(other, LinkDown(one))

        def dialled_again() -> None:
            if one not in right.linked:
                self._connect(one, other)

        self.after(HOP_US, noticed)
        self.after(REDIAL_US, dialled_again)

    def _send(self, source: BrokerId, target: BrokerId, packet: Any) -> None:
        if not isinstance(packet, Packet):
            self.fly(source, target, packet)
            return
        kept: list[Any] = []
        for message in packet.messages:
            if isinstance(message, _RECORDS) and not self.records_travel:
                continue
            self.sent.append((self.now, source, target, message))
            copies = 1
            for fault in self.faults:
                if fault.wanted(source, target, message):
                    fault.struck.append((source, target, _repacked(packet, [message])))
                    copies = 2 if fault.kind == "repeat" else 0
            kept += [message] * copies
        if kept:
            self.fly(source, target, _repacked(packet, kept))

    def fly(self, source: BrokerId, target: BrokerId, packet: Any) -> None:
        """Put a packet in transit; a link that is cut meanwhile loses it."""

        def arrive() -> None:
            if (source, target) not in self._cuts:
                self.happen(target, Received(source, packet))

        if (source, target) not in self._cuts:
            waiting = self.now - self._clogged_since.get((source, target), self.now)
            self.after(HOP_US + waiting, arrive)

    def lose(self, wanted: Wanted) -> Fault:
        """Lose messages."""
        return self._fault("lose", wanted)

    def hold(self, wanted: Wanted) -> Fault:
        """Hold messages until they are released."""
        return self._fault("hold", wanted)

    def repeat(self, wanted: Wanted) -> Fault:
        """Deliver messages twice."""
        return self._fault("repeat", wanted)

    def _fault(self, kind: str, wanted: Wanted) -> Fault:
        fault = Fault(self, kind, wanted)
        self.faults.append(fault)
        return fault

    def sent_over(
        self, kind: type, source: BrokerId, target: BrokerId, since: int = 0
    ) -> list[Any]:
        """Return the messages of a kind that were sent over a link, lost ones included."""
        return [
            message
            for at, one, other, message in self.sent
            if at >= since and (one, other) == (source, target) and isinstance(message, kind)
        ]

    # --- looking inside ----------------------------------------------------------------------

    def pubend(self, name: BrokerId, pubend: PubendId) -> Pubend:
        """Return a pubend of a broker."""
        hosted = self[name].components.hosted[pubend]
        assert isinstance(hosted, Pubend)
        return hosted

    def subend(self, name: BrokerId, pubend: PubendId) -> Subend:
        """Return the subend of an SHB."""
        return self[name].components.subends.guaranteed[pubend]

    def horizon(self, name: BrokerId, pubend: PubendId) -> Tick:
        """Return the horizon of an SHB; 0 before it has a base."""
        return self.subend(name, pubend).horizon

    def started_after(self, name: BrokerId, subscription: str, pubend: PubendId) -> Tick | None:
        """Return after which tick a subscription started on a pubend; None if it has not."""
        start = self[name].components.registry.subscriptions[subscription].cursors[pubend].start
        return start.after if isinstance(start, Started) else None

    def released(self, name: BrokerId, pubend: PubendId) -> Tick:
        """Return the released tick of a log on disk."""
        record = self.nodes[name].disk.records["pubend", str(pubend)]
        assert isinstance(record, PubendRecord)
        return record.released

    def member(self, name: BrokerId, pubend: PubendId, host: BrokerId) -> MemberRecord | None:
        """Return a member's row on the disk of a PHB."""
        key = MemberRecord.key_of(pubend, shb(host))
        record = self.nodes[name].disk.records.get(key)
        assert record is None or isinstance(record, MemberRecord)
        return record

    # --- clients -----------------------------------------------------------------------------

    def publisher(
        self,
        broker: BrokerId,
        pubend: str = "P",
        advertisement: str = "TRUE",
        quality: Quality = Quality.GUARANTEED,
    ) -> Publisher:
        """Open a pubend and a publisher, and wait until all brokers know it."""
        made = Publisher(self, broker, pubend, advertisement, quality)
        self.run(ms=100)
        return made

    def subscriber(self, broker: BrokerId, name: str, wanted: str, **options: Any) -> Subscriber:
        """Send a subscribe call without waiting for the answer."""
        return Subscriber(self, broker, name, wanted, **options)


def _repacked(packet: Packet, messages: list[Any]) -> Packet:
    return Packet(packet.sender, packet.receiver, packet.sequence, tuple(messages))


class Client:
    """A client that records its notices, over all its connections."""

    def __init__(self, world: World, broker: BrokerId, name: str) -> None:
        self.world = world
        self.broker = broker
        self.name = name
        self.notices: list[Any] = []
        self._requests = 0
        self.connect()

    def connect(self, broker: BrokerId | None = None) -> None:
        """Connect, optionally to another broker."""
        self.broker = broker or self.broker
        self.world.nodes[self.broker].clients[self.name] = self
        self.world.happen(self.broker, ClientUp(self.name))

    def leave(self) -> None:
        """Disconnect."""
        self.world.nodes[self.broker].clients.pop(self.name, None)
        self.world.happen(self.broker, ClientDown(self.name))

    def take_notice(self, notice: Any) -> None:
        """Take a notice."""
        self.notices.append(notice)

    def request(self, request: Any) -> None:
        """Send a request."""
        self.world.happen(self.broker, ClientRequest(self.name, request))

    def number(self) -> int:
        """Return an unused request number."""
        self._requests += 1
        return self._requests

    def answer(self, number: int) -> Any:
        """Return the answer to a request, None if there is none yet."""
        found = [each for each in self.notices if getattr(each, "request", None) == number]
        return found[-1] if found else None

    def call(self, request: Any, *, s: int = 1) -> Any:
        """Send a request and wait for the answer, at most so long."""
        self.request(request)
        self.world.wait(lambda: self.answer(request.request) is not None, s=s)
        return self.answer(request.request)

    def of_kind(self, kind: type) -> list[Any]:
        """Return the notices of a kind."""
        return [each for each in self.notices if isinstance(each, kind)]


class Publisher(Client):
    """Publishes events with labels, numbered from 1."""

    def __init__(
        self, world: World, broker: BrokerId, pubend: str, advertisement: str, quality: Quality
    ) -> None:
        super().__init__(world, broker, f"publisher of {pubend}")
        self.ticks: dict[str, Tick] = {}
        """The ticks of acknowledged events, by label."""
        self._sequence = 0
        self._labels: dict[int, str] = {}
        found = self.call(OpenPubend(self.number(), pubend, advertisement, quality), s=5)
        self.pubend = found.pubend if isinstance(found, PubendOpened) else PubendId(pubend)
        self.session = 0
        self.open()

    def open(self) -> PublisherOpened:
        """Open a publisher session; older ones are fenced."""
        opened = self.call(OpenPublisher(self.number(), self.pubend, "ann"))
        assert isinstance(opened, PublisherOpened)
        self.session = opened.session
        return opened

    def send_event(
        self, label: str, *, sequence: int = 0, session: int = 0, **values: Value
    ) -> int:
        """Send an event; return the number of the request."""
        return self.send_values(label, values, sequence, session)

    def publish(self, label: str, **values: Value) -> Tick:
        """Publish an event and wait until it is acknowledged; return its tick."""
        number = self.send_values(label, values)
        self.world.wait(lambda: self.answer(number) is not None)
        return self.ticks[label]

    def send_values(
        self, label: str, values: Mapping[str, Value | None], sequence: int = 0, session: int = 0
    ) -> int:
        """Send an event with the given values."""
        self._sequence = sequence or self._sequence + 1
        number = self.number()
        self._labels[number] = label
        present = {name: value for name, value in values.items() if value is not None}
        events = ((present, label.encode()),)
        session = session or self.session
        self.request(Publish(number, self.pubend, "ann", session, self._sequence, events))
        return number

    def take_notice(self, notice: Any) -> None:
        """Record the tick of an acknowledged event."""
        super().take_notice(notice)
        if isinstance(notice, Published):
            (tick,) = notice.ticks
            self.ticks[self._labels[notice.request]] = tick

    def refused(self, number: int) -> bool:
        """Return whether a request was refused."""
        return isinstance(self.answer(number), Refused)


class Subscriber(Client):
    """Subscribes under its own name and records events, gaps and positions."""

    def __init__(
        self,
        world: World,
        broker: BrokerId,
        name: str,
        wanted: str,
        *,
        durable: bool = False,
        order: Order = Order.PUBLISHER,
        start: StartPoint | None = None,
        credit: int = 1_000_000,
        hosting: HostingReference | None = None,
    ) -> None:
        super().__init__(world, broker, name)
        self.wanted = wanted
        self.durable = durable
        self.order = order
        self.credit = credit
        self.subscribe(start or StartPoint(), hosting)

    def subscribe(self, start: StartPoint, hosting: HostingReference | None = None) -> None:
        """Send the subscribe call, for a new subscription or to resume."""
        self.request(
            Subscribe(
                self.number(),
                self.name,
                self.wanted,
                self.durable,
                start,
                self.order,
                self.credit,
                hosting=hosting,
                acked=start.position if hosting else (),
                create=True,  # scenarios cut brokers off before they subscribe
            )
        )

    def come_back(self, start: StartPoint | None = None, broker: BrokerId | None = None) -> None:
        """Connect again and resume."""
        self.connect(broker)
        self.subscribe(start or StartPoint())

    def set_filter(self, wanted: str) -> int:
        """Send a filter change; return the number of the request."""
        self.wanted = wanted
        number = self.number()
        self.request(SetFilter(number, self.name, wanted))
        return number

    def acknowledge(self, pubend: PubendId, tick: Tick) -> None:
        """Acknowledge a pubend up to a tick."""
        self.request(Ack(self.name, ((pubend, tick),)))

    def give_credit(self, events: int) -> None:
        """Give credit for so many more events."""
        self.request(Credit(self.name, events))

    def end(self) -> None:
        """End the subscription."""
        self.request(Unsubscribe(self.number(), self.name))

    @property
    def publications(self) -> list[tuple[PubendId, Publication]]:
        """The events it received, in order."""
        return [event for each in self.of_kind(Delivery) for event in each.events]

    @property
    def events(self) -> list[str]:
        """The labels of the events it received."""
        return [publication.payload.decode() for _, publication in self.publications]

    @property
    def hosting(self) -> HostingReference:
        """The hosting reference that it received last, of a durable subscription."""
        hosting: HostingReference | None = self.of_kind(Subscribed)[-1].hosting
        assert hosting is not None
        return hosting

    @property
    def gaps(self) -> list[Gap]:
        """The gaps it received."""
        return self.of_kind(Gap)

    @property
    def starts(self) -> dict[PubendId, Tick]:
        """By pubend, the tick after which its first connection was notified that it started."""
        found: dict[PubendId, Tick] = {}
        for notice in self.notices:
            if isinstance(notice, Subscribed):
                found = {**dict(notice.position), **found}
            elif isinstance(notice, SubscriptionStarted):
                found.setdefault(notice.pubend, notice.after)
        return found

    def filter_changed(self, number: int) -> dict[PubendId, Tick] | None:
        """Return up to where the filter before a change applied; None if there is no answer."""
        answer = self.answer(number)
        return dict(answer.position) if isinstance(answer, FilterSet) else None
