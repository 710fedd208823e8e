"""Log holds: parts of a pubend's log that are kept for one cursor beyond reports (R49).

A cursor that reads below the reported ack floor takes a log hold: a name, sent with every read, and
the tick above which the log is kept. The hold is *kept* when the PHB has answered. It is *safe*
when its name is also in the record of a durable subscription. Then reports ignore the cursor. A
name is never used twice, so a late release cannot end a newer hold. An older hold is released only
when the next one is safe.

The SHB refreshes its log holds. A PHB ends a hold that is not refreshed although it receives messages of the
SHB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.context import nothing
from gapless.core.parameters import microseconds
from gapless.messages.pubend_requests import LogHoldId, ReadReply
from gapless.subscribers.cursor_state import Started

if TYPE_CHECKING:
    from gapless.subscribers.cursor import Cursor
    from gapless.subscribers.protocols import CancellableRequest

__all__ = ["LogHolds"]


class LogHolds:
    """The current log hold of one cursor, and its former ones."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._subscription = cursor.subscription
        resources = cursor.subscription.resources
        self._context = resources.context
        self._requests = resources.requests
        self._filters = resources.filters
        self.current: LogHoldId | None = None
        self.former: list[LogHoldId] = []
        """Log holds that are released when the current one is safe."""
        self.kept = False
        """Whether the current log hold is known to be on the PHB's disk."""
        self._requested = False
        """Whether a read with the current log hold was sent."""
        self._stored = False
        """Whether the current log hold is in the record of a durable subscription."""
        self._pending_refresh: CancellableRequest | None = None

    @property
    def is_safe(self) -> bool:
        """Whether the log is kept, and this SHB still has the name of the hold after a crash."""
        return self.kept and (self._stored or not self._subscription.durable)

    @property
    def all(self) -> list[LogHoldId]:
        """All log holds, the newest last."""
        return self.former + ([] if self.current is None else [self.current])

    def restore(self, holds: list[LogHoldId]) -> None:
        """Restore log holds from the record; the PHB may have them or not."""
        if holds:
            self.current, self.former = holds[-1], holds[:-1]
            self._stored = self._requested = True
            self._cursor.subend.groups.note_log_hold(self._cursor)

    def take(self) -> None:
        """Take a new log hold; the previous one is kept until the new one is safe."""
        subscription = self._subscription
        if self._cursor.subend.is_over:
            return  # there is no log
        self._forget_current()
        self.current = self._new_hold()
        self._cursor.subend.groups.note_log_hold(self._cursor)
        if subscription.durable and isinstance(self._cursor.start, Started):
            subscription.save(subscription.mark_dirty)

    def _new_hold(self) -> LogHoldId:
        """Return a log hold with a name that is unique in all incarnations."""
        identity, number = self._context.identity, self._filters.new_number()
        return LogHoldId(identity.shb, f"{self._subscription.name}/{identity.incarnation}.{number}")

    def forget_all(self) -> None:
        """Forget all log holds without a release: the pubend is a tombstone (RS-34)."""
        self._forget_current()
        self.former = []

    def release(self) -> None:
        """Release all log holds; reports keep what the cursor still needs."""
        self._forget_current()
        self._cursor.catch_up.stop()  # a repeated read would name a released hold
        self._release_former()
        self._subscription.mark_dirty()

    def named(self) -> LogHoldId | None:
        """Return the log hold for a read that is sent now."""
        self._requested |= self.current is not None
        return self.current

    def answered(self, hold: LogHoldId | None) -> None:
        """A read that named a log hold was answered: the PHB keeps the hold."""
        if hold is not None and hold == self.current:
            self.kept = True
            self._subscription.mark_dirty()

    def saved(self, hold: LogHoldId | None) -> None:
        """A record that names a log hold is on disk."""
        self._stored |= hold is not None and hold == self.current

    def refresh(self, *, due: bool) -> None:
        """Release log holds that are not needed, and refresh the others."""
        cursor, above = self._cursor, self._cursor.subend.retained_above
        if self.is_safe and self.former:
            self._release_former()
            self._subscription.note_change()
        retained_from, last = cursor.retention.retained_from, cursor.subend.sealed_at
        is_kept = self.is_safe and above is not None and retained_from >= above
        if is_kept or (last is not None and retained_from >= last):
            self.release()
            self._subscription.note_change()
        elif due or (not self.kept and not cursor.catch_up.is_reading):
            self._refresh_now()  # no pending read of the cursor refreshes it

    def _refresh_now(self) -> None:
        """Raise the log hold to the tick that is still needed, by a read of an empty range."""
        hold = self.named()
        if hold is None or self._pending_refresh is not None:
            return

        def refreshed(reply: ReadReply) -> None:
            self._pending_refresh = None
            self._cursor.set_earliest(reply.released)
            self.answered(hold)

        tick = self._cursor.retention.retained_from
        self._pending_refresh = self._requests.read(
            self._cursor.pubend,
            "FALSE",
            tick + 1,
            tick,
            log_hold=hold,
            log_hold_tick=tick,
            then=refreshed,
        )

    def _forget_current(self) -> None:
        if self.current is not None and self._requested:
            self.former.append(self.current)
        self.current = None
        self.kept = self._requested = self._stored = False
        self._cursor.subend.groups.note_log_hold(self._cursor)
        if self._pending_refresh is not None:
            self._pending_refresh.cancel()
            self._pending_refresh = None

    def _release_former(self) -> None:
        """Release the former holds after the record no longer has them: no restart uses them."""
        former, self.former = self.former, []
        subscription = self._subscription
        if former and subscription.durable and subscription.ended:
            self._context.write((), lambda: self._let_go(former))  # after the record is deleted
        elif former and subscription.durable and subscription.stored:
            subscription.save(lambda: self._let_go(former))
        else:
            self._let_go(former)

    def _let_go(self, holds: list[LogHoldId]) -> None:
        for hold in holds:
            pending_request = self._requests.release_log_hold(self._cursor.pubend, hold, nothing)
            # the PHB ends by itself a hold that is not refreshed
            self._context.call_later(
                microseconds(s=self._context.parameters.log_hold_ttl_s), pending_request.cancel
            )
