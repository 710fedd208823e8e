"""The links of a broker: one connection with every broker of its neighbourhood.

Of two brokers the one whose name comes first dials, again and again, with growing waits while
nobody answers. A link is up for the machine when the greeting is through, and down when its
connection is over. A second connection of a peer replaces the first: the peer knows better that it
is gone. Which peers are alive is not decided here: sessions have heartbeats of their own (R1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId
from gapless.core.machine import Event, LinkDown, LinkFree, LinkFull, LinkUp, Received
from gapless.core.parameters import Parameters
from gapless.runtime.addresses import Address
from gapless.runtime.backoff import Backoff
from gapless.runtime.connection import Connection, Traffic
from gapless.runtime.logs import Voice
from gapless.wire import (
    FRAME_BYTES_MAX,
    LINK_PACKETS,
    VERSIONS,
    Assembler,
    Beat,
    Body,
    Farewell,
    Goodbye,
    Introduce,
    Part,
    Role,
    Welcome,
    decode_greeting,
    encode_greeting,
)

__all__ = ["Link", "Links"]

SWEEPS_A_SILENCE: Final = 4
"""So often in ``link_silent_ms`` links are looked at."""


class Link:
    """A connection with a peer whose greeting is through."""

    __slots__ = ("_assembler", "_links", "connection", "peer", "silence", "traffic")

    def __init__(self, links: Links, peer: BrokerId, connection: Connection) -> None:
        self._assembler = Assembler()
        self._links = links
        self.peer = peer
        self.connection = connection
        self.silence = 0
        """How many sweeps in a row have heard nothing of it."""
        self.traffic = links.traffic
        """What went over all links."""

    def take(self, body: Body) -> None:
        """Hand a packet to the machine."""
        packet = LINK_PACKETS.decode(body)
        kind = type(packet)
        if kind is Part:
            whole = self._assembler.take(packet)
            if whole is not None:
                self.take(whole)
        elif kind is Goodbye:
            self._links.said_goodbye(self, packet)
        elif kind is not Beat:
            self._links.happen(Received(self.peer, packet))

    def taken(self) -> None:
        """Nothing waits for the end of what was read."""

    def full(self) -> None:
        """Much waits to be sent."""
        self._links.happen(LinkFull(self.peer))

    def free(self) -> None:
        """Most of it is sent."""
        self._links.happen(LinkFree(self.peer))

    def closed(self, reason: str) -> None:
        """The connection is over."""
        self._links.gone(self, reason)


class _Caller:
    """A connection that this broker dialled, until the other side has answered."""

    def __init__(self, links: Links, peer: BrokerId, connection: Connection) -> None:
        self._links = links
        self._peer = peer
        self._connection = connection
        self.traffic = links.traffic
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when there is an answer: empty if it is a welcome, else why not."""

    def take(self, body: Body) -> None:
        greeting = decode_greeting(body)
        if isinstance(greeting, Goodbye):
            self._answer(greeting.reason)
            self._connection.abort()
        elif not isinstance(greeting, Welcome) or greeting.version not in VERSIONS:
            raise ProtocolError("a welcome was expected, in a version that both speak")
        elif greeting.broker != self._peer:
            self._answer(f"the broker there is {greeting.broker}")
            self._connection.close(Farewell.NOT_EXPECTED, f"{self._peer} was expected here")
        else:
            self._answer("")
            self._links.up(self._peer, self._connection)

    def taken(self) -> None:
        """Nothing waits for the end of what was read."""

    def full(self) -> None:
        """Nothing is sent before the answer."""

    def free(self) -> None:
        """Nothing is sent before the answer."""

    def closed(self, reason: str) -> None:
        self._answer(reason or "the other side closed")

    def _answer(self, refusal: str) -> None:
        if not self.answered.done():
            self.answered.set_result(refusal)


class Links:
    """All links of a broker."""

    def __init__(
        self,
        happen: Callable[[Event], None],
        connect: Callable[[], Connection],
        introduction: Introduce,
        peers: Iterable[BrokerId],
        addresses: Mapping[BrokerId, Address],
        parameters: Parameters,
        voice: Voice,
        token: Callable[[], str] = str,
    ) -> None:
        """``token`` gives what is shown to those who are dialled; by default nothing."""
        assert introduction.role is Role.BROKER
        self.happen = happen
        self.traffic = Traffic()
        self.peers = frozenset(peers)
        self.dials = 0
        self._connect = connect
        self._me = introduction.name
        self._introduction = introduction
        self._token = token
        self._warned = False
        self._addresses = addresses
        self._parameters = parameters
        self._voice = voice
        self._open: dict[BrokerId, Link] = {}
        self._down: dict[BrokerId, asyncio.Event] = {}
        self._dialling = False
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}

    @property
    def open_peers(self) -> list[BrokerId]:
        """The peers with a link."""
        return sorted(self._open)

    def link(self, peer: BrokerId) -> Link | None:
        """Return the link with a peer, if there is one."""
        return self._open.get(peer)

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be sent on all links."""
        return sum(each.connection.waiting_bytes for each in self._open.values())

    # --- dialling --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to dial."""
        self._dialling = True
        self._dial_peers()

    def reach(self, peers: Iterable[BrokerId]) -> None:
        """Have links with these peers and no others."""
        self.peers = frozenset(peers)
        for peer in [peer for peer in self._tasks if peer not in self.peers]:
            self._tasks.pop(peer).cancel()
        for peer in [peer for peer in self._open if peer not in self.peers]:
            self._open[peer].connection.close(Farewell.DONE, f"{self._me} is no neighbour any more")
        self._dial_peers()

    def _dial_peers(self) -> None:
        """Dial the peers whose names come after ours."""
        for peer in sorted(self.peers):
            if self._dialling and self._me < peer and peer not in self._tasks:
                self._down[peer] = asyncio.Event()
                task = asyncio.create_task(self._keep_dialling(peer), name=f"dial {peer}")
                self._tasks[peer] = task

    async def stop_dialling(self) -> None:
        """Dial nobody any more."""
        self._dialling = False
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _keep_dialling(self, peer: BrokerId) -> None:
        backoff = Backoff(
            self._parameters.redial_ms / 1_000, self._parameters.redial_max_ms / 1_000
        )
        said = ""
        while True:
            problem = await self._dial(peer)
            if problem:
                if problem != said:  # once is enough
                    self._voice.info("cannot reach a peer", peer=peer, reason=problem)
                said = problem
            else:
                said = ""
                began = time.monotonic()
                await self._down[peer].wait()
                backoff.lasted(time.monotonic() - began)
            await asyncio.sleep(backoff.next_s())

    async def _dial(self, peer: BrokerId) -> str:
        """Make a link; return why there is none."""
        address = self._addresses.get(peer)
        if address is None:
            return "its address is not known"
        self.dials += 1
        timeout_s = self._parameters.greeting_ms / 1_000
        connection = self._connect()
        caller = connection.handler = _Caller(self, peer, connection)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: connection, address.host, address.port)
                connection.send(encode_greeting(self._introduced(address)))
                connection.flush()
                return await caller.answered
        except TimeoutError:
            return f"no answer from {address} in {timeout_s:g} s"
        except OSError as error:
            return f"{address}: {error.strerror or error}"
        finally:
            if connection.handler is caller:
                connection.abort()

    def _introduced(self, address: Address) -> Introduce:
        """Return what this broker says of itself to one that it dials."""
        token = self._token()
        if token and not address.is_loopback and not self._warned:
            self._warned = True
            self._voice.warning("the token of brokers is sent unencrypted", address=str(address))
        return replace(self._introduction, token=token)

    # --- coming and going --------------------------------------------------------------------------

    def fault_of(self, introduction: Introduce, overlay: str) -> str | None:
        """Say why a broker that dials here is not expected."""
        name = introduction.name
        if introduction.overlay != overlay:
            return (
                f"this is the overlay {overlay!r}, not {introduction.overlay!r}; "
                "give both brokers the same overlay name"
            )
        if name not in self.peers:
            return f"{self._me} has no neighbour {name!r}; compare the topology files"
        if name > self._me:
            return f"{self._me} dials {name}, not the other way round"
        return None

    def up(self, peer: BrokerId, connection: Connection) -> None:
        """The greeting with a peer is through."""
        older = self._open.pop(peer, None)
        if older is not None:
            self.happen(LinkDown(peer))
            older.connection.abort()
        link = Link(self, peer, connection)
        connection.handler = link
        connection.goes_on = True
        connection.allow(FRAME_BYTES_MAX)
        self._open[peer] = link
        if peer in self._down:
            self._down[peer].clear()
        self._voice.info("link is up", peer=peer, address=connection.peer_address)
        self.happen(LinkUp(peer))

    def gone(self, link: Link, reason: str) -> None:
        """A connection is over; if it was the peer's link, the link is down."""
        if self._open.get(link.peer) is link:
            del self._open[link.peer]
            if link.peer in self._down:
                self._down[link.peer].set()
            self._voice.info("link is down", peer=link.peer, reason=reason)
            self.happen(LinkDown(link.peer))

    def said_goodbye(self, link: Link, goodbye: Goodbye) -> None:
        """A peer ends the connection."""
        self.gone(link, goodbye.reason)
        link.connection.abort()

    # --- what the machine wants ----------------------------------------------------------------------

    def send(self, peer: BrokerId, packet: Any) -> None:
        """Send a packet; without a link it is lost, as on the way."""
        link = self._open.get(peer)
        if link is None:
            return
        try:
            frames = LINK_PACKETS.frames(packet)
        except ProtocolError as error:
            self._voice.error("packet is too large", peer=peer, reason=str(error))
            link.connection.close(Farewell.NOT_UNDERSTOOD, str(error))
            return
        for frame in frames:
            link.connection.send(frame)

    def sweep(self) -> None:
        """Close links on which nothing came for long."""
        for link in list(self._open.values()):
            if link.connection.heard:
                link.connection.heard = False
                link.silence = 0
                continue
            link.silence += 1
            if link.silence > SWEEPS_A_SILENCE:
                seconds = self._parameters.link_silent_ms / 1_000
                link.connection.close(Farewell.SILENT, f"nothing came for {seconds:g} s")

    def leave(self, reason: str) -> None:
        """Say goodbye to all peers."""
        for link in list(self._open.values()):
            link.connection.close(Farewell.STOPPING, reason)
