"""Batches of changes: the first after a pause is sent at once, later ones at intervals (R15, R18).

A change waits until an interval has passed since the last batch. So a lone change does not wait, and
a thousand changes in a row make few messages. A change made by the handling of one message waits
for the rest of that step in any case.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.context import Context
from gapless.core.parameters import microseconds

__all__ = ["ChangeBatch"]


class ChangeBatch:
    """Decides when changes that were noted are sent together."""

    def __init__(self, context: Context, interval_ms: int, send: Callable[[], None]) -> None:
        self._context = context
        self._interval_us = microseconds(ms=interval_ms)
        self._send = send
        self._next_at = 0
        """When an interval has passed since the last batch."""
        self._is_due = False

    def plan(self) -> None:
        """Send the changes when the interval has passed, or after this step if it has."""
        if not self._is_due:
            self._is_due = True
            self._context.call_later(max(1, self._next_at - self._context.now), self._due)

    def _due(self) -> None:
        self._is_due = False
        self._next_at = self._context.now + self._interval_us
        self._send()
