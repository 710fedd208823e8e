"""How the bare relay and its ends cut what they read into frames: as it comes, in bytes.

Brokers and clients of gapless read in a better way (:mod:`gapless.wire.frames`). The floor does not: it is
what a protocol of asyncio is given, and it has to stay where it is for numbers to be compared.
"""

from __future__ import annotations

from gapless.wire.frames import HEADER_BYTES

__all__ = ["Splitter"]


class Splitter:
    r"""Cuts what arrives into bodies, whatever pieces it arrives in.

    >>> splitter = Splitter()
    >>> splitter.feed(b"\0\0\0\2hi\0\0"), splitter.feed(b"\0\1!")
    ([b'hi'], [b'!'])
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """What has come of a frame that is not whole."""
        self._missing = 0
        """So many bytes at least must come before that frame can be whole."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the bodies that are now whole."""
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data, self._parts = b"".join(self._parts), []  # once a frame, however many pieces
        bodies: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            after = body + int.from_bytes(data[start:body], "big")
            if after > end:
                self._keep(data[start:], after - end)
                return bodies
            bodies.append(data[body:after])
            start = after
        if start < end:
            self._keep(data[start:], HEADER_BYTES - (end - start))
        return bodies

    def _keep(self, rest: bytes, missing: int) -> None:
        self._parts = [rest]
        self._missing = missing
