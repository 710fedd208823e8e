"""Packed events to Arrow: a record batch is built column by column, without an object per event.

A column scan (:mod:`gapless.packed.scan`) has located the fields. Numbers are then columns, and
texts and payloads are one buffer with offsets, as Arrow needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gapless.core.limits import INT_MAX, INT_MIN
from gapless.packed.scan import ColumnScan, PackedEvents, ScannedColumn
from gapless.packed.scan.fields import (
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
from gapless.spark.columns import STANDARD, AttributeColumn, ColumnType

__all__ = ["ARROW", "BATCH_BYTES", "ArrowBatches"]

BATCH_BYTES: Final = 2_097_152
"""Packed events are collected up to this size, so that a batch costs Spark little."""

ARROW: Final = {
    ColumnType.STRING: pa.string(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.BINARY: pa.binary(),
}

_Maker = Callable[[str, ColumnScan], pa.Array]
"""Makes a column from a pubend's name and a column scan of its events."""


class ArrowBatches:
    """Makes record batches with the chosen columns."""

    def __init__(self, columns: Iterable[AttributeColumn]) -> None:
        chosen = tuple(columns)
        attributes = [each for each in chosen if STANDARD.get(each.name) is not each.kind]
        self._names = [each.name for each in attributes]
        self._schema = pa.schema([pa.field(each.name, ARROW[each.kind]) for each in chosen])
        self._makers = [
            _attribute(each.kind, NAMED + attributes.index(each))
            if each in attributes
            else _STANDARD[each.name]
            for each in chosen
        ]

    def of(
        self, pubend: str, replies: Iterable[Sequence[PackedEvents]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of a pubend as batches of several replies each."""
        gathered: list[PackedEvents] = []
        size = 0
        for packed in replies:
            gathered += packed
            size += sum(map(len, packed))
            if size >= BATCH_BYTES:
                yield self._batch(pubend, gathered)
                gathered, size = [], 0
        if gathered:
            yield self._batch(pubend, gathered)

    def _batch(self, pubend: str, packed: Sequence[PackedEvents]) -> pa.RecordBatch:
        column_scan = ColumnScan(packed, self._names)
        arrays = [make(pubend, column_scan) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _variable_sized(
    kind: ColumnType, column: ScannedColumn, is_there: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return texts or payloads as a column."""
    offsets, data = column
    bits = None
    if is_there is not None and not is_there.all():
        bits = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW[kind], len(offsets) - 1, buffers)


def _ints(column_scan: ColumnScan, field: int) -> NDArray[np.int64]:
    return np.ascontiguousarray(column_scan.words(field)).view(np.int64)


# --- attributes with a type -----------------------------------------------------------------------


def _attribute(kind: ColumnType, field: int) -> _Maker:
    """Return the maker of an attribute's column: NULL where the value has another type."""
    make = _TYPED[kind]
    return lambda _, column_scan: make(column_scan, field)


def _texts(column_scan: ColumnScan, field: int) -> pa.Array:
    return _variable_sized(
        ColumnType.STRING, column_scan.texts(field), column_scan.kinds(field) == TEXT
    )


def _flags(column_scan: ColumnScan, field: int) -> pa.Array:
    kinds = column_scan.kinds(field)
    return pa.array(kinds == TRUE, mask=(kinds != TRUE) & (kinds != FALSE))


def _floats(column_scan: ColumnScan, field: int) -> pa.Array:
    kinds, ints = column_scan.kinds(field), _ints(column_scan, field)
    values = np.where(kinds == INT, ints, ints.view(np.float64))
    is_number = (kinds == INT) | (kinds == FLOAT)
    return pa.array(values, mask=~is_number | np.isnan(values))


def _wholes(column_scan: ColumnScan, field: int) -> pa.Array:
    """Return integers; a float with an integral value counts, unless it exceeds the highest int."""
    kinds, ints = column_scan.kinds(field), _ints(column_scan, field)
    floats = np.where(kinds == FLOAT, ints.view(np.float64), np.nan)
    # less than, because the highest int as a float is one too high
    fits = (floats == np.floor(floats)) & (floats >= INT_MIN) & (floats < INT_MAX)
    values = np.where(fits, np.where(fits, floats, 0).astype(np.int64), ints)
    return pa.array(values, mask=~fits & (kinds != INT))


_TYPED: Final[dict[ColumnType, Callable[[ColumnScan, int], pa.Array]]] = {
    ColumnType.STRING: _texts,
    ColumnType.BIGINT: _wholes,
    ColumnType.DOUBLE: _floats,
    ColumnType.BOOLEAN: _flags,
}


# --- standard columns -----------------------------------------------------------------------------


def _pubends(pubend: str, column_scan: ColumnScan) -> pa.Array:
    return pa.repeat(pa.scalar(pubend, pa.string()), len(column_scan))


def _ticks(_: str, column_scan: ColumnScan) -> pa.Array:
    return pa.array(_ints(column_scan, TICK))


def _times(_: str, column_scan: ColumnScan) -> pa.Array:
    return pa.array(_ints(column_scan, TICK)).view(ARROW[ColumnType.TIMESTAMP])


def _publishers(_: str, column_scan: ColumnScan) -> pa.Array:
    return _variable_sized(ColumnType.STRING, column_scan.texts(PUBLISHER))


def _sequences(_: str, column_scan: ColumnScan) -> pa.Array:
    return pa.array(_ints(column_scan, SEQUENCE))


def _payloads(_: str, column_scan: ColumnScan) -> pa.Array:
    return _variable_sized(ColumnType.BINARY, column_scan.texts(PAYLOAD))


def _attributes(_: str, column_scan: ColumnScan) -> pa.Array:
    return _variable_sized(ColumnType.STRING, column_scan.json())


_STANDARD: Final[dict[str, _Maker]] = {
    "pubend": _pubends,
    "tick": _ticks,
    "timestamp": _times,
    "publisher": _publishers,
    "sequence": _sequences,
    "attributes": _attributes,
    "payload": _payloads,
}
