"""The holds of a strand: parts of a pubend's log that are kept for it beyond reports (R49).

A strand that reads from below what this host reports takes a hold: a name, sent with every read, and
the tick above which the log is kept. It is *kept* when the pubend has answered, and *safe* when its
name is also on this host's disk, if the subscription is durable: from then on reports need not mind
the strand. A name is never used twice, so a late release cannot end a newer hold; and an older hold
is let go only when the one that follows it is safe.

The host refreshes its holds. A pubend ends one that its host, though heard of, no longer refreshes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.parameters import microseconds
from gapless.messages.pubend_requests import LogHoldId, ReadReply

if TYPE_CHECKING:
    from gapless.requests.carrier import PendingRequest
    from gapless.subscribers.cursor import Cursor

__all__ = ["LogHolds"]


class LogHolds:
    """The hold that a strand has, and those before it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._host = cursor.subscription.host
        self.current: LogHoldId | None = None
        self.former: list[LogHoldId] = []
        """Those that are let go when the present one is safe."""
        self.kept = False
        """Whether the present one is known to be on the pubend's disk."""
        self._asked = False
        """Whether the pubend may have heard of it."""
        self._stored = False
        """Whether its name is on this host's disk, where that matters."""
        self._pending_refresh: PendingRequest | None = None

    @property
    def is_safe(self) -> bool:
        """Whether the log is kept, and a crash would not make this host forget why."""
        return self.kept and (self._stored or not self._cursor.subscription.durable)

    @property
    def all(self) -> list[LogHoldId]:
        """Every hold, the newest last."""
        return self.former + ([] if self.current is None else [self.current])

    def restore(self, holds: list[LogHoldId]) -> None:
        """Take holds over from disk; the pubend may have them or not."""
        if holds:
            self.current, self.former = holds[-1], holds[:-1]
            self._stored = self._asked = True

    def take(self) -> None:
        """Take a new hold; the one before stays until this one is safe."""
        subscription = self._cursor.subscription
        self._forget_current()
        self.current = self._host.new_log_hold(subscription.name)
        if subscription.durable and self._cursor.started_after is not None:
            self._host.save(subscription, lambda: self._host.mark_dirty(subscription))

    def release(self) -> None:
        """Let all go; what the strand still needs is kept by reports from here on."""
        self._forget_current()
        self._cursor.catch_up.stop()  # its repetitions would name a hold that is gone
        self._release_former()
        self._host.mark_dirty(self._cursor.subscription)

    def named(self) -> LogHoldId | None:
        """Return the hold for a read that goes out now."""
        self._asked |= self.current is not None
        return self.current

    def answered(self, hold: LogHoldId | None) -> None:
        """A read that named a hold is answered: the pubend keeps it."""
        if hold is not None and hold == self.current:
            self.kept = True
            self._host.mark_dirty(self._cursor.subscription)

    def saved(self, hold: LogHoldId | None) -> None:
        """A record that names a hold is on disk."""
        self._stored |= hold is not None and hold == self.current

    def refresh(self, *, due: bool) -> None:
        """Let go what is not needed, refresh what is."""
        cursor, above = self._cursor, self._cursor.subend.retained_above
        if self.is_safe and self.former:
            self._release_former()
            cursor.subscription.dirty = True
        if self.is_safe and above is not None and cursor.retained_from >= above:
            self.release()
            cursor.subscription.dirty = True
        elif due or (not self.kept and not cursor.catch_up.is_reading):
            self._refresh_now()  # no read of the strand's own will have it kept

    def _refresh_now(self) -> None:
        """Raise the hold to what is still needed, by a read of nothing."""
        hold = self.named()
        if hold is None or self._pending_refresh is not None:
            return

        def refreshed(reply: ReadReply) -> None:
            self._pending_refresh = None
            self._cursor.set_earliest(reply.released)
            self.answered(hold)

        tick = self._cursor.retained_from
        self._pending_refresh = self._host.requests.read(
            self._cursor.pubend,
            "FALSE",
            tick + 1,
            tick,
            log_hold=hold,
            log_hold_tick=tick,
            then=refreshed,
        )

    def _forget_current(self) -> None:
        if self.current is not None and self._asked:
            self.former.append(self.current)
        self.current = None
        self.kept = self._asked = self._stored = False
        if self._pending_refresh is not None:
            self._pending_refresh.cancel()
            self._pending_refresh = None

    def _release_former(self) -> None:
        """Let go what the record no longer names: a pubend does not answer for a hold that is gone."""
        former, self.former = self.former, []
        subscription = self._cursor.subscription
        if former and subscription.durable and subscription.ended:
            self._host.context.write((), lambda: self._let_go(former))  # behind the erasure
        elif former and subscription.durable and subscription.stored:
            self._host.save(subscription, lambda: self._let_go(former))
        else:
            self._let_go(former)

    def _let_go(self, holds: list[LogHoldId]) -> None:
        context = self._host.context
        for hold in holds:
            pending_request = self._host.requests.release_log_hold(
                self._cursor.pubend, hold, _nothing
            )
            # a pubend ends by itself what nobody refreshes
            context.call_later(
                microseconds(s=context.parameters.log_hold_ttl_s), pending_request.cancel
            )


def _nothing() -> None:
    """Nothing depends on this."""
