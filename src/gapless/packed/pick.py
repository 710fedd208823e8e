"""Parts of a log that stay as they were written: cut, filtered and counted without being decoded.

A *pack* is an array of publications in msgpack, as a row of the log has it. Whoever reads everything
gets packs as they are. Where a filter chooses, a column filter (:mod:`.scan`) lets fall what cannot match and
passes what does; only what is in doubt is decoded and asked. What is chosen is copied.
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
    """A publication of which only the tick matters."""

    tick: Tick


class _Bare(msgspec.Struct, array_like=True, gc=False):
    """A publication without its payload."""

    tick: Tick
    publisher: str
    sequence: int
    attributes: dict[str, Value]


class PublicationHeader(msgspec.Struct, array_like=True, gc=False):
    """A publication without its payload, whose attributes are passed on as they are."""

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
    """Return publications as a pack."""
    return _encode(tuple(publications))


def unpack(rows: Iterable[PackedEvents]) -> list[Publication]:
    """Return the publications of packs."""
    found: list[Publication] = []
    for row in rows:
        found += _publications(row)
    return found


def unpack_headers(row: bytes) -> list[PublicationHeader]:
    """Return the publications of a pack without what takes long to unpack."""
    return _headers(row)


def packed(row: LogRow) -> PackedRow:
    """Return a row with its publications packed."""
    return PackedRow(row.first, row.last, pack(row.publications))


def unpack_row(packed: AppendPackedRow) -> LogRow:
    """Return a row that is to be appended with its publications unpacked."""
    publications = _publications(packed.publications)
    return LogRow(
        packed.pubend, packed.first, packed.last, packed.stream_epoch, 0, packed.clock, publications
    )


def ticks_of(row: PackedEvents) -> list[Tick]:
    """Return the ticks of a pack."""
    return [each.tick for each in _timed(row)]


def packed_ticks(rows: Iterable[PackedEvents]) -> tuple[bytes, ...]:
    """Return the ticks of packs, packed."""
    found = [tick for row in rows for tick in ticks_of(row)]
    return (_encode(found),) if found else ()


def unpack_ticks(rows: Iterable[bytes]) -> list[Tick]:
    """Return ticks that were packed."""
    return [tick for row in rows for tick in _ticks(row)]


class FilteredRows(NamedTuple):
    """What was chosen of some rows, and up to which tick that is all there is."""

    rows: tuple[bytes, ...]
    """Some may be views, which are bytes to who only encodes or decodes them."""
    done: Tick


class PackedFilter:
    """Chooses by one filter."""

    def __init__(self, wanted: Filter) -> None:
        self._takes_all = wanted == EVERYTHING
        self._wanted = wanted
        self._column_filter = ColumnFilter(wanted)

    def pick(
        self, rows: Sequence[PackedRow], low: Tick, high: Tick, bytes_max: int
    ) -> FilteredRows:
        """Return what matches between two ticks.

        It ends before what comes after too many bytes, that match or not; so at least one publication
        is looked at, and of a row that is larger than an answer may be only a part.
        """
        packed_rows: list[PackedEvents] = []
        room = bytes_max
        for row in rows:
            if row.last < low or row.first > high:
                continue
            packed = row.publications
            if row.first < low or row.last > high:
                packed = _cut(packed, low, high)
            if len(packed) > room:
                packed, high = _shortened(packed, high, room)
            room -= len(packed)
            if packed:
                packed_rows.append(packed)
        chosen = tuple(packed_rows) if self._takes_all else self._matching(packed_rows)
        return FilteredRows(cast("tuple[bytes, ...]", chosen), high)

    def _matching(self, packed_rows: Sequence[PackedEvents]) -> tuple[bytes, ...]:
        """Return what matches, in one pack, if anything does."""
        if not self._wanted.conjunctions:
            return ()  # who plans asks how far an answer goes, and wants nothing of it
        column_scan = ColumnScan(packed_rows, self._column_filter.names)
        indexes, is_sure = self._column_filter.left(column_scan)
        doubtful = indexes[~is_sure]
        if len(doubtful):
            asked = _bare(column_scan.part(doubtful))
            kept = [self._wanted.matches(each.attributes) for each in asked]
            indexes = np.sort(np.concatenate((indexes[is_sure], doubtful[kept])))
        return (column_scan.part(indexes),) if len(indexes) else ()


def _part(packed: PackedEvents, indexes: Sequence[int]) -> bytes:
    """Return the publications of a pack that stand at some places; nothing if there are none."""
    if not indexes:
        return b""
    raws = _raws(packed)
    return _encode([raws[index] for index in indexes])


def _cut(packed: PackedEvents, low: Tick, high: Tick) -> bytes:
    ticks = ticks_of(packed)
    return _part(packed, range(bisect_left(ticks, low), bisect_right(ticks, high)))


def _shortened(packed: PackedEvents, high: Tick, room: int) -> tuple[PackedEvents, Tick]:
    """Return what comes before too many bytes, and up to which tick that is all."""
    for index, raw in enumerate(_raws(packed)):
        if room < 0:
            return _part(packed, range(index)), ticks_of(packed)[index] - 1
        room -= len(bytes(raw))
    return packed, high
