"""Pubend requests: routed hop by hop to the PHB; the reply returns by the recorded route.

The requester repeats a request under a new id until it is answered.
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.numbers import ComposedName, Count, Signed
from gapless.core.ticks import Tick
from gapless.messages.streams import KnowledgeRange, Member, ReadForm

__all__ = [
    "CountEvents",
    "EventCount",
    "EventCounts",
    "LeavePubend",
    "LogHoldId",
    "Read",
    "ReadReply",
    "ReleaseLogHold",
    "RequestDone",
]


class LogHoldId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies a log hold: an SHB and a name that stands for one of its subscriptions (R49).

    The SHB never uses a name twice, so a late release cannot end a newer log hold.
    """

    shb: ShbId
    subscription: ComposedName


class Read(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Reads the events between two ticks that match the filter (R48)."""

    pubend: PubendId
    request: Count
    requester: BrokerId
    route: tuple[BrokerId, ...]
    filter: str
    low: Tick
    high: Tick
    log_hold: LogHoldId | None
    bytes_max: Signed
    log_hold_tick: Tick = 0
    """The log hold retains the log above this tick."""
    joining_member: Member | None = None
    """An SHB that joins the pubend; the reply has since when it is a known host (R46)."""
    form: ReadForm = ReadForm.EVENTS
    """An older broker ignores it and replies with knowledge ranges."""
    former_hosts: tuple[ShbId, ...] = ()
    """SHBs from which subscriptions failed over to the joining member; the reply has the same of
    them (MV-13)."""


class ReadReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The knowledge ranges up to ``done``, exact for the filter of the request."""

    pubend: PubendId
    request: Count
    route: tuple[BrokerId, ...]
    ranges: tuple[KnowledgeRange, ...]
    done: Tick
    top: Tick
    released: Tick
    last_released_match: Tick
    """Matching events may have been released up to this tick, and none from there to
    ``released``."""
    fault: str = ""
    """Why the lowest requested tick cannot be read; then ``done`` is below it."""
    known: tuple[tuple[VirtualTime, Tick], ...] = ()
    """Virtual times of the joining member, each with the tick from which on the PHB's tables had
    it."""
    retained_above: Tick = 0
    """The log above this tick is retained for the joining member, if it was a known host."""
    rows: tuple[bytes, ...] = ()
    """Replaces ``ranges`` if another form was requested."""
    others: tuple[tuple[ShbId, tuple[tuple[VirtualTime, Tick], ...]], ...] = ()
    """The virtual times and ticks of those ``former_hosts`` that are known hosts."""


class ReleaseLogHold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends a log hold (R49)."""

    pubend: PubendId
    request: Count
    requester: BrokerId
    route: tuple[BrokerId, ...]
    log_hold: LogHoldId


class LeavePubend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends a membership (R43, R55)."""

    pubend: PubendId
    request: Count
    requester: BrokerId
    route: tuple[BrokerId, ...]
    shb: ShbId
    membership: MembershipId


class RequestDone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The request is done and on disk."""

    pubend: PubendId
    request: Count
    route: tuple[BrokerId, ...]


class CountEvents(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests how many publications the log had up to some ticks, to know who is how far behind."""

    pubend: PubendId
    request: Count
    requester: BrokerId
    route: tuple[BrokerId, ...]
    ticks: tuple[Tick, ...]
    """At most ``COUNTED_TICKS_MAX``; more are ignored."""


class EventCount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The publications of a log up to a tick. The number stays true, whatever is published."""

    tick: Tick
    number: Count
    """How many were logged up to the tick, or are released."""
    oldest: Tick
    """The tick of the oldest publication above it; 0 if there is none."""


class EventCounts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reply; ticks above which the log is corrupt are missing."""

    pubend: PubendId
    request: Count
    route: tuple[BrokerId, ...]
    total: Count
    """The publications ever logged."""
    counts: tuple[EventCount, ...]
