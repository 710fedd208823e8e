"""Filter segments: which filter of a subscription applies at which tick of a pubend (R47).

A subscription has a segment for every filter that applies somewhere; the last one is the newest. A
filter change takes effect at a different tick of each pubend. So every cursor keeps the segments
that have ended on its stream with their last ticks, the current segment, and the next one.
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
    """One filter of a subscription. The cursors keep at which ticks it applies."""

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
        new_filter: Filter,
        required_from: VirtualTime | None = None,
        former_host_times: tuple[HostTime, ...] = (),
    ) -> None:
        self.subscription = subscription
        self.number = number
        """Identifies the segment in the subscription table and in the matching index."""
        self.filter = new_filter
        self.text = str(new_filter)
        self.start: VirtualTime | None = None
        """The virtual time from which the stream serves the filter; None if in no table."""
        self.required_from = required_from
        """The virtual time from which a durable subscription must receive the events of the filter,
        also while the client is disconnected; it is stored."""
        self.former_host_times = former_host_times
        """The host times at which former hosting brokers had the filter: the subscription must
        receive events from the earliest of them on (R46)."""
        self._matches: dict[PubendId, tuple[object, bool]] = {}
        """Whether the filter may match a pubend, with the announcement that was tested."""

    def is_served_at(self, time: VirtualTime | None) -> bool:
        """Return whether a stream that serves this SHB up to a virtual time serves the segment."""
        return time is not None and self.start is not None and self.start <= time

    def enter_table(self, start: VirtualTime) -> None:
        """Note that the filter is in the subscription table from a virtual time on."""
        self.start = start
        if self.required_from is None:
            self.required_from = start

    def leave_table(self) -> None:
        """Note that the filter is in no table any more."""
        self.start = None

    def set_former_host_times(self, times: tuple[HostTime, ...]) -> None:
        """Set the host times at which former hosting brokers had the filter."""
        self.former_host_times = times

    def may_match(self, pubend: PubendId, advertisement: Filter, announcement: object) -> bool:
        """Return whether the filter may match advertised events; computed once per announcement."""
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
        """The segment that applies above all segments that have ended."""
        self.next: FilterSegment | None = None
        """The segment that follows the current one."""
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
        """Return the last tick of a segment; None if it has no end, 0 if it is not needed."""
        if segment is self.current or segment is self.next:
            return None
        return next((end for each, end in self.ended if each is segment), 0)

    def uses(self) -> Iterable[FilterSegment | None]:
        """Return all segments that are in use here."""
        return (self.current, self.next, *(segment for segment, _ in self.ended))

    # --- changes -------------------------------------------------------------------------------

    def replace_current(self, segment: FilterSegment) -> None:
        """Let a segment apply from the start on, instead of one that never applied."""
        self.current = segment

    def set_next(self, segment: FilterSegment) -> None:
        """Set the segment that follows the current one."""
        self.next = segment

    def switch(self, end: Tick) -> None:
        """End the current segment at a tick; the next one applies above it."""
        assert self.next is not None
        self.ended.append((self.current, end))
        self.current, self.next = self.next, None
        self.switched_at = end

    def prune(self, passed: Tick) -> None:
        """Forget segments that ended at or below a tick."""
        self.ended = [(segment, end) for segment, end in self.ended if end > passed]

    def add_imported(self, pubend: PubendId, imported: ImportedSegments) -> None:
        """Add the segments that ended at a former hosting broker."""
        for segment, ends in imported:
            end = ends.get(pubend, 0)
            if end > 0:
                self.ended.append((segment, end))
                self.switched_at = end

    def replace_all(
        self, newest: FilterSegment, pubend: PubendId, imported: ImportedSegments
    ) -> None:
        """Replace the segments of this cursor by those of a former hosting broker."""
        self.ended = []
        self.current, self.next, self.switched_at = newest, None, None
        self.add_imported(pubend, imported)

    def restore(self, newest: FilterSegment, pubend: PubendId, stored: StoredSegments) -> None:
        """Restore the ended, current and next segments from the record."""
        for segment, record in stored[:-1]:
            end = dict(record.ends).get(pubend)
            if end is None:
                # the crash came before the switch, which takes place when the client returns
                self.current, self.next = segment, newest
            elif end > 0:
                self.ended.append((segment, end))
                self.switched_at = end
