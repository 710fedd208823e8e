"""What stands in an audit log: small structs, a run of events each.

A *visit* is one stay with a subscription. To a broker it is a connection that has the subscription; to
a client it is the time from subscribing to closing, over all connections, or up to a seek. A visit has
a name that is unique in its writer.
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
"""Of the records; a reader refuses a higher one."""

Side: TypeAlias = Literal["broker", "client"]
Ticks: TypeAlias = list[tuple[PubendId, int]]
"""Up to which tick of each pubend."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """The first record of a segment: who writes, and which segment of his it is."""

    version: int
    side: Side
    name: str
    cell: str
    run: str
    """One life of a writer; no other has the same."""
    number: int
    """From 1 on; if the first that is there has another, older ones were removed."""
    at_us: int


class Closing(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    """The writer ended in order: there is nothing that it knew and did not write."""


class AuditPublished(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A pubend is about to put events on disk. Their sequences follow each other."""

    pubend: PubendId
    publisher: str
    first: int
    ticks: list[int]
    attributes: list[dict[str, Any]] | None = None
    principal: str = ""
    """Who published, as the broker knows it by a token; empty if it asked nobody."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """All that was published up to a tick is on disk."""

    pubend: PubendId
    tick: int


class Confirmed(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """A publisher was told that events are on disk."""

    pubend: PubendId
    publisher: str
    first: int
    ticks: list[int]


class AuditOpened(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """A visit begins, or goes on over another connection: everything after the position comes."""

    subscription: str
    client_session: str
    broker: str
    filter: str
    durable: bool
    total: bool
    """Whether events of all pubends come in one order."""
    position: Ticks
    repositioned: bool = False
    """It begins by a seek: what is skipped is not owed, what comes again was asked for."""
    restated: bool = False
    """It is open since an earlier segment; said again for those who do not have that one."""
    principal: str = ""
    """Whose connection it is, as a broker knows it by a token; empty if it asked nobody. Clients do not
    say: it is not for them to say."""


class AuditStarted(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A subscription has started on one more pubend."""

    subscription: str
    client_session: str
    pubend: PubendId
    after: int


class AuditFilterChanged(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """Another filter governs after the position."""

    subscription: str
    client_session: str
    filter: str
    position: Ticks


class AuditDelivered(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A broker has sent events, or a client has taken them, in this order."""

    subscription: str
    client_session: str
    runs: list[tuple[PubendId, list[int], list[int]]]
    """Ticks, and on the client's side the sequences."""


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """All that is owed up to the position was there before."""

    subscription: str
    client_session: str
    position: Ticks


class LogReadSent(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A broker has sent what matches of a part of a log to a client who asked for it, and not subscribed."""

    pubend: PubendId
    filter: str
    low: int
    high: int
    principal: str = ""


class GapReported(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The subscriber was told that the log has lost these ticks."""

    subscription: str
    client_session: str
    pubend: PubendId
    low: int
    high: int
    expected: bool = False
    """It began with the oldest that the log has: what was gone before is no gap."""


class Acked(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """The subscriber needs no more what is up to the position."""

    subscription: str
    client_session: str
    position: Ticks


class AuditEnded(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """A visit is over. What came after the position was not handed out."""

    subscription: str
    client_session: str
    position: Ticks | None = None
    """None: nobody knows how far it was handed out."""
    is_removed: bool = False
    """The subscription itself is over, too."""


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
