"""The reports of this SHB to pubends: its membership and its ack floor (R52).

The ack floor is the least of the horizon and the ticks that the cursors still need. An
acknowledgement of a durable subscription is stored before a report uses it. Its client also
acknowledges silence (:mod:`.progress`); otherwise a subscription without events would keep a log
for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import AckReport, DefineMemberSet, Member
from gapless.subscribers.protocols import Interest
from gapless.subscribers.report_state import SentReport
from gapless.subscribers.subend import Subend

__all__ = ["AckReporter"]


class AckReporter:
    """The reports of this SHB."""

    def __init__(self, context: Context, interest: Interest) -> None:
        self._context = context
        self._interest = interest
        self._time = interest.time
        self._ending: list[dict[PubendId, Tick]] = []
        """The ticks that ended durable subscriptions need while their records are still on disk."""

    def review(self, subend: Subend) -> None:
        """Report what is new, or repeat the last report if its pause is over."""
        subend.reports.note_computed()
        sent = subend.reports.last
        if sent is not None and self._context.now < subend.reports.repeat_at:
            new = (subend.feeder, self._member(subend), self.ack_floor(subend))
            if new == sent[:3]:
                return
        self.report(subend)

    def has_new_time(self) -> bool:
        """Return whether the virtual time has grown since the last call: all reports are new."""
        before, self._time = self._time, self._interest.time
        return before != self._time

    def report(self, subend: Subend) -> None:
        """Send the membership of this SHB and its ack floor for a pubend."""
        feeder = subend.feeder
        if feeder is None:
            return
        tick, member = self.ack_floor(subend), self._member(subend)
        pause_us = self._pause_us(subend, (feeder, member, tick))
        repeat_at = self._context.now + pause_us
        subend.reports.note_sent(SentReport(feeder, member, tick, pause_us, repeat_at))
        # negative, so that it differs from the numbers of the router at the same broker
        number = -subend.number
        self._context.send(feeder, DefineMemberSet(number, (member,)))
        self._context.send(feeder, AckReport(number, ((subend.pubend, tick),)))

    def _member(self, subend: Subend) -> Member:
        durable = any(cursor.subscription.durable for cursor in subend.cursors.values())
        return Member(self._context.identity.shb, subend.membership, durable, self._interest.time)

    def _pause_us(self, subend: Subend, new: tuple[BrokerId, Member, Tick]) -> int:
        """Return when to repeat a report if nothing changes.

        What is new is repeated soon, because it may be lost. That everything is acknowledged is new
        with every silence of an idle stream, and is repeated with the next one.
        """
        parameters, sent = self._context.parameters, subend.reports.last
        shortest = microseconds(ms=parameters.ack_ms)
        longest = max(shortest, parameters.idle_us)
        if sent is None or sent[:2] != new[:2]:
            return shortest
        if sent.tick == new[2]:
            return min(2 * sent.pause_us, longest)
        return longest if new[2] == subend.horizon else shortest

    def ack_floor(self, subend: Subend) -> Tick:
        """Return the tick of a stream up to which this SHB needs nothing."""
        floor = subend.horizon
        for needed_by in self._ending:
            floor = min(floor, needed_by.get(subend.pubend, floor))
        for cursor in subend.cursors.values():
            if cursor.is_up_to_date:
                continue  # the usual case, among thousands of cursors
            floor = cursor.retention.limit_report(floor)
        return floor

    def retain(self, needed: dict[PubendId, Tick]) -> Callable[[], None]:
        """Keep logs for a subscription that ends. Return a function that stops keeping them."""
        self._ending.append(needed)

        def let_go() -> None:
            self._ending = [each for each in self._ending if each is not needed]

        return let_go
