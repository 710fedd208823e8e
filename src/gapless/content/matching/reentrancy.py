"""A guard against use of an index during an operation on it.

Python may run a caller's code almost anywhere: a key's ``__hash__``, a weak reference's callback
during garbage collection, another thread. An index that is used again then raises IndexBusyError.
"""

from __future__ import annotations

from gapless.core.errors import IndexBusyError

__all__ = ["ReentrancyGuard"]


class ReentrancyGuard:
    """A section that only one operation may enter at a time."""

    __slots__ = ("_busy",)

    def __init__(self) -> None:
        self._busy = False

    def check(self) -> None:
        """Raise IndexBusyError if an operation is in the section."""
        if self._busy:
            raise IndexBusyError

    def enter(self) -> None:
        """Enter the section; IndexBusyError if an operation is in it."""
        if self._busy:
            raise IndexBusyError
        self._busy = True

    def leave(self) -> None:
        """Leave the section."""
        self._busy = False

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self._busy = False
