"""The bytes that all logs of a broker may hold together, and how the logs share them (R58).

Theory of operation. While the sum of all logs is an eighth below ``all_logs_bytes_max``, a log may
have any size up to its own limit. Beyond, the *level* is the size to which the largest logs must
shrink so that the sum is a quarter below. The level is the same for all logs (max-min fair), so a
log below its equal share is never limited because of others. A log above the level releases what
only retention keeps. When the sum reaches the limit, a log above the level counts as full. If
members prevent the release, others may still grow to the level: the sum stays below twice the
limit.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["LogBudget", "SizedLog"]

_STEP: int = 64
"""The level is computed again when the sum has grown by this part of the limit."""


class SizedLog(Protocol):
    """A log that shares a budget."""

    @property
    def bytes(self) -> int:
        """Its size."""

    def exceeds_level(self) -> None:
        """It is too large beside the others, and perhaps idle: it is to be released soon."""


class LogBudget:
    """The sum of the sizes of some logs, and the level above which a log is too large."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """0: no limit."""
        self.bytes = 0
        """The sum of all logs."""
        self._logs: list[SizedLog] = []
        self._level: int | None = None
        self._computed_at = 0
        """The sum when the level was computed."""
        self._notified: int | None = None
        """The level of which the logs above it were notified."""

    def add(self, log: SizedLog) -> None:
        """Add a log, with the size that it has."""
        self._logs.append(log)
        self._level = None
        self.grew(log.bytes)

    def remove(self, log: SizedLog) -> None:
        """Remove a log that is erased."""
        self._logs.remove(log)
        self._level = None
        self.grew(-log.bytes)

    def notify(self) -> None:
        """Notify the logs above a new level: those of idle pubends are reviewed seldom."""
        level, before = self.level, self._notified
        self._notified = level
        if level is None or level == before:
            return
        for log in self._logs:
            if log.bytes > level:
                log.exceeds_level()

    def grew(self, size: int) -> None:
        """Note that a log has grown, or has become smaller."""
        self.bytes += size

    @property
    def level(self) -> int | None:
        """The size above which a log is too large, or None if the logs fit easily."""
        if not self.bytes_max or self.bytes < self.bytes_max - self.bytes_max // 8:
            self._level = None
        elif self._level is None or self.bytes - self._computed_at > self.bytes_max // _STEP:
            self._computed_at = self.bytes
            self._level = _level([each.bytes for each in self._logs], self.goal)
        return self._level

    @property
    def is_exceeded(self) -> bool:
        """Whether the logs have reached the limit together."""
        return bool(self.bytes_max) and self.bytes >= self.bytes_max

    @property
    def goal(self) -> int:
        """The sum down to which logs are released: a quarter below the limit."""
        return self.bytes_max - self.bytes_max // 4


def _level(sizes: list[int], goal: int) -> int:
    """Return the size to which the largest must shrink so that the sum is ``goal``.

    >>> _level([10, 20, 90, 100], 100)
    35
    >>> _level([100, 100], 50)
    25
    """
    left = goal
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return share
        left -= size
    return goal
