"""Durable subscriptions whose records are corrupt (P8).

The name of such a subscription is in use: it is not served and not created anew over the record.
The disk may be repaired while the broker is stopped. An operator may also end the subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gapless.core.context import Context
from gapless.messages.records import DeleteRecord, SubscriptionRecord

__all__ = ["CorruptSubscriptions"]


class CorruptSubscriptions:
    """The durable subscriptions that could not be restored, and why."""

    def __init__(self, context: Context, problems: Mapping[str, str]) -> None:
        self._context = context
        self._problems = dict(problems)

    @property
    def names(self) -> Collection[str]:
        """Their names."""
        return self._problems.keys()

    def refusal(self, name: str) -> str | None:
        """Return why nothing can be done with a subscription; None if its record is not corrupt."""
        problem = self._problems.get(name)
        if problem is None:
            return None
        return f"the subscription {name} could not be restored: {problem}"

    def remove(self, name: str, then: Callable[[], None]) -> None:
        """Delete a corrupt record."""
        self._context.mark("corrupt subscription removed")
        del self._problems[name]
        self._context.write((DeleteRecord(SubscriptionRecord.key_of(name)),), then)
