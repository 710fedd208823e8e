"""Frames: a length of four bytes, most significant first, then so many bytes."""

from __future__ import annotations

from typing import Final

from gapless.core.errors import ProtocolError
from gapless.core.limits import FRAME_BYTES_MAX

__all__ = ["HEADER_BYTES", "Splitter"]

HEADER_BYTES: Final = 4

SMALL_BYTES: Final = 4_096
"""Pieces that are smaller than this are not worth being kept by themselves."""


class Splitter:
    r"""Cuts what arrives into bodies, whatever pieces it arrives in.

    >>> splitter = Splitter()
    >>> splitter.feed(b"\0\0\0\2hi\0\0"), splitter.feed(b"\0\1!")
    ([b'hi'], [b'!'])
    """

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self.limit = limit
        """Bytes that a body may have; it may be raised when the other side is known better."""
        self._parts: list[bytes | bytearray] = []
        """What has come of a frame that is not whole; small pieces are put together."""
        self._missing = 0
        """So many bytes at least must come before that frame can be whole."""

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a next frame has come."""
        return not self._parts

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the bodies that are now whole."""
        if self._parts:
            self._add(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data, self._parts = b"".join(self._parts), []  # once a frame, however many pieces
        bodies: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            size = int.from_bytes(data[start:body], "big")
            if size > self.limit:
                raise self._too_large(size)
            after = body + size
            if after > end:
                self._keep(data[start:], after - end)
                return bodies
            bodies.append(data[body:after])
            start = after
        if start < end:
            self._keep(data[start:], HEADER_BYTES - (end - start))
        return bodies

    def _too_large(self, size: int) -> ProtocolError:
        return ProtocolError(
            f"a frame of {size:,} bytes is larger than the limit of {self.limit:,}; "
            "is the other side speaking gapless?"
        )

    def _add(self, data: bytes) -> None:
        """Add a piece; however small they are, all together take about as much as the frame."""
        if len(data) >= SMALL_BYTES:
            self._parts.append(data)
        elif type(self._parts[-1]) is bytearray:
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))

    def _keep(self, rest: bytes, missing: int) -> None:
        self._parts = [rest]
        self._missing = missing
