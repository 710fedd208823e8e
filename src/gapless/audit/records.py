"""The records of an audit log: small structs, each for a run of events.

A *client session* here is one use of a subscription. For a broker it is a connection that has the
subscription. For a client it lasts from subscribing to closing, over all connections, or to a seek.
Its name is unique in its writer.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from gapless.core.ids import PubendId

__all__ = [
    "VERSION",
    "Acked",
    "AuditDelivered",
    "AuditEnded",
    "AuditFilterChanged",
    "AuditOpened",
    "AuditPublished",
    "AuditRecord",
    "AuditStarted",
    "Closing",
    "Confirmed",
    "GapReported",
    "Header",
    "LogReadSent",
    "Progressed",
    "Side",
    "Stored",
    "Ticks",
]

VERSION: Final = 2
"""The version of the records; a reader refuses a higher one."""

Side: TypeAlias = Literal["broker", "client"]
Ticks: TypeAlias = list[tuple[PubendId, int]]
"""A tick of each pubend."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """The first record of a segment: its writer and its number."""

    version: int
    side: Side
    name: str
    cell: str
    run: str
    """Identifies one run of a writer, uniquely."""
    number: int
    """Counted from 1; older segments were removed if the first one found has a higher number."""
    at_us: int


class Closing(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """The writer ended in order: all its records are written."""


class AuditPublished(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A pubend is about to put events on disk. Their sequences are consecutive."""

    pubend: PubendId
    publisher: str
    first: int
    ticks: list[int]
    attributes: list[dict[str, Any]] | None = None
    principal: str = ""
    """The publisher's principal, from its token; empty without authentication."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """All publications up to a tick are on disk."""

    pubend: PubendId
    tick: int


class Confirmed(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """A broker confirmed to a publisher that events are on disk."""

    pubend: PubendId
    publisher: str
    first: int
    ticks: list[int]


class AuditOpened(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A client session starts, or continues over another connection, after the position."""

    subscription: str
    client_session: str
    broker: str
    filter: str
    durable: bool
    total: bool
    """Whether the subscription has total order."""
    position: Ticks
    repositioned: bool = False
    """It starts with a seek: skipped events are not expected, repeated ones are no duplicates."""
    restated: bool = False
    """It is open since an earlier segment; repeated for readers without that segment."""
    principal: str = ""
    """The principal of the connection, from its token; empty without authentication. Only brokers
    record it."""


class AuditStarted(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A subscription has started on one more pubend."""

    subscription: str
    client_session: str
    pubend: PubendId
    after: int


class AuditFilterChanged(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Another filter applies after the position."""

    subscription: str
    client_session: str
    filter: str
    position: Ticks


class AuditDelivered(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A broker has sent events, or a client has received them, in this order."""

    subscription: str
    client_session: str
    runs: list[tuple[PubendId, list[int], list[int]]]
    """Pubend and ticks; in records of clients also the sequences."""


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """All matching events up to the position were delivered before."""

    subscription: str
    client_session: str
    position: Ticks


class LogReadSent(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A broker has sent the matching events of a log range to a client that read the log."""

    pubend: PubendId
    filter: str
    low: int
    high: int
    principal: str = ""


class GapReported(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The subscriber received a gap: the log no longer has these ticks."""

    subscription: str
    client_session: str
    pubend: PubendId
    low: int
    high: int
    expected: bool = False
    """It starts from the earliest tick of the log: ticks released before are no gap."""


class Acked(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """The subscriber does not need events up to the position again."""

    subscription: str
    client_session: str
    position: Ticks


class AuditEnded(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A client session ended. Events after the position were not handed out."""

    subscription: str
    client_session: str
    position: Ticks | None = None
    """None if it is unknown how far events were handed out."""
    is_removed: bool = False
    """Whether the subscription itself was removed."""


AuditRecord: TypeAlias = (
    Header
    | Closing
    | AuditPublished
    | Stored
    | Confirmed
    | AuditOpened
    | AuditStarted
    | AuditFilterChanged
    | AuditDelivered
    | Progressed
    | LogReadSent
    | GapReported
    | Acked
    | AuditEnded
)
