"""Messages of the streams: feeds, knowledge, curiosity, reports.

Attach numbers, member set numbers and the knowledge of which stream epochs were sent are valid only
within one peer session (R2).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeAlias

import msgspec

from gapless.content.values import Value
from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.limits import (
    EVENT_TEXT_MAX,
    INT_MAX,
    INT_MIN,
    NACK_RANGES_MAX,
    REPORT_ITEMS_MAX,
)
from gapless.core.numbers import ComposedName, Count, Name, Signed
from gapless.core.ticks import Tick, TickRange
from gapless.messages.overlay import PathEpochs

__all__ = [
    "AckExpected",
    "AckReport",
    "AdvanceRequest",
    "Attach",
    "AttachKind",
    "Attached",
    "BestEffortPosition",
    "DefineMemberSet",
    "Detach",
    "EventValue",
    "Events",
    "FeedUnavailable",
    "FeedUnavailableReason",
    "ForgetMemberSet",
    "KnowledgeRange",
    "Member",
    "Nack",
    "Publication",
    "ReadForm",
    "Released",
    "StreamData",
    "StreamEpoch",
    "StreamEpochRequest",
    "StreamSilence",
    "Unreadable",
]


EventValue: TypeAlias = (
    bool
    | Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
    | float
    | Annotated[str, msgspec.Meta(max_length=EVENT_TEXT_MAX)]
)
"""An attribute of an event that a client sends."""


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A published event at its tick."""

    tick: Tick
    publisher: Name
    sequence: Count
    attributes: dict[str, Value]
    payload: bytes


Events: TypeAlias = tuple[tuple[dict[str, EventValue], bytes], ...]
"""A batch as a client sends it: attributes and payload of each event."""


class KnowledgeRange(msgspec.Struct, frozen=True, array_like=True):
    """In the ticks from low to high exactly the publications are D, all others are F.

    All its ticks have one stream epoch and one control version, so it may be split at any tick.
    """

    low: Tick
    high: Tick
    stream_epoch: Count
    control_version: Count
    publications: tuple[Publication, ...] = ()


class ReadForm(IntEnum):
    """The form of the events in a reply to a read."""

    EVENTS = 0
    """As decoded publications."""
    ROWS = 1
    """As stored in the log: byte strings, each an array of publications in msgpack."""
    TICKS = 2
    """Only their ticks: byte strings, each an array of ticks in msgpack."""


class BestEffortPosition(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A position in a best-effort stream, whose ticks grow within an incarnation (RS-14)."""

    incarnation: Count
    """Of the PHB."""
    tick: Tick


class AttachKind(IntEnum):
    """The relation of the receiver to the feeder (R10)."""

    LEAF = 0
    CELL = 1
    PHB_CELL = 2


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests a feed (R8). The receiver repeats it to keep the feed."""

    pubend: PubendId
    number: Count
    kind: AttachKind
    receiver: ComposedName
    """The receiver's cell, or for a leaf its ``broker@cell``."""
    eager: bool = False
    path_epochs: PathEpochs = ()
    """Of the edges between the receiver's cell and the feeder's (RS-11)."""
    after: BestEffortPosition | None = None
    """Of a best-effort pubend: the receiver has everything up to this position. None: it gets what
    is published from now on (RS-14)."""


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The feed is attached: the receiver gets every tick above ``sent_up_to`` (R10)."""

    pubend: PubendId
    number: Count
    sent_up_to: Tick
    relayed: bool = False
    at: BestEffortPosition | None = None
    """Of a best-effort pubend: the receiver gets everything above this position (RS-14)."""


class FeedUnavailableReason(IntEnum):
    """Why a broker does not feed another (R10)."""

    NO_FEED = 0
    NOT_NEARER = 1
    LIMIT = 2
    UNKNOWN_PUBEND = 3
    SHAPE_MISMATCH = 4
    """The receiver knows older cell records than the feeder. They come in the same packet (RS-11)."""


class FeedUnavailable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The sender cannot feed the receiver now. It keeps the request only if reason is NO_FEED."""

    pubend: PubendId
    number: Count
    reason: FeedUnavailableReason


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The receiver ends the feed."""

    pubend: PubendId
    number: Count


class StreamData(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A knowledge range with publications; ``first`` unless it answers a nack (R35, R36)."""

    pubend: PubendId
    number: Count
    knowledge: KnowledgeRange
    first: bool = True


class StreamSilence(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Silence of many pubends: (pubend, attach number, knowledge range, first)."""

    ranges: tuple[tuple[PubendId, Count, KnowledgeRange, bool], ...]


class StreamEpoch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The definition of a stream epoch: its first tick and the vector that it serves (R31)."""

    pubend: PubendId
    number: Count
    start: Tick
    announcement_version: Count
    base: Count | None
    """The stream epoch that ``entries`` changes; None if ``entries`` is the whole vector."""
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    forgotten: tuple[ShbId, ...] = ()


class StreamEpochRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the definition of a stream epoch."""

    pubend: PubendId
    number: Count


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests missing ticks (R37)."""

    pubend: PubendId
    ranges: Annotated[tuple[TickRange, ...], msgspec.Meta(max_length=NACK_RANGES_MAX)]


class Released(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The log no longer has ticks up to this one. They are a gap, not silence (R37)."""

    pubend: PubendId
    up_to: Tick


class Unreadable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The log has these ticks but they cannot be read. A broker that needs them waits (P8)."""

    pubend: PubendId
    low: Tick
    high: Tick
    reason: str


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member in a report."""

    shb: ShbId
    membership: MembershipId
    durable: bool
    """Whether it has durable subscriptions on the pubend; shown to operators only (R55)."""
    time: VirtualTime
    """Its virtual time, in case no table brings it to the PHB (R31)."""


class DefineMemberSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Assigns a number to a set of members within this peer session."""

    number: Signed
    """Negative in the reports of a leaf."""
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=REPORT_ITEMS_MAX)]


class ForgetMemberSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends the use of a set number; it may be assigned again."""

    number: Signed


class AckReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The members of the set need these pubends, and no ticks up to the given ones (R52)."""

    set_number: Signed
    acknowledged: Annotated[
        tuple[tuple[PubendId, Tick], ...], msgspec.Meta(max_length=REPORT_ITEMS_MAX)
    ]


class AckExpected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Members that have not acknowledged up to this tick must look for gaps (R57)."""

    pubend: PubendId
    tick: Tick
    pressure: bool = False
    """Whether the log is over its limit, so that lagging subscriptions give up ticks (R58)."""


class AdvanceRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests silence up to this tick from the PHB, because a merge waits for it (R51)."""

    pubend: PubendId
    tick: Tick
