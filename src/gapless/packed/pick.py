"""Packed rows of a log: cut, filtered and counted without decoding.

A row of the log contains packed events, an array of publications in msgpack. A reader of everything
gets them unchanged. With a filter, a column filter (:mod:`.scan`) drops publications that cannot
match and passes those that do. Only the undecided ones are decoded and matched. The selected ones
are copied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

import msgspec
import numpy as np

from gapless.content.filter import EVERYTHING, Filter
from gapless.content.values import Value
from gapless.core.ticks import Tick
from gapless.messages.records import AppendPackedRow, LogRow, PackedRow
from gapless.messages.streams import Publication
from gapless.packed.scan import ColumnFilter, ColumnScan, PackedEvents

__all__ = [
    "FilteredRows",
    "PackedFilter",
    "PublicationHeader",
    "pack",
    "packed",
    "packed_ticks",
    "ticks_of",
    "unpack",
    "unpack_headers",
    "unpack_row",
    "unpack_ticks",
]


class _Timed(msgspec.Struct, array_like=True, gc=False):
    """A publication of which only the tick is decoded."""

    tick: Tick


class _Bare(msgspec.Struct, array_like=True, gc=False):
    """A publication without its payload."""

    tick: Tick
    publisher: str
    sequence: int
    attributes: dict[str, Value]


class PublicationHeader(msgspec.Struct, array_like=True, gc=False):
    """A publication without its payload and with encoded attributes."""

    tick: Tick
    publisher: str
    sequence: int
    attributes: msgspec.Raw


_encode: Final = msgspec.msgpack.Encoder().encode
_publications: Final = msgspec.msgpack.Decoder(tuple[Publication, ...]).decode
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_timed: Final = msgspec.msgpack.Decoder(list[_Timed]).decode
_bare: Final = msgspec.msgpack.Decoder(list[_Bare]).decode
_headers: Final = msgspec.msgpack.Decoder(list[PublicationHeader]).decode
_ticks: Final = msgspec.msgpack.Decoder(list[Tick]).decode


def pack(publications: Iterable[Publication]) -> bytes:
    """Return publications as packed events."""
    return _encode(tuple(publications))


def unpack(rows: Iterable[PackedEvents]) -> list[Publication]:
    """Return the publications of packed events."""
    found: list[Publication] = []
    for row in rows:
        found += _publications(row)
    return found


def unpack_headers(row: bytes) -> list[PublicationHeader]:
    """Return the publications of packed events without the parts that are slow to decode."""
    return _headers(row)


def packed(row: LogRow) -> PackedRow:
    """Return a row with its publications packed."""
    return PackedRow(row.first, row.last, row.before, pack(row.publications))


def unpack_row(packed: AppendPackedRow) -> LogRow:
    """Return a packed row with its publications decoded."""
    publications = _publications(packed.publications)
    return LogRow(
        packed.pubend,
        packed.first,
        packed.last,
        packed.stream_epoch,
        0,
        packed.clock,
        packed.before,
        publications,
    )


def ticks_of(row: PackedEvents) -> list[Tick]:
    """Return the ticks of packed events."""
    return [each.tick for each in _timed(row)]


def packed_ticks(rows: Iterable[PackedEvents]) -> tuple[bytes, ...]:
    """Return the ticks of packed events, encoded."""
    found = [tick for row in rows for tick in ticks_of(row)]
    return (_encode(found),) if found else ()


def unpack_ticks(rows: Iterable[bytes]) -> list[Tick]:
    """Return encoded ticks."""
    return [tick for row in rows for tick in _ticks(row)]


class FilteredRows(NamedTuple):
    """The selected publications of some rows, and the tick up to which they are complete."""

    rows: tuple[bytes, ...]
    """Some may be memory views, which are encoded and decoded like bytes."""
    done: Tick


class PackedFilter:
    """Selects publications by one filter."""

    def __init__(self, event_filter: Filter) -> None:
        self._takes_all = event_filter == EVERYTHING
        self._event_filter = event_filter
        self._column_filter = ColumnFilter(event_filter)

    def pick(
        self, rows: Sequence[PackedRow], low: Tick, high: Tick, bytes_max: int
    ) -> FilteredRows:
        """Return the matching publications between two ticks.

        The result ends when the publications read, matching or not, exceed ``bytes_max``. So at
        least one publication is read, and a row larger than the limit is read in part.
        """
        packed_rows: list[PackedEvents] = []
        remaining = bytes_max
        for row in rows:
            if row.last < low or row.first > high:
                continue
            packed = row.publications
            if row.first < low or row.last > high:
                packed = _cut(packed, low, high)
            if len(packed) > remaining:
                packed, high = _shortened(packed, high, remaining)
            remaining -= len(packed)
            if packed:
                packed_rows.append(packed)
        chosen = tuple(packed_rows) if self._takes_all else self._matching(packed_rows)
        return FilteredRows(cast("tuple[bytes, ...]", chosen), high)

    def _matching(self, packed_rows: Sequence[PackedEvents]) -> tuple[bytes, ...]:
        """Return the matching publications as one array, or nothing if none matches."""
        if not self._event_filter.conjunctions:
            return ()  # a planner needs only the tick up to which a result would go
        column_scan = ColumnScan(packed_rows, self._column_filter.names)
        indexes, is_sure = self._column_filter.left(column_scan)
        doubtful = indexes[~is_sure]
        if len(doubtful):
            headers = _bare(column_scan.part(doubtful))
            kept = [self._event_filter.matches(each.attributes) for each in headers]
            indexes = np.sort(np.concatenate((indexes[is_sure], doubtful[kept])))
        return (column_scan.part(indexes),) if len(indexes) else ()


def _part(packed: PackedEvents, indexes: Sequence[int]) -> bytes:
    """Return the publications of packed events at some indexes; empty if there are none."""
    if not indexes:
        return b""
    raws = _raws(packed)
    return _encode([raws[index] for index in indexes])


def _cut(packed: PackedEvents, low: Tick, high: Tick) -> bytes:
    ticks = ticks_of(packed)
    return _part(packed, range(bisect_left(ticks, low), bisect_right(ticks, high)))


def _shortened(packed: PackedEvents, high: Tick, remaining: int) -> tuple[PackedEvents, Tick]:
    """Return the publications before the byte limit, and the tick up to which they are complete."""
    for index, raw in enumerate(_raws(packed)):
        if remaining < 0:
            return _part(packed, range(index)), ticks_of(packed)[index] - 1
        remaining -= len(bytes(raw))
    return packed, high
