"""The periodic work of the subscriber side.

Every ``ack_ms`` it ends expired and slow subscriptions, stores acknowledgements, sends reports
(R52) and maintains log holds. It raises a log hold as the client acknowledges, refreshes it before
``log_hold_ttl_s``, and releases it when reports keep the log for its cursor (R49). Every quarter of
``interest_grace_s`` it leaves pubends that no subscription needs (R43).
"""

from __future__ import annotations

from gapless.core.context import Context
from gapless.core.parameters import microseconds
from gapless.subscribers.registry import Registry
from gapless.subscribers.subends import Subends

__all__ = ["Maintenance"]


class Maintenance:
    """The timers of the subscriber side."""

    def __init__(self, context: Context, subends: Subends, registry: Registry) -> None:
        self._context = context
        self._subends = subends
        self._registry = registry
        self._refreshed_at = context.now

    def start(self) -> None:
        """Set the timers."""
        self._plan_review()
        self._plan_report()

    def _plan_review(self) -> None:
        grace = microseconds(s=self._context.parameters.interest_grace_s)
        self._context.call_later(max(1, grace // 4), self._review)

    def _review(self) -> None:
        self._plan_review()
        self._subends.review(self._registry.needs_best_effort)

    def _plan_report(self) -> None:
        pause = microseconds(ms=self._context.parameters.ack_ms)
        self._context.call_later(pause, self._report)

    def _report(self) -> None:
        self._plan_report()
        self._registry.expire()
        self._registry.slow_consumers.review()
        self._registry.save_acknowledgements()
        ttl = microseconds(s=self._context.parameters.log_hold_ttl_s)
        due = self._context.now - self._refreshed_at > ttl // 4
        now, reporter = self._context.now, self._subends.reporter
        everything = reporter.has_new_time()
        for subend in self._subends.guaranteed.values():
            reports = subend.reports
            if everything or reports.has_news or now >= reports.repeat_at:
                reporter.review(subend)
            if subend.sealed_at is not None:
                self._subends.review_end(subend)
            if subend.groups.holding:
                for cursor in subend.groups.with_log_hold():
                    if not cursor.is_pending:
                        cursor.log_holds.refresh(due=due)
        if due:
            self._refreshed_at = self._context.now
