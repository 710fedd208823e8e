"""A broker whose neighbours and clients are all hostile: they send whatever passes the codec.

They remember what the broker sends, and use its names, numbers and keys again. So they answer its
questions wrongly, and their lies fit its state.
"""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from gapless.broker import Broker
from gapless.core.context import StepTime
from gapless.core.effects import Effect, Fetch, Notify, Send, Write
from gapless.core.errors import ProtocolError
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
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.parameters import Parameters
from gapless.messages.overlay import Heartbeat, Hello, Packet, PeerSessionId, RelayBroken, RelayFull
from gapless.messages.records import AppendPackedRow, AppendRow, LogRow, PutRecord, TrimLog
from gapless.overlay.session import PROTOCOL
from gapless.packed.pick import packed, unpack_row
from gapless.runtime import generate
from gapless.storage.codec import decode_record, encode_record
from gapless.wire import CLIENT_NOTICES, CLIENT_REQUESTS, HEADER_BYTES, LINK_PACKETS
from gapless_lab.fuzz.generation import link_types, peer_message_types, request_types, shape_of
from gapless_lab.fuzz.taming import as_packet

PARAMETERS = Parameters(
    interest_grace_s=1, member_grace_s=2, tombstone_ttl_s=20, retention_s=5, log_hold_ttl_s=5
)
PUBENDS = ("q0", "q1", "q2")
TEXTS = (*PUBENDS, "", "b9", "c9", "n" * 256, "n" * 300, "\0", "#", "a@b")
FILTERS = ("TRUE", "FALSE", "a = 1", "a = 1 OR b > 2", "s LIKE 'I%'", "a =", "")
FILTER_FIELDS = {"filter", "advertisement", "conjunctions", "added", "removed"}
EXTREMES = (0, 1, -1, 2**31, 2**61, 2**62, 2**62 + 1, 2**63 - 1, -(2**62), -(2**63))
INNER = (link_types()["Hello"], link_types()["Packet"], RelayBroken, RelayFull)
HEARTBEAT_US = 250_000
PAUSES_US = (1, 1_000, 100_000, 700_000, 1_500_000)


class Memory:
    """The values that the broker has sent or was sent, by field and by type."""

    def __init__(self) -> None:
        self.fields: defaultdict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=40))
        self.structs: defaultdict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=60))

    def learn(self, value: Any, field: str = "") -> None:
        """Remember a message and all that it contains."""
        names = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
        if names is not None:
            kind = type(value).__name__
            self.structs[kind].append(msgspec.msgpack.decode(msgspec.msgpack.encode(value)))
            for name in names:
                self.learn(getattr(value, name), name)
        elif isinstance(value, tuple):
            for each in value[:5]:
                self.learn(each, field)
        elif type(value) in {int, str}:
            self.fields[field].append(value)


class Liar:
    """Draws messages of a type from what is remembered and from extremes."""

    def __init__(self, random: Random, memory: Memory, clock: int) -> None:
        self._random = random
        self._memory = memory
        self._clock = clock

    def encoded(self, kind: Any) -> bytes:
        """Return a message of a type in msgpack."""
        return msgspec.msgpack.encode(self._struct(shape_of(kind), 0))

    def _struct(self, shape: inspect.StructType, depth: int) -> list[Any]:
        random, known = self._random, self._memory.structs[shape.cls.__name__]
        if depth and known and random.random() < 0.3:
            return list(random.choice(known))
        tag: list[Any] = [] if shape.tag is None else [shape.tag]
        before = random.choice(known) if known and random.random() < 0.5 else tag
        values = tag
        for place, field in enumerate(shape.fields, len(tag)):
            is_kept = place < len(before) and random.random() < 0.75
            values = [*values, before[place] if is_kept else self._value(field, depth + 1)]
        return values

    def _value(self, field: inspect.Field, depth: int) -> Any:
        return self._of(field.type, field.name, depth)

    def _of(self, shape: inspect.Type, name: str, depth: int) -> Any:
        random = self._random
        known = self._memory.fields[name]
        match shape:
            case inspect.IntType():
                numbers = [each for each in known if type(each) is int]
                if numbers and random.random() < 0.4:
                    return random.choice(numbers) + random.choice((0, 0, 0, 1, -1, 1_000))
                if random.random() < 0.3:
                    return self._clock + random.randrange(-1_000_000, 10_000_000)
                ends = (shape.ge or 0, shape.le or 0, (shape.le or 1) - 1)
                return random.choice((*ends, *EXTREMES, random.randrange(4), random.randrange(99)))
            case inspect.StrType() if name in FILTER_FIELDS:
                return random.choice(FILTERS)
            case inspect.StrType():
                texts = [each for each in known if type(each) is str]
                return random.choice(texts if texts and random.random() < 0.7 else TEXTS)
            case inspect.BytesType():
                return random.choice((b"", b"x", b"\x90", b"\x91\x95\x01\xa1p\x01\x80\xc4\x00"))
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.FloatType():
                return random.choice((0.0, 1.5, float("nan"), float("inf")))
            case inspect.EnumType():
                return random.choice([*shape.cls]).value
            case inspect.NoneType():
                return None
            case inspect.UnionType():
                return self._of(random.choice(shape.types), name, depth)
            case inspect.StructType():
                return self._struct(shape, depth)
            case inspect.NamedTupleType() if shape.cls is PubendId and random.random() < 0.8:
                return [random.choice(PUBENDS), random.choice((1, 1, 1, 2))]
            case inspect.NamedTupleType():
                remembered = self._memory.structs[shape.cls.__name__]
                if remembered and random.random() < 0.6:
                    return random.choice(remembered)
                return [self._value(each, depth + 1) for each in shape.fields]
            case inspect.TupleType():
                return [self._of(each, name, depth + 1) for each in shape.item_types]
            case inspect.VarTupleType():
                count = 0 if depth > 8 else random.choice((0, 1, 1, 2, 3))
                return [self._of(shape.item_type, name, depth + 1) for _ in range(count)]
            case inspect.DictType():
                key = self._of(shape.key_type, name, depth + 1)
                return {key: self._of(shape.value_type, name, depth + 1)}
            case inspect.RawType():
                return None if depth > 4 else self._struct(shape_of(random.choice(INNER)), depth)
        raise AssertionError(f"{shape} is not drawn yet")


class HostileWorld:
    """One broker in a tree, with a correct store, and everybody else."""

    def __init__(self, tree: str, me: BrokerId, seed: int) -> None:
        topology = generate(tree).topology
        self._cells = {broker: cell.name for cell in topology.cells for broker in cell.brokers}
        self._random = Random(seed)
        self._memory = Memory()
        self._now = 1_000_000
        self._rows: dict[PubendId, list[LogRow]] = {}
        around = topology.neighbourhood(self._cells[me], PARAMETERS.neighbourhood_radius)
        self.peers = [each for each in around.all_brokers() if each != me]
        for broker, cell in self._cells.items():
            self._memory.learn(ShbId(broker, cell))
        self._own: dict[BrokerId, PeerSessionId] = {}
        self._theirs: dict[BrokerId, PeerSessionId] = {}
        self._sequences: dict[BrokerId, int] = {}
        self._heartbeats: dict[BrokerId, int] = {}
        """The last heartbeat of the broker to each neighbour."""
        self.sent: list[tuple[BrokerId, Any]] = []
        """The messages that the broker sent to its neighbours."""
        self.notices: list[Any] = []
        self.broker = Broker(me, self._cells[me], PARAMETERS, around, [], self._time())
        self.handle(None)

    def _time(self) -> StepTime:
        return StepTime(self._now, 1_700_000_000_000_000 + self._now)

    # --- the broker ------------------------------------------------------------------------------

    def handle(self, event: MachineEvent) -> None:
        """Let the broker handle an event and all that its store answers."""
        events = deque([event])
        while events:
            for effect in self.broker.step(events.popleft(), self._time()):
                events += self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> list[MachineEvent]:
        """Carry an effect out. What the broker sends passes the checks of the one that gets it."""
        if isinstance(effect, Notify):
            CLIENT_NOTICES.decode(CLIENT_NOTICES.encode(effect.notice)[HEADER_BYTES:])
            self.notices.append(effect.notice)
            self._memory.learn(effect.notice)
        elif isinstance(effect, Send):
            for frame in LINK_PACKETS.frames(effect.packet):
                LINK_PACKETS.decode(frame[HEADER_BYTES:])
            self._sent(effect.peer, effect.packet)
        elif isinstance(effect, Write):
            for change in effect.changes:
                self._write(change)
            return [Written(effect.write_id)]
        elif isinstance(effect, Fetch):
            stored = self._rows.get(effect.pubend, [])
            rows = [
                each for each in stored if each.last >= effect.low and each.first <= effect.high
            ]
            return [Fetched(effect.fetch_id, tuple(map(packed, rows) if effect.packed else rows))]
        return []

    def _sent(self, peer: BrokerId, packet: Any) -> None:
        if isinstance(packet, Hello):
            self._theirs[peer] = packet.own
        elif isinstance(packet, Packet):
            for message in packet.messages:
                if isinstance(message, Heartbeat):
                    self._heartbeats[peer] = message.sequence
                self.sent.append((peer, message))
                self._memory.learn(message)

    def _write(self, change: Any) -> None:
        if isinstance(change, PutRecord):
            assert decode_record(encode_record(change.record)) is not None, change.record
        elif isinstance(change, TrimLog):
            assert -(2**63) <= change.up_to < 2**63
        elif isinstance(change, AppendRow | AppendPackedRow):
            row = change.row if isinstance(change, AppendRow) else unpack_row(change)
            assert row.last < 2**63
            self._rows.setdefault(row.pubend, []).append(row)

    # --- its neighbours --------------------------------------------------------------------------

    def connect(self, peer: BrokerId) -> None:
        """Open a new session of a neighbour."""
        self.handle(LinkDown(peer))
        self.handle(LinkUp(peer))
        own = self._own.get(peer, PeerSessionId(1, 0))
        own = self._own[peer] = PeerSessionId(1, own.number + 1)
        self._sequences[peer] = 0
        self.handle(Received(peer, Hello(peer, self._cells[peer], own, None, PROTOCOL, 1)))
        theirs = self._theirs[peer]
        self.handle(Received(peer, Hello(peer, self._cells[peer], own, theirs, PROTOCOL, 1)))
        self.send(peer, Heartbeat(self._now, 0, self._time().clock))

    def send(self, peer: BrokerId, *messages: Any) -> None:
        """Send messages of a neighbour in a packet of its session."""
        self._sequences[peer] += 1
        ends = (self._own[peer], self._theirs[peer])
        self.handle(Received(peer, Packet(*ends, self._sequences[peer], messages)))

    def pass_time(self, microseconds: int) -> None:
        """Let time pass; the neighbours answer heartbeats."""
        end = self._now + microseconds
        while self._now < end:
            until = min(end, self._now + HEARTBEAT_US)
            while (due := self.broker.next_timer()) is not None and due <= until:
                self._now = max(self._now, due)
                self.handle(None)
            self._now = until
            for peer in self.peers:
                self._show_life(peer)

    def _show_life(self, peer: BrokerId) -> None:
        """Answer the last heartbeat, or open another session if the broker has ended the last."""
        if not self.broker.components.sessions.is_open(peer):
            self.connect(peer)
        self.send(peer, Heartbeat(self._now, self._heartbeats.get(peer, 0), self._time().clock))

    # --- lies ------------------------------------------------------------------------------------

    def play(self, steps: int) -> int:
        """Let everybody send random messages; return how many passed the codec."""
        random, passed = self._random, 0
        clients = ["x.1", "y.2"]
        for client in clients:
            self.handle(ClientUp(client))
        for peer in self.peers:
            self.connect(peer)
        for number in range(steps):
            drawn = random.random()
            if drawn < 0.02:
                self.connect(random.choice(self.peers))
            elif drawn < 0.03:
                self.handle(ClientDown(clients[0]))
                clients = [clients[1], f"z.{number}"]
                self.handle(ClientUp(clients[1]))
            elif drawn < 0.25:
                passed += self._request(random.choice(clients))
            else:
                passed += self._messages(random.choice(self.peers))
            if random.random() < 0.3:
                self.pass_time(random.choice(PAUSES_US))
        self.pass_time(30_000_000)
        return passed

    def _request(self, client: str) -> int:
        liar = Liar(self._random, self._memory, self._time().clock)
        kinds = [kind for tag, kind in request_types().items() if tag not in NO_REQUESTS]
        try:
            request = CLIENT_REQUESTS.decode(liar.encoded(self._random.choice(kinds)))
        except (ProtocolError, OverflowError):
            return 0
        self._memory.learn(request)
        self.handle(ClientRequest(client, request))
        return 1

    def _messages(self, peer: BrokerId) -> int:
        liar = Liar(self._random, self._memory, self._time().clock)
        messages: list[Any] = []
        for kind in self._random.choices([*peer_message_types().values()], k=2):
            try:
                packet = LINK_PACKETS.decode(as_packet(liar.encoded(kind)))
            except (ProtocolError, OverflowError):
                continue
            messages += packet.messages
            self._memory.learn(packet.messages[0])
        if messages:
            self.send(peer, *messages)
        return len(messages)


NO_REQUESTS = {"KeepAlive", "Disconnect"}
