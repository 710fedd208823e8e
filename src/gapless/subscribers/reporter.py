"""What a subscriber host reports to pubends: that it wants them, and up to where no more (R52).

The tick of a report is the least of the horizon and of what the strands still need. What a durable
subscription needs no more is on disk before a report says so. Its client also acknowledges that nothing
came (:mod:`.progress`), or a quiet subscription would keep a log for ever.

Holds are looked after here too: raised as clients acknowledge, refreshed so that the pubend knows
they are wanted, and released when reports keep the log for their strands (R49).
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.streams import AckReport, DefineMemberSet, Member
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.subend import Subend

__all__ = ["AckReporter"]


class AckReporter:
    """The reports of one subscriber host."""

    def __init__(self, host: SubscriberHost, expire: Callable[[], None]) -> None:
        self._host = host
        self._context: Context = host.context
        self._expire = expire
        host.report = self.report
        self._refreshed_at = self._context.now
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._tick)

    def _tick(self) -> None:
        parameters = self._context.parameters
        self._context.call_later(microseconds(ms=parameters.ack_ms), self._tick)
        self._expire()
        self._host.end_slow_subscriptions()
        self.save_acknowledgements()
        due = (
            self._context.now - self._refreshed_at > microseconds(s=parameters.log_hold_ttl_s) // 4
        )
        for subend in self._host.subends.values():
            self.report(subend)
            for cursor in subend.cursors.values():
                if cursor.log_holds.current is not None and cursor.phase is not CursorPhase.PENDING:
                    cursor.log_holds.refresh(due=due)
        if due:
            self._refreshed_at = self._context.now

    def report(self, subend: Subend) -> None:
        """Say that this host wants a pubend, and up to where it needs it no more."""
        if subend.feeder is None:
            return
        tick = self._ack_floor(subend)
        subend.reported = max(tick, subend.reported or 0)
        durable = any(cursor.subscription.durable for cursor in subend.cursors.values())
        identity = self._context.identity
        member = Member(identity.shb, subend.membership, durable, self._host.leaf.time)
        # negative, so that it is no number of the router of the same broker
        number = -subend.number
        self._context.send(subend.feeder, DefineMemberSet(number, (member,)))
        self._context.send(subend.feeder, AckReport(number, ((subend.pubend, tick),)))

    def _ack_floor(self, subend: Subend) -> Tick:
        floor = subend.horizon or 0
        for needed_by in self._host.ending:
            floor = min(floor, needed_by.get(subend.pubend, floor))
        for cursor in subend.cursors.values():
            if cursor.is_up_to_date:
                continue  # as are nearly all, and there may be thousands
            awaited = cursor.report_limit
            if awaited is not None and awaited < floor:
                floor = awaited
        return floor

    def save_acknowledgements(self) -> None:
        """Put on disk how far clients have acknowledged, where that has changed."""
        lag = self._context.parameters.aet_ms * TICKS_PER_MS
        for subscription in self._host.subscriptions.values():
            if not subscription.durable or not subscription.stored:
                continue
            for cursor in subscription.cursors.values():
                subscription.dirty |= cursor.acked - cursor.acked_stored > lag
            if subscription.dirty:
                subscription.dirty = False
                self._host.save(subscription, subscription.review_segments)
