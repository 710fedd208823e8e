"""Matches publications with the filters of an SHB, as many as one step may.

Filters whose conditions are compared in Python may take milliseconds for one publication
(:mod:`gapless.content.matching.work`). Publications that do not fit into the allowance of a step
wait for later steps, in order: while one stream waits, all others wait behind it. The stream that was
stopped continues first, so a publication that needs several steps is not begun again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.content.matching import MatchIndex
from gapless.content.matching.work import MatchWork, WorkSpentError
from gapless.core.context import Context
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.stream.ranges import cut

__all__ = ["Matches", "PublicationMatcher"]

Matches: TypeAlias = list[tuple[int, list[Publication]]]
"""The publications that each segment matches, by segment number, oldest segment first."""


class PublicationMatcher:
    """Matches publications of all streams of an SHB, and divides the work over steps."""

    def __init__(self, context: Context, index: MatchIndex, work: MatchWork) -> None:
        self._context = context
        self._index = index
        self._work = work
        self._waiting: dict[Callable[[], None], None] = {}
        """What continues in the next step, in order."""
        self._last: Publication | None = None
        """The publication that was matched last."""
        self._matched: tuple[tuple[Publication, ...], Matches] = ((), [])
        """The publications of the last call that were matched, and the result."""

    def part(self, knowledge: KnowledgeRange, then: Callable[[], None]) -> KnowledgeRange | None:
        """Return the first part of a range whose publications are matched in this step, or None.

        If it is not the whole range, ``then`` is called in a later step.
        """
        publications = knowledge.publications
        count = self.count(publications, then)
        if count == len(publications):
            return knowledge
        high = publications[count].tick - 1
        return cut(knowledge, knowledge.low, high) if high >= knowledge.low else None

    def count(self, publications: tuple[Publication, ...], then: Callable[[], None]) -> int:
        """Match the first of some publications; return how many. :meth:`take` has the result."""
        if not self._work.checks and not self._waiting:
            return len(publications)
        found: dict[int, list[Publication]] = {}
        count = 0
        if not self._waiting:
            for publication in publications:
                if not self._match(publication, found):
                    break
                count += 1
        if count < len(publications):
            self._wait(then)
        self._matched = publications[:count], sorted(found.items())
        return count

    def _match(self, publication: Publication, found: dict[int, list[Publication]]) -> bool:
        """Match a publication; return whether the allowance was enough."""
        if self._work.allowance <= 0:
            return False
        last = self._last
        if last is None or last != publication:  # one that is read again continues the search
            last = self._last = publication
        try:
            numbers = self._index.match(last.attributes)
        except WorkSpentError:
            return False
        for number in numbers:
            found.setdefault(number, []).append(publication)
        return True

    def take(self, publications: tuple[Publication, ...]) -> Matches:
        """Return the matches of publications; those of the last call are matched already."""
        matched, self._matched = self._matched, ((), [])
        if publications and publications == matched[0]:
            return matched[1]
        assert not self._work.checks, "publications are counted before they are taken"
        attributes = [each.attributes for each in publications]
        return sorted(self._index.distribute(attributes, publications).items())

    def _wait(self, then: Callable[[], None]) -> None:
        if not self._waiting:
            self._context.mark("match divided over steps")
            self._context.write((), self._continue)
        self._waiting[then] = None

    def _continue(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for then in waiting:
            then()
