"""Feeds a frame reader without a connection."""

from __future__ import annotations

from gapless.wire import FrameReader

__all__ = ["feed"]


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Write bytes to a frame reader, as many at a time as its buffer takes; return the bodies."""
    bodies: list[bytes] = []
    while data:
        count = min(len(data), len(reader.buffer))
        reader.buffer[:count] = data[:count]
        bodies += map(bytes, reader.filled(count))
        data = data[count:]
    return bodies
