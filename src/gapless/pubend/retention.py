"""How long a pubend keeps its log, and when it requests acknowledgements (R56 to R58).

The log is kept for ``retention_s``, and above the least ack floor of members, log holds and known
hosts. A log near its limit releases what only ``retention_s`` keeps. It does not release what
members need: publications are refused until the lagging members have acknowledged or given up the
ticks (R58).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import PubendRecord, PutRecord
from gapless.pubend.known_hosts import KnownHosts
from gapless.pubend.log_size import LogSize
from gapless.pubend.members import Members
from gapless.pubend.overdue import OverdueAcks
from gapless.pubend.protocols import AckRequests, ClockView
from gapless.pubend.publishers import Publishers
from gapless.pubend.stream_end import StreamEnd

__all__ = ["Retention", "last_released_event"]

RELEASES: Final = 64
"""In so many parts a log of ``retention_s`` is released."""


class Retention:
    """Releases one log."""

    def __init__(
        self,
        context: Context,
        end: StreamEnd,
        publishers: Publishers,
        size: LogSize,
        members: Members,
        known_hosts: KnownHosts,
        acks: AckRequests,
        clocks: ClockView,
    ) -> None:
        self._context = context
        self._end = end
        self._publishers = publishers
        self._size = size
        self._members = members
        self._known_hosts = known_hosts
        self._acks = acks
        self._clocks = clocks
        self._overdue = OverdueAcks(context.parameters, context.now, end.top)
        self.is_held = False
        """Whether members, log holds or known hosts keep what could otherwise be released."""

    def expect_acks(self) -> bool:
        """Request the acknowledgements of lagging members, also when the log is full (R57, R58).

        Returns whether events are overdue, or the log is near its limit.
        """
        pubend, now = self._end.record.pubend, self._context.now
        if self._size.is_full:
            tick = self._size.tick_to_fit()
            if self._members.blocks_release(tick) and self._overdue.may_request(now, pressure=True):
                self._acks.request_acks(pubend, tick, pressure=True)
        tick = self._overdue.observe(now, self._end.top)
        if self._members.lagging(tick) and self._overdue.may_request(now, pressure=False):
            self._acks.request_acks(pubend, tick, pressure=False)
        events = min(tick, self._publishers.logged[0])
        return self._size.is_tight or self._members.lagging(events)

    def release(self, trimmed: Callable[[], None]) -> None:
        """Release the part of the log that is no longer needed (R56)."""
        end = self._end
        floors = [self._members.ack_floor(), self._known_hosts.floor(self._context.now)]
        floor = min((each for each in floors if each is not None), default=end.top)
        retention_s = self._context.parameters.retention_s
        retained_from = self._clocks.clock_view() - microseconds(s=retention_s)
        if self._size.is_tight:
            retained_from = max(retained_from, self._size.tick_to_fit(easily=True))
        up_to = min(end.top, retained_from, floor)
        self.is_held = floor < min(end.top, retained_from)
        # the retention time passes all the time, and each release is a write
        by_time = up_to == retained_from and not self._size.is_tight
        step_us = microseconds(s=retention_s) // RELEASES if by_time else 0
        if up_to <= end.latest.released + step_us:
            return
        rows = [PutRecord(row) for row in self._members.rows()]
        last_released = last_released_event(end.latest, self._publishers.logged[0], up_to)
        end.release(up_to, last_released, rows, lambda: self._size.release(up_to), trimmed)


def last_released_event(record: PubendRecord, last_logged: Tick, up_to: Tick) -> Tick:
    """Return the last released tick that may have held an event after a release up to a tick.

    Silence is released with the clock too. A subscription that has received every event must not
    get a gap because of that.
    """
    last_event = max(last_logged, record.last_event)
    return record.last_released_event if last_event <= record.released else min(last_event, up_to)
