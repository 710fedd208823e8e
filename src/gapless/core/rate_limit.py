"""A limit on how often something is done: on average once in an interval, in bursts more often.

A single action is never delayed, and the first CHANGE_BURST actions of a row are not either. After that
one action may follow in every interval. A pause restores the burst step by step, one action in every
interval.
"""

from __future__ import annotations

from gapless.core.limits import CHANGE_BURST

__all__ = ["RateLimit"]


class RateLimit:
    """The limit on one kind of action.

    >>> limit = RateLimit(10)
    >>> for _ in range(CHANGE_BURST):
    ...     assert limit.wait(1_000) == 0
    ...     limit.note(1_000)
    >>> limit.wait(1_000), limit.wait(1_004), limit.wait(1_010)
    (10, 6, 0)
    """

    __slots__ = ("_interval_us", "_rested_at")

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._rested_at = 0
        """When the whole burst is allowed again."""

    def wait(self, now: int) -> int:
        """Return how long the next action has to wait."""
        return max(0, self._rested_at - (CHANGE_BURST - 1) * self._interval_us - now)

    def note(self, now: int) -> None:
        """Note that the action is done."""
        self._rested_at = max(self._rested_at, now) + self._interval_us
