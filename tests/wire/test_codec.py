"""Every message is encoded, and decoding returns an equal message."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.core.ids import PubendId
from gapless.core.overlay_limits import RECORDS_MAX
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
from gapless.messages.overlay import Packet, PeerSessionId
from gapless.messages.streams import KnowledgeRange, Publication, StreamData
from gapless.reshape.operations import OPERATION_MESSAGES
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    HEADER_BYTES,
    LINK_PACKETS,
    Connect,
    Disconnect,
    Role,
    decode_handshake,
    encode_handshake,
)
from gapless.wire.codec import Message, Notice, Request

CARRIED_OTHERWISE = {
    "ControlFrame",
    "Hello",
    "Packet",
    "RelayBroken",
    "RelayFull",
    "Walk",
    "Walked",
}


def tagged(module: ModuleType) -> set[str]:
    """Return the names of the messages that a module defines."""
    found = set()
    for name in module.__all__:
        kind = getattr(module, name)
        is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if is_struct and kind.__struct_config__.tag is not None:
            found.add(kind.__name__)  # an alias stands for the message
    return found


def test_a_packet_may_carry_every_message_between_brokers() -> None:
    carried = {kind.__struct_config__.tag for kind in get_args(Message)}
    modules = (overlay, propagation, streams, pubend_requests, mobility, unicast)
    operations = {kind.__name__ for kind in OPERATION_MESSAGES}
    assert carried == set().union(*map(tagged, modules), operations) - CARRIED_OTHERWISE


def test_every_message_of_clients_is_a_request_or_a_notice() -> None:
    both = {kind.__name__ for kind in (*get_args(Request), *get_args(Notice))}
    operations = {kind.__name__ for kind in OPERATION_MESSAGES}
    modules = (clients, closing, operating, plans, reading, reshape, staging)
    assert both - {"KeepAlive", "Disconnect"} == set().union(*map(tagged, modules)) - operations - {
        "AreEdgesSettled",
        "EdgesSettled",
    }


def test_a_packet_survives_encoding_and_decoding() -> None:
    publication = Publication(7, "p", 1, {"a": 1, "b": 1.5, "c": "x", "d": True}, b"\x00\xff")
    frame = StreamData(
        PubendId("quotes"), 3, KnowledgeRange(5, 9, 1, 0, (publication,)), first=False
    )
    packet = Packet(
        PeerSessionId(1, 2), PeerSessionId(3, 4), 5, (frame, overlay.Heartbeat(1, 1, 1))
    )
    back = LINK_PACKETS.decode(LINK_PACKETS.encode(packet)[HEADER_BYTES:])
    assert back == packet
    assert type(back.messages[0].pubend) is PubendId


def relayed(index: int, inner: Any) -> Packet:
    carried = overlay.Relayed(("a", "r", "b"), index, inner)
    return Packet(
        PeerSessionId(1, 1), PeerSessionId(1, 1), 1, (overlay.Heartbeat(1, 1, 1), carried)
    )


@pytest.mark.parametrize(
    "inner",
    [
        Packet(PeerSessionId(1, 2), PeerSessionId(3, 4), 5, (overlay.Heartbeat(1, 2, 3),)),
        overlay.Hello("a", "a", PeerSessionId(1, 1), None, 1, 1),
        overlay.RelayBroken(("a", "r", "b")),
        overlay.RelayFull(("a", "r", "b")),
    ],
)
def test_a_relayed_packet_stays_encoded_until_the_end_of_its_route(inner: Any) -> None:
    # R3: a relay forwards bytes
    at_the_relay = LINK_PACKETS.decode(LINK_PACKETS.encode(relayed(1, inner))[HEADER_BYTES:])
    assert isinstance(at_the_relay.messages[1].inner, msgspec.Raw)
    passed_on = relayed(2, at_the_relay.messages[1].inner)
    at_the_end = LINK_PACKETS.decode(LINK_PACKETS.encode(passed_on)[HEADER_BYTES:])
    assert at_the_end.messages[1].inner == inner


def test_an_invalid_relayed_packet_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="a relayed packet is malformed"):
        LINK_PACKETS.decode(LINK_PACKETS.encode(relayed(2, ["nonsense"]))[HEADER_BYTES:])


@pytest.mark.parametrize(
    "inner",
    [
        overlay.Hello("a", "a", PeerSessionId(1, 1), None, 2, 0),
        Packet(
            PeerSessionId(1, 2),
            PeerSessionId(3, 4),
            5,
            (overlay.RecordPush((overlay.CellRecord.first("a", ["a1"], ["b"]),)),),
        ),
    ],
)
def test_a_frame_of_a_control_session_survives_encoding_and_decoding(inner: Any) -> None:
    frame = LINK_PACKETS.encode(overlay.ControlFrame(inner))
    assert LINK_PACKETS.decode(frame[HEADER_BYTES:]) == overlay.ControlFrame(inner)


def test_a_frame_of_a_control_session_contains_no_relayed_packet() -> None:
    with pytest.raises(ProtocolError):
        LINK_PACKETS.decode(
            LINK_PACKETS.encode(overlay.ControlFrame(relayed(2, [])))[HEADER_BYTES:]
        )


def test_more_records_than_a_broker_may_hold_are_a_protocol_error() -> None:
    many = overlay.RecordWant(("a",) * (RECORDS_MAX + 1))
    packet = Packet(PeerSessionId(1, 1), PeerSessionId(1, 1), 1, (many,))
    with pytest.raises(ProtocolError):
        LINK_PACKETS.decode(LINK_PACKETS.encode(packet)[HEADER_BYTES:])


def test_integers_and_floats_stay_distinct() -> None:
    events: Any = (({"whole": 1, "real": 1.0}, b""),)
    call = clients.Publish(1, PubendId("q"), "p", 1, 1, events)
    back = CLIENT_REQUESTS.decode(CLIENT_REQUESTS.encode(call)[HEADER_BYTES:])
    assert isinstance(back, clients.Publish)
    values = back.events[0][0]
    assert (type(values["whole"]), type(values["real"])) == (int, float)


@pytest.mark.parametrize("codec", [CLIENT_REQUESTS, CLIENT_NOTICES, LINK_PACKETS])
@given(body=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_protocol_error(codec: Any, body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert codec.decode(body) is not None


def test_a_notice_is_not_taken_for_a_request() -> None:
    frame = CLIENT_NOTICES.encode(clients.Refused(1, "no"))
    with pytest.raises(ProtocolError, match="Refused"):
        CLIENT_REQUESTS.decode(frame[HEADER_BYTES:])


def test_a_handshake_is_decoded_as_its_class() -> None:
    hello = Connect(Role.CLIENT, "desk")
    assert decode_handshake(bytes(encode_handshake(hello)[HEADER_BYTES:])) == hello
    with pytest.raises(ProtocolError):
        decode_handshake(b"\x90")


def test_fields_that_a_newer_release_adds_are_skipped() -> None:
    longer = msgspec.msgpack.encode(["Disconnect", 0, "stopping", "something new"])
    assert isinstance(CLIENT_NOTICES.decode(longer), Disconnect)
