"""Two models of a network between hosts: ordered connections, and datagrams.

**session**: a pair of hosts has one connection or none. A connection delivers packets in order in
each direction, after a delay. A cut stops one direction. Then the connection either *stalls* or
*breaks*. A stalled connection resumes where it stopped when the cut heals, as TCP does; a sender
with too many bytes in flight gets LinkFull. A broken connection loses all packets in flight. Each
end gets LinkDown after a while or, half-open, never. When both processes run and nothing is cut, a
new connection gives LinkUp at both ends. An end that was never notified that the old connection
broke may get LinkUp without LinkDown.

**datagram**: packets are lost, duplicated and reordered; links are up from the start.

Which hosts have a link follows from what both ends want (:class:`WantedLinks`): a host dials its
neighbours with greater names, and other brokers for control sessions. An end that does not want a
link closes it; what it sent before still arrives. A cut stays with the two hosts, whether or not
they have a link meanwhile.

Fault budget. Within one connection nothing is repeated or reordered, and nothing is skipped unless
the options have that as a fault of its own; a packet of one connection never arrives in the next.
Contents are never changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from gapless.core.events import LinkDown, LinkDrained, LinkFull, LinkUp, Received
from gapless.core.ids import BrokerId
from gapless_lab.sim.wanted_links import WantedLinks

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["HostPair", "SessionNetwork", "SimulatedLink", "SimulatedNetwork"]

UP: Final = object()
"""The first item on a connection; it becomes LinkUp at the receiver."""

CLOSED: Final = object()
"""The last item of an end that has closed a connection; the receiver then gets LinkDown."""

REDIAL_US: Final = 50_000
"""How long a host waits before it dials a broker again that has closed the connection."""


class HostPair:
    """Two hosts, and the connection between them in the session model."""

    __slots__ = ("links", "number", "open", "stalls")

    def __init__(self) -> None:
        self.links: tuple[SimulatedLink, SimulatedLink]
        self.number = 0
        """The number of the connection; a packet of another one is lost."""
        self.open = False
        self.stalls = False
        """Whether the present cut only stalls the connection."""

    @property
    def is_dialled(self) -> bool:
        """Whether one end dials the other."""
        left, right = (link.source for link in self.links)
        return left.wanted_links.dials(right.broker) or right.wanted_links.dials(left.broker)


class SimulatedLink:
    """One direction between two hosts."""

    __slots__ = (
        "arrival",
        "back",
        "bytes",
        "cut",
        "full",
        "held",
        "known_connection",
        "loss",
        "pair",
        "permanent",
        "queue",
        "skips",
        "source",
        "stalled",
        "target",
    )

    def __init__(self, source: SimulatedHost, target: SimulatedHost, pair: HostPair) -> None:
        self.source = source
        self.target = target
        self.pair = pair
        self.back: SimulatedLink
        self.cut = False
        self.permanent = False
        self.held = 0
        """The number of outages that keep the link cut."""
        self.loss = 0.0
        self.known_connection = 0
        """The connection that the source considers open; 0 for none."""
        self.arrival = 0
        self.queue: deque[Any] = deque()
        self.bytes = 0
        """The approximate number of bytes in flight."""
        self.full = False
        self.skips = False
        """Whether the next packet is lost while the connection continues."""
        self.stalled = 0


class SimulatedNetwork:
    """The common part of both models: links, delays, cuts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("network")
        self._draw = self._random.random
        self.links: dict[BrokerId, dict[BrokerId, SimulatedLink]] = {
            name: {} for name in world.hosts
        }
        self.pairs: list[HostPair] = []
        """All pairs of hosts that ever had a link, or were to have one."""
        self.sent = 0
        self.lost = 0
        self._delay_min = world.options.delay_us_min
        self._delay_span = max(0, world.options.delay_us_max - world.options.delay_us_min)
        for source in world.hosts.values():
            for name in source.configured.all_brokers():
                if name > source.broker:
                    self._add_pair(source, world.hosts[name])

    def add_host(self, host: SimulatedHost) -> None:
        """Add a host without links."""
        self.links[host.broker] = {}

    def dialled_pairs(self) -> list[HostPair]:
        """Return the pairs of hosts that are to have a link."""
        return [pair for pair in self.pairs if pair.is_dialled]

    def set_links(self, host: SimulatedHost, wanted: WantedLinks) -> None:
        """Keep exactly these links of a host."""
        host.wanted_links = wanted
        for link in list(self.links[host.broker].values()):
            if not wanted.keeps(link.target.broker):
                self._close(link)
        for name in wanted.dialled():
            other = self._world.hosts.get(name)
            if other is not None and name not in self.links[host.broker]:
                self._add_pair(host, other)
        for name in wanted.dialled():
            dialled = self.links[host.broker].get(name)
            if dialled is not None:
                self._dial(dialled.pair)

    def _close(self, link: SimulatedLink) -> None:
        """Close a connection at its source, if it is open there."""
        raise NotImplementedError

    def _dial(self, pair: HostPair) -> None:
        """Connect two hosts, unless they are connected."""
        raise NotImplementedError

    def _add_pair(self, left: SimulatedHost, right: SimulatedHost) -> None:
        pair = HostPair()
        there, back = SimulatedLink(left, right, pair), SimulatedLink(right, left, pair)
        there.back, back.back = back, there
        pair.links = (there, back)
        self.pairs.append(pair)
        self.links[left.broker][right.broker] = there
        self.links[right.broker][left.broker] = back

    def delay(self) -> int:
        """Draw the delay of a packet; one in a hundred is slow."""
        drawn = self._draw()
        delay = self._delay_min + int(drawn * self._delay_span)
        return delay if drawn < 0.99 else delay * 8

    # --- what the models do ------------------------------------------------------------------

    def send(self, source: SimulatedHost, target: BrokerId, packet: Any) -> None:
        """Take a packet from a host."""
        raise NotImplementedError

    def started(self, host: SimulatedHost) -> None:
        """A process has started on a host."""
        raise NotImplementedError

    def stopped(self, host: SimulatedHost) -> None:
        """The process of a host has ended."""
        raise NotImplementedError

    def in_flight(self) -> Iterator[tuple[SimulatedLink, Any]]:
        """Return every packet that may still arrive."""
        raise NotImplementedError

    def reset(self, pair: HostPair) -> None:
        """Break a connection without cutting anything."""

    def cut(self, link: SimulatedLink, *, permanent: bool = False) -> None:
        """Block a link; only the liveness phase heals a permanent cut."""
        link.cut = True
        link.permanent = link.permanent or permanent
        self._world.note(link.source.broker, f"link to {link.target.broker} is cut")

    def heal(self, link: SimulatedLink) -> None:
        """Unblock a link."""
        link.cut = link.permanent = False
        self._world.note(link.source.broker, f"link to {link.target.broker} heals")


class SessionNetwork(SimulatedNetwork):
    """Connections that keep the order and can break."""

    def send(self, source: SimulatedHost, target: BrokerId, packet: Any) -> None:
        """Queue a packet on the connection, unless it is lost."""
        self.sent += 1
        link = self.links[source.broker].get(target)
        if link is None:
            self.lost += 1
            return
        pair = link.pair
        if link.known_connection != pair.number or not pair.open or (link.cut and not pair.stalls):
            self.lost += 1
            return
        if link.skips:
            link.skips = False
            self.lost += 1
            self._world.count_fault("skipped packet")
            return
        self._enqueue(link, packet)

    def _enqueue(self, link: SimulatedLink, item: Any) -> None:
        link.queue.append(item)
        link.bytes += _bytes(item)
        if link.bytes > self._world.parameters.queue_bytes_max and not link.full:
            link.full = True
            self._world.push(self._world.now, self._notify_queue, link, link.pair.number)
        at = self._world.now + self.delay()
        link.arrival = at = max(at, link.arrival)
        self._world.push(at, self._arrive, link, link.pair.number)

    def _arrive(self, link: SimulatedLink, number: int) -> None:
        if number != link.pair.number or not link.queue:
            return
        if link.cut:
            link.stalled += 1  # breaking clears the queue, so this connection stalls
            return
        item = link.queue.popleft()
        link.bytes -= _bytes(item)
        if link.full and link.bytes <= self._world.parameters.queue_bytes_max // 2:
            link.full = False
            self._world.push(self._world.now, self._notify_queue, link, number)
        process = link.target.process
        assert process is not None, "a crash breaks the connections of its host"
        if item is CLOSED:
            self._closed(link)
        elif item is UP:
            if link.back.known_connection and self._draw() < 0.5:
                self._world.happen(process, LinkDown(link.source.broker))
            link.back.known_connection = number
            self._world.happen(process, LinkUp(link.source.broker))
        else:
            self._world.happen(process, Received(link.source.broker, item))

    def in_flight(self) -> Iterator[tuple[SimulatedLink, Any]]:
        """Return the packets in flight on all connections, oldest first on each link."""
        for links in self.links.values():
            for link in links.values():
                for item in link.queue:
                    if item is not UP and item is not CLOSED:
                        yield link, item

    # --- connecting and breaking -------------------------------------------------------------

    def started(self, host: SimulatedHost) -> None:
        """Connect a new process with all its running peers."""
        for link in self.links[host.broker].values():
            self._connect_later(link.pair)

    def stopped(self, host: SimulatedHost) -> None:
        """Break all connections of a dead process."""
        for link in self.links[host.broker].values():
            link.known_connection = 0
            self._break(link.pair)

    def cut(self, link: SimulatedLink, *, permanent: bool = False) -> None:
        """Stop one direction; the connection stalls or breaks."""
        already = link.cut
        super().cut(link, permanent=permanent)
        pair = link.pair
        if already or not pair.open:
            return
        if link.back.cut and pair.stalls:
            return
        pair.stalls = self._draw() < self._world.options.stall
        if not pair.stalls:
            self._break(pair)
        elif permanent or self._draw() < 0.5:
            # after a while the transport gives up
            delay = int(self._draw() * 2_000_000)
            self._world.push(self._world.now + delay, self._give_up, pair, pair.number)

    def heal(self, link: SimulatedLink) -> None:
        """Unblock a direction; a stalled connection resumes, a broken one is replaced."""
        super().heal(link)
        pair = link.pair
        if pair.open:
            stalled, link.stalled = link.stalled, 0
            for _ in range(stalled):
                at = max(link.arrival, self._world.now + self.delay())
                link.arrival = at
                self._world.push(at, self._arrive, link, pair.number)
        else:
            self._connect_later(pair)

    def reset(self, pair: HostPair) -> None:
        """Break a connection; the hosts connect again if nothing is cut."""
        if pair.open:
            self._break(pair)
            self._connect_later(pair)

    def _give_up(self, pair: HostPair, number: int) -> None:
        if pair.number == number and pair.open and (pair.links[0].cut or pair.links[1].cut):
            self._break(pair)

    def _break(self, pair: HostPair) -> None:
        pair.open = False
        for link in pair.links:
            self.lost += len(link.queue)
            link.queue.clear()
            link.bytes = link.stalled = 0
            link.full = link.skips = False
            if link.known_connection and self._draw() >= self._world.options.half_open:
                at = self._world.now + self.delay() + int(self._draw() * 50_000)
                self._world.push(at, self._notify_down, link, link.known_connection)

    def _notify_queue(self, link: SimulatedLink, number: int) -> None:
        """Notify a sender that the queue of its link is full, or has drained."""
        process = link.source.process
        if number == link.pair.number and process is not None:
            name = link.target.broker
            self._world.happen(process, LinkFull(name) if link.full else LinkDrained(name))

    def _notify_down(self, link: SimulatedLink, number: int) -> None:
        process = link.source.process
        if link.known_connection == number and process is not None:
            link.known_connection = 0
            self._world.happen(process, LinkDown(link.target.broker))

    def _close(self, link: SimulatedLink) -> None:
        """Close a connection: what its source sent before arrives, what comes back is lost."""
        number, process = link.known_connection, link.source.process
        if not number:
            return
        link.known_connection = 0
        if link.pair.open and number == link.pair.number:
            self.lost += len(link.back.queue)
            link.back.queue.clear()
            link.back.bytes = link.back.stalled = 0
            self._enqueue(link, CLOSED)
        assert process is not None, "only a running broker closes a link"
        name = link.target.broker
        self._world.push(self._world.now, self._notify_closed, process, name)

    def _notify_closed(self, process: SimulatedProcess, name: BrokerId) -> None:
        """Notify the end that has closed a connection, unless it has the next one already."""
        link = self.links[process.host.broker][name]
        if process.alive and not link.known_connection:
            self._world.happen(process, LinkDown(name))

    def _closed(self, link: SimulatedLink) -> None:
        """The other end has closed a connection."""
        back, process = link.back, link.target.process
        is_known = back.known_connection == link.pair.number
        back.known_connection = 0
        self._break(link.pair)
        if is_known and process is not None:
            self._world.happen(process, LinkDown(link.source.broker))
        at = self._world.now + REDIAL_US + self.delay()
        self._world.push(at, self._connect, link.pair, link.pair.number)

    def _dial(self, pair: HostPair) -> None:
        """Connect two hosts soon, unless they are connected."""
        if not pair.open:
            self._connect_later(pair)

    def _connect_later(self, pair: HostPair) -> None:
        at = self._world.now + self.delay() + int(self._draw() * 20_000)
        self._world.push(at, self._connect, pair, pair.number)

    def _connect(self, pair: HostPair, number: int) -> None:
        there, back = pair.links
        if pair.open or pair.number != number or there.cut or back.cut or not pair.is_dialled:
            return
        if there.source.process is None or back.source.process is None:
            return
        pair.number += 1
        pair.open = True
        pair.stalls = False
        for link in pair.links:
            link.stalled = 0
            self._enqueue(link, UP)


def _bytes(item: Any) -> int:
    """Return the approximate size of a packet."""
    return 64 * (1 + len(getattr(item, "messages", ())))
