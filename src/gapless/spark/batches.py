"""Packs to Arrow: a record batch is built column by column, without an object for each event.

A survey (:mod:`gapless.packed.scan`) has found what stands where. Numbers are columns then, and
texts and payloads one piece with offsets, as Arrow wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gapless.core.limits import INT_MAX, INT_MIN
from gapless.packed.scan import Column as Pieces
from gapless.packed.scan import Pack, Survey
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
from gapless.spark.columns import STANDARD, Column, Kind

__all__ = ["ARROW", "BATCH_BYTES", "Batches"]

BATCH_BYTES: Final = 2_097_152
"""Packs are gathered until they have so many bytes: enough that a batch costs Spark little."""

ARROW: Final = {
    Kind.STRING: pa.string(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.BINARY: pa.binary(),
}

_Maker = Callable[[str, Survey], pa.Array]
"""Makes a column of a pubend's name and a survey of its events."""


class Batches:
    """Makes record batches with certain columns."""

    def __init__(self, columns: Iterable[Column]) -> None:
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

    def of(self, pubend: str, pieces: Iterable[Sequence[Pack]]) -> Iterator[pa.RecordBatch]:
        """Give the events of a pubend as batches, some pieces of packs in each."""
        gathered: list[Pack] = []
        size = 0
        for packs in pieces:
            gathered += packs
            size += sum(map(len, packs))
            if size >= BATCH_BYTES:
                yield self._batch(pubend, gathered)
                gathered, size = [], 0
        if gathered:
            yield self._batch(pubend, gathered)

    def _batch(self, pubend: str, packs: Sequence[Pack]) -> pa.RecordBatch:
        survey = Survey(packs, self._names)
        arrays = [make(pubend, survey) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _pieces(kind: Kind, pieces: Pieces, is_there: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return texts or payloads as a column."""
    offsets, data = pieces
    bits = None
    if is_there is not None and not is_there.all():
        bits = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW[kind], len(offsets) - 1, buffers)


def _ints(survey: Survey, field: int) -> NDArray[np.int64]:
    return np.ascontiguousarray(survey.words(field)).view(np.int64)


# --- attributes with a type --------------------------------------------------------------------------


def _attribute(kind: Kind, field: int) -> _Maker:
    """Return what makes the column of an attribute: NULL where it is of another kind."""
    make = _TYPED[kind]
    return lambda _, survey: make(survey, field)


def _texts(survey: Survey, field: int) -> pa.Array:
    return _pieces(Kind.STRING, survey.texts(field), survey.kinds(field) == TEXT)


def _flags(survey: Survey, field: int) -> pa.Array:
    kinds = survey.kinds(field)
    return pa.array(kinds == TRUE, mask=(kinds != TRUE) & (kinds != FALSE))


def _floats(survey: Survey, field: int) -> pa.Array:
    kinds, ints = survey.kinds(field), _ints(survey, field)
    values = np.where(kinds == INT, ints, ints.view(np.float64))
    is_number = (kinds == INT) | (kinds == FLOAT)
    return pa.array(values, mask=~is_number | np.isnan(values))


def _wholes(survey: Survey, field: int) -> pa.Array:
    """Return whole numbers; a float that is one counts, unless it is above the highest int."""
    kinds, ints = survey.kinds(field), _ints(survey, field)
    floats = np.where(kinds == FLOAT, ints.view(np.float64), np.nan)
    # not the highest int itself: as a float it is one too high
    fits = (floats == np.floor(floats)) & (floats >= INT_MIN) & (floats < INT_MAX)
    values = np.where(fits, np.where(fits, floats, 0).astype(np.int64), ints)
    return pa.array(values, mask=~fits & (kinds != INT))


_TYPED: Final[dict[Kind, Callable[[Survey, int], pa.Array]]] = {
    Kind.STRING: _texts,
    Kind.BIGINT: _wholes,
    Kind.DOUBLE: _floats,
    Kind.BOOLEAN: _flags,
}


# --- what every event has -----------------------------------------------------------------------------


def _pubends(pubend: str, survey: Survey) -> pa.Array:
    return pa.repeat(pa.scalar(pubend, pa.string()), len(survey))


def _ticks(_: str, survey: Survey) -> pa.Array:
    return pa.array(_ints(survey, TICK))


def _times(_: str, survey: Survey) -> pa.Array:
    return pa.array(_ints(survey, TICK)).view(ARROW[Kind.TIMESTAMP])


def _publishers(_: str, survey: Survey) -> pa.Array:
    return _pieces(Kind.STRING, survey.texts(PUBLISHER))


def _sequences(_: str, survey: Survey) -> pa.Array:
    return pa.array(_ints(survey, SEQUENCE))


def _payloads(_: str, survey: Survey) -> pa.Array:
    return _pieces(Kind.BINARY, survey.texts(PAYLOAD))


def _attributes(_: str, survey: Survey) -> pa.Array:
    return _pieces(Kind.STRING, survey.json())


_STANDARD: Final[dict[str, _Maker]] = {
    "pubend": _pubends,
    "tick": _ticks,
    "timestamp": _times,
    "publisher": _publishers,
    "sequence": _sequences,
    "attributes": _attributes,
    "payload": _payloads,
}
