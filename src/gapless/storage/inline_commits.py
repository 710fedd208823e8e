"""Whether a commit may be waited for in the caller's thread: while it is small and the disk is fast.

Now and then any disk is late, and nobody can know it before. So what counts is how much of its time
the caller loses: what late commits take is a *debt*, and is paid off by the time that passes. While the
debt is small the caller waits; a disk that is always slow takes a fiftieth of the caller's time, and
all else is written by a thread.
"""

from __future__ import annotations

from typing import Final

__all__ = ["InlineCommitPolicy"]

SMALL_BYTES: Final = 16_384
"""Writes up to here take hardly longer than an empty one: a page or two beside those that always
change. What is larger is written while the caller does something else."""

QUICK_S: Final = 0.001
"""A commit that takes no longer is no loss: to be woken by a thread would take as long."""

DEBT_MAX_S: Final = 0.05
"""While the debt is not above this, the caller waits: a few late commits, or one that is very late."""

DEBT_FACTOR: Final = 50
"""So many times as long as a debt it takes to pay it off."""


class InlineCommitPolicy:
    """Knows how long the caller had to wait, and when it may wait again.

    >>> pace = InlineCommitPolicy()
    >>> pace.may_commit_inline(300, now=10.0)
    True
    >>> pace.waited(10.0, 10.25)
    >>> pace.may_commit_inline(300, now=20.0), pace.may_commit_inline(300, now=21.0)
    (False, True)
    """

    __slots__ = ("_paid_at",)

    def __init__(self) -> None:
        self._paid_at = 0.0
        """When all debts are paid off."""

    def may_commit_inline(self, size: int, now: float) -> bool:
        """Say whether writes of so many bytes will be quick, as far as that can be known."""
        return size <= SMALL_BYTES and self._paid_at - now <= DEBT_FACTOR * DEBT_MAX_S

    def waited(self, started: float, now: float) -> None:
        """Note how long a commit took."""
        took = now - started
        if took > QUICK_S:
            self._paid_at = max(self._paid_at, now) + DEBT_FACTOR * took
