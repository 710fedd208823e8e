"""How the bare relay and its ends split their input into frames: on bytes, as it arrives.

Brokers and clients of gapless read more efficiently (:mod:`gapless.wire.frames`). The baseline does
not: it uses what a protocol of asyncio receives, and it must not change, so that numbers can be
compared.
"""

from __future__ import annotations

from gapless.wire.frames import HEADER_BYTES

__all__ = ["Splitter"]


class Splitter:
    r"""Splits received data into bodies, independent of the chunks in which it arrives.

    >>> splitter = Splitter()
    >>> splitter.feed(b"\0\0\0\2hi\0\0"), splitter.feed(b"\0\1!")
    ([b'hi'], [b'!'])
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The received parts of an incomplete frame."""
        self._missing = 0
        """The least number of bytes that must arrive before that frame can be complete."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the bodies that are now complete."""
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data, self._parts = b"".join(self._parts), []  # once per frame, however many chunks
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
