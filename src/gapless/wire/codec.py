"""Messages to frames, and bodies to messages."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId
from gapless.core.limits import FRAME_BYTES_MAX
from gapless.messages import clients, mobility, operating, overlay, propagation, staging, streams
from gapless.messages import pubend_requests as requests
from gapless.messages.overlay import (
    Hello,
    Packet,
    RelayBroken,
    Relayed,
    RelayFull,
    SessionId,
)
from gapless.wire.frames import HEADER_BYTES, Body
from gapless.wire.handshake import Beat, Goodbye, Greeting
from gapless.wire.parts import Part, parts_of

__all__ = [
    "CLIENT_NOTICES",
    "CLIENT_REQUESTS",
    "LINK_PACKETS",
    "Codec",
    "decode_greeting",
    "encode_greeting",
]


class _Carried(msgspec.Struct, frozen=True, array_like=True, tag="Relayed"):
    """A relayed packet as it is read: a relay has no business with what is inside."""

    path: tuple[BrokerId, ...]
    index: int
    inner: msgspec.Raw


Message: TypeAlias = (
    overlay.Heartbeat
    | overlay.Announce
    | overlay.PartitionInfo
    | overlay.Retire
    | overlay.NameAsk
    | overlay.NameAnswer
    | overlay.RelayProbe
    | _Carried
    | mobility.Superseded
    | propagation.TableWant
    | propagation.TableStop
    | propagation.TableFull
    | propagation.TableDelta
    | streams.Attach
    | streams.Attached
    | streams.Unfed
    | streams.Detach
    | streams.Frame
    | streams.Silence
    | streams.Regime
    | streams.RegimeWant
    | streams.Nack
    | streams.Released
    | streams.Unreadable
    | streams.SetDefine
    | streams.SetForget
    | streams.Report
    | streams.AckExpected
    | streams.Advance
    | requests.Read
    | requests.ReadReply
    | requests.ReleaseHold
    | requests.Leave
    | requests.Done
)
"""What a packet may carry."""

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
    | clients.ReadLog
    | clients.RetireHost
    | clients.ListPartitions
    | operating.ShowBroker
    | operating.ShowTopology
    | operating.ListPubends
    | operating.ListSubscriptions
    | operating.ShowSubscription
    | operating.SeekDurable
    | operating.SetDurableFilter
    | operating.RemoveDurable
    | staging.Stage
    | staging.CommitStaged
    | staging.DropStaged
    | Beat
    | Goodbye
)
"""What a client may send."""

Notice: TypeAlias = (
    clients.PubendOpened
    | clients.PublisherOpened
    | clients.Published
    | clients.Subscribed
    | clients.Started
    | clients.Stalled
    | clients.Delivery
    | clients.Progress
    | clients.Gap
    | clients.Ended
    | clients.FilterSet
    | clients.Switched
    | clients.Unsubscribed
    | clients.ReadPart
    | clients.HostRetired
    | clients.PartitionTable
    | clients.Refused
    | operating.BrokerShown
    | operating.TopologyShown
    | operating.PubendList
    | operating.SubscriptionList
    | operating.SubscriptionShown
    | operating.DurableSought
    | staging.Staged
    | staging.StagedCommitted
    | staging.StagedDropped
    | Beat
    | Goodbye
)
"""What a client may hear."""


class _Envelope(msgspec.Struct, frozen=True, array_like=True, tag="Packet"):
    """A packet as it is read: its messages have types here, where all of them are known."""

    sender: SessionId
    receiver: SessionId
    sequence: int
    messages: tuple[Message, ...]


T = TypeVar("T")


class Codec(Generic[T]):
    """Reads and writes the messages of one kind of connection.

    >>> frame = CLIENT_REQUESTS.encode(clients.Credit("desk", 100))
    >>> CLIENT_REQUESTS.decode(frame[HEADER_BYTES:])
    Credit(subscription='desk', events=100)
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, message: Any) -> bytearray:
        """Return a message as a frame."""
        frame = bytearray(HEADER_BYTES)
        self._encoder.encode_into(message, frame, HEADER_BYTES)
        size = len(frame) - HEADER_BYTES
        if size > FRAME_BYTES_MAX:
            kind = type(message).__name__
            raise ProtocolError(
                f"this {kind} has {size:,} bytes and a frame {FRAME_BYTES_MAX:,}; send it in parts"
            )
        frame[:HEADER_BYTES] = size.to_bytes(HEADER_BYTES, "big")
        return frame

    def decode(self, body: Body) -> T:
        """Return the message of a frame's body, or say why there is none."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"a frame of {len(body):,} bytes is no message: {error}") from None


class LinkCodec(Codec[Any]):
    """As above; packets come out as the sessions know them, and may be larger than a frame."""

    def frames(self, packet: Any) -> list[bytearray]:
        """Return a packet as frames: one, or as many as it needs."""
        try:
            return [self.encode(packet)]
        except ProtocolError:
            body = self._encoder.encode(packet)
            return [self.encode(part) for part in parts_of(body)]

    def decode(self, body: Body) -> Any:
        return self._opened(super().decode(body))

    def _opened(self, found: Any) -> Any:
        """Return a packet as the sessions know it."""
        if type(found) is not _Envelope:
            return found
        messages: tuple[Any, ...] = found.messages
        if _Carried in map(type, messages):
            messages = tuple(
                self._uncovered(message) if type(message) is _Carried else message
                for message in messages
            )
        return Packet(found.sender, found.receiver, found.sequence, messages)

    def _uncovered(self, carried: _Carried) -> Relayed:
        """Return a relayed packet, with what is inside if it has arrived, else with its bytes."""
        if carried.index + 1 < len(carried.path):
            return Relayed(carried.path, carried.index, carried.inner.copy())
        try:
            inner = _INSIDE.decode(carried.inner)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"a relayed packet is none: {error}") from None
        return Relayed(carried.path, carried.index, self._opened(inner))


CLIENT_REQUESTS: Final[Codec[Request]] = Codec(Request)
CLIENT_NOTICES: Final[Codec[Notice]] = Codec(Notice)
_INSIDE: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(
    Hello | _Envelope | RelayBroken | RelayFull
)
LINK_PACKETS: Final = LinkCodec(Hello | _Envelope | Part | Beat | Goodbye)

_GREETINGS: Final[Codec[Greeting]] = Codec(Greeting)


def encode_greeting(greeting: Greeting) -> bytearray:
    """Return a greeting as a frame."""
    return _GREETINGS.encode(greeting)


def decode_greeting(body: Body) -> Greeting:
    """Return the greeting of a frame's body."""
    return _GREETINGS.decode(body)
