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
from gapless.core.parameters import us
from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.streams import Member, Report, SetDefine
from gapless.subscribers.cursor_state import State
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.subend import Subend

__all__ = ["Reporting"]


class Reporting:
    """The reports of one subscriber host."""

    def __init__(self, host: SubscriberHost, expire: Callable[[], None]) -> None:
        self._host = host
        self._context: Context = host.context
        self._expire = expire
        host.report = self.report
        self._refreshed_at = self._context.now
        self._context.after(us(ms=self._context.parameters.ack_ms), self._tick)

    def _tick(self) -> None:
        parameters = self._context.parameters
        self._context.after(us(ms=parameters.ack_ms), self._tick)
        self._expire()
        self._host.review_behind()
        self.save_acknowledgements()
        due = self._context.now - self._refreshed_at > us(s=parameters.hold_ttl_s) // 4
        for subend in self._host.subends.values():
            self.report(subend)
            for strand in subend.strands.values():
                if strand.holding.current is not None and strand.state is not State.WAITING:
                    strand.holding.look_after(due=due)
        if due:
            self._refreshed_at = self._context.now

    def report(self, subend: Subend) -> None:
        """Say that this host wants a pubend, and up to where it needs it no more."""
        if subend.feeder is None:
            return
        tick = self._floor(subend)
        subend.reported = max(tick, subend.reported or 0)
        durable = any(strand.subscription.durable for strand in subend.strands.values())
        identity = self._context.identity
        member = Member(identity.shb, subend.join, durable, self._host.leaf.time)
        # negative, so that it is no number of the router of the same broker
        number = -subend.number
        self._context.post(subend.feeder, SetDefine(number, (member,)))
        self._context.post(subend.feeder, Report(number, ((subend.pubend, tick),)))

    def _floor(self, subend: Subend) -> Tick:
        floor = subend.horizon or 0
        for needed_by in self._host.ending:
            floor = min(floor, needed_by.get(subend.pubend, floor))
        for strand in subend.strands.values():
            if strand.is_up_to_date:
                continue  # as are nearly all, and there may be thousands
            awaited = strand.waited_for
            if awaited is not None and awaited < floor:
                floor = awaited
        return floor

    def save_acknowledgements(self) -> None:
        """Put on disk how far clients have acknowledged, where that has changed."""
        lag = self._context.parameters.aet_ms * TICKS_PER_MS
        for subscription in self._host.subscriptions.values():
            if not subscription.durable or not subscription.stored:
                continue
            for strand in subscription.strands.values():
                subscription.dirty |= strand.acked - strand.acked_stored > lag
            if subscription.dirty:
                subscription.dirty = False
                self._host.save(subscription, subscription.review_segments)
