"""Where a stream starts its cursors, and switches their filters (R44, RS-32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import VirtualTime
from gapless.core.ticks import Tick
from gapless.subscribers.cursor import Cursor

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend
    from gapless.subscribers.subend_state import SubendListener

__all__ = ["offer_horizon", "start_at_end", "start_cursors"]


def start_cursors(subend: Subend, low: Tick, time: VirtualTime | None) -> None:
    """Start the cursors, and switch the filters, that a range serves; it starts at a tick."""
    if time is None:
        return
    groups = subend.groups
    for cursor in [*groups.pending.values()]:
        cursor.start_if_served(low, time)
    if groups.guaranteed:
        for cursor in groups.guaranteed.values():
            cursor.verification.reached(low, time)
        subend.verify_starts()
    for cursor in [*groups.changing.values()]:
        cursor.filter_switch.switch_if_served(low, time)


def offer_horizon(cursor: Cursor) -> None:
    """Start a cursor behind the horizon, or switch its filter there, if that is served (R44).

    The next range begins at that tick. If its stream epoch serves less than that of the horizon, it
    is not covered, and is read from the log. At the end of a sealed pubend no range follows.
    """
    subend = cursor.subend
    if subend.is_at_end:
        cursor.ending.start_at_end()
        return
    if subend.feeder is None or subend.served is None or subend.horizon != subend.stream.top:
        return
    name, low = cursor.subscription.name, subend.horizon + 1
    if subend.groups.pending.get(name) is cursor:
        cursor.start_if_served(low, subend.served)
    elif subend.groups.changing.get(name) is cursor:
        cursor.filter_switch.switch_if_served(low, subend.served)


def start_at_end(subend: Subend, listener: SubendListener) -> None:
    """Start all pending cursors if the horizon is at the last tick of a sealed pubend (RS-32)."""
    if subend.is_at_end:
        for cursor in [*subend.cursors.values()]:
            cursor.ending.start_at_end()
        listener.end_reached(subend)
