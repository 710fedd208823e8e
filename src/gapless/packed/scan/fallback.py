"""The column scan in Python: it decodes the publications."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gapless.content.values import Value
from gapless.messages.streams import Publication
from gapless.packed.scan.fields import (
    ABSENT,
    BYTES,
    FALSE,
    FLOAT,
    INT,
    NAMED,
    PAYLOAD,
    PUBLISHER,
    SEQUENCE,
    TEXT,
    TICK,
    TRUE,
)

__all__ = ["ColumnScan", "PackedEvents", "ScannedColumn", "word_of_text"]

PackedEvents: TypeAlias = bytes | memoryview
ScannedColumn: TypeAlias = tuple[NDArray[np.int32], bytes | bytearray]
"""The offsets of the values, with the end of the last one, and their concatenated bytes."""

_publications: Final = msgspec.msgpack.Decoder(list[Publication]).decode
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_json: Final = msgspec.json.Encoder().encode

_FIXED: Final[dict[int, Callable[[Publication], Any]]] = {
    TICK: lambda each: each.tick,
    PUBLISHER: lambda each: each.publisher,
    SEQUENCE: lambda each: each.sequence,
    PAYLOAD: lambda each: each.payload,
}
_KINDS: Final = {type(None): ABSENT, int: INT, float: FLOAT, str: TEXT, bytes: BYTES}


class ColumnScan:
    """The columns of packed events. Raises msgspec.DecodeError if they are malformed."""

    def __init__(self, packed_rows: Sequence[PackedEvents], names: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._raws = [raw for packed in packed_rows for raw in _raws(packed)]
        self._found = [each for packed in packed_rows for each in _publications(packed)]

    def __len__(self) -> int:
        """Return the number of publications."""
        return len(self._found)

    def kinds(self, field: int) -> NDArray[np.uint32]:
        """Return the kind of a field, for every publication."""
        return np.array([_kind_of(each) for each in self._values(field)], np.uint32)

    def words(self, field: int) -> NDArray[np.uint64]:
        """Return the word of a field, for every publication; 0 if it is no number or text."""
        return np.array([_word_of(each) for each in self._values(field)], np.uint64)

    def sizes(self, field: int) -> NDArray[np.uint32]:
        """Return the bytes of a field, for every publication; 0 if it is no text or payload."""
        return np.array([len(_bytes_of(each)) for each in self._values(field)], np.uint32)

    def texts(self, field: int) -> ScannedColumn:
        """Return the texts, or payloads, of a field; other values are empty."""
        return _column([_bytes_of(each) for each in self._values(field)])

    def json(self) -> ScannedColumn:
        """Return the attributes as JSON, with NaN and Infinity as Spark reads them."""
        return _column([_as_json(each.attributes) for each in self._found])

    def part(self, indexes: Sequence[int] | NDArray[np.intp]) -> bytes:
        """Return the publications at some indexes as packed events."""
        return _encode([self._raws[index] for index in indexes])

    def _values(self, field: int) -> list[Value | bytes | None]:
        if field < NAMED:
            return [*map(_FIXED[field], self._found)]
        name = self._names[field - NAMED]
        return [each.attributes.get(name) for each in self._found]


def _kind_of(value: Value | bytes | None) -> int:
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return _KINDS[type(value)]


def _word_of(value: Value | bytes | None) -> int:
    if value is None or isinstance(value, bool | bytes):
        return 0
    if isinstance(value, int):
        return value & (2**64 - 1)
    if isinstance(value, str):
        return word_of_text(value)
    (word,) = struct.unpack("=Q", struct.pack("=d", value))
    return int(word)


def word_of_text(text: str) -> int:
    """Return the first eight bytes of a text as a number that keeps the order of texts.

    The end of a span may be half of a surrogate pair, which is no text but has an order.
    """
    return int.from_bytes(text[:8].encode("utf-8", "surrogatepass")[:8].ljust(8, b"\0"), "big")


def _bytes_of(value: Value | bytes | None) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else b""


def _column(parts: list[bytes]) -> ScannedColumn:
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(each) for each in parts], out=offsets[1:])
    return offsets, b"".join(parts)


def _as_json(attributes: dict[str, Value]) -> bytes:
    pairs = [_json(name) + b":" + _value_json(value) for name, value in attributes.items()]
    return b"{" + b",".join(pairs) + b"}"


def _value_json(value: Value) -> bytes:
    if isinstance(value, float) and not math.isfinite(value):
        return b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity"
    return _json(value)
