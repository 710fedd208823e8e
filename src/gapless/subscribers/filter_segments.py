"""Filter segments: which filter of a subscription applies at which tick of a pubend (R47).

A subscription has a segment for every filter that applies somewhere; the last one is the newest. On each
pubend a change of filter takes effect at a tick of its own. So every cursor knows which segments have
ended on its stream, and the last tick of each, which one applies above them, and which one is to follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from gapless.content.filter import Filter
from gapless.core.ids import PubendId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime
from gapless.messages.records import FilterSegmentRecord
from gapless.subscribers.cursor_state import FOREVER

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["FilterSegment", "FilterSegments", "ImportedSegments", "StoredSegments"]


class FilterSegment:
    """One filter of a subscription. The cursors know where it applies."""

    __slots__ = (
        "_matches",
        "filter",
        "former_host_times",
        "number",
        "required_from",
        "start",
        "subscription",
        "text",
    )

    def __init__(
        self,
        subscription: HostedSubscription,
        number: int,
        wanted: Filter,
        required_from: VirtualTime | None = None,
        former_host_times: tuple[HostTime, ...] = (),
    ) -> None:
        self.subscription = subscription
        self.number = number
        """Names it as an owner in the subscription table and as a key in the matching index."""
        self.filter = wanted
        self.text = str(wanted)
        self.start: VirtualTime | None = None
        """The virtual time from which the live stream serves it; None while it is in no table."""
        self.required_from = required_from
        """The virtual time from which a durable subscription must get its events, also while the client
        is disconnected; it is stored."""
        self.former_host_times = former_host_times
        """When former hosting brokers had it: the subscription must get events from then on too (R46)."""
        self._matches: dict[PubendId, tuple[object, bool]] = {}
        """Whether it may match something of a pubend, with the announcement that this was asked of."""

    def is_served_at(self, time: VirtualTime | None) -> bool:
        """Say whether a stream that serves this SHB up to a virtual time serves the segment."""
        return time is not None and self.start is not None and self.start <= time

    def enter_table(self, start: VirtualTime) -> None:
        """Note that it is in the subscription table, from a virtual time on."""
        self.start = start
        if self.required_from is None:
            self.required_from = start

    def leave_table(self) -> None:
        """Note that it is in no table any more."""
        self.start = None

    def set_former_host_times(self, times: tuple[HostTime, ...]) -> None:
        """Note when former hosting brokers had it."""
        self.former_host_times = times

    def may_match(self, pubend: PubendId, advertisement: Filter, announcement: object) -> bool:
        """Say whether it may match something that is advertised; found out once for an announcement."""
        known = self._matches.get(pubend)
        if known is not None and known[0] is announcement:
            return known[1]
        found = advertisement.intersects(self.filter)
        self._matches[pubend] = (announcement, found)
        return found


ImportedSegments: TypeAlias = list[tuple[FilterSegment, dict[PubendId, Tick]]]
"""Segments that ended at a former hosting broker, each with its last tick on every pubend."""

StoredSegments: TypeAlias = list[tuple[FilterSegment, FilterSegmentRecord]]
"""The segments of a subscription and their records, oldest first."""


class FilterSegments:
    """Which segment applies at which tick of one pubend."""

    __slots__ = ("current", "ended", "next", "switched_at")

    def __init__(self, segment: FilterSegment) -> None:
        self.current = segment
        """Applies above all that have ended."""
        self.next: FilterSegment | None = None
        """Waits to follow the current one."""
        self.ended: list[tuple[FilterSegment, Tick]] = []
        """Segments that have ended, each with the last tick at which it applies, oldest first."""
        self.switched_at: Tick | None = None
        """The last tick of the segment before the current one; None if there was none."""

    def at(self, tick: Tick) -> tuple[FilterSegment, Tick]:
        """Return the segment that applies at a tick, and the last tick at which it does."""
        for segment, end in self.ended:
            if tick <= end:
                return segment, end
        return self.current, FOREVER

    def above(self, tick: Tick) -> list[FilterSegment]:
        """Return the segments that apply somewhere above a tick, the next one included."""
        found = [segment for segment, end in self.ended if end > tick]
        return found + ([self.current] if self.next is None else [self.current, self.next])

    def end_of(self, segment: FilterSegment) -> Tick | None:
        """Return the last tick of a segment; None if it applies without end, 0 if it is not needed."""
        if segment is self.current or segment is self.next:
            return None
        return next((end for each, end in self.ended if each is segment), 0)

    def uses(self) -> Iterable[FilterSegment | None]:
        """Return all segments that it refers to."""
        return (self.current, self.next, *(segment for segment, _ in self.ended))

    # --- changes -------------------------------------------------------------------------------

    def replace_current(self, segment: FilterSegment) -> None:
        """Let a segment apply from the start on: the one before it never did."""
        self.current = segment

    def set_next(self, segment: FilterSegment) -> None:
        """Let a segment wait to follow the current one."""
        self.next = segment

    def switch(self, end: Tick) -> None:
        """Let the current segment end after a tick, and the next one apply above it."""
        assert self.next is not None
        self.ended.append((self.current, end))
        self.current, self.next = self.next, None
        self.switched_at = end

    def prune(self, passed: Tick) -> None:
        """Forget segments that ended at or below a tick."""
        self.ended = [(segment, end) for segment, end in self.ended if end > passed]

    def add_imported(self, pubend: PubendId, imported: ImportedSegments) -> None:
        """Take over which segments ended at a former hosting broker."""
        for segment, ends in imported:
            end = ends.get(pubend, 0)
            if end > 0:
                self.ended.append((segment, end))
                self.switched_at = end

    def replace_all(
        self, newest: FilterSegment, pubend: PubendId, imported: ImportedSegments
    ) -> None:
        """Let the segments of a former hosting broker apply in the place of those here."""
        self.ended = []
        self.current, self.next, self.switched_at = newest, None, None
        self.add_imported(pubend, imported)

    def restore(self, newest: FilterSegment, pubend: PubendId, stored: StoredSegments) -> None:
        """Take over which segments have ended, and which one applies, from the record."""
        for segment, record in stored[:-1]:
            end = dict(record.ends).get(pubend)
            if end is None:
                # the crash came before the next segment applied; it does when the client is back
                self.current, self.next = segment, newest
            elif end > 0:
                self.ended.append((segment, end))
                self.switched_at = end
