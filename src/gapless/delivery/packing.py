"""Parts of a log that stay as they were written: cut, filtered and counted without being decoded.

A *pack* is an array of publications in msgpack, as a row of the log has it. Whoever reads everything
gets packs as they are. Where a filter chooses, only what it asks about is decoded: the attributes that
it names. What is chosen is copied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import defstruct
from msgspec.structs import astuple

from gapless.content.filter import Filter
from gapless.content.spans import points
from gapless.content.values import Value
from gapless.content.valueset import NOTHING
from gapless.core.ticks import Tick
from gapless.messages.records import AppendPacked, LogRow, PackedRow
from gapless.messages.streams import Publication

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

_Places: TypeAlias = Callable[[bytes], list[int]]

_NAMES_MAX: Final = 16
"""Attributes of a filter that are decoded one by one; where it names more, all are."""


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


_EVERYTHING: Final = Filter("TRUE")
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


def unpack(rows: Iterable[bytes | memoryview]) -> list[Publication]:
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


def ticks_of(row: bytes) -> list[Tick]:
    """Return the ticks of a pack."""
    return [each.tick for each in _timed(row)]


def packed_ticks(rows: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the ticks of packs, packed."""
    found = [tick for row in rows for tick in ticks_of(row)]
    return (_encode(found),) if found else ()


def unpack_ticks(rows: Iterable[bytes]) -> list[Tick]:
    """Return ticks that were packed."""
    return [tick for row in rows for tick in _ticks(row)]


class Picked(NamedTuple):
    """What was chosen of some rows, and up to which tick that is all there is."""

    rows: tuple[bytes, ...]
    done: Tick


class Picker:
    """Chooses by one filter."""

    def __init__(self, wanted: Filter) -> None:
        self._takes_all = wanted == _EVERYTHING
        self._places = _places_of(wanted)

    def pick(self, rows: Sequence[PackedRow], low: Tick, high: Tick, bytes_max: int) -> Picked:
        """Return what matches between two ticks.

        It ends before what comes after too many bytes, that match or not; so at least one publication
        is looked at, and of a row that is larger than an answer may be only a part.
        """
        found: list[bytes] = []
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
            if pack and not self._takes_all:
                pack = _part(pack, self._places(pack))
            if pack:
                found.append(pack)
        return Picked(tuple(found), high)


def _part(pack: bytes, places: Sequence[int]) -> bytes:
    """Return the publications of a pack that stand at some places; nothing if there are none."""
    if not places:
        return b""
    raws = _raws(pack)
    return _encode([raws[place] for place in places])


def _cut(pack: bytes, low: Tick, high: Tick) -> bytes:
    ticks = ticks_of(pack)
    return _part(pack, range(bisect_left(ticks, low), bisect_right(ticks, high)))


def _shortened(pack: bytes, high: Tick, room: int) -> tuple[bytes, Tick]:
    """Return what comes before too many bytes, and up to which tick that is all."""
    for place, raw in enumerate(_raws(pack)):
        if room < 0:
            return _part(pack, range(place)), ticks_of(pack)[place] - 1
        room -= len(bytes(raw))
    return pack, high


# --- filters ----------------------------------------------------------------------------------------


def _places_of(wanted: Filter) -> _Places:
    """Return what finds the publications that match: at which places of a pack they stand."""
    names = sorted(wanted.attributes)
    if not 1 <= len(names) <= _NAMES_MAX or any(each.residuals for each in wanted.conjunctions):
        return _by_all(wanted)
    for name in names:
        texts = _texts_of(wanted, name)
        if texts is not None:
            return _by_texts(wanted, names, name, texts)
    return _by_names(wanted, names)


def _by_all(wanted: Filter) -> _Places:
    """Decode all attributes, and ask the filter."""
    matches = wanted.matches

    def places(pack: bytes) -> list[int]:
        return [place for place, each in enumerate(_bare(pack)) if matches(each.attributes)]

    return places


def _by_names(wanted: Filter, names: list[str]) -> _Places:
    """Decode the attributes that the filter names, and ask it."""
    decode, matches = _narrow(names), wanted.matches

    def places(pack: bytes) -> list[int]:
        return [
            place
            for place, each in enumerate(decode(pack))
            if matches(dict(zip(names, astuple(each.attributes), strict=True)))
        ]

    return places


def _by_texts(wanted: Filter, names: list[str], name: str, texts: frozenset[str]) -> _Places:
    """Where one attribute must be one of some texts, look at that first: most fail there."""
    order = [name, *(each for each in names if each != name)]
    decode, matches = _narrow(order), wanted.matches

    def places(pack: bytes) -> list[int]:
        return [
            place
            for place, each in enumerate(decode(pack))
            if each.attributes.a0 in texts
            and matches(dict(zip(order, astuple(each.attributes), strict=True)))
        ]

    return places


def _narrow(names: list[str]) -> Callable[[bytes], list[Any]]:
    """Return a decoder that takes some attributes only, as fields ``a0``, ``a1`` and so on.

    What is missing is None, which means the same to a filter.
    """
    fields = [f"a{place}" for place in range(len(names))]
    asked = defstruct(
        "Asked",
        [(field, Any, None) for field in fields],
        rename=dict(zip(fields, names, strict=True)),
        gc=False,
    )
    bare = defstruct(
        "Bare",
        [("tick", Tick), ("publisher", str), ("sequence", int), ("attributes", asked)],
        array_like=True,
        gc=False,
    )
    return msgspec.msgpack.Decoder(list[bare]).decode  # type: ignore[valid-type]  # made just now


def _texts_of(wanted: Filter, name: str) -> frozenset[str] | None:
    """Return the texts of which an attribute must be one for the filter to match, None if others may."""
    found: set[str] = set()
    for one in wanted.conjunctions:
        allowed = dict(one.constraints).get(name)
        if allowed is None or msgspec.structs.replace(allowed, texts=(), patterns=()) != NOTHING:
            return None
        texts = points(allowed.texts)
        if texts is None:
            return None
        found.update(texts)
    return frozenset(found)
