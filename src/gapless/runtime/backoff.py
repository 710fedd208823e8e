"""How long to wait before the next attempt: longer after each failure, and never in step."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["DialBackoff"]


class DialBackoff:
    """Waits that double up to a bound, each shortened by chance.

    The chance keeps brokers that lost the same peer from coming back all at once.

    >>> backoff = DialBackoff(0.1, 0.4, draw=lambda: 1.0)
    >>> [backoff.next_s() for _ in range(4)]
    [0.1, 0.2, 0.4, 0.4]
    >>> backoff.reset()
    >>> backoff.next_s()
    0.1
    """

    def __init__(
        self, min_s: float, max_s: float, draw: Callable[[], float] = random.random
    ) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._draw = draw
        self._wait_s = min_s

    def next_s(self) -> float:
        """Return the seconds to wait now: between half of the present bound and all of it."""
        wait_s = self._wait_s
        self._wait_s = min(self._max_s, 2 * wait_s)
        return wait_s * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Begin anew: an attempt went well."""
        self._wait_s = self._min_s

    def lasted(self, seconds: float) -> None:
        """An attempt went well for so long. What ends at once is as good as a failure.

        >>> backoff = DialBackoff(0.1, 0.4, draw=lambda: 1.0)
        >>> waits = []
        >>> for seconds in (0.0, 0.0, 60.0, 0.0):
        ...     backoff.lasted(seconds)
        ...     waits.append(backoff.next_s())
        >>> waits
        [0.1, 0.2, 0.1, 0.2]
        """
        if seconds > self._max_s:
            self.reset()
