"""Messages between a broker and its clients to close a pubend (RS-32, RS-33)."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from gapless.core.ids import PubendId, ShbId
from gapless.core.numbers import ClientCount, Count, Signed
from gapless.core.ticks import Tick
from gapless.messages.operating import MemberState

__all__ = ["CloseMode", "ClosePubend", "ClosePubendReply", "ClosingState", "HoldState"]


class CloseMode(IntEnum):
    """How long a pubend waits before it becomes a tombstone; a greater mode waits for less."""

    DRAIN = 0
    """For members, log holds and the retention."""
    DISCARD_HISTORY = 1
    """For members and log holds."""
    NOW = 2
    """For members and log holds, at most ``close_wait_s``."""


class ClosingState(IntEnum):
    """Whether a pubend is closed, as clients and operators see it."""

    OPEN = 0
    SEALED = 1
    """It accepts nothing any more, and its log is kept for those that need it."""
    CLOSED = 2
    """It is a tombstone: nothing is left of it but its name."""


class ClosePubend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Closes a pubend. A client repeats it to learn the state, or to close it in a greater mode."""

    request: ClientCount
    pubend: PubendId
    """Exactly this one: a repetition must not close a later pubend of the same name."""
    mode: CloseMode = CloseMode.DRAIN


class HoldState(msgspec.Struct, frozen=True, array_like=True):
    """A log hold for which the log of a pubend is retained."""

    shb: ShbId
    subscription: str
    tick: Tick
    """The log is retained above this tick."""


class ClosePubendReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The state of the pubend, which is on disk, and what it waits for."""

    request: Count
    pubend: PubendId
    state: ClosingState
    last: Tick
    """The last tick; 0 under best effort."""
    mode: CloseMode = CloseMode.DRAIN
    members: tuple[MemberState, ...] = ()
    """The members that need a part of the log, the lowest ack floor first."""
    members_omitted: Count = 0
    log_holds: tuple[HoldState, ...] = ()
    log_holds_omitted: Count = 0
    joining: bool = False
    """Whether SHBs may still join that knew the pubend before it was sealed."""
    retained_until: Signed | None = None
    """Until when the retention keeps the log, by the broker's wall clock in microseconds; None if
    not any more."""
    gives_up_at: Signed | None = None
    """In the mode NOW: when members and log holds are given up, by the same clock."""
