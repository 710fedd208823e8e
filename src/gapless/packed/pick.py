"""Parts of a log that stay as they were written: cut, filtered and counted without being decoded.

A *pack* is an array of publications in msgpack, as a row of the log has it. Whoever reads everything
gets packs as they are. Where a filter chooses, a sieve (:mod:`.survey`) lets fall what cannot match and
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
from gapless.messages.records import AppendPacked, LogRow, PackedRow
from gapless.messages.streams import Publication
from gapless.packed.scan import Pack, Sieve, Survey

__all__ = [
    "BarePublication",
    "Picked",
    "Picker",
    "pack",
    "packed",
    "packed_ticks",
    "ticks_of",
    "unpack",
    "unpack_bare",
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


class BarePublication(msgspec.Struct, array_like=True, gc=False):
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
_bare_raw: Final = msgspec.msgpack.Decoder(list[BarePublication]).decode
_ticks: Final = msgspec.msgpack.Decoder(list[Tick]).decode


def pack(publications: Iterable[Publication]) -> bytes:
    """Return publications as a pack."""
    return _encode(tuple(publications))


def unpack(rows: Iterable[Pack]) -> list[Publication]:
    """Return the publications of packs."""
    found: list[Publication] = []
    for row in rows:
        found += _publications(row)
    return found


def unpack_bare(row: bytes) -> list[BarePublication]:
    """Return the publications of a pack without what takes long to unpack."""
    return _bare_raw(row)


def packed(row: LogRow) -> PackedRow:
    """Return a row with its publications packed."""
    return PackedRow(row.first, row.last, pack(row.publications))


def unpack_row(packed: AppendPacked) -> LogRow:
    """Return a row that is to be appended with its publications unpacked."""
    publications = _publications(packed.publications)
    return LogRow(
        packed.pubend, packed.first, packed.last, packed.regime, 0, packed.clock, publications
    )


def ticks_of(row: Pack) -> list[Tick]:
    """Return the ticks of a pack."""
    return [each.tick for each in _timed(row)]


def packed_ticks(rows: Iterable[Pack]) -> tuple[bytes, ...]:
    """Return the ticks of packs, packed."""
    found = [tick for row in rows for tick in ticks_of(row)]
    return (_encode(found),) if found else ()


def unpack_ticks(rows: Iterable[bytes]) -> list[Tick]:
    """Return ticks that were packed."""
    return [tick for row in rows for tick in _ticks(row)]


class Picked(NamedTuple):
    """What was chosen of some rows, and up to which tick that is all there is."""

    rows: tuple[bytes, ...]
    """Some may be views, which are bytes to who only encodes or decodes them."""
    done: Tick


class Picker:
    """Chooses by one filter."""

    def __init__(self, wanted: Filter) -> None:
        self._takes_all = wanted == EVERYTHING
        self._wanted = wanted
        self._sieve = Sieve(wanted)

    def pick(self, rows: Sequence[PackedRow], low: Tick, high: Tick, bytes_max: int) -> Picked:
        """Return what matches between two ticks.

        It ends before what comes after too many bytes, that match or not; so at least one publication
        is looked at, and of a row that is larger than an answer may be only a part.
        """
        packs: list[Pack] = []
        room = bytes_max
        for row in rows:
            if row.last < low or row.first > high:
                continue
            pack = row.publications
            if row.first < low or row.last > high:
                pack = _cut(pack, low, high)
            if len(pack) > room:
                pack, high = _shortened(pack, high, room)
            room -= len(pack)
            if pack:
                packs.append(pack)
        chosen = tuple(packs) if self._takes_all else self._matching(packs)
        return Picked(cast("tuple[bytes, ...]", chosen), high)

    def _matching(self, packs: Sequence[Pack]) -> tuple[bytes, ...]:
        """Return what matches, in one pack, if anything does."""
        if not self._wanted.conjunctions:
            return ()  # who plans asks how far an answer goes, and wants nothing of it
        survey = Survey(packs, self._sieve.names)
        places, is_sure = self._sieve.left(survey)
        doubtful = places[~is_sure]
        if len(doubtful):
            asked = _bare(survey.part(doubtful))
            kept = [self._wanted.matches(each.attributes) for each in asked]
            places = np.sort(np.concatenate((places[is_sure], doubtful[kept])))
        return (survey.part(places),) if len(places) else ()


def _part(pack: Pack, places: Sequence[int]) -> bytes:
    """Return the publications of a pack that stand at some places; nothing if there are none."""
    if not places:
        return b""
    raws = _raws(pack)
    return _encode([raws[place] for place in places])


def _cut(pack: Pack, low: Tick, high: Tick) -> bytes:
    ticks = ticks_of(pack)
    return _part(pack, range(bisect_left(ticks, low), bisect_right(ticks, high)))


def _shortened(pack: Pack, high: Tick, room: int) -> tuple[Pack, Tick]:
    """Return what comes before too many bytes, and up to which tick that is all."""
    for place, raw in enumerate(_raws(pack)):
        if room < 0:
            return _part(pack, range(place)), ticks_of(pack)[place] - 1
        room -= len(bytes(raw))
    return pack, high
