"""Rows, marks and records as they are stored in the tables, with their checksums.

A checksum covers every other column of its row, which detects a row that was changed or moved to
another key. The pubend of a row is stored as ``name#incarnation``, always with the number, so that
the label is unambiguous.
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
    from isal.isal_zlib import crc32  # several times as fast, if it is installed
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
"""The end of a log that never had a row, and the trim mark of one that was never trimmed."""

_SLICE = 5_120
"""Bytes that the writer sums at once. Above 5 KiB ``crc32`` releases the interpreter lock, and a
busy event loop may delay its return for longer than a thousand sums take. A reader sums whole rows:
it is not urgent, and the event loop runs meanwhile."""


class _Packed(msgspec.Struct, array_like=True, tag=LogRow.__name__):
    """A log row whose publications are encoded already."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    control_version: int
    clock: int
    before: int
    publications: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_row_decoder = msgspec.msgpack.Decoder(LogRow)
_number_decoder = msgspec.msgpack.Decoder(int)
_key_encoder = msgspec.json.Encoder()
_key_decoder = msgspec.json.Decoder(tuple[str, ...])
_UNDECODABLE = (msgspec.MsgspecError, ValueError, TypeError)
"""The errors of decoding; a text that is not UTF-8 is a ValueError."""

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
        """Return the sum over all columns; ``add`` sums the frame, which may be long."""
        numbers = _pack_row(self.first, self.last, self.previous, self.events)
        return add(self.frame, crc32(self.label.encode() + numbers))


class LogMark(NamedTuple):
    """A row of the table ``logs``, without its checksum: the extent of a log."""

    label: str
    trimmed: int
    last: int

    @property
    def checksum(self) -> int:
        """The sum over all columns."""
        return crc32(self.label.encode() + _pack_mark(self.trimmed, self.last))


def is_valid(stored: StoredRow | LogMark, checksum: object) -> bool:
    """Whether a row or mark fits its stored checksum."""
    try:
        found = stored.checksum if isinstance(stored, LogMark) else stored.summed(crc32)
        return found == checksum
    except (AttributeError, TypeError, struct.error):
        return False  # a corrupt page can give a column another type


def label_of(pubend: PubendId) -> str:
    """Return the label of a pubend in the tables."""
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
    """Return the frame of a log row; packed publications are copied into it."""
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
            row.before,
            msgspec.Raw(packed_events),
        )
    )


def encode_packed(row: AppendPackedRow) -> bytes:
    """Return the frame of a log row with packed publications, equal to that of the decoded row."""
    publications = msgspec.Raw(row.publications)
    return _encoder.encode(
        _Packed(
            row.pubend,
            row.first,
            row.last,
            row.stream_epoch,
            0,
            row.clock,
            row.before,
            publications,
        )
    )


def decode_row(stored: StoredRow, checksum: object) -> LogRow:
    """Return the log row of a stored row; CorruptionError if it is invalid."""
    return _decoded(stored, checksum, _row_decoder)


def packed_row(stored: StoredRow, checksum: object) -> PackedRow:
    """Return a stored row with its publications packed, the last field of its frame.

    They are a view of the frame: to copy a large row takes longer than to sum it.
    """
    _check_sum(stored, checksum)
    try:
        offset, end = _last_field(stored.frame)
        before = _number_decoder.decode(stored.frame[offset:end])
    except IndexError:
        raise CorruptionError("it cannot be decoded: it ends too early") from None
    return PackedRow(stored.first, stored.last, before, memoryview(stored.frame)[end:])


def _last_field(frame: bytes) -> tuple[int, int]:
    """Return where the last field before the publications starts and ends: ``before``.

    All these fields are texts and ints. A decoder would also scan the publications to find their
    end, which is known here.
    """
    start, offset = 0, 1  # after the head of the row
    for field in ("tag", *LogRow.__struct_fields__[:-1]):
        if field == "pubend":
            offset = _after(frame, offset + 1)  # the head of a pair, and its name
        start, offset = offset, _after(frame, offset)
    return start, offset


def _after(frame: bytes, offset: int) -> int:
    """Return the offset after a text or an int of msgpack."""
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
    """Return a record's key as it is stored in the table, in a readable form.

    >>> encode_key(("pubend", "trades"))
    '["pubend","trades"]'
    """
    return _key_encoder.encode(key).decode()


def decode_key(text: object) -> tuple[str, ...] | None:
    """Return the key of a text, or None if it is invalid."""
    try:
        return _key_decoder.decode(text) if isinstance(text, str) else None
    except _UNDECODABLE:
        return None


def encode_record(record: Record) -> bytes:
    """Return a record's body."""
    return _encoder.encode(record)


def decode_record(body: Any) -> Record | None:
    """Return the record of a body, or None if it is invalid."""
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
