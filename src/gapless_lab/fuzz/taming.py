"""Keeps names in pools: whatever was mutated, a run creates a bounded number of named things.

Frames that create nothing keep every name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gapless.core.errors import ProtocolError
from gapless.core.ids import PubendId
from gapless.core.limits import INT_MAX
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    Publish,
    Subscribe,
)
from gapless.messages.mobility import Superseded
from gapless.messages.operating import RetireBroker
from gapless.messages.overlay import Announce, Hello, Packet, PeerSessionId, Retire
from gapless.messages.staging import CommitBatch, DropBatch, StageChunk
from gapless.wire import CLIENT_REQUESTS, LINK_PACKETS
from gapless_lab.fuzz.vocabulary import BROKERS, HOSTILE, PAIR_PUBEND, tame_name

__all__ = ["as_packet", "tamed"]

_replace: Final = msgspec.structs.replace

SESSIONS_MAX: Final = 2**62
"""The greatest number of a session that is sent. Later sessions have greater ones."""

EXPIRY_S: Final = 2
"""How long a durable subscription is kept without its client: it holds logs."""

NUMBERS: Final = 4
"""Batches, partitions and chunks of a writer, and incarnations of a pubend."""


def _pubend(pubend: PubendId) -> PubendId:
    if pubend.name == PAIR_PUBEND:
        return PubendId("f0", 1)
    return PubendId(tame_name(pubend.name), pubend.incarnation % NUMBERS)


def _broker(broker: str) -> str:
    """Return a broker that may be retired: none that the healthy pair needs."""
    return HOSTILE if broker in BROKERS else tame_name(broker)


def _subscribe(found: Subscribe) -> Subscribe:
    if not found.durable:
        return found
    name, expiry_s = tame_name(found.subscription), min(found.expiry_s, EXPIRY_S)
    return _replace(found, subscription=name, expiry_s=expiry_s)


def _staged(found: Any) -> Any:
    names = {"writer": tame_name(found.writer), "batch": found.batch % NUMBERS}
    if isinstance(found, StageChunk):
        names |= {
            "attempt": tame_name(found.attempt),
            "partition": found.partition % NUMBERS,
            "number": found.number % NUMBERS,
        }
    return _replace(found, **names)


def _publisher(found: Any) -> Any:
    return _replace(found, publisher=tame_name(found.publisher))


def _hello(found: Hello) -> Hello:
    """Return a Hello after which a later session of the same neighbour is possible."""
    own = PeerSessionId(min(found.own.incarnation, INT_MAX), min(found.own.number, SESSIONS_MAX))
    return _replace(found, own=own)


_TAMERS: Final[dict[type, Callable[[Any], Any]]] = {
    OpenPubend: lambda found: _replace(found, name=tame_name(found.name)),
    OpenPublisher: _publisher,
    Publish: _publisher,
    Subscribe: _subscribe,
    StageChunk: _staged,
    CommitBatch: _staged,
    DropBatch: _staged,
    RetireBroker: lambda found: _replace(found, broker=_broker(found.broker)),
    Retire: lambda found: _replace(found, broker=_broker(found.broker)),
    Announce: lambda found: _replace(found, pubend=_pubend(found.pubend)),
    Hello: _hello,
    Superseded: lambda found: _replace(found, incarnation_key=tame_name(found.incarnation_key)),
}
"""How messages that create something are tamed."""

_TAGS: Final = tuple(kind.__name__.encode() for kind in _TAMERS)


def tamed(body: bytes, *, is_request: bool) -> bytes:
    """Return a body that creates nothing outside the pools; malformed ones are not changed."""
    if not any(tag in body[:32] for tag in _TAGS):
        return body
    message = _decoded(body, is_request=is_request)
    tamer = _TAMERS.get(type(message))
    if tamer is None:
        return body
    result = tamer(message)
    return body if result == message else msgspec.msgpack.encode(result)


def _decoded(body: bytes, *, is_request: bool) -> Any:
    """Return the message of a body, or None if it is malformed."""
    wholes = (body,) if is_request else (body, as_packet(body))
    codec: Any = CLIENT_REQUESTS if is_request else LINK_PACKETS
    for whole in wholes:
        try:
            found = codec.decode(whole)
        except (ProtocolError, RecursionError):
            continue
        return found.messages[0] if isinstance(found, Packet) and whole is not body else found
    return None


def as_packet(
    message: bytes,
    sender: tuple[int, int] = (1, 1),
    receiver: tuple[int, int] = (1, 1),
    sequence: int = 1,
) -> bytes:
    """Return a message, which may be malformed, in a packet of a session."""
    head = msgspec.msgpack.encode(["Packet", sender, receiver, sequence])
    return b"\x95" + head[1:] + b"\x91" + message
