"""When a pubend is reviewed: soon after news, and seldom while nothing happens.

A review updates the states of members, releases the log and requests overdue acknowledgements. All of
that follows from reports, from events, or from long times. So a pubend is reviewed ``ack_ms`` after
a report that changes a member or may let it release its log. After events, and after a start, it is
reviewed every ``ack_ms`` until their acknowledgements are overdue, and while they are (R57).
Otherwise it is reviewed half as often as it declares silence (R30).
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.core.context import Context
from gapless.core.parameters import microseconds

__all__ = ["ReviewTimer"]


class ReviewTimer:
    """The timer for the reviews of one pubend."""

    def __init__(self, context: Context, review: Callable[[], None]) -> None:
        parameters = context.parameters
        self._context = context
        self._review = review
        self._short_us = microseconds(ms=parameters.ack_ms)
        self._long_us = max(self._short_us, 2 * parameters.idle_us)
        self._overdue_us = microseconds(ms=parameters.aet_ms) + 2 * self._short_us
        self._busy_until = context.now + self._overdue_us
        self._has_news = False
        self._timer = context.call_later(self._short_us, self._review)

    def stop(self) -> None:
        """Review no more."""
        self._timer.cancel()
        self._has_news = True  # news do not set the timer again

    def note_events(self) -> None:
        """Review often until the acknowledgements of new events are overdue."""
        self._busy_until = self._context.now + self._overdue_us
        self.note_news()

    def note_news(self) -> None:
        """Review soon, once."""
        if self._has_news:
            return
        self._has_news = True
        if self._timer.at > self._context.now + self._short_us:
            self._timer.cancel()
            self._timer = self._context.call_about(self._short_us, self._review)

    def plan(self, *, often: bool) -> None:
        """Wait for the next review."""
        is_busy = often or self._context.now < self._busy_until
        self._has_news = False
        wait_us = self._short_us if is_busy else self._long_us
        self._timer = self._context.call_about(wait_us, self._review)
