"""Messages of the streams: feeds, knowledge, curiosity, reports.

An attach number names a feed within one session; so does a set number, and the fact that a regime
was told. All three die with the session (R2).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from gapless.content.values import Value
from gapless.core.ids import CellId, MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import Tick, TickRange

__all__ = [
    "AckExpected",
    "AckReport",
    "AdvanceRequest",
    "Attach",
    "AttachKind",
    "Attached",
    "DefineMemberSet",
    "Detach",
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


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A published event at its tick."""

    tick: Tick
    publisher: str
    sequence: int
    attributes: dict[str, Value]
    payload: bytes


Events: TypeAlias = tuple[tuple[dict[str, Value], bytes], ...]
"""A batch as a client sends it: attributes and payload of each event."""


class KnowledgeRange(msgspec.Struct, frozen=True, array_like=True):
    """In the ticks from low to high exactly the publications are D, all others are F.

    All its ticks have one regime and one control version, so it may be cut anywhere.
    """

    low: Tick
    high: Tick
    stream_epoch: int
    control_version: int
    publications: tuple[Publication, ...] = ()


class ReadForm(IntEnum):
    """In which form a part of a log is given."""

    EVENTS = 0
    """One by one."""
    ROWS = 1
    """As the log has them: byte strings, each an array of publications in msgpack."""
    TICKS = 2
    """Only their ticks: byte strings, each an array of ticks in msgpack."""


class AttachKind(IntEnum):
    """What the receiver is to the feeder (R10)."""

    LEAF = 0
    CELL = 1
    PHB_CELL = 2


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Feed me from now on (R8); repeated to keep the feed."""

    pubend: PubendId
    number: int
    kind: AttachKind
    receiver: str
    """The receiver's cell, or for a leaf its ``broker@cell``."""
    eager: bool = False
    shape_versions: tuple[tuple[CellId, int], ...] = ()
    """Of the cells from the receiver's to the feeder's; those never reshaped are left out (R13)."""


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """You get every tick above ``sent_up_to`` (R10)."""

    pubend: PubendId
    number: int
    sent_up_to: Tick
    relayed: bool = False


class FeedUnavailableReason(IntEnum):
    """Why a broker does not feed another (R10)."""

    NO_FEED = 0
    NOT_NEARER = 1
    LIMIT = 2
    UNKNOWN_PUBEND = 3
    SHAPE_MISMATCH = 4
    """The two know different shapes of the cells between them (R13)."""


class FeedUnavailable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """I cannot feed you now; you are kept as waiting unless you are not farther than I am."""

    pubend: PubendId
    number: int
    reason: FeedUnavailableReason


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stop feeding me."""

    pubend: PubendId
    number: int


class StreamData(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Knowledge with data; ``first`` unless it answers a nack (R35, R36)."""

    pubend: PubendId
    number: int
    knowledge: KnowledgeRange
    first: bool = True


class StreamSilence(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Knowledge without data, of many pubends at once: (pubend, attach number, piece, first)."""

    ranges: tuple[tuple[PubendId, int, KnowledgeRange, bool], ...]


class StreamEpoch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a regime number of a pubend means: from which tick on, which vector it serves (R31)."""

    pubend: PubendId
    number: int
    start: Tick
    announcement_version: int
    base: int | None
    """The regime that ``entries`` changes, or None if they are all."""
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    forgotten: tuple[ShbId, ...] = ()


class StreamEpochRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tell me this regime."""

    pubend: PubendId
    number: int


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """I am curious about these ticks (R37)."""

    pubend: PubendId
    ranges: tuple[TickRange, ...]


class Released(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ticks up to this one are no longer in the log; they are a gap, not silence (R37)."""

    pubend: PubendId
    up_to: Tick


class Unreadable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The log has these ticks and cannot be read there: who asks for them waits (P8)."""

    pubend: PubendId
    low: Tick
    high: Tick
    reason: str


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscriber host as a report names it."""

    shb: ShbId
    membership: MembershipId
    durable: bool
    """Whether it has durable subscriptions there; for people, no rule reads it (R55)."""
    time: VirtualTime
    """Its virtual time: if no table brings that to the pubend, the report does (R31)."""


class DefineMemberSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Names a set of members within this session."""

    number: int
    members: tuple[Member, ...]


class ForgetMemberSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The set's number will be used for another."""

    number: int


class AckReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Every member of the set wants these pubends and no longer needs ticks up to these (R52)."""

    set_number: int
    acknowledged: tuple[tuple[PubendId, Tick], ...]


class AckExpected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whoever has not acknowledged up to this tick: look for your gaps (R57)."""

    pubend: PubendId
    tick: Tick
    pressure: bool = False
    """The log is over its limit: let lagging subscriptions go (R58)."""


class AdvanceRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Somebody waits in total order: promise silence up to this tick (R51)."""

    pubend: PubendId
    tick: Tick
