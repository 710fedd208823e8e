"""The filters of all subscriptions: the matching index, the subscription table, the advertisements (R16, R17).

One index over all segments finds the subscriptions that a publication matches. Which segment of a
subscription applies at a tick is known to its cursor.
"""

from __future__ import annotations

from gapless.content.filter import EVERYTHING, Filter
from gapless.content.matching import MatchIndex
from gapless.core.ids import PubendId
from gapless.core.limits import ROOTS_READ_MAX
from gapless.core.machine import Context
from gapless.messages.streams import Publication
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.protocols import Interest

__all__ = ["AnnouncedPubend", "Filters"]


class AnnouncedPubend:
    """A pubend that is announced. Every announcement makes a new one."""

    __slots__ = ("advertisement", "best_effort", "version")

    def __init__(self, advertisement: Filter, version: int, *, best_effort: bool) -> None:
        self.advertisement = advertisement
        self.version = version
        self.best_effort = best_effort


class Filters:
    """The filters of the subscriptions of this SHB, and what pubends advertise."""

    def __init__(self, context: Context, interest: Interest) -> None:
        self._context = context
        self.interest = interest
        self.segments: dict[int, FilterSegment] = {}
        """The segments in the table and the index, by number."""
        self.announced_pubends: dict[PubendId, AnnouncedPubend] = {}
        self._index = MatchIndex()
        self._last_number = 0

    def new_number(self) -> int:
        """Return a number that no segment, subend or log hold of this incarnation has."""
        self._last_number += 1
        return self._last_number

    # --- the table and the index ---------------------------------------------------------------

    def own(self, segment: FilterSegment) -> None:
        """Put a segment into the table and the index (R16)."""
        if segment.start is None:
            segment.enter_table(self.interest.own(segment.number, segment.filter.conjunctions))
            self._index.add(segment.number, segment.filter)
            self.segments[segment.number] = segment

    def disown(self, segment: FilterSegment) -> None:
        """Take a segment out of the table and the index (R17)."""
        if segment.start is not None:
            segment.leave_table()
            self.interest.disown(segment.number)
            self._index.remove(segment.number)
            del self.segments[segment.number]

    def matching(
        self, publications: tuple[Publication, ...]
    ) -> list[tuple[int, list[Publication]]]:
        """Return by number of a segment, oldest first, the publications that it matches."""
        attributes = [each.attributes for each in publications]
        return sorted(self._index.distribute(attributes, publications).items())

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all segments in the table."""
        roots = self.interest.roots
        return str(Filter.of(roots)) if len(roots) <= ROOTS_READ_MAX else "TRUE"

    # --- advertisements ------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, advertisement: Filter, version: int, *, best_effort: bool
    ) -> None:
        """Note what a pubend advertises."""
        self.announced_pubends[pubend] = AnnouncedPubend(
            advertisement, version, best_effort=best_effort
        )

    def served_at(self, pubend: PubendId, version: int) -> None:
        """A stream epoch of a pubend names an announcement version, perhaps one that is not known here.

        Then the advertisement may be anything. Otherwise a report could release events that a
        subscription needs by the wider advertisement (A22).
        """
        announced = self.announced_pubends.get(pubend)
        if announced is not None and announced.version < version:
            self._context.mark("wider than announced")
            self.announced(pubend, EVERYTHING, version, best_effort=announced.best_effort)

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Say whether a pubend is announced as best effort."""
        announced = self.announced_pubends.get(pubend)
        return announced is not None and announced.best_effort

    def may_match(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Say whether a segment may match something of a pubend."""
        announced = self.announced_pubends.get(pubend)
        if announced is None:
            return True  # nothing is known of a pubend that is not announced
        return segment.may_match(pubend, announced.advertisement, announced)

    def may_start(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Say whether a segment may match something of an announced pubend that has a log."""
        best_effort = self.announced_pubends[pubend].best_effort
        return not best_effort and self.may_match(pubend, segment)
