"""The work of matching that Python does: counted, and limited for each step of a broker.

Most conditions of filters are compared by an engine, in nanoseconds. The *check* of a slot (patterns,
ranges of texts, derived terms) takes microseconds, and in a long text a fraction of a millisecond.
So a row of events and a few thousand such filters take seconds.

Theory of operation. :class:`MatchWork` has an *allowance* in units of about a microsecond. Each check
that is evaluated takes its cost from it; the check that takes the last of it stops the search with
:class:`WorkSpentError`. The caller may search the same event again, with a new allowance. Checks that
were evaluated for this event then give their result again, for nothing, so that each search
continues where the one before stopped. A check that was added meanwhile is evaluated as any other.
"""

from __future__ import annotations

from typing import Final, Protocol

from gapless.content.conjunction import Conjunction
from gapless.content.values import Attributes

__all__ = ["UNLIMITED_WORK", "Check", "MatchWork", "WorkSpentError"]

UNLIMITED_WORK: Final = 2**62
"""An allowance that no search exceeds."""

_CALL: Final = 4
"""The work of one check, whatever it compares."""

_CHARACTERS: Final = 4
"""Characters of patterns and terms that take one unit of work."""

_TEXT: Final = 16_384
"""Characters of a text whose search takes as long as all of a check in a short text."""


class Check(Protocol):
    """What an engine evaluates for a slot that its ranges do not exclude."""

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an event with these attributes matches."""


class WorkSpentError(Exception):
    """The allowance was spent before a search was complete."""


class MatchWork:
    """The allowance of the searches of one index."""

    __slots__ = ("_attributes", "allowance", "checks", "event_number")

    def __init__(self) -> None:
        self.allowance = UNLIMITED_WORK
        """The work that searches may still do."""
        self.checks = 0
        """How many slots of the index have a check."""
        self.event_number = 0
        """Counts events, so that a check knows whether it was evaluated for the current one."""
        self._attributes: Attributes | None = None

    def begin(self, attributes: Attributes) -> None:
        """Search an event. The same attributes as before continue the last search."""
        if self._attributes is not attributes:
            self._attributes = attributes
            self.event_number += 1

    def renew(self, allowance: int) -> None:
        """Set the allowance."""
        self.allowance = allowance

    def spend(self, units: int) -> None:
        """Take from the allowance; raise WorkSpentError if it is spent."""
        self.allowance -= units
        if self.allowance <= 0:
            raise WorkSpentError

    def counted(self, check: Check) -> Check:
        """Return a check that takes its cost from the allowance, for a slot of the index."""
        assert isinstance(check, Conjunction), "a plan has the conditions of a conjunction"
        self.checks += 1
        return _CountedCheck(check, self)

    def removed(self) -> None:
        """A slot with a check was removed."""
        self.checks -= 1


class _CountedCheck:
    """A check that counts its work and keeps its result for the current event."""

    __slots__ = ("_check", "_cost", "_event_number", "_result", "_searched", "_work")

    def __init__(self, check: Conjunction, work: MatchWork) -> None:
        self._check = check
        self._work = work
        self._cost = work_of(check)
        self._searched = tuple(name for name, allowed in check.constraints if allowed.patterns)
        self._event_number = -1
        self._result = False

    def matches(self, attributes: Attributes) -> bool:
        work = self._work
        if self._event_number == work.event_number:
            return self._result
        self._result = self._check.matches(attributes)
        self._event_number = work.event_number
        characters = 0
        for name in self._searched:
            text = attributes.get(name)
            if isinstance(text, str):
                characters += len(text)
        work.spend(self._cost * (1 + characters // _TEXT))
        return self._result


def work_of(check: Conjunction) -> int:
    """Return the work of a check in a short text.

    >>> from gapless.content.filter import Filter
    >>> [work_of(each) for each in Filter("a LIKE '%b_c%' OR a + b > 1").conjunctions]
    [5, 5]
    """
    patterns = sum(
        len(pattern) for _, allowed in check.constraints for pattern, _ in allowed.patterns
    )
    terms = sum(len(str(term)) for term, _ in check.residuals)
    return _CALL + (patterns + terms) // _CHARACTERS
