"""Rows, marks and records as they stand in the tables, with their checksums.

A checksum covers every other column of its row, so a row that was changed, or moved under another
key, is found. Which pubend a row belongs to is written as ``name#incarnation``, always with the
number, so that no name can be taken for another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from gapless.core.errors import CorruptionError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.records import AppendPackedRow, LogRow, PackedRow, Record

try:
    from isal.isal_zlib import crc32  # some times as fast, where there is a build of it
except ImportError:
    from zlib import crc32

__all__ = [
    "NOTHING",
    "LogMark",
    "StoredRow",
    "decode_key",
    "decode_record",
    "decode_row",
    "encode_key",
    "encode_packed",
    "encode_record",
    "encode_row",
    "is_valid",
    "label_of",
    "packed_row",
    "pubend_of",
    "record_checksum",
]

T = TypeVar("T")

NOTHING = -1
"""Where a log ends that had no row, and up to where one is trimmed that never was."""

_SLICE = 5_120
"""Bytes that are summed at once by who writes. ``crc32`` gives up the interpreter above 5 KiB, and to
get it back from a busy event loop can take longer than a thousand sums. Who reads sums whole rows: it
has the time, and the event loop goes on meanwhile."""


class _Packed(msgspec.Struct, array_like=True, tag=LogRow.__name__):
    """A log row whose publications are encoded already."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    control_version: int
    clock: int
    publications: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_row_decoder = msgspec.msgpack.Decoder(LogRow)
_key_encoder = msgspec.json.Encoder()
_key_decoder = msgspec.json.Decoder(tuple[str, ...])
_UNDECODABLE = (msgspec.MsgspecError, ValueError, TypeError)
"""What decoding raises; a text that is not UTF-8 is a ValueError."""

_Sum: TypeAlias = Callable[[bytes, int], int]

_pack_row = struct.Struct("<qqqq").pack
_pack_mark = struct.Struct("<qq").pack


class StoredRow(NamedTuple):
    """A row of the table ``log``, without its checksum."""

    label: str
    first: int
    last: int
    previous: int
    events: int
    frame: bytes

    @property
    def checksum(self) -> int:
        """The sum over all columns."""
        return self.summed(_sum)

    def summed(self, add: _Sum) -> int:
        """Return the sum over all columns; the frame, which may be long, is added in one way or another."""
        numbers = _pack_row(self.first, self.last, self.previous, self.events)
        return add(self.frame, crc32(self.label.encode() + numbers))


class LogMark(NamedTuple):
    """A row of the table ``logs``, without its checksum: how far a log goes."""

    label: str
    trimmed: int
    last: int

    @property
    def checksum(self) -> int:
        """The sum over all columns."""
        return crc32(self.label.encode() + _pack_mark(self.trimmed, self.last))


def is_valid(stored: StoredRow | LogMark, checksum: object) -> bool:
    """Whether what was read has the checksum that was written with it."""
    try:
        found = stored.checksum if isinstance(stored, LogMark) else stored.summed(crc32)
        return found == checksum
    except (AttributeError, TypeError, struct.error):
        return False  # a damaged page can give a column another type


def label_of(pubend: PubendId) -> str:
    """Return how a pubend is named in the tables."""
    return f"{pubend.name}#{pubend.incarnation}"


def pubend_of(label: str) -> PubendId:
    """Return the pubend that a label names.

    >>> pubend_of(label_of(PubendId("trades#7", 2)))
    PubendId(name='trades#7', incarnation=2)
    """
    name, _, incarnation = label.rpartition("#")
    try:
        return PubendId(name, int(incarnation))
    except ValueError:
        raise CorruptionError(f"{label!r} does not name a pubend") from None


def encode_row(row: LogRow, packed_events: bytes = b"") -> bytes:
    """Return the frame of a log row; of its publications a copy, if they are packed already."""
    if not packed_events:
        return _encoder.encode(row)
    return _encoder.encode(
        _Packed(
            row.pubend,
            row.first,
            row.last,
            row.stream_epoch,
            row.control_version,
            row.clock,
            msgspec.Raw(packed_events),
        )
    )


def encode_packed(row: AppendPackedRow) -> bytes:
    """Return the frame of a log row whose publications are packed; it is as if they were not."""
    publications = msgspec.Raw(row.publications)
    return _encoder.encode(
        _Packed(row.pubend, row.first, row.last, row.stream_epoch, 0, row.clock, publications)
    )


def decode_row(stored: StoredRow, checksum: object) -> LogRow:
    """Return the log row that a stored one holds; CorruptionError says what is wrong with it."""
    return _decoded(stored, checksum, _row_decoder)


def packed_row(stored: StoredRow, checksum: object) -> PackedRow:
    """As above, with the publications as they stand there: they are the last of a frame.

    They are a view of it: a copy of a large row takes longer than to sum it.
    """
    _check_sum(stored, checksum)
    try:
        offset = _after_fields(stored.frame)
    except IndexError:
        raise CorruptionError("it cannot be decoded: it ends too early") from None
    return PackedRow(stored.first, stored.last, memoryview(stored.frame)[offset:])


def _after_fields(frame: bytes) -> int:
    """Return where the publications begin: behind all other fields, which are texts and ints.

    A decoder would walk through the publications to find their end; that is known here.
    """
    offset = 1  # behind the head of the row
    for field in ("tag", *LogRow.__struct_fields__[:-1]):
        if field == "pubend":
            offset = _after(frame, offset + 1)  # the head of a pair, and its name
        offset = _after(frame, offset)
    return offset


def _after(frame: bytes, offset: int) -> int:
    """Return what comes behind a text or an int of msgpack."""
    head = frame[offset]
    if head < 0x80 or head >= 0xE0:
        return offset + 1
    if head < 0xC0:
        return offset + 1 + (head & 0x1F)
    if head == 0xD9:
        return offset + 2 + frame[offset + 1]
    if head == 0xDA:
        return offset + 3 + int.from_bytes(frame[offset + 1 : offset + 3], "big")
    assert 0xCC <= head <= 0xD3, f"{head:#x} is neither a text nor an int"
    return offset + 1 + (1 << (head & 3))


def _decoded(stored: StoredRow, checksum: object, decoder: msgspec.msgpack.Decoder[T]) -> T:
    _check_sum(stored, checksum)
    try:
        return decoder.decode(stored.frame)
    except _UNDECODABLE as error:
        raise CorruptionError(f"it cannot be decoded: {error}") from error


def _check_sum(stored: StoredRow, checksum: object) -> None:
    if not is_valid(stored, checksum):
        raise CorruptionError(f"its content does not fit its checksum {_shown(checksum)}")


def encode_key(key: tuple[str, ...]) -> str:
    """Return a record's key as it stands in the table: readable by people.

    >>> encode_key(("pubend", "trades"))
    '["pubend","trades"]'
    """
    return _key_encoder.encode(key).decode()


def decode_key(text: object) -> tuple[str, ...] | None:
    """Return the key that a text names, or None."""
    try:
        return _key_decoder.decode(text) if isinstance(text, str) else None
    except _UNDECODABLE:
        return None


def encode_record(record: Record) -> bytes:
    """Return a record's body."""
    return _encoder.encode(record)


def decode_record(body: Any) -> Record | None:
    """Return the record that a body holds, or None."""
    try:
        return _record_decoder.decode(body)
    except _UNDECODABLE:
        return None


def record_checksum(key: str, body: bytes) -> int:
    """Return the sum over a record's key and body."""
    return _sum(body, crc32(key.encode()))


def _sum(content: bytes, start: int = 0) -> int:
    if len(content) <= _SLICE:
        return crc32(content, start)
    view = memoryview(content)
    for low in range(0, len(content), _SLICE):
        start = crc32(view[low : low + _SLICE], start)
    return start


def _shown(checksum: object) -> str:
    return f"{checksum:08x}" if isinstance(checksum, int) else repr(checksum)
