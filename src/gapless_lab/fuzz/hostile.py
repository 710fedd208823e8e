"""Hostile connections: a client, and a neighbour with a genuine handshake."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

import msgspec

from gapless.core.address import Address
from gapless.core.errors import GaplessError, ProtocolError
from gapless.core.ids import PubendId
from gapless.messages import clients, operating, overlay, staging, streams
from gapless.messages.propagation import TableRequest
from gapless.overlay.session import PROTOCOL
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    HEADER_BYTES,
    LINK_PACKETS,
    Codec,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Role,
    decode_handshake,
    encode_handshake,
)
from gapless_lab.fuzz.attacks import Attack, AttackerRole, AttackerState, Ending, FuzzFrame
from gapless_lab.fuzz.tally import FuzzTally
from gapless_lab.fuzz.taming import as_packet
from gapless_lab.fuzz.vocabulary import BROKERS, HOSTILE, OVERLAY, PAIR_PUBEND, PUBENDS, Vocabulary

__all__ = ["HostileClient", "HostilePeer", "PeerNumbers", "perform_attack"]

ANSWER_S: Final = 20.0
"""How long an attacker waits for an answer before it gives up."""

ATTACK_S: Final = 40.0
"""How long an attack may take before it counts as not answered."""

DEAF_S: Final = 0.05
"""How long a deaf client reads nothing after its last frame."""

SESSIONS_KEPT: Final = 2_000
"""Peer sessions whose attacks are remembered."""

LAST_REQUEST: Final = 999_999_999
"""The number of the request whose answer shows that all frames before it were read."""


class _GoneError(GaplessError):
    """The broker has ended the connection."""


class PeerNumbers:
    """The sessions of the hostile neighbour with each broker: every one is greater than before."""

    def __init__(self) -> None:
        self._last: dict[str, overlay.PeerSessionId] = {}
        self._attacks: dict[tuple[str, int], int] = {}

    def next(self, attack: Attack) -> overlay.PeerSessionId:
        """Return the next session, which belongs to an attack."""
        last = self._last.get(attack.target)
        incarnation = time.time_ns() // 1_000 if last is None else last.incarnation
        number = 1 if last is None else last.number + 1
        self._last[attack.target] = found = overlay.PeerSessionId(incarnation, number)
        self._attacks[attack.target, number] = attack.number
        if len(self._attacks) > SESSIONS_KEPT:
            del self._attacks[next(iter(self._attacks))]
        return found

    def attack_of(self, target: str, number: int) -> int | None:
        """Return the attack to which a session with a broker belongs, if it is remembered."""
        return self._attacks.get((target, number))

    def sent(self, target: str, own: overlay.PeerSessionId) -> None:
        """A frame of an attack has contained a session."""
        last = self._last.get(target, own)
        self._last[target] = max(last, own)


class _HostileConnection:
    """A connection that reads what the broker sends and counts it."""

    codec: Codec[Any]

    def __init__(
        self,
        attack: Attack,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tally: FuzzTally,
        vocabulary: Vocabulary,
        numbers: PeerNumbers,
    ) -> None:
        self.attack = attack
        self.is_over = asyncio.Event()
        """Set when the broker has ended the connection."""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._reader = reader
        self._writer = writer
        self._tally = tally
        self._vocabulary = vocabulary
        self._numbers = numbers
        self._reading: asyncio.Task[None] | None = None

    def send(self, body: bytes | bytearray | memoryview) -> None:
        """Send a body as a frame."""
        self._writer.write(len(body).to_bytes(HEADER_BYTES, "big") + bytes(body))

    def send_message(self, message: Any) -> None:
        """Send a message."""
        self.send(msgspec.msgpack.encode(message))

    async def drain(self) -> None:
        """Wait until the broker reads."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def connect(self, handshake: Connect) -> None:
        """Make the handshake, and read everything that comes from now on."""
        self._writer.write(encode_handshake(handshake))
        answer = decode_handshake(await self._body())
        self._tally.count_answer(answer)
        if not isinstance(answer, Connected):
            raise _GoneError("the broker refuses the connection")
        self.read_on()

    def read_on(self) -> None:
        """Read everything that comes from now on."""
        self._reading = asyncio.create_task(self._read())

    async def _body(self) -> bytes:
        header = await self._reader.readexactly(HEADER_BYTES)
        return await self._reader.readexactly(int.from_bytes(header, "big"))

    async def _read(self) -> None:
        try:
            while True:
                await self.may_read.wait()
                body = await self._body()
                self._take(body)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.is_over.set()

    def _take(self, body: bytes) -> None:
        try:
            message = self._decoded(body)
        except ProtocolError as error:
            self._tally.unreadable[f"{self.attack.target}: {error}"] += 1
            return
        self._tally.count_answer(message)
        self.received(message)

    def _decoded(self, body: bytes) -> Any:
        """Return a message; in an attack on the handshake it may be the answer to that."""
        if self.attack.state is AttackerState.HANDSHAKE:
            with contextlib.suppress(ProtocolError):
                return decode_handshake(body)
        return self.codec.decode(body)

    def received(self, message: Any) -> None:
        """A message has come."""

    async def wait_for(self, event: asyncio.Event) -> None:
        """Wait for an event, or for the end of the connection."""
        waits = [asyncio.create_task(each.wait()) for each in (event, self.is_over)]
        try:
            async with asyncio.timeout(ANSWER_S):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def end(self, ending: Ending) -> None:
        """End the connection."""
        if ending is Ending.DISCONNECT:
            self.send_message(Disconnect(DisconnectReason.CLIENT_DONE, "the attack is over"))
            await self.drain()
        elif ending is Ending.HALF_FRAME:
            self._writer.write((1_000).to_bytes(HEADER_BYTES, "big") + b"half")
            await self.drain()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if ending is Ending.ABORT:
            self._writer.transport.abort()
        else:
            self._writer.close()


class HostileClient(_HostileConnection):
    """A client."""

    codec = CLIENT_NOTICES
    _synced: asyncio.Event

    async def prepare(self) -> None:
        """Bring the connection into the state of the attack."""
        self._synced = asyncio.Event()
        if self.attack.state is AttackerState.HANDSHAKE:
            self.read_on()
            return
        await self.connect(Connect(Role.CLIENT, self.attack.name))
        for request in _prelude(self.attack):
            self.send_message(request)
        if self.attack.state is AttackerState.DEAF:
            self.may_read.clear()

    def send_frame(self, frame: FuzzFrame) -> None:
        """Send a frame of the attack."""
        self.send(frame.body)

    async def settle(self) -> None:
        """Wait until the broker has read all frames."""
        await self.drain()
        if not self.may_read.is_set():
            await asyncio.sleep(DEAF_S)
            self.may_read.set()
        self.send(CLIENT_REQUESTS.encode(operating.GetBroker(LAST_REQUEST))[HEADER_BYTES:])
        await self.wait_for(self._synced)

    def received(self, message: Any) -> None:
        """Remember numbers, and the answer to the last request."""
        if isinstance(message, clients.PublisherOpened | clients.Published):
            self._vocabulary.learn(message)
        elif isinstance(message, operating.BrokerReply) and message.request == LAST_REQUEST:
            self._synced.set()


def _prelude(attack: Attack) -> list[Any]:
    """Return the requests that bring a client into its state."""
    name = PUBENDS[attack.number % len(PUBENDS)]
    pubend, publisher = PubendId(name), f"fp{attack.number % 8}"
    durable = f"fd{attack.number % 8}"
    match attack.state:
        case AttackerState.PUBLISHING:
            return [clients.OpenPubend(1, name), clients.OpenPublisher(2, pubend, publisher)]
        case AttackerState.SUBSCRIBED:
            return [clients.Subscribe(1, "fs", "a = 1 OR symbol = 'IBM'", credit=100)]
        case AttackerState.DEAF:
            return [clients.Subscribe(1, "fs", "TRUE", credit=10_000)]
        case AttackerState.DURABLE:
            return [clients.Subscribe(1, durable, "a = 1", durable=True, credit=100, expiry_s=2)]
        case AttackerState.CATCHING_UP:
            start = clients.StartPoint(clients.StartKind.EARLIEST)
            return [clients.Subscribe(1, "fs", "TRUE", start=start)]
        case AttackerState.CHANGING:
            return [
                clients.Subscribe(1, durable, "a = 1", durable=True, credit=100, expiry_s=2),
                clients.SetFilter(2, durable, "a = 2 OR price > 90"),
            ]
        case AttackerState.STAGING:
            return [
                clients.OpenPubend(1, name),
                staging.StageChunk(2, pubend, publisher, 1, 1, "fp1", 1, (({"a": 1}, b""),)),
            ]
        case _:
            return []


class HostilePeer(_HostileConnection):
    """The neighbour a0."""

    codec = LINK_PACKETS

    async def prepare(self) -> None:
        """Bring the connection into the state of the attack."""
        self._own = self._numbers.next(self.attack)
        self._theirs: overlay.PeerSessionId | None = None
        self._sequence = 0
        self._greeted = asyncio.Event()
        self._opened = asyncio.Event()
        state = self.attack.state
        if state is AttackerState.HANDSHAKE:
            self.read_on()
            return
        await self.connect(Connect(Role.BROKER, HOSTILE, overlay=OVERLAY))
        if state is AttackerState.CONNECTED:
            return
        self._send_hello(confirms=False)
        if state is AttackerState.GREETED:
            return
        await self.wait_for(self._opened)
        for message in _peer_prelude(self.attack):
            self._send_packet(msgspec.msgpack.encode(message))
        if state is AttackerState.STALE:
            self._own = overlay.PeerSessionId(self._own.incarnation, self._own.number - 1)

    def _send_hello(self, *, confirms: bool) -> None:
        received = self._theirs if confirms else None
        hello = overlay.Hello(HOSTILE, BROKERS[HOSTILE], self._own, received, PROTOCOL, 1)
        self.send_message(hello)

    def _send_packet(self, message: bytes) -> None:
        self._sequence += 1
        theirs = self._theirs or overlay.PeerSessionId(1, 1)
        ends = [(each.incarnation, each.number) for each in (self._own, theirs)]
        self.send(as_packet(message, ends[0], ends[1], self._sequence))

    def send_frame(self, frame: FuzzFrame) -> None:
        """Send a frame of the attack, as a message of the session if it is one."""
        if frame.is_message:
            self._send_packet(frame.body)
            return
        self.send(frame.body)
        self._note_hello(frame)

    def _note_hello(self, frame: FuzzFrame) -> None:
        """Remember the session of a sent Hello, because later sessions must be greater."""
        with contextlib.suppress(ProtocolError, RecursionError):
            sent = LINK_PACKETS.decode(frame.body)
            if isinstance(sent, overlay.Hello):
                self._numbers.sent(self.attack.target, sent.own)

    async def settle(self) -> None:
        """Wait until the broker has read all frames: it answers Hello."""
        await self.drain()
        self._greeted.clear()
        self._own = self._numbers.next(self.attack)
        self._send_hello(confirms=False)
        await self.wait_for(self._greeted)

    def received(self, message: Any) -> None:
        """Answer Hello; remember numbers."""
        if isinstance(message, overlay.Hello):
            self._greeted.set()
            if message.own != self._theirs:
                self._theirs, self._sequence = message.own, 0
                if self.attack.state is not AttackerState.GREETED:
                    self._send_hello(confirms=True)
            if message.received == self._own:
                self._opened.set()
        elif isinstance(message, overlay.Packet):
            for each in message.messages:
                self._tally.count_answer(each)
                self._vocabulary.learn(each)


def _peer_prelude(attack: Attack) -> list[Any]:
    """Return the messages that bring a peer session into its state."""
    clock = time.time_ns() // 1_000
    messages: list[Any] = [overlay.Heartbeat(1, 0, clock)]
    cell = BROKERS[HOSTILE]
    if attack.state is AttackerState.FEEDING:
        messages += [
            overlay.Announce(
                PubendId(name), 1, overlay.PubendProperties(HOSTILE, cell, "TRUE"), (cell,)
            )
            for name in PUBENDS[3:]
        ]
        messages.append(TableRequest(cell))
    elif attack.state is AttackerState.FED:
        messages += [
            streams.Attach(PubendId(name), number, streams.AttachKind.CELL, cell, True)
            for number, name in enumerate((PAIR_PUBEND, *PUBENDS[:3]), 1)
        ]
    return messages


async def perform_attack(
    attack: Attack,
    address: Address,
    tally: FuzzTally,
    vocabulary: Vocabulary,
    numbers: PeerNumbers,
) -> None:
    """Connect, send all frames, wait until the broker has read them, and end the connection."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return
    kind = HostilePeer if attack.role is AttackerRole.PEER else HostileClient
    hostile = kind(attack, reader, writer, tally, vocabulary, numbers)
    try:
        async with asyncio.timeout(ATTACK_S):
            await hostile.prepare()
            for index, frame in enumerate(attack.frames):
                if hostile.is_over.is_set():
                    break
                hostile.send_frame(frame)
                tally.count_sent(attack, index)
                await hostile.drain()
            await hostile.settle()
    except TimeoutError:
        tally.unanswered[f"{attack.role} {attack.state}"] += 1
    except (_GoneError, OSError, asyncio.IncompleteReadError):
        pass
    finally:
        await hostile.end(attack.ending)
