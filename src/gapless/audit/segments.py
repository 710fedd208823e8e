"""Segments: files of frames, each with its length and its checksum.

A file begins with a line of text that says what it is. A frame is a length and a CRC-32, four bytes
each, lowest first, then that many bytes of msgpack: when it was written, and records. A file that ends
inside a frame, or whose last frame is not what it should be, was torn by a crash or is being written;
what is before that counts.
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
    """Return records as they stand in a file."""
    body = _encode((at_us, records))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def frames_of(data: bytes) -> Iterator[tuple[int, list[AuditRecord]]]:
    """Give when each frame was written, with its records, as far as the file is whole."""
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
    """Return what a segment is called while it grows."""
    return f"{prefix_of(side, name)}{run}-{number:06}{OPEN}"


def prefix_of(side: str, name: str) -> str:
    """Return what all segments of a name begin with."""
    return f"{side}-{quote(name, safe='.~_@+=')}-"


def segments_of(directory: Path) -> list[Path]:
    """Return all segments of a directory, those of a writer in their order.

    Those that grow are looked for first: one that ends meanwhile is then found by both names, and never by
    neither. Its last name counts.
    """
    found = [*directory.glob(f"*{OPEN}"), *directory.glob(f"*{CLOSED}")]
    by_stem = {path.stem: path for path in found}
    return [by_stem[stem] for stem in sorted(by_stem)]
