"""Requests to the broker of a pubend, passed on hop by hop; the reply takes the recorded way back.

The asker repeats a request under a new id until it is answered.
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, Join, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.streams import Piece

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
    """Up to here events may be gone; from there to ``released`` there were none."""
    fault: str = ""
    """Why nothing can be read at the lowest tick that was asked for; then ``done`` is below it."""


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
