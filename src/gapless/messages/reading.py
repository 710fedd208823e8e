"""Messages between a broker and a client that reads a log (:mod:`gapless.requests.reads`)."""

from __future__ import annotations

import msgspec

from gapless.core.ids import PubendId
from gapless.core.numbers import ClientCount, ClientSigned, Count
from gapless.core.ticks import Tick
from gapless.messages.streams import Publication, ReadForm

__all__ = ["ReadLog", "ReadPart"]


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Reads the events of a pubend between two ticks that match a filter."""

    request: ClientCount
    pubend: PubendId
    filter: str
    low: ClientSigned
    high: ClientSigned
    bytes_max: ClientSigned = 0
    """About how much of the log one reply may cover; 0 for the broker's limit."""
    form: ReadForm = ReadForm.EVENTS


class ReadPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The matching events up to ``done``. The client requests the rest from there."""

    request: Count
    publications: tuple[Publication, ...]
    done: Tick
    top: Tick
    released: Tick
    """The log no longer has ticks up to this one."""
    rows: tuple[bytes, ...] = ()
    """Replaces ``publications`` if another form was requested and the broker knows it."""
