"""Batches of changes: the first after a pause are sent at once, later ones at intervals (R15, R18).

A change waits until the rate of batches allows the next. So a lone change does not wait, and a
thousand changes make few messages. A change always waits for the rest of its step.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.core.rate_limit import RateLimit

__all__ = ["ChangeBatch"]


class ChangeBatch:
    """Decides when the changes of a table are sent together."""

    def __init__(self, context: Context, interval_ms: int, send: Callable[[], None]) -> None:
        self._context = context
        self._rate = RateLimit(microseconds(ms=interval_ms))
        self._send = send
        self._is_due = False
        """Whether a timer for the next batch runs."""

    def plan(self) -> None:
        """Send the changes when the rate allows it, at the earliest after this step."""
        if not self._is_due:
            self._is_due = True
            self._context.call_later(max(1, self._rate.wait(self._context.now)), self._due)

    def _due(self) -> None:
        self._is_due = False
        self._rate.note(self._context.now)
        self._send()
