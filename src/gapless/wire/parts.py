"""Packets that do not fit into a frame: sent in parts and reassembled.

All messages of one step to a peer are one packet of any size. A packet that is larger than a frame
is sent as several frames: consecutive parts of its bytes, with no other frame of the connection in
between.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gapless.core.errors import ProtocolError
from gapless.core.limits import PACKET_BYTES_MAX, PART_BYTES

__all__ = ["PacketAssembler", "PacketPart", "parts_of"]


class PacketPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Some bytes of a packet, and whether they are its last."""

    data: bytes
    is_last: bool


def parts_of(body: bytes | bytearray | memoryview) -> Iterator[PacketPart]:
    """Divide a packet's bytes.

    >>> [(len(part.data), part.is_last) for part in parts_of(bytes(PART_BYTES + 1))]
    [(4194304, False), (1, True)]
    """
    size = len(body)
    if size > PACKET_BYTES_MAX:
        raise ProtocolError(f"a packet of {size:,} bytes is above the limit {PACKET_BYTES_MAX:,}")
    for start in range(0, size, PART_BYTES):
        end = start + PART_BYTES
        yield PacketPart(bytes(body[start:end]), end >= size)


class PacketAssembler:
    """Reassembles the packets of one connection from their parts."""

    def __init__(self, limit: int = PACKET_BYTES_MAX) -> None:
        self._limit = limit
        self._body = bytearray()

    def take(self, part: PacketPart) -> bytes | None:
        """Add a part; return the packet's bytes if it was the last."""
        if len(self._body) + len(part.data) > self._limit:
            raise ProtocolError(f"a packet in parts is above the limit {self._limit:,}")
        self._body += part.data
        if not part.is_last:
            return None
        body = bytes(self._body)
        self._body.clear()
        return body

    @property
    def is_empty(self) -> bool:
        """Whether no packet is incomplete."""
        return not self._body
