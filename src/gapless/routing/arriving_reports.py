"""Ack reports that peers have sent, taken in parts: a step takes a bounded number.

A report of a thousand members for a thousand pubends is a million reports. They may arrive late and
twice, so those beyond the limit of a step wait for later steps, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import REPORTS_PER_STEP_MAX, REPORTS_WAITING_MAX
from gapless.core.ticks import Tick
from gapless.messages.streams import Member

__all__ = ["ArrivingReports"]

Acknowledged: TypeAlias = tuple[tuple[PubendId, Tick], ...]


class _Arrival:
    """What is left of one message."""

    def __init__(
        self, peer: BrokerId, members: tuple[Member, ...], acknowledged: Acknowledged
    ) -> None:
        self.peer = peer
        self.size = len(members) * len(acknowledged)
        self.reports: Iterator[tuple[PubendId, Member, Tick]] = (
            (pubend, member, tick) for pubend, tick in acknowledged for member in members
        )


class ArrivingReports:
    """The reports that were not taken yet."""

    def __init__(
        self, context: Context, take: Callable[[BrokerId, PubendId, Member, Tick], None]
    ) -> None:
        self._context = context
        self._take = take
        self._arrivals: deque[_Arrival] = deque()
        self._waiting = 0
        """How many reports wait, about: a message counts until all of it is taken."""
        self._left = REPORTS_PER_STEP_MAX
        self._step = -1
        self._is_planned = False
        """Whether another step will take more."""

    def add(self, peer: BrokerId, members: tuple[Member, ...], acknowledged: Acknowledged) -> None:
        """Take the reports of a message, as far as this step may."""
        arrival = _Arrival(peer, members, acknowledged)
        if self._waiting + arrival.size > REPORTS_WAITING_MAX:
            self._context.mark("reports dropped")
            return
        self._arrivals.append(arrival)
        self._waiting += arrival.size
        if not self._is_planned:
            self._take_some()

    def forget(self, peer: BrokerId) -> None:
        """Forget what a peer has sent in a session that is over."""
        self._arrivals = deque(each for each in self._arrivals if each.peer != peer)
        self._waiting = sum(each.size for each in self._arrivals)

    def _take_some(self) -> None:
        if self._step != self._context.steps:
            self._step, self._left = self._context.steps, REPORTS_PER_STEP_MAX
        while self._arrivals and self._left > 0:
            arrival = self._arrivals[0]
            report = next(arrival.reports, None)
            if report is None:
                self._arrivals.popleft()
                self._waiting -= arrival.size
                continue
            self._left -= 1
            pubend, member, tick = report
            self._take(arrival.peer, pubend, member, tick)
        if self._arrivals:
            self._is_planned = True
            self._context.write((), self._continue)

    def _continue(self) -> None:
        self._is_planned = False
        self._take_some()
