"""Requests to the broker of a pubend, passed on hop by hop; the reply takes the recorded way back.

The asker repeats a request under a new id until it is answered.
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, Join, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.streams import Member, Piece, ReadForm

__all__ = ["Done", "HoldId", "Leave", "Read", "ReadReply", "ReleaseHold"]


class HoldId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who keeps part of a log: a subscription of a subscriber host (R49).

    The host never uses a name twice, so a late release cannot end a newer hold.
    """

    shb: ShbId
    subscription: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Give me what matches the filter between two ticks (R48)."""

    pubend: PubendId
    request: int
    asker: BrokerId
    route: tuple[BrokerId, ...]
    filter: str
    low: Tick
    high: Tick
    hold: HoldId | None
    bytes_max: int
    hold_tick: Tick = 0
    """The log is held above this tick."""
    newcomer: Member | None = None
    """A host that comes to the pubend, and asks since when it was known there (R46)."""
    form: ReadForm = ReadForm.EVENTS
    """An older broker knows but one, and answers with pieces."""
    hosts: tuple[ShbId, ...] = ()
    """Other hosts that the newcomer asks the same of: subscriptions have fled from them to it (MV-13)."""


class ReadReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The pieces up to ``done``, exact for the request's filter."""

    pubend: PubendId
    request: int
    route: tuple[BrokerId, ...]
    pieces: tuple[Piece, ...]
    done: Tick
    top: Tick
    released: Tick
    gone: Tick
    """Up to here events that match may be gone; from there to ``released`` there were none."""
    fault: str = ""
    """Why nothing can be read at the lowest tick that was asked for; then ``done`` is below it."""
    known: tuple[tuple[VirtualTime, Tick], ...] = ()
    """Up to which virtual time the news of the newcomer was there, each with the tick from which on."""
    kept: Tick = 0
    """Above this tick the log is kept for the newcomer, if anything was known of it."""
    rows: tuple[bytes, ...] = ()
    """In place of pieces, if another form was asked for."""
    others: tuple[tuple[ShbId, tuple[tuple[VirtualTime, Tick], ...]], ...] = ()
    """What was known of the other hosts that were asked of, as far as it was."""


class ReleaseHold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The part of the log that was held may go (R49)."""

    pubend: PubendId
    request: int
    asker: BrokerId
    route: tuple[BrokerId, ...]
    hold: HoldId


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscriber host's stay with a pubend ends (R43, R55)."""

    pubend: PubendId
    request: int
    asker: BrokerId
    route: tuple[BrokerId, ...]
    shb: ShbId
    join: Join


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is done, and on disk."""

    pubend: PubendId
    request: int
    route: tuple[BrokerId, ...]
