"""Events to Arrow: a record batch is built column by column.

A column of attributes is made at once where all values are of its kind, which is nearly always, and
value by value where they are not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from gapless.content.values import Value
from gapless.core.limits import INT_MAX, INT_MIN
from gapless.messages.streams import Publication
from gapless.spark.columns import STANDARD, Column, Kind

__all__ = ["ARROW", "Batches"]

ROWS_MAX: Final = 8_192
"""Rows of a batch, about: pieces are gathered until there are so many."""

ARROW: Final = {
    Kind.STRING: pa.string(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.BINARY: pa.binary(),
}

_NEWLINE: Final = 10
_encoder = msgspec.json.Encoder()


class _Rows:
    """Events of a pubend that become a batch."""

    def __init__(self, pubend: str, events: Sequence[Publication]) -> None:
        self.pubend = pubend
        self.events = events

    @cached_property
    def ticks(self) -> pa.Array:
        """Their ticks, which two columns show."""
        return pa.array([each.tick for each in self.events], type=pa.int64())


_Maker = Callable[[_Rows], pa.Array]


class Batches:
    """Makes record batches with certain columns."""

    def __init__(self, columns: Iterable[Column]) -> None:
        chosen = tuple(columns)
        self._schema = pa.schema([pa.field(each.name, ARROW[each.kind]) for each in chosen])
        self._makers = [_maker(each) for each in chosen]

    def of(self, pubend: str, pieces: Iterable[Sequence[Publication]]) -> Iterator[pa.RecordBatch]:
        """Give the events of a pubend as batches, some pieces in each."""
        gathered: list[Publication] = []
        for piece in pieces:
            gathered += piece
            if len(gathered) >= ROWS_MAX:
                yield self._batch(pubend, gathered)
                gathered = []
        if gathered:
            yield self._batch(pubend, gathered)

    def _batch(self, pubend: str, events: Sequence[Publication]) -> pa.RecordBatch:
        rows = _Rows(pubend, events)
        arrays = [make(rows) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _maker(column: Column) -> _Maker:
    """Return what makes a column: one that every event has, or an attribute."""
    if STANDARD.get(column.name) is column.kind:
        return _STANDARD[column.name]
    whole, single = _WHOLE[column.kind], _SINGLE[column.kind]
    kind, name = ARROW[column.kind], column.name

    def make(rows: _Rows) -> pa.Array:
        values = [each.attributes.get(name) for each in rows.events]
        if not set(map(type, values)) <= whole:
            values = [None if each is None else single(each) for each in values]
        return pa.array(values, type=kind, from_pandas=True)  # which makes NULL of NaN

    return make


# --- attributes with a type --------------------------------------------------------------------------


def _text(value: Value) -> Value | None:
    return value if isinstance(value, str) else None


def _flag(value: Value) -> Value | None:
    return value if isinstance(value, bool) else None


def _float(value: Value) -> Value | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Value) -> Value | None:
    if isinstance(value, float):
        # not the highest int itself: as a float it is one too high
        fits = value.is_integer() and INT_MIN <= value < INT_MAX
        return int(value) if fits else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_NONE: Final = type(None)
_WHOLE: Final[dict[Kind, set[type]]] = {
    Kind.STRING: {str, _NONE},
    Kind.BIGINT: {int, _NONE},
    Kind.DOUBLE: {float, _NONE},
    Kind.BOOLEAN: {bool, _NONE},
}
"""The types that Arrow takes for a kind as they are."""

_SINGLE: Final[dict[Kind, Callable[[Value], Value | None]]] = {
    Kind.STRING: _text,
    Kind.BIGINT: _whole,
    Kind.DOUBLE: _float,
    Kind.BOOLEAN: _flag,
}


# --- what every event has -----------------------------------------------------------------------------


def _pubends(rows: _Rows) -> pa.Array:
    return pa.repeat(pa.scalar(rows.pubend, pa.string()), len(rows.events))


def _ticks(rows: _Rows) -> pa.Array:
    return rows.ticks


def _times(rows: _Rows) -> pa.Array:
    return rows.ticks.view(ARROW[Kind.TIMESTAMP])


def _publishers(rows: _Rows) -> pa.Array:
    names = [each.publisher for each in rows.events]
    if len(set(names)) == 1:
        return pa.repeat(pa.scalar(names[0], pa.string()), len(names))
    return pa.array(names, type=pa.string())


def _sequences(rows: _Rows) -> pa.Array:
    return pa.array([each.sequence for each in rows.events], type=pa.int64())


def _payloads(rows: _Rows) -> pa.Array:
    return pa.array([each.payload for each in rows.events], type=pa.binary())


def _attributes(rows: _Rows) -> pa.Array:
    """Return attributes as JSON, encoded all at once and cut where the lines end.

    JSON has no line ends inside, and no numbers that are not finite: those come out as null. Since no
    attribute is null, that word can only stand in a text, or for such a number.
    """
    events = rows.events
    lines = _encoder.encode_lines([each.attributes for each in events])
    if b"null" in lines:
        return pa.array([as_json(each.attributes) for each in events], type=pa.string())
    data = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    offsets = np.zeros(len(events) + 1, dtype=np.int32)
    offsets[1:] = ends - np.arange(len(events))
    kept = np.delete(data, ends)
    return pa.StringArray.from_buffers(len(events), pa.py_buffer(offsets), pa.py_buffer(kept))


def as_json(attributes: dict[str, Value]) -> str:
    """Return attributes as JSON; what is not finite is written as NaN and Infinity, as Spark reads it."""
    if all(not isinstance(each, float) or math.isfinite(each) for each in attributes.values()):
        return _encoder.encode(attributes).decode()
    return json.dumps(attributes, ensure_ascii=False, separators=(",", ":"))


_STANDARD: Final[dict[str, _Maker]] = {
    "pubend": _pubends,
    "tick": _ticks,
    "timestamp": _times,
    "publisher": _publishers,
    "sequence": _sequences,
    "attributes": _attributes,
    "payload": _payloads,
}
