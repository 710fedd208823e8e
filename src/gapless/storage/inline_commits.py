"""Decides whether the caller's thread may wait for a commit: if it is small and the disk is fast.

Any disk is slow at times, which cannot be predicted. So the policy limits the time that the caller
loses: the time of slow commits is a *debt*, which passing time pays off. While the debt is small,
the caller waits. A disk that is always slow takes a fiftieth of the caller's time, and the writer
thread makes all other commits.
"""

from __future__ import annotations

from typing import Final

__all__ = ["InlineCommitPolicy"]

SMALL_BYTES: Final = 16_384
"""Writes up to this size take hardly longer than an empty one: a page or two beside those that
always change. The writer thread commits larger ones."""

QUICK_S: Final = 0.001
"""A commit up to this time is no loss: to be woken by a thread would take as long."""

DEBT_MAX_S: Final = 0.05
"""The caller waits while the debt is not above this: a few slow commits, or one very slow one."""

DEBT_FACTOR: Final = 50
"""The time that pays off a debt, as a multiple of the debt."""


class InlineCommitPolicy:
    """Records how long the caller waited, and decides when it may wait again.

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
        """When the debt is paid off."""

    def may_commit_inline(self, size: int, now: float) -> bool:
        """Whether writes of this size are expected to commit quickly."""
        return size <= SMALL_BYTES and self._paid_at - now <= DEBT_FACTOR * DEBT_MAX_S

    def waited(self, started: float, now: float) -> None:
        """Record the time that a commit took."""
        took = now - started
        if took > QUICK_S:
            self._paid_at = max(self._paid_at, now) + DEBT_FACTOR * took
