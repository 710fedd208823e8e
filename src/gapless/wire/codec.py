"""Messages to frames, and bodies to messages."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

import msgspec

from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId
from gapless.core.limits import FRAME_BYTES_MAX
from gapless.core.numbers import ClientCount, Count
from gapless.messages import (
    clients,
    closing,
    mobility,
    operating,
    overlay,
    plans,
    propagation,
    pubend_requests,
    reading,
    reshape,
    staging,
    streams,
    unicast,
)
from gapless.messages.overlay import (
    ControlFrame,
    Hello,
    Packet,
    PeerSessionId,
    RelayBroken,
    Relayed,
    RelayFull,
)
from gapless.wire.frames import HEADER_BYTES, Body
from gapless.wire.handshake import Disconnect, Handshake, KeepAlive
from gapless.wire.parts import PacketPart, parts_of

__all__ = [
    "CLIENT_NOTICES",
    "CLIENT_REQUESTS",
    "INSIDE_TYPES",
    "LINK_PACKETS",
    "Codec",
    "decode_handshake",
    "encode_handshake",
    "request_number",
]


class _Carried(msgspec.Struct, frozen=True, array_like=True, tag="Relayed"):
    """A relayed packet as it is decoded: a relay checks the inner packet and forwards its bytes."""

    route: tuple[BrokerId, ...]
    index: Count
    inner: msgspec.Raw


SessionMessage: TypeAlias = (
    overlay.Heartbeat
    | overlay.RecordPush
    | overlay.RecordList
    | overlay.RecordWant
    | reshape.OpPrepare
    | reshape.OpPrepared
    | reshape.OpRefused
    | reshape.OpSwitch
    | reshape.OpSwitched
    | reshape.OpFinish
    | reshape.OpFinished
    | reshape.OpAbort
    | reshape.OpAborted
    | reshape.OpInquire
    | reshape.OpOutcome
    | reshape.Takeover
    | reshape.Promise
    | overlay.Announce
    | overlay.PartitionInfo
    | overlay.Retire
    | overlay.NameQuery
    | overlay.NameReply
    | mobility.Superseded
    | mobility.FindSubscription
    | mobility.SubscriptionFound
    | mobility.CollectSubscriptions
    | mobility.SubscriptionsCollected
    | propagation.TableRequest
    | propagation.TableStop
    | propagation.TableFull
    | propagation.TableDelta
    | streams.Attach
    | streams.Attached
    | streams.FeedUnavailable
    | streams.Detach
    | streams.StreamData
    | streams.StreamSilence
    | streams.StreamEpoch
    | streams.StreamEpochRequest
    | streams.Nack
    | streams.Released
    | streams.Unreadable
    | streams.DefineMemberSet
    | streams.ForgetMemberSet
    | streams.AckReport
    | streams.AckExpected
    | streams.AdvanceRequest
    | pubend_requests.Read
    | pubend_requests.ReadReply
    | pubend_requests.ReleaseLogHold
    | pubend_requests.LeavePubend
    | pubend_requests.RequestDone
    | pubend_requests.CountEvents
    | pubend_requests.EventCounts
    | unicast.UnicastRequest
    | unicast.UnicastReply
)
"""The messages of any session."""

Message: TypeAlias = SessionMessage | overlay.RelayProbe | _Carried
"""The messages of a packet. Those for relays go over links only: no relayed packet contains another."""

Request: TypeAlias = (
    clients.OpenPubend
    | clients.OpenPublisher
    | clients.Publish
    | clients.Subscribe
    | clients.Credit
    | clients.Ack
    | clients.SetFilter
    | clients.Seek
    | clients.Unsubscribe
    | clients.LeaveSubscription
    | clients.FindDurable
    | reading.ReadLog
    | closing.ClosePubend
    | operating.RetireBroker
    | reshape.OpRequest
    | reshape.TakeOverCell
    | reshape.ReadmitBroker
    | plans.ApplyPlan
    | plans.GetPlan
    | plans.AbortPlan
    | operating.ListPartitions
    | operating.GetBroker
    | operating.GetTopology
    | operating.WalkTree
    | operating.ListPubends
    | operating.ListSubscriptions
    | operating.ListAllDurable
    | operating.GetSubscription
    | operating.SeekDurable
    | operating.SetDurableFilter
    | operating.RemoveDurable
    | operating.GetLag
    | staging.StageChunk
    | staging.CommitBatch
    | staging.DropBatch
    | KeepAlive
    | Disconnect
)
"""The messages that a client sends."""

Notice: TypeAlias = (
    clients.PubendOpened
    | clients.PublisherOpened
    | clients.Published
    | clients.Subscribed
    | clients.SubscriptionStarted
    | clients.Stalled
    | clients.Delivery
    | clients.Progress
    | clients.Gap
    | clients.Closed
    | clients.SubscriptionEnded
    | clients.FilterSet
    | clients.FilterChanged
    | clients.Unsubscribed
    | clients.DurableFound
    | reading.ReadPart
    | operating.BrokerRetired
    | reshape.OpReply
    | reshape.TakeoverReply
    | plans.PlanReply
    | plans.PlanAborted
    | closing.ClosePubendReply
    | operating.PartitionTable
    | clients.Refused
    | operating.BrokerReply
    | operating.TopologyReply
    | operating.TreeWalked
    | operating.PubendList
    | operating.SubscriptionList
    | operating.AllDurableList
    | operating.SubscriptionReply
    | operating.LagReply
    | operating.DurableSeekDone
    | staging.ChunkStaged
    | staging.BatchCommitted
    | staging.BatchDropped
    | KeepAlive
    | Disconnect
)
"""The messages that a client receives."""


class _Envelope(msgspec.Struct, frozen=True, array_like=True, tag="Packet"):
    """A packet as it is decoded, with the types of its messages, all of which are known here."""

    sender: PeerSessionId
    receiver: PeerSessionId
    sequence: Count
    messages: tuple[Message, ...]


class _InnerEnvelope(msgspec.Struct, frozen=True, array_like=True, tag="Packet"):
    """A packet of a relayed session as it is decoded."""

    sender: PeerSessionId
    receiver: PeerSessionId
    sequence: Count
    messages: tuple[SessionMessage, ...]


class _ControlFrame(msgspec.Struct, frozen=True, array_like=True, tag="ControlFrame"):
    """A frame of a control session as it is decoded."""

    inner: Hello | _InnerEnvelope


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The first two elements of a request; the others are skipped."""

    kind: str
    number: ClientCount


T = TypeVar("T")

_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding. Fields that are skipped may be nested deeper than Python can recurse."""


class Codec(Generic[T]):
    """Reads and writes the messages of one kind of connection.

    >>> frame = CLIENT_REQUESTS.encode(clients.Credit("desk", 100))
    >>> CLIENT_REQUESTS.decode(frame[HEADER_BYTES:])
    Credit(subscription='desk', events=100)
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of the messages, as they are decoded."""
        return get_args(self._decoder.type)

    def encode(self, message: Any) -> bytearray:
        """Return a message as a frame."""
        frame = bytearray(HEADER_BYTES)
        self._encoder.encode_into(message, frame, HEADER_BYTES)
        size = len(frame) - HEADER_BYTES
        if size > FRAME_BYTES_MAX:
            kind = type(message).__name__
            raise ProtocolError(
                f"a {kind} of {size:,} bytes exceeds {FRAME_BYTES_MAX:,}: send it in parts"
            )
        frame[:HEADER_BYTES] = size.to_bytes(HEADER_BYTES, "big")
        return frame

    def decode(self, body: Body) -> T:
        """Return the message of a frame's body; ProtocolError if it is malformed."""
        try:
            return self._decoder.decode(body)
        except _MALFORMED as error:
            raise ProtocolError(f"a frame of {len(body):,} bytes is malformed: {error}") from None


class LinkCodec(Codec[Any]):
    """The codec of links. It decodes to :class:`Packet`. A packet may be larger than a frame."""

    def frames(self, packet: Any) -> list[bytearray]:
        """Return a packet as one frame, or as several if it is too large for one."""
        try:
            return [self.encode(packet)]
        except ProtocolError:
            body = self._encoder.encode(packet)
            return [self.encode(part) for part in parts_of(body)]

    def decode(self, body: Body) -> Any:
        found = super().decode(body)
        if type(found) is not _Envelope:
            return ControlFrame(_packet(found.inner)) if type(found) is _ControlFrame else found
        messages: tuple[Any, ...] = found.messages
        if _Carried in map(type, messages):
            messages = tuple(
                self._uncovered(message) if type(message) is _Carried else message
                for message in messages
            )
        return Packet(found.sender, found.receiver, found.sequence, messages)

    def _uncovered(self, carried: _Carried) -> Relayed:
        """Return a relayed packet: decoded at the end of its route, otherwise as bytes.

        A relay checks it too. If it passed on what is malformed, the next broker would end the link
        to the relay, for a fault of another broker.
        """
        try:
            inner = _INSIDE.decode(carried.inner)
        except _MALFORMED as error:
            raise ProtocolError(f"a relayed packet is malformed: {error}") from None
        if carried.index + 1 < len(carried.route):
            return Relayed(carried.route, carried.index, carried.inner.copy())
        return Relayed(carried.route, carried.index, _packet(inner))


def _packet(inner: Any) -> Any:
    """Return what is inside another frame, an envelope as a packet."""
    if type(inner) is not _InnerEnvelope:
        return inner
    return Packet(inner.sender, inner.receiver, inner.sequence, inner.messages)


CLIENT_REQUESTS: Final[Codec[Request]] = Codec(Request)
CLIENT_NOTICES: Final[Codec[Notice]] = Codec(Notice)
_Inside: TypeAlias = Hello | _InnerEnvelope | RelayBroken | RelayFull
INSIDE_TYPES: Final[tuple[Any, ...]] = get_args(_Inside)
"""The types of relayed packets, as they are decoded."""
_INSIDE: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(_Inside)
_NUMBERED: Final = frozenset(
    kind.__name__ for kind in get_args(Request) if "request" in kind.__struct_fields__
)
"""The kinds of requests that have a number."""
_HEAD: Final[msgspec.msgpack.Decoder[_Head]] = msgspec.msgpack.Decoder(_Head)
LINK_PACKETS: Final = LinkCodec(
    Hello | _Envelope | _ControlFrame | PacketPart | KeepAlive | Disconnect
)

_HANDSHAKES: Final[Codec[Handshake]] = Codec(Handshake)


def request_number(body: Body) -> int | None:
    """Return the number of a request that cannot be decoded, so that the request is refused.

    None means that the body is no message of a client, or one without a reply.

    >>> wrong: Any = None
    >>> frame = CLIENT_REQUESTS.encode(clients.OpenPubend(7, wrong))
    >>> request_number(frame[HEADER_BYTES:])
    7
    """
    try:
        head = _HEAD.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return head.number if head.kind in _NUMBERED else None


def encode_handshake(handshake: Handshake) -> bytearray:
    """Return a handshake as a frame."""
    return _HANDSHAKES.encode(handshake)


def decode_handshake(body: Body) -> Handshake:
    """Return the handshake of a frame's body."""
    return _HANDSHAKES.decode(body)
