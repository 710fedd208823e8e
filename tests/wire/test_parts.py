"""Packets that are divided into parts."""

from __future__ import annotations

import pytest

from gapless.core.errors import ProtocolError
from gapless.core.ids import PubendId
from gapless.core.limits import PACKET_BYTES_MAX, PART_BYTES
from gapless.messages.overlay import Packet, PeerSessionId
from gapless.messages.streams import KnowledgeRange, Publication, StreamData
from gapless.wire import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    LINK_PACKETS,
    FrameReader,
    PacketAssembler,
    PacketPart,
)
from gapless.wire.parts import parts_of
from tests.wire.feeding import feed


def packet(size: int) -> Packet:
    publication = Publication(7, "p", 1, {}, bytes(size))
    frame = StreamData(
        PubendId("quotes"), 3, KnowledgeRange(7, 7, 1, 0, (publication,)), first=True
    )
    return Packet(PeerSessionId(1, 1), PeerSessionId(1, 1), 1, (frame,))


def test_a_packet_that_fits_is_one_frame() -> None:
    (frame,) = LINK_PACKETS.frames(packet(1_000))
    assert LINK_PACKETS.decode(bytes(frame[HEADER_BYTES:])) == packet(1_000)


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX, FRAME_BYTES_MAX + PART_BYTES + 1])
def test_a_packet_larger_than_a_frame_is_assembled_from_its_parts(size: int) -> None:
    reader, assembler = FrameReader(), PacketAssembler()
    bodies = [
        body for frame in LINK_PACKETS.frames(packet(size)) for body in feed(reader, bytes(frame))
    ]
    parts = [LINK_PACKETS.decode(body) for body in bodies]
    assert all(isinstance(part, PacketPart) for part in parts)
    *early, last = [assembler.take(part) for part in parts]
    assert early == [None] * (len(parts) - 1)
    assert last is not None
    assert LINK_PACKETS.decode(last) == packet(size)
    assert assembler.is_empty


def test_parts_above_the_limit_are_refused_before_they_are_stored() -> None:
    assembler = PacketAssembler(limit=10)
    assert assembler.take(PacketPart(bytes(8), is_last=False)) is None
    with pytest.raises(ProtocolError, match="above the limit 10"):
        assembler.take(PacketPart(bytes(3), is_last=True))


def test_a_packet_above_the_limit_is_not_divided() -> None:
    with pytest.raises(ProtocolError, match="above the limit"):
        next(parts_of(_Huge()))


class _Huge(bytes):
    """Bytes that claim a size that a test cannot allocate."""

    def __len__(self) -> int:
        return PACKET_BYTES_MAX + 1
