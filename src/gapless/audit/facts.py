"""The content of a segment: events as columns, and the few other records as they are.

Repeated records (progress, acknowledgements, stored ticks) are reduced to the last of each segment.
So there are few records besides events, however long a log is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gapless.audit.reader import read_segment
from gapless.audit.records import (
    Acked,
    AuditDelivered,
    AuditPublished,
    AuditRecord,
    Confirmed,
    Header,
    Progressed,
    Stored,
    Ticks,
)
from gapless.core.ids import PubendId

__all__ = ["Control", "Fact", "client_session_key", "facts_of"]

_encode = msgspec.msgpack.Encoder().encode


class Fact(NamedTuple):
    """An event that was published (p), confirmed (q) or delivered (d), or a control record (c)."""

    kind: str
    run: str
    offset: int
    """Grows along the log of a run."""
    client_session: str = ""
    pubend: str = ""
    tick: int = 0
    publisher: str = ""
    sequence: int = -1
    attributes: bytes | None = None
    """As msgpack."""
    control: bytes | None = None
    principal: str = ""
    """The publisher's principal, if a broker knew it."""


class Control(msgspec.Struct, frozen=True, array_like=True):
    """A record that is not of events, with its location."""

    header: Header
    offset: int
    at_us: int
    record: AuditRecord | None
    """None: the segment was read up to here."""


def client_session_key(client_session: str, subscription: str) -> str:
    """Return a key that is unique in a run: a connection may have many subscriptions."""
    return f"{client_session}|{subscription}"


def facts_of(data: bytes, name: str = "a segment") -> Iterator[Fact]:
    """Yield the facts of a segment."""
    header: Header | None = None
    offset = at_us = 0
    last = _LatestRecords()
    for header, at_us, record in read_segment(data, name):
        offset = max(offset + 1, header.number << 32)
        if isinstance(record, AuditPublished | Confirmed):
            yield from _published(header, offset, record)
            offset += len(record.ticks)
        elif isinstance(record, AuditDelivered):
            yield from _delivered(header, offset, record)
            offset += sum(len(ticks) for _, ticks, _ in record.runs)
            last.delivered(record)
        elif isinstance(record, Stored):
            last.store(record)
        elif isinstance(record, Progressed | Acked):
            last.add(record)
        else:
            yield _control(header, offset, at_us, record)
    if header is not None:
        for each in last.records():
            offset += 1
            yield _control(header, offset, at_us, each)
        yield _control(header, offset + 1, at_us, None)


def _control(header: Header, offset: int, at_us: int, record: AuditRecord | None) -> Fact:
    control = _encode(Control(header, offset, at_us, record))
    return Fact("c", header.run, offset, control=control)


def _published(header: Header, offset: int, record: AuditPublished | Confirmed) -> Iterator[Fact]:
    attributes = record.attributes if isinstance(record, AuditPublished) else None
    kind = "p" if isinstance(record, AuditPublished) else "q"
    principal = record.principal if isinstance(record, AuditPublished) else ""
    pubend = str(record.pubend)
    for index, tick in enumerate(record.ticks):
        yield Fact(
            kind,
            header.run,
            offset + index,
            pubend=pubend,
            tick=tick,
            publisher=record.publisher,
            sequence=record.first + index,
            attributes=None if attributes is None else _encode(attributes[index]),
            principal=principal,
        )


def _delivered(header: Header, offset: int, record: AuditDelivered) -> Iterator[Fact]:
    client_session = client_session_key(record.client_session, record.subscription)
    for each, ticks, sequences in record.runs:
        pubend = str(each)
        known = sequences or [-1] * len(ticks)
        for tick, sequence in zip(ticks, known, strict=True):
            yield Fact("d", header.run, offset, client_session, pubend, tick, sequence=sequence)
            offset += 1


class _LatestRecords:
    """The last of the repeated records of a segment."""

    def __init__(self) -> None:
        self._stored: dict[PubendId, int] = {}
        self._reached: dict[tuple[str, str], dict[PubendId, int]] = {}
        self._acked: dict[tuple[str, str], dict[PubendId, int]] = {}

    def store(self, record: Stored) -> None:
        self._stored[record.pubend] = record.tick

    def delivered(self, record: AuditDelivered) -> None:
        reached = self._reached.setdefault((record.subscription, record.client_session), {})
        for pubend, ticks, _ in record.runs:
            if ticks:
                reached[pubend] = max(reached.get(pubend, 0), *ticks)

    def add(self, record: Progressed | Acked) -> None:
        all_of = self._acked if isinstance(record, Acked) else self._reached
        ticks = all_of.setdefault((record.subscription, record.client_session), {})
        for pubend, tick in record.position:
            ticks[pubend] = max(ticks.get(pubend, 0), tick)

    def records(self) -> Iterator[AuditRecord]:
        for (subscription, client_session), reached in self._reached.items():
            yield Progressed(subscription, client_session, _as_ticks(reached))
        for (subscription, client_session), acked in self._acked.items():
            yield Acked(subscription, client_session, _as_ticks(acked))
        for pubend, tick in self._stored.items():
            yield Stored(pubend, tick)


def _as_ticks(ticks: dict[PubendId, int]) -> Ticks:
    return [*ticks.items()]
