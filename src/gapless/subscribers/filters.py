"""The filters of all subscriptions: matching index, subscription table, advertisements (R16, R17).

One index over all segments finds the subscriptions that a publication matches. The cursor decides
which segment of its subscription applies at a tick.
"""

from __future__ import annotations

from gapless.content.filter import EVERYTHING, Filter
from gapless.content.matching import MatchIndex
from gapless.content.matching.work import MatchWork
from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.limits import ROOTS_READ_MAX
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.matching import PublicationMatcher
from gapless.subscribers.protocols import Interest

__all__ = ["AnnouncedPubend", "Filters"]


class AnnouncedPubend:
    """The announcement of a pubend. Every new announcement creates a new object."""

    __slots__ = ("advertisement", "best_effort", "version")

    def __init__(self, advertisement: Filter, version: int, *, best_effort: bool) -> None:
        self.advertisement = advertisement
        self.version = version
        self.best_effort = best_effort


class Filters:
    """The filters of the subscriptions of this SHB, and the advertisements of pubends."""

    def __init__(self, context: Context, interest: Interest) -> None:
        self._context = context
        self.interest = interest
        self.segments: dict[int, FilterSegment] = {}
        """The segments in the table and the index, by number."""
        self.announced_pubends: dict[PubendId, AnnouncedPubend] = {}
        self.match_work = MatchWork()
        """The allowance of each step for matching."""
        self._index = MatchIndex(work=self.match_work)
        self.matcher = PublicationMatcher(context, self._index, self.match_work)
        self._last_number = 0

    def new_number(self) -> int:
        """Return a number that no segment, subend or log hold of this incarnation has."""
        self._last_number += 1
        return self._last_number

    # --- the table and the index ---------------------------------------------------------------

    def own(self, segment: FilterSegment) -> None:
        """Add a segment to the table and the index (R16)."""
        if segment.start is None:
            segment.enter_table(self.interest.own(segment.number, segment.filter.conjunctions))
            self._index.add(segment.number, segment.filter)
            self.segments[segment.number] = segment

    def disown(self, segment: FilterSegment) -> None:
        """Remove a segment from the table and the index (R17)."""
        if segment.start is not None:
            segment.leave_table()
            self.interest.disown(segment.number)
            self._index.remove(segment.number)
            del self.segments[segment.number]

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all segments in the table."""
        roots = self.interest.roots
        return str(Filter.of(roots)) if len(roots) <= ROOTS_READ_MAX else "TRUE"

    # --- advertisements ------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, advertisement: Filter, version: int, *, best_effort: bool
    ) -> None:
        """Note the announcement of a pubend."""
        self.announced_pubends[pubend] = AnnouncedPubend(
            advertisement, version, best_effort=best_effort
        )

    def pubend_ended(self, pubend: PubendId) -> None:
        """A pubend is a tombstone: no subscription gets a cursor on it any more."""
        self.announced_pubends.pop(pubend, None)

    def served_at(self, pubend: PubendId, version: int) -> None:
        """A stream epoch of a pubend has an announcement version that may not be known here yet.

        If it is not known, the pubend is treated as if it advertised everything. Otherwise a report
        could release events that a subscription needs by the wider advertisement (A22).
        """
        announced = self.announced_pubends.get(pubend)
        if announced is not None and announced.version < version:
            self._context.mark("advertisement wider than announced")
            self.announced(pubend, EVERYTHING, version, best_effort=announced.best_effort)

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Return whether a pubend is announced as best effort."""
        announced = self.announced_pubends.get(pubend)
        return announced is not None and announced.best_effort

    def may_match(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Return whether a segment may match events of a pubend."""
        announced = self.announced_pubends.get(pubend)
        if announced is None:
            return True  # without an announcement the advertisement is unknown
        return segment.may_match(pubend, announced.advertisement, announced)

    def may_start(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Return whether a segment may match events of an announced pubend with a log."""
        best_effort = self.announced_pubends[pubend].best_effort
        return not best_effort and self.may_match(pubend, segment)
