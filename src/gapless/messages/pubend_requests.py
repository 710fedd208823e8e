"""Requests to the broker of a pubend, passed on hop by hop; the reply takes the recorded way back.

The asker repeats a request under a new id until it is answered.
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.streams import KnowledgeRange, Member, ReadForm

__all__ = ["LeavePubend", "LogHoldId", "Read", "ReadReply", "ReleaseLogHold", "RequestDone"]


class LogHoldId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who keeps part of a log: a subscription of a subscriber host (R49).

    The host never uses a name twice, so a late release cannot end a newer hold.
    """

    shb: ShbId
    subscription: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Give me what matches the filter between two ticks (R48)."""

    pubend: PubendId
    request: int
    requester: BrokerId
    route: tuple[BrokerId, ...]
    filter: str
    low: Tick
    high: Tick
    log_hold: LogHoldId | None
    bytes_max: int
    log_hold_tick: Tick = 0
    """The log is held above this tick."""
    joining_member: Member | None = None
    """A host that comes to the pubend, and asks since when it was known there (R46)."""
    form: ReadForm = ReadForm.EVENTS
    """An older broker knows but one, and answers with pieces."""
    former_hosts: tuple[ShbId, ...] = ()
    """Other hosts that the newcomer asks the same of: subscriptions have fled from them to it (MV-13)."""


class ReadReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The pieces up to ``done``, exact for the request's filter."""

    pubend: PubendId
    request: int
    route: tuple[BrokerId, ...]
    ranges: tuple[KnowledgeRange, ...]
    done: Tick
    top: Tick
    released: Tick
    last_released_match: Tick
    """Up to here events that match may be gone; from there to ``released`` there were none."""
    fault: str = ""
    """Why nothing can be read at the lowest tick that was asked for; then ``done`` is below it."""
    known: tuple[tuple[VirtualTime, Tick], ...] = ()
    """Up to which virtual time the news of the newcomer was there, each with the tick from which on."""
    retained_above: Tick = 0
    """Above this tick the log is kept for the newcomer, if anything was known of it."""
    rows: tuple[bytes, ...] = ()
    """In place of pieces, if another form was asked for."""
    others: tuple[tuple[ShbId, tuple[tuple[VirtualTime, Tick], ...]], ...] = ()
    """What was known of the other hosts that were asked of, as far as it was."""


class ReleaseLogHold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The part of the log that was held may go (R49)."""

    pubend: PubendId
    request: int
    requester: BrokerId
    route: tuple[BrokerId, ...]
    log_hold: LogHoldId


class LeavePubend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscriber host's stay with a pubend ends (R43, R55)."""

    pubend: PubendId
    request: int
    requester: BrokerId
    route: tuple[BrokerId, ...]
    shb: ShbId
    membership: MembershipId


class RequestDone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is done, and on disk."""

    pubend: PubendId
    request: int
    route: tuple[BrokerId, ...]
