"""A segment taken apart: events as columns, and the few other records as they are.

What is said again and again (progress, acknowledgements, how far a visit has come) is told once a
segment, with its last word. So there is little besides events, however long a log is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gapless.audit.reader import read_segment
from gapless.audit.records import (
    Acked,
    Confirmed,
    Delivered,
    Header,
    Places,
    Progressed,
    Published,
    Record,
    Stored,
)
from gapless.core.ids import PubendId

__all__ = ["Control", "Fact", "facts_of", "visit_key"]

_encode = msgspec.msgpack.Encoder().encode


class Fact(NamedTuple):
    """An event that was published (p), confirmed (q) or delivered (d), or a control record (c)."""

    kind: str
    run: str
    place: int
    """Grows along the log of a run."""
    visit: str = ""
    pubend: str = ""
    tick: int = 0
    publisher: str = ""
    sequence: int = -1
    attributes: bytes | None = None
    """As msgpack."""
    control: bytes | None = None
    principal: str = ""
    """Who published, as far as a broker knew."""


class Control(msgspec.Struct, frozen=True, array_like=True):
    """A record that is not of events, with where it stands."""

    header: Header
    place: int
    at_us: int
    record: Record | None
    """None: the segment was read up to here."""


def visit_key(visit: str, subscription: str) -> str:
    """Return a name for a visit that no other of its run has: a connection may have many."""
    return f"{visit}|{subscription}"


def facts_of(data: bytes, name: str = "a segment") -> Iterator[Fact]:
    """Give what a segment says."""
    header: Header | None = None
    place = at_us = 0
    last = _LastWords()
    for header, at_us, record in read_segment(data, name):
        place = max(place + 1, header.number << 32)
        if isinstance(record, Published | Confirmed):
            yield from _published(header, place, record)
            place += len(record.ticks)
        elif isinstance(record, Delivered):
            yield from _delivered(header, place, record)
            place += sum(len(ticks) for _, ticks, _ in record.runs)
            last.delivered(record)
        elif isinstance(record, Stored):
            last.stored[record.pubend] = record.tick
        elif isinstance(record, Progressed | Acked):
            last.said(record)
        else:
            yield _control(header, place, at_us, record)
    if header is not None:
        for each in last.records():
            place += 1
            yield _control(header, place, at_us, each)
        yield _control(header, place + 1, at_us, None)


def _control(header: Header, place: int, at_us: int, record: Record | None) -> Fact:
    control = _encode(Control(header, place, at_us, record))
    return Fact("c", header.run, place, control=control)


def _published(header: Header, place: int, record: Published | Confirmed) -> Iterator[Fact]:
    attributes = record.attributes if isinstance(record, Published) else None
    kind = "p" if isinstance(record, Published) else "q"
    principal = record.principal if isinstance(record, Published) else ""
    pubend = str(record.pubend)
    for index, tick in enumerate(record.ticks):
        yield Fact(
            kind,
            header.run,
            place + index,
            pubend=pubend,
            tick=tick,
            publisher=record.publisher,
            sequence=record.first + index,
            attributes=None if attributes is None else _encode(attributes[index]),
            principal=principal,
        )


def _delivered(header: Header, place: int, record: Delivered) -> Iterator[Fact]:
    visit = visit_key(record.visit, record.subscription)
    for each, ticks, sequences in record.runs:
        pubend = str(each)
        known = sequences or [-1] * len(ticks)
        for tick, sequence in zip(ticks, known, strict=True):
            yield Fact("d", header.run, place, visit, pubend, tick, sequence=sequence)
            place += 1


class _LastWords:
    """What a segment says last of things that it says often."""

    def __init__(self) -> None:
        self.stored: dict[PubendId, int] = {}
        self._reached: dict[tuple[str, str], dict[PubendId, int]] = {}
        self._acked: dict[tuple[str, str], dict[PubendId, int]] = {}

    def delivered(self, record: Delivered) -> None:
        reached = self._reached.setdefault((record.subscription, record.visit), {})
        for pubend, ticks, _ in record.runs:
            if ticks:
                reached[pubend] = max(reached.get(pubend, 0), *ticks)

    def said(self, record: Progressed | Acked) -> None:
        all_of = self._acked if isinstance(record, Acked) else self._reached
        places = all_of.setdefault((record.subscription, record.visit), {})
        for pubend, tick in record.position:
            places[pubend] = max(places.get(pubend, 0), tick)

    def records(self) -> Iterator[Record]:
        for (subscription, visit), reached in self._reached.items():
            yield Progressed(subscription, visit, _places(reached))
        for (subscription, visit), acked in self._acked.items():
            yield Acked(subscription, visit, _places(acked))
        for pubend, tick in self.stored.items():
            yield Stored(pubend, tick)


def _places(ticks: dict[PubendId, int]) -> Places:
    return [*ticks.items()]
