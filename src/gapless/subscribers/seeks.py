"""The target of a seek."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint
from gapless.subscribers.cursor import Cursor

__all__ = ["NEGATIVE", "seek_target"]

NEGATIVE: Final = "a position cannot be negative; 0 is before the first event"


def seek_target(start: StartPoint, named: Mapping[PubendId, Tick], cursor: Cursor) -> Tick | None:
    """Return the tick after which a cursor continues; None if it is not moved.

    ``named`` is the position of the start by pubend.
    """
    match start.kind:
        case StartKind.LATEST:
            return max(cursor.subend.horizon, cursor.buffered_up_to)
        case StartKind.POSITION:
            return named.get(cursor.pubend)
        case StartKind.EARLIEST:
            return 0
        case StartKind.TIME:
            return max(0, start.clock - 1)
