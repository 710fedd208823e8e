"""What this SHB reports to pubends: that it is a member, and up to which tick it needs nothing (R52).

The tick of a report is the least of the horizon and of what the cursors still need. What a durable
subscription does not need any more is stored before a report says so. Its client also acknowledges
that nothing came (:mod:`.progress`); otherwise a quiet subscription would keep a log for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.ids import PubendId
from gapless.core.machine import Context
from gapless.core.ticks import Tick
from gapless.messages.streams import AckReport, DefineMemberSet, Member
from gapless.subscribers.protocols import Interest
from gapless.subscribers.subend import Subend

__all__ = ["AckReporter"]


class AckReporter:
    """The reports of this SHB."""

    def __init__(self, context: Context, interest: Interest) -> None:
        self._context = context
        self._interest = interest
        self._ending: list[dict[PubendId, Tick]] = []
        """What durable subscriptions need that have ended and whose records are on disk."""

    def report(self, subend: Subend) -> None:
        """Say that this SHB is a member of a pubend, and up to which tick it needs nothing."""
        feeder = subend.feeder
        if feeder is None:
            return
        tick = self._ack_floor(subend)
        subend.note_reported(tick)
        durable = any(cursor.subscription.durable for cursor in subend.cursors.values())
        member = Member(self._context.identity.shb, subend.membership, durable, self._interest.time)
        # negative, so that it is no number of the router of the same broker
        number = -subend.number
        self._context.send(feeder, DefineMemberSet(number, (member,)))
        self._context.send(feeder, AckReport(number, ((subend.pubend, tick),)))

    def _ack_floor(self, subend: Subend) -> Tick:
        floor = subend.horizon
        for needed_by in self._ending:
            floor = min(floor, needed_by.get(subend.pubend, floor))
        for cursor in subend.cursors.values():
            if cursor.is_up_to_date:
                continue  # as are nearly all, and there may be thousands
            limit = cursor.retention.report_limit
            if limit is not None and limit < floor:
                floor = limit
        return floor

    def retain(self, needed: dict[PubendId, Tick]) -> Callable[[], None]:
        """Keep logs for a subscription that ends; return what stops that."""
        self._ending.append(needed)

        def let_go() -> None:
            self._ending = [each for each in self._ending if each is not needed]

        return let_go
