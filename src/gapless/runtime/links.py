"""The links of a broker: one connection with every broker of its neighbourhood, and a few others.

Of two neighbours the one whose name comes first dials. It repeats this with growing waits until the
other one answers. A broker that needs a control session dials as well, whatever its name (RS-35).
A broker that is no neighbour is admitted if it belongs to the overlay; the machine decides whether
its link is kept. The addresses are those in the records of cells, then those configured. A link is up for the machine after the handshake, and down when its connection is
over. A second connection of a peer replaces the first, because the peer has noticed that the first
is lost. Peer sessions with their own heartbeats decide which peers are alive (R1).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from gapless.core.address import Address
from gapless.core.backoff import Backoff
from gapless.core.effects import LinkTarget, SetPeers
from gapless.core.errors import ProtocolError, shortened
from gapless.core.events import LinkDown, LinkDrained, LinkFull, LinkUp, MachineEvent, Received
from gapless.core.ids import BrokerId
from gapless.core.limits import BROKER_NAME_BYTES_MAX
from gapless.core.parameters import Parameters
from gapless.runtime.connection import FramedConnection, TrafficCounters
from gapless.runtime.logs import StructuredLog
from gapless.wire import (
    FRAME_BYTES_MAX,
    LINK_PACKETS,
    VERSIONS,
    Body,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    KeepAlive,
    PacketAssembler,
    PacketPart,
    Role,
    decode_handshake,
    encode_handshake,
)

__all__ = ["BrokerLink", "BrokerLinks"]

CHECKS_PER_IDLE_TIMEOUT: Final = 4
"""So often per ``link_idle_timeout_ms`` links are checked."""


class BrokerLink:
    """A connection with a peer after the handshake."""

    __slots__ = ("_assembler", "_idle_checks", "_links", "connection", "peer", "traffic")

    def __init__(self, links: BrokerLinks, peer: BrokerId, connection: FramedConnection) -> None:
        self._assembler = PacketAssembler()
        self._links = links
        self.peer = peer
        self.connection = connection
        self._idle_checks = 0
        """How many checks in a row have found that nothing came."""
        self.traffic = links.traffic
        """The traffic of all links."""

    def take(self, body: Body) -> None:
        """Hand a packet to the machine."""
        packet = LINK_PACKETS.decode(body)
        kind = type(packet)
        if kind is PacketPart:
            whole = self._assembler.take(packet)
            if whole is not None:
                self.take(whole)
        elif kind is Disconnect:
            self._links.peer_disconnected(self, packet)
        elif kind is not KeepAlive:
            self._links.handle(Received(self.peer, packet))

    def taken(self) -> None:
        """Nothing is deferred to the end of a read."""

    def congested(self) -> None:
        """More than the limit waits to be sent."""
        self._links.handle(LinkFull(self.peer))

    def drained(self) -> None:
        """At most half of the limit waits to be sent."""
        self._links.handle(LinkDrained(self.peer))

    def closed(self, reason: str) -> None:
        """The connection is over."""
        self._links.link_closed(self, reason)

    def is_idle(self) -> bool:
        """Check the connection; return whether nothing came for too many checks."""
        self._idle_checks = 0 if self.connection.take_received() else self._idle_checks + 1
        return self._idle_checks > CHECKS_PER_IDLE_TIMEOUT


class _DialledConnection:
    """A connection that this broker dialled, until the other side has answered."""

    def __init__(self, links: BrokerLinks, peer: BrokerId, connection: FramedConnection) -> None:
        self._links = links
        self._peer = peer
        self._connection = connection
        self.traffic = links.traffic
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The answer: empty if the peer has accepted the connection, otherwise the reason."""

    def take(self, body: Body) -> None:
        handshake = decode_handshake(body)
        if isinstance(handshake, Disconnect):
            self._answer(handshake.reason)
            self._connection.abort()
        elif not isinstance(handshake, Connected) or handshake.version not in VERSIONS:
            raise ProtocolError("expected Connected with a common protocol version")
        elif handshake.broker != self._peer:
            self._answer(f"this address belongs to broker {handshake.broker}")
            self._connection.close(
                DisconnectReason.UNKNOWN_BROKER, f"{self._peer} is expected at this address"
            )
        else:
            self._answer("")
            self._links.link_opened(self._peer, self._connection)

    def taken(self) -> None:
        """Nothing is deferred to the end of a read."""

    def congested(self) -> None:
        """Nothing is sent before the answer."""

    def drained(self) -> None:
        """Nothing is sent before the answer."""

    def closed(self, reason: str) -> None:
        self._answer(reason or "the other side closed")

    def _answer(self, refusal: str) -> None:
        if not self.answered.done():
            self.answered.set_result(refusal)


class BrokerLinks:
    """All links of a broker."""

    def __init__(
        self,
        handle: Callable[[MachineEvent], None],
        make_connection: Callable[[], FramedConnection],
        handshake: Connect,
        peers: Iterable[BrokerId],
        addresses: Mapping[BrokerId, Address],
        parameters: Parameters,
        log: StructuredLog,
        token: Callable[[], str] = str,
    ) -> None:
        """``token`` returns the token that is sent to dialled brokers; by default none."""
        assert handshake.role is Role.BROKER
        self.handle = handle
        self.traffic = TrafficCounters()
        self.peers = frozenset(peers)
        self.dial_attempts = 0
        self._dialled = frozenset(peer for peer in self.peers if handshake.name < peer)
        """The brokers that this one dials: some of its peers, and those for control sessions."""
        self._admitted: frozenset[BrokerId] = frozenset()
        """Brokers that have dialled this one for a control session, and are to be kept."""
        self._recorded: dict[BrokerId, tuple[Address, ...]] = {}
        """The addresses in the records of cells."""
        self._make_connection = make_connection
        self._me = handshake.name
        self._handshake = handshake
        self._token = token
        self._warned = False
        self._addresses = addresses
        self._parameters = parameters
        self._log = log
        self._open: dict[BrokerId, BrokerLink] = {}
        self._down: dict[BrokerId, asyncio.Event] = {}
        self._dialling = False
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}

    @property
    def open_peers(self) -> list[BrokerId]:
        """The peers with a link."""
        return sorted(self._open)

    def link(self, peer: BrokerId) -> BrokerLink | None:
        """Return the link with a peer, if there is one."""
        return self._open.get(peer)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait to be sent on all links."""
        return sum(each.connection.waiting_bytes for each in self._open.values())

    # --- dialling --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to dial."""
        self._dialling = True
        self._dial_peers()

    def set_peers(self, wanted: SetPeers) -> None:
        """Keep links with these brokers only."""
        self.peers = frozenset(each.broker for each in wanted.peers)
        control = {each.broker for each in wanted.control}
        self._dialled = frozenset({each for each in self.peers if self._me < each} | control)
        self._admitted = frozenset(wanted.admitted)
        targets = (*wanted.peers, *wanted.control)
        self._recorded = {each.broker: _addresses_of(each) for each in targets}
        for peer in [peer for peer in self._tasks if peer not in self._dialled]:
            self._tasks.pop(peer).cancel()
        kept = self.peers | self._dialled | self._admitted
        for peer in [peer for peer in self._open if peer not in kept]:
            self._open[peer].connection.close(
                DisconnectReason.CLIENT_DONE, f"{self._me} has no use for the link any more"
            )
        self._dial_peers()

    def _dial_peers(self) -> None:
        """Begin to dial the brokers that this one dials."""
        for peer in sorted(self._dialled):
            if self._dialling and peer not in self._tasks:
                self._down[peer] = asyncio.Event()
                if peer not in self._open:
                    self._down[peer].set()
                task = asyncio.create_task(self._keep_dialling(peer), name=f"dial {peer}")
                self._tasks[peer] = task

    async def stop_dialling(self) -> None:
        """Stop dialling."""
        self._dialling = False
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _keep_dialling(self, peer: BrokerId) -> None:
        backoff = Backoff(
            first_s=self._parameters.redial_ms / 1_000,
            longest_s=self._parameters.redial_max_ms / 1_000,
        )
        waits = backoff.waits(random.random)
        logged = ""
        while True:
            problem = "" if peer in self._open else await self._dial_any(peer)
            if problem:
                if problem != logged:  # log each problem once
                    self._log.info("cannot reach a peer", peer=peer, reason=problem)
                logged = problem
            else:
                logged = ""
                connected_at = time.monotonic()
                await self._down[peer].wait()
                waits.lasted(time.monotonic() - connected_at)
            await asyncio.sleep(next(waits))

    async def _dial_any(self, peer: BrokerId) -> str:
        """Open a link to one of the addresses of a broker; return why it failed, or nothing."""
        configured = self._addresses.get(peer)
        known = (*self._recorded.get(peer, ()), *(() if configured is None else (configured,)))
        problem = "its address is not known"
        for address in dict.fromkeys(known):
            problem = await self._dial(peer, address)
            if not problem:
                break
        return problem

    async def _dial(self, peer: BrokerId, address: Address) -> str:
        """Open a link; return why it failed, or an empty text."""
        self.dial_attempts += 1
        timeout_s = self._parameters.handshake_timeout_ms / 1_000
        connection = self._make_connection()
        dialled = _DialledConnection(self, peer, connection)
        connection.hand_to(dialled)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: connection, address.host, address.port)
                connection.send(encode_handshake(self._handshake_for(address)))
                connection.flush()
                return await dialled.answered
        except TimeoutError:
            return f"no answer from {address} in {timeout_s:g} s"
        except OSError as error:
            return f"{address}: {error.strerror or error}"
        finally:
            if connection.handler is dialled:
                connection.abort()

    def _handshake_for(self, address: Address) -> Connect:
        """Return the Connect message for a dialled broker."""
        token = self._token()
        if token and not address.is_loopback and not self._warned:
            self._warned = True
            self._log.warning("the token of brokers is sent unencrypted", address=str(address))
        return replace(self._handshake, token=token)

    # --- links up and down ------------------------------------------------------------------------

    def invalid_reason(self, handshake: Connect, overlay: str) -> str | None:
        """Return why a broker that dials this one is refused, or None."""
        name = handshake.name
        if handshake.overlay != overlay:
            return (
                f"this is the overlay {overlay!r}, not {shortened(handshake.overlay)!r}; "
                "give both brokers the same overlay name"
            )
        if name == self._me:
            return f"this is the broker {self._me} itself; give each broker another name"
        if name not in self.peers:
            return self._full_reason(name)
        if name > self._me:
            return f"{self._me} dials {name}, not vice versa"
        return None

    def _full_reason(self, name: BrokerId) -> str | None:
        """Return why there is no room for a broker outside the neighbourhood, or None."""
        if not 0 < len(name) <= BROKER_NAME_BYTES_MAX or "@" in name:
            return f"{shortened(name)!r} is no name of a broker"
        outside = sum(1 for peer in self._open if peer not in self.peers)
        most = self._parameters.control_sessions_max
        if name in self._open or outside < most:
            return None
        return f"control_sessions_max = {most:,} brokers that are no neighbours have links"

    def link_opened(self, peer: BrokerId, connection: FramedConnection) -> None:
        """The handshake with a peer is complete."""
        older = self._open.pop(peer, None)
        if older is not None:
            self.handle(LinkDown(peer))
            older.connection.abort()
        link = BrokerLink(self, peer, connection)
        connection.hand_to(link)
        connection.prioritise()
        connection.allow(FRAME_BYTES_MAX)
        self._open[peer] = link
        if peer in self._down:
            self._down[peer].clear()
        what = "link is up" if peer in self.peers else "link with a broker that is no neighbour"
        self._log.info(what, peer=peer, address=connection.peer_address)
        self.handle(LinkUp(peer))

    def link_closed(self, link: BrokerLink, reason: str) -> None:
        """A connection is over; if it was the peer's link, the link is down."""
        if self._open.get(link.peer) is link:
            del self._open[link.peer]
            if link.peer in self._down:
                self._down[link.peer].set()
            self._log.info("link is down", peer=link.peer, reason=reason)
            self.handle(LinkDown(link.peer))

    def peer_disconnected(self, link: BrokerLink, disconnect: Disconnect) -> None:
        """A peer ends the connection."""
        self.link_closed(link, disconnect.reason)
        link.connection.abort()

    # --- effects of the machine -------------------------------------------------------------------

    def send(self, peer: BrokerId, packet: Any) -> None:
        """Send a packet; without a link it is lost, as on a broken one."""
        link = self._open.get(peer)
        if link is None:
            return
        try:
            frames = LINK_PACKETS.frames(packet)
        except ProtocolError as error:
            self._log.error("packet is too large", peer=peer, reason=str(error))
            link.connection.close(DisconnectReason.PROTOCOL_ERROR, str(error))
            return
        for frame in frames:
            link.connection.send(frame)

    def check_idle(self) -> None:
        """Close links on which nothing came for ``link_idle_timeout_ms``."""
        for link in list(self._open.values()):
            if link.is_idle():
                seconds = self._parameters.link_idle_timeout_ms / 1_000
                link.connection.close(
                    DisconnectReason.KEEPALIVE_TIMEOUT, f"nothing came for {seconds:g} s"
                )

    def disconnect_all(self, reason: str) -> None:
        """Disconnect all peers."""
        for link in list(self._open.values()):
            link.connection.close(DisconnectReason.STOPPING, reason)


def _addresses_of(target: LinkTarget) -> tuple[Address, ...]:
    """Return the addresses of a broker in the record of its cell that can be dialled."""
    parsed = map(Address.parse, target.addresses)
    return tuple(address for address in parsed if address.is_reachable)
