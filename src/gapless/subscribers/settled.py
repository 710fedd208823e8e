"""The tick up to which the client of a cursor needs nothing, known more exactly than it acknowledges.

A client acknowledges events. Between two events of a rare filter the acknowledged tick stands still
although nothing is missing. The SHB knows more: when every event that was sent is acknowledged, the
client needs nothing up to the tick up to which it was sent everything. Operators see how far a
subscription is behind from this tick on. No log is released because of it. It is written with the
record when the client leaves or the broker stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import Started

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["SettledTick"]


class SettledTick:
    """The settled tick of one cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._at_least: Tick = 0
        """It does not fall below this tick, except by a move."""

    @property
    def tick(self) -> Tick:
        """The tick up to which the client needs nothing; 0 if the cursor has not started."""
        cursor = self._cursor
        settled = max(cursor.start.acked, self._at_least)
        if cursor.subscription.client is None or self._awaits_acks:
            return settled
        return max(settled, cursor.sent_up_to)

    @property
    def _awaits_acks(self) -> bool:
        """Whether an event that the client was sent is not acknowledged."""
        cursor = self._cursor
        return cursor.subscription.durable and cursor.start.acked < cursor.last_sent

    def sending(self, tick: Tick) -> None:
        """The client is sent the event or the gap that starts at a tick."""
        if not self._awaits_acks:
            self._at_least = max(self._at_least, tick - 1)

    def client_left(self) -> None:
        """The client disconnects; what was sent last is still known."""
        cursor = self._cursor
        if isinstance(cursor.start, Started) and not self._awaits_acks:
            self._at_least = max(self._at_least, cursor.sent_up_to)

    def restore(self, tick: Tick) -> None:
        """Restore the tick from the record."""
        self._at_least = tick

    def moved(self, tick: Tick) -> None:
        """The cursor continues after a tick, which may be an earlier one."""
        self._at_least = min(self._at_least, tick)
