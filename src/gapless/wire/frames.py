"""Frames: a length of four bytes, most significant first, then so many bytes.

What a connection reads is put where it is needed and looked at there, without a copy. All connections
of a thread read into one buffer, which stays warm and costs the idle ones nothing. A frame of which only
a part has come moves to a buffer of its own, and the rest is read into that; it is as large as the frame,
or grows with what comes if the frame is large, so that who only announces much takes little.
"""

from __future__ import annotations

import threading
from struct import Struct
from typing import Final, TypeAlias

from gapless.core.errors import ProtocolError
from gapless.core.limits import FRAME_BYTES_MAX, READ_BYTES_MAX

__all__ = ["HEADER_BYTES", "Body", "FrameReader"]

Body: TypeAlias = bytes | bytearray | memoryview
"""The body of a frame, wherever it is."""

_HEADER: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size

_READY_BYTES: Final = READ_BYTES_MAX
"""A frame up to this size gets its buffer at once; that of a larger one is at most twice what has come."""


class _Shared(threading.local):
    """The buffer into which the connections of a thread read, one after the other."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES_MAX))


_shared: Final = _Shared()


class FrameReader:
    r"""Takes what a connection reads, in whatever pieces, and gives the bodies of frames.

    A connection reads into :attr:`buffer` and then says how much that was. The bodies that it gets are
    views: they are good until the next read of any connection of this thread.

    >>> reader = FrameReader()
    >>> reader.buffer[:8] = b"\0\0\0\2hi\0\0"
    >>> [bytes(body) for body in reader.filled(8)]
    [b'hi']
    >>> reader.buffer[:2] = b"\0\1"
    >>> reader.filled(2)
    []
    """

    __slots__ = ("_come", "_frame", "_limit", "_shared", "_whole", "buffer")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._limit = limit
        """Bytes that a body may have."""
        self._shared = _shared.view
        self.buffer = self._shared
        """Where the next bytes are to be put."""
        self._frame: memoryview | None = None
        """A frame that is not whole."""
        self._come = 0
        """How many of its bytes have come."""
        self._whole = 0
        """How many it has, as far as that is known."""

    def allow(self, limit: int) -> None:
        """Take bodies of so many bytes from now on, because the other side is known better."""
        self._limit = limit

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a next frame has come."""
        return self._frame is None

    def filled(self, count: int) -> list[memoryview]:
        """Take so many bytes that are in the room; return the bodies that are now whole."""
        if self._frame is not None:
            return self._go_on(self._frame, count)
        data = self._shared
        bodies: list[memoryview] = []
        start = 0
        while count - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            after = body + self._size(data, start)
            if after > count:
                break
            bodies.append(data[body:after])
            start = after
        if start < count:
            self._keep(data[start:count])
        return bodies

    def _size(self, data: memoryview, start: int) -> int:
        """Return the size of the body whose header is there."""
        size: int = _HEADER.unpack_from(data, start)[0]
        if size > self._limit:
            raise ProtocolError(
                f"a frame of {size:,} bytes is larger than the limit of {self._limit:,}; "
                "is the other side speaking gapless?"
            )
        return size

    def _keep(self, part: memoryview) -> None:
        """Let the rest of a frame follow what has come of it."""
        self._come = len(part)
        self._whole = HEADER_BYTES
        if self._come >= HEADER_BYTES:
            self._whole += self._size(part, 0)
        self._make_buffer(part)

    def _go_on(self, frame: memoryview, count: int) -> list[memoryview]:
        """Take more of a frame."""
        self._come += count
        if self._come == self._whole == HEADER_BYTES:
            self._whole += self._size(frame, 0)
        if self._come < self._whole:
            self._make_buffer(frame)
            return []
        self._frame = None
        self.buffer = self._shared
        return [frame[HEADER_BYTES : self._whole]]

    def _make_buffer(self, part: memoryview) -> None:
        """Have a buffer for a frame, with what has come and with room for more."""
        size = min(self._whole, max(_READY_BYTES, 2 * self._come))
        if self._frame is None or self._come == len(self._frame):
            frame = memoryview(bytearray(size))
            frame[: self._come] = part[: self._come]
            self._frame = frame
        self.buffer = self._frame[self._come :]
