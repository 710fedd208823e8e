"""Exponential back-off with jitter: the waits between connection attempts."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Self

import msgspec

from gapless.core.errors import UsageError
from gapless.core.limits import OPTION_MAX

__all__ = ["Backoff", "BackoffWaits"]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the waits before a connection is tried again.

    The bound of a wait doubles from ``first_s`` to ``longest_s``. A wait is drawn between half of
    its bound and the whole, so that many clients of a broker do not all return at once.

    >>> waits = Backoff(first_s=0.1, longest_s=0.4).waits(lambda: 1.0)
    >>> [next(waits) for _ in range(4)]
    [0.1, 0.2, 0.4, 0.4]
    """

    first_s: float = 0.05
    longest_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse bounds that are not positive or do not grow."""
        bounds: tuple[object, ...] = (self.first_s, self.longest_s)
        are_numbers = all(isinstance(each, Real) and not isinstance(each, bool) for each in bounds)
        if not are_numbers or not 0 < self.first_s <= self.longest_s <= OPTION_MAX:
            raise UsageError(
                f"the back-off is invalid: choose 0 < first_s <= longest_s <= {OPTION_MAX:,}"
            )

    def waits(self, draw: Callable[[], float]) -> BackoffWaits:
        """Return the waits of one dialler; ``draw`` gives random numbers from 0 to 1."""
        return BackoffWaits(self, draw)


class BackoffWaits:
    """The successive waits of one dialler, in seconds."""

    def __init__(self, backoff: Backoff, draw: Callable[[], float]) -> None:
        self._backoff = backoff
        self._draw = draw
        self._bound_s = backoff.first_s

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> float:
        bound_s = self._bound_s
        self._bound_s = min(2 * bound_s, self._backoff.longest_s)
        return bound_s * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Start again with the first wait, because an attempt succeeded."""
        self._bound_s = self._backoff.first_s

    def lasted(self, seconds: float) -> None:
        """Reset if a connection lasted long enough. One that ends at once counts as a failure.

        >>> waits = Backoff(first_s=0.1, longest_s=0.4).waits(lambda: 1.0)
        >>> found = []
        >>> for seconds in (0.0, 0.0, 60.0, 0.0):
        ...     waits.lasted(seconds)
        ...     found.append(next(waits))
        >>> found
        [0.1, 0.2, 0.1, 0.2]
        """
        if seconds > self._backoff.longest_s:
            self.reset()
