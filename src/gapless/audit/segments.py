"""Segments: files of frames, each with its length and its checksum.

A file starts with a line of text that identifies it. A frame is a length and a CRC-32, four bytes
each, little-endian, then that many bytes of msgpack: the time of writing, and records. If a file
ends inside a frame or with an invalid frame, a crash cut it off or it is being written. The frames
before that are valid.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gapless.audit.records import AuditRecord

__all__ = ["CLOSED", "MAGIC", "OPEN", "encode_frame", "frames_of", "segment_name", "segments_of"]

MAGIC: Final = b"gapless audit log\n"
OPEN: Final = ".open"
CLOSED: Final = ".audit"

_HEAD: Final = struct.Struct("<II")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, list[AuditRecord]]).decode


def encode_frame(at_us: int, records: list[Any]) -> bytes:
    """Return records as a frame."""
    body = _encode((at_us, records))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def frames_of(data: bytes) -> Iterator[tuple[int, list[AuditRecord]]]:
    """Yield the time and the records of each frame, as far as the file is valid."""
    if not data.startswith(MAGIC):
        return
    offset = len(MAGIC)
    while offset + _HEAD.size <= len(data):
        size, checksum = _HEAD.unpack_from(data, offset)
        body = data[offset + _HEAD.size : offset + _HEAD.size + size]
        if len(body) < size or zlib.crc32(body) != checksum:
            return
        yield _decode(body)
        offset += _HEAD.size + size


def segment_name(side: str, name: str, run: str, number: int) -> str:
    """Return the file name of a segment while it grows."""
    return f"{prefix_of(side, name)}{run}-{number:06}{OPEN}"


def prefix_of(side: str, name: str) -> str:
    """Return the common prefix of all segments of a writer's name."""
    return f"{side}-{quote(name, safe='.~_@+=')}-"


def segments_of(directory: Path) -> list[Path]:
    """Return all segments of a directory, those of each writer in order.

    Growing ones are listed first: a segment that ends meanwhile is then found by both names, and
    never by neither. Its final name is used.
    """
    found = [*directory.glob(f"*{OPEN}"), *directory.glob(f"*{CLOSED}")]
    by_stem = {path.stem: path for path in found}
    return [by_stem[stem] for stem in sorted(by_stem)]
