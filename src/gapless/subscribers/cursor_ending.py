"""The end of the pubend of one cursor (RS-32, RS-34).

Above the last tick L of a sealed pubend nothing comes any more. A cursor that waits for its start
starts after L, and a next filter applies after L. When the client was sent everything up to L, it is
notified that the pubend is closed (:mod:`.closed_notices`).

If the pubend is a tombstone, no log can be read any more. Usually nobody needs it then. If the members
below L were given up, what a cursor was not sent is a gap up to L.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Tick
from gapless.subscribers.cursor_state import (
    FOREVER,
    CursorInput,
    CursorPhase,
    GapRange,
    Started,
)

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor

__all__ = ["CursorEnding"]


class CursorEnding:
    """What the end of the pubend means for one cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._is_told = False
        """Whether the client was notified of the end in this connection."""
        self.is_known = False
        """Whether the client has named the pubend as closed, or has acknowledged its end."""
        self._is_stored = False
        """Whether the record contains that the end is known."""

    # --- the notice ----------------------------------------------------------------------------

    def note_known(self) -> None:
        """The client has named the pubend as closed."""
        self.is_known = True

    def restore(self, *, known: bool) -> None:
        """Restore from the record whether the end is known."""
        self.is_known = self._is_stored = known

    def acknowledged(self, tick: Tick) -> None:
        """The client acknowledges a tick: if that is above the last one, it knows the end."""
        last = self._cursor.subend.sealed_at
        if self._is_told and last is not None and tick > last:
            self.is_known = True

    def saved(self, *, known: bool) -> None:
        """A record is on disk that contains whether the end is known."""
        self._is_stored = known

    def forget_client(self) -> None:
        """The client has disconnected."""
        self._is_told = False

    def sought(self) -> None:
        """An operator has moved the cursor: the client passes the end again."""
        self._is_told = self.is_known = self._is_stored = False

    @property
    def is_due(self) -> bool:
        """Whether the client was sent everything up to the end and does not know of the end."""
        cursor, last = self._cursor, self._cursor.subend.sealed_at
        if last is None or self._is_told or self.is_known:
            return False
        return cursor.start_confirmed and not cursor.buffer and cursor.sent_up_to >= last

    @property
    def is_done(self) -> bool:
        """Whether the cursor is not needed: its pubend is a tombstone, and the client knows."""
        if not self._cursor.subend.is_over:
            return False
        if self._cursor.subscription.durable:
            return self.is_known and self._is_stored
        return self._is_told or self.is_known

    @property
    def is_ack_unsaved(self) -> bool:
        """Whether an acknowledgement up to the last tick or of the end is not on disk.

        The pubend waits for it, and nothing follows that would bring it to the disk.
        """
        start, last = self._cursor.start, self._cursor.subend.sealed_at
        is_new = self.is_known and not self._is_stored
        return last is not None and (is_new or start.acked_stored < last <= start.acked)

    def tell(self) -> None:
        """The client is notified of the end now."""
        last = self._cursor.subend.sealed_at
        assert last is not None
        self._is_told = True
        self._cursor.pass_end(last)

    @property
    def complete_up_to(self) -> Tick:
        """The tick up to which no further event comes; above the end of a sealed pubend none does."""
        tick, last = self._cursor.buffered_up_to, self._cursor.subend.sealed_at
        return tick if last is None or tick < last else FOREVER

    # --- the stream ----------------------------------------------------------------------------

    def start_at_end(self) -> None:
        """Start after the last tick if the cursor waits for its start or for a next filter."""
        cursor, last = self._cursor, self._cursor.subend.sealed_at
        assert last is not None
        if cursor.phase is CursorPhase.PENDING:
            self._start_after(last)
        cursor.filter_switch.end_at(last)

    def _start_after(self, tick: Tick) -> None:
        cursor = self._cursor
        is_disconnected = cursor.subscription.client is None
        cursor.subscription.guarantees.clear(cursor.pubend)
        cursor.verification.cancel()
        cursor.note_unconfirmed(unconfirmed=is_disconnected)
        cursor.start_after(tick)
        phase = CursorPhase.DISCONNECTED if is_disconnected else CursorPhase.LIVE
        cursor.enter(phase, CursorInput.ENDED)
        cursor.subscription.mark_dirty()

    def pubend_ended(self) -> None:
        """The pubend is a tombstone: continue without its log."""
        cursor, last = self._cursor, self._cursor.subend.sealed_at
        assert last is not None
        needs_more = cursor.retention.needs_more
        cursor.log_holds.forget_all()
        cursor.catch_up.stop()
        cursor.merge_exclusion.pubend_ended()
        if cursor.phase is CursorPhase.GUARANTEED:
            after = min(cursor.position, last)
            self._start_after(after)
            self._add_gap(after, last)
        elif cursor.phase is CursorPhase.DISCONNECTED and not needs_more:
            cursor.raise_acked(last)  # what it has not acknowledged can match nothing
        elif cursor.reads_log:
            self.skip_rest()
        cursor.subscription.note_change()
        cursor.subscription.mark_dirty()

    def skip_rest(self) -> None:
        """A cursor would read the log of a tombstone: skip to the end, with a gap."""
        cursor, last = self._cursor, self._cursor.subend.sealed_at
        assert last is not None
        cursor.catch_up.drop_held()
        if not isinstance(cursor.start, Started):
            cursor.start_after(last)
        if cursor.position < last:
            needs_more = cursor.retention.needs_more
            before = cursor.position
            cursor.pass_up_to(last)
            if needs_more:
                self._add_gap(before, last)
        cursor.enter(CursorPhase.LIVE, CursorInput.ENDED)
        cursor.filter_switch.end_at(last)
        cursor.subscription.mark_dirty()

    def _add_gap(self, after: Tick, last: Tick) -> None:
        cursor = self._cursor
        cursor.pass_up_to(last)
        last = min(last, cursor.subend.last_event)
        if after < last and cursor.subscription.client is not None:
            cursor.subscription.resources.context.mark("gap at a tombstone")
            cursor.buffer.append_gap(GapRange(after + 1, last))
