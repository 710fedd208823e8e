"""When acknowledgements are overdue, and how often they are requested (GD 3.2; R57)."""

from __future__ import annotations

from collections import deque

from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick

__all__ = ["OverdueAcks"]


class OverdueAcks:
    """The tops of a stream in the last ``aet_ms``: the oldest should be acknowledged by now.

    The time at which a tick was sent decides, not its value: ticks jump when a stream starts and
    when the clock does. After a restart all ticks count as sent just now, so that members can
    return first.
    """

    def __init__(self, parameters: Parameters, now: int, top: Tick) -> None:
        self._timeout_us = microseconds(ms=parameters.aet_ms)
        # longer than the routers' interval: with jitter they would drop every second request
        self._interval_us = microseconds(ms=parameters.aet_ms) // 2 + microseconds(
            ms=parameters.ack_ms
        )
        self._tops = deque([(now, top)])
        self._requested_at: dict[bool, int] = {}

    def observe(self, now: int, top: Tick) -> Tick:
        """Note the top of the stream; return the tick up to which acknowledgements are overdue."""
        tops = self._tops
        tops.append((now, top))
        oldest = now - self._timeout_us
        while len(tops) > 1 and tops[1][0] <= oldest:
            tops.popleft()
        return tops[0][1] if tops[0][0] <= oldest else 0

    def may_request(self, now: int, *, pressure: bool) -> bool:
        """Return whether a request may be sent now, and if so note it as sent."""
        requested_at = self._requested_at.get(pressure)
        if requested_at is not None and now - requested_at < self._interval_us:
            return False
        self._requested_at[pressure] = now
        return True
