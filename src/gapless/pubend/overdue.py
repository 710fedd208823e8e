"""When the acknowledgement of ticks is overdue, and how often it is asked for (GD 3.2; R57)."""

from __future__ import annotations

from collections import deque

from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick

__all__ = ["OverdueAcks"]


class OverdueAcks:
    """How far a stream had come so long ago that it should be acknowledged by now.

    It goes by the time of telling, not by the value of ticks: these leap when a stream begins, and
    with the clock. After a restart all counts as told just now, so that members can return first.
    """

    def __init__(self, parameters: Parameters, now: int, top: Tick) -> None:
        self._patience_us = microseconds(ms=parameters.aet_ms)
        # more rarely than routers let it pass, or their jitter would swallow every second one
        self._interval_us = microseconds(ms=parameters.aet_ms) // 2 + microseconds(
            ms=parameters.ack_ms
        )
        self._tops = deque([(now, top)])
        self._asked: dict[bool, int] = {}

    def observe(self, now: int, top: Tick) -> Tick:
        """Note how far the stream has come; return up to where acknowledgement is overdue."""
        tops = self._tops
        tops.append((now, top))
        oldest = now - self._patience_us
        while len(tops) > 1 and tops[1][0] <= oldest:
            tops.popleft()
        return tops[0][1] if tops[0][0] <= oldest else 0

    def may_ask(self, now: int, *, pressure: bool) -> bool:
        """Say whether to ask now, without or with pressure; then it counts as asked."""
        asked = self._asked.get(pressure)
        if asked is not None and now - asked < self._interval_us:
            return False
        self._asked[pressure] = now
        return True
