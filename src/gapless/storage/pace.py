"""Whether a commit may be waited for in the caller's thread: while it is small and the disk is fast."""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

SMALL_BYTES: Final = 16_384
"""Writes up to here take hardly longer than an empty one: a page or two beside those that always
change. What is larger is written while the caller does something else."""

QUICK_S: Final = 0.001
"""While commits mostly take less than this, the caller waits for them."""

SMOOTHING: Final = 8
"""About so many commits say how long one mostly takes: a single late one on a busy machine does not,
unless it is very late."""

DISTRUST: Final = 50
"""So many times as long as a slow one took, the caller does not wait again. So a disk that is slow,
or that stalls now and then, takes a fiftieth of the caller's time."""


class Pace:
    """Knows how long the caller had to wait, and when it may wait again.

    >>> pace = Pace()
    >>> pace.is_quick(300, now=10.0)
    True
    >>> pace.waited(10.0, 10.25)
    >>> pace.is_quick(300, now=22.0), pace.is_quick(300, now=23.0)
    (False, True)
    """

    __slots__ = ("_again", "_mostly")

    def __init__(self) -> None:
        self._mostly = 0.0
        self._again = 0.0
        """When the caller may wait again, until it has; 0 if it may anyway."""

    def is_quick(self, size: int, now: float) -> bool:
        """Say whether writes of so many bytes will be quick, as far as that can be known."""
        return size <= SMALL_BYTES and now >= self._again

    def waited(self, began: float, now: float) -> None:
        """Note how long a commit took."""
        took = now - began
        if self._again:
            self._mostly, self._again = took, 0.0
        else:
            self._mostly += (took - self._mostly) / SMOOTHING
        if self._mostly > QUICK_S:
            self._again = now + DISTRUST * took
