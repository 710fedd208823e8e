"""One use at a time: what is under way must not be met half done.

Python may run a caller's code almost anywhere: a key's ``__hash__``, a weak reference's callback while
garbage is collected, another thread. An index that is entered again then says so.
"""

from __future__ import annotations

from gapless.core.errors import IndexBusyError

__all__ = ["ReentrancyGuard"]


class ReentrancyGuard:
    """A section that one use at a time may be in."""

    __slots__ = ("_busy",)

    def __init__(self) -> None:
        self._busy = False

    def check(self) -> None:
        """Raise if somebody is inside."""
        if self._busy:
            raise IndexBusyError

    def enter(self) -> None:
        """Go in, or raise if somebody is inside."""
        if self._busy:
            raise IndexBusyError
        self._busy = True

    def leave(self) -> None:
        """Come out again."""
        self._busy = False

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self._busy = False
