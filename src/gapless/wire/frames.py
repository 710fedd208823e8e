"""Frames: a length of four bytes, most significant first, then a body of that length.

A connection reads into a buffer, and bodies are decoded there, without a copy. All connections of a
thread share one buffer, which stays in the processor's cache and costs idle connections nothing. An
incomplete frame moves to a buffer of its own, into which the rest is read. That buffer has the size
of the frame. For a large frame it grows with the received bytes, so that a peer that only announces
a large frame occupies little memory.
"""

from __future__ import annotations

import threading
from struct import Struct
from typing import Final, TypeAlias

from gapless.core.errors import ProtocolError
from gapless.core.limits import FRAME_BYTES_MAX, READ_BYTES_MAX

__all__ = ["HEADER_BYTES", "Body", "FrameReader"]

Body: TypeAlias = bytes | bytearray | memoryview
"""The body of a frame, in any buffer."""

_HEADER: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size

_READY_BYTES: Final = READ_BYTES_MAX
"""A frame up to this size gets its buffer at once; a larger one, at most twice the bytes read."""


class _Shared(threading.local):
    """The buffer into which the connections of a thread read, one after the other."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES_MAX))


_shared: Final = _Shared()


class FrameReader:
    r"""Splits the bytes that a connection reads into the bodies of frames.

    A connection reads into :attr:`buffer` and then calls :meth:`filled`. The returned bodies are
    views, valid until the next read of any connection of this thread.

    >>> reader = FrameReader()
    >>> reader.buffer[:8] = b"\0\0\0\2hi\0\0"
    >>> [bytes(body) for body in reader.filled(8)]
    [b'hi']
    >>> reader.buffer[:2] = b"\0\1"
    >>> reader.filled(2)
    []
    """

    __slots__ = ("_frame", "_limit", "_received", "_shared", "_whole", "buffer")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._limit = limit
        """The greatest size of a body."""
        self._shared = _shared.view
        self.buffer = self._shared
        """The buffer for the next bytes."""
        self._frame: memoryview | None = None
        """An incomplete frame."""
        self._received = 0
        """The number of its bytes that were received."""
        self._whole = 0
        """Its size, or that of its header while the size is unknown."""

    def allow(self, limit: int) -> None:
        """Accept bodies of this size from now on, because the peer is authenticated."""
        self._limit = limit

    @property
    def is_between_frames(self) -> bool:
        """Whether no byte of a next frame was received."""
        return self._frame is None

    def filled(self, count: int) -> list[memoryview]:
        """Process bytes that were read into the buffer; return the bodies that are complete."""
        if self._frame is not None:
            return self._continue(self._frame, count)
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
        """Return the size of the body whose header starts there."""
        size: int = _HEADER.unpack_from(data, start)[0]
        if size > self._limit:
            raise ProtocolError(
                f"a frame of {size:,} bytes is larger than the limit of {self._limit:,}; "
                "does the peer speak the gapless protocol?"
            )
        return size

    def _keep(self, part: memoryview) -> None:
        """Copy an incomplete frame to its own buffer, into which the rest is read."""
        self._received = len(part)
        self._whole = HEADER_BYTES
        if self._received >= HEADER_BYTES:
            self._whole += self._size(part, 0)
        self._make_buffer(part)

    def _continue(self, frame: memoryview, count: int) -> list[memoryview]:
        """Process more bytes of an incomplete frame."""
        self._received += count
        if self._received == self._whole == HEADER_BYTES:
            self._whole += self._size(frame, 0)
        if self._received < self._whole:
            self._make_buffer(frame)
            return []
        self._frame = None
        self.buffer = self._shared
        return [frame[HEADER_BYTES : self._whole]]

    def _make_buffer(self, part: memoryview) -> None:
        """Provide a buffer with the received part of a frame and free space for more."""
        size = min(self._whole, max(_READY_BYTES, 2 * self._received))
        if self._frame is None or self._received == len(self._frame):
            frame = memoryview(bytearray(size))
            frame[: self._received] = part[: self._received]
            self._frame = frame
        self.buffer = self._frame[self._received :]
