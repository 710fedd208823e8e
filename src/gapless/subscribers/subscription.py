"""A subscription of this SHB: its filters, its cursors, its client, and its record.

A subscription that is not durable ends with its client. A durable subscription remains without one,
and takes effect when its record is on disk (R46). Its parts: :mod:`.cursor_set` has its cursors,
:mod:`.delivery` and :mod:`.merge` send its events, :mod:`.reply` answers its client,
:mod:`.filter_change` changes its filter, :mod:`.start_guarantee` keeps from which host times it
must receive pubends created later, :mod:`.stalls` and :mod:`.progress` notify its client of streams
without events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gapless.content.filter import Filter
from gapless.core.context import Timer
from gapless.core.ids import PubendId, VirtualTime
from gapless.core.parameters import microseconds
from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.clients import HostingReference, HostTime, Order, PastFilter, StartPoint
from gapless.messages.records import PutRecord, SubscriptionRecord
from gapless.subscribers.closed_notices import ClosedNotices
from gapless.subscribers.cursor_set import CursorSet
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.delivery import ClientDelivery
from gapless.subscribers.filter_change import FilterChanges
from gapless.subscribers.filter_segments import FilterSegment, ImportedSegments, StoredSegments
from gapless.subscribers.merge import Merge
from gapless.subscribers.progress import ProgressNotifier
from gapless.subscribers.record import acked_elsewhere, imported_segments, record_of
from gapless.subscribers.reply import SubscribeReply
from gapless.subscribers.resources import Resources
from gapless.subscribers.stalls import StallNotifier
from gapless.subscribers.start_guarantee import SubscriptionGuarantees

__all__ = ["HostedSubscription"]


class HostedSubscription:
    """One subscription of this SHB, with a client or, if it is durable, without one."""

    def __init__(
        self,
        resources: Resources,
        name: str,
        *,
        durable: bool,
        order: Order,
        start: StartPoint,
        expiry_s: int,
        incarnation_key: str = "",
        epoch: int = 0,
    ) -> None:
        self.resources = resources
        self.name = name
        self.durable = durable
        self.order = order
        self.start = start
        """The start on pubends on which the subscription has no cursor yet."""
        self.expiry_s = expiry_s
        self.incarnation_key = incarnation_key
        """Identifies a durable subscription at all its hosting brokers."""
        self.epoch = epoch
        """Grows with every attempt to change the hosting broker."""
        self.client: str | None = None
        self.segments: list[FilterSegment] = []
        """Segments that apply at some tick of some pubend, oldest first; the last is the newest."""
        self.imported_segments: ImportedSegments = []
        """Filters that ended at a former hosting broker, until the cursors have taken them over."""
        self.acked_elsewhere: dict[PubendId, Tick] = {}
        """Ticks acknowledged at a former hosting broker, of pubends without a start here."""
        self.seek_count = 0
        """How often an operator has moved the subscription."""
        self.stored = not durable
        """Whether the record is on disk; always true if the subscription is not durable."""
        self.ended = False
        self.disconnected_since = resources.context.now
        self._context = resources.context
        self._filters = resources.filters
        self._mark_dirty = resources.step_end.mark
        self._is_changed = False
        """Whether the state differs from the record."""
        self._returning = 0
        """Counts pending writes of a return to this broker. The client is answered after them."""
        self._interest_grace: Timer | None = None
        self.guarantees = SubscriptionGuarantees(
            self, self._context.identity.shb, resources.subends.memberships.unannounced
        )
        self.cursor_set = CursorSet(self)
        self.cursors = self.cursor_set.by_pubend
        self.reply = SubscribeReply(self)
        self.changes = FilterChanges(self)
        self.merge = Merge(self)
        self.delivery = ClientDelivery(self)
        self.stalls = StallNotifier(self)
        self.progress = ProgressNotifier(self)
        self.closed_notices = ClosedNotices(self)

    @property
    def hosting_reference(self) -> HostingReference | None:
        """The reference that the client of a durable subscription presents when it resumes."""
        broker = self._context.identity.broker
        return HostingReference(self.incarnation_key, self.epoch, broker) if self.durable else None

    @property
    def newest(self) -> FilterSegment:
        """The segment with the newest filter."""
        return self.segments[-1]

    @property
    def merged(self) -> Tick:
        """In total order: the tick of the last event that was sent."""
        return self.merge.merged

    @property
    def is_on_disk(self) -> bool:
        """Whether the record of a durable subscription, and its return here if any, are on disk."""
        return self.stored and not self._returning

    def mark_dirty(self) -> None:
        """Review the subscription when the step ends."""
        self._mark_dirty(self)

    def step_ended(self) -> None:
        """Send the results of a step."""
        self.reply.send_if_ready()
        self.delivery.send_available()
        if self.stalls.noted:
            self.stalls.review()
        if self.closed_notices.noted:
            self.closed_notices.review()
        self.changes.finish()

    def notify(self, notice: Any) -> None:
        """Send a notice to the client."""
        assert self.client is not None
        self._context.notify(self.client, notice)

    # --- the client ----------------------------------------------------------------------------

    def connect(
        self,
        client: str,
        request: int,
        credit: int,
        start: StartPoint,
        *,
        seek_count: int,
        exactly: bool,
    ) -> None:
        """Connect a client, and continue from its position (R50)."""
        self.client = client
        self.delivery.connect(credit)
        self._stop_interest_grace()
        self._filters.own(self.newest)
        self.reply.expect(request, start, seek_count)
        if self.stored:
            # a crash may have happened after the record was stored and before its cursors existed
            self.cursor_set.update_all()
        self.cursor_set.resume(start, seek_count, exactly=exactly)
        self.mark_dirty()

    def disconnect(self) -> None:
        """Disconnect the client; the durable subscription remains (R50)."""
        self.forget_client()
        self.disconnected_since = self._context.now
        self.cursor_set.disconnect()
        self.review_segments()
        self.note_change()
        self.start_interest_grace()

    def forget_client(self) -> None:
        """Forget the client and the state of its connection."""
        client = self.client
        self.reply.forget_client()
        self.changes.forget_client(client)
        self.merge.stop()
        self.client = None
        self.delivery.forget_client()
        self.stalls.forget_client()
        self.closed_notices.forget_client()
        self.progress.forget_client()

    def start_interest_grace(self) -> None:
        """Keep the filter of a disconnected client in the tables for a while (R17)."""
        delay = microseconds(s=self._context.parameters.interest_grace_s)
        self._interest_grace = self._context.call_later(delay, self._interest_grace_over)

    def _interest_grace_over(self) -> None:
        self._interest_grace = None
        if self.client is None and not self.ended:
            self._filters.disown(self.newest)

    def _stop_interest_grace(self) -> None:
        if self._interest_grace is not None:
            self._interest_grace.cancel()
            self._interest_grace = None

    def end(self) -> None:
        """End the subscription for good. The caller deletes or replaces the record."""
        self.forget_client()
        self.changes.refuse_all(f"the subscription {self.name!r} has ended")
        self.ended = True
        self._stop_interest_grace()
        for cursor in [*self.cursors.values()]:
            self.cursor_set.drop(cursor)
        for segment in self.segments:
            self._filters.disown(segment)

    # --- filters -------------------------------------------------------------------------------

    def add_segment(
        self,
        new_filter: Filter,
        *,
        required_from: VirtualTime | None = None,
        former_host_times: tuple[HostTime, ...] = (),
    ) -> FilterSegment:
        """Add a segment with a filter, the newest from now on; it is in no table yet."""
        number = self._filters.new_number()
        segment = FilterSegment(self, number, new_filter, required_from, former_host_times)
        self.segments.append(segment)
        return segment

    def ends_of(self, segment: FilterSegment) -> list[tuple[PubendId, Tick]]:
        """Return the last tick of a filter on each pubend where it has ended."""
        ends = [
            end
            for each, positions in self.imported_segments
            if each is segment
            for end in positions.items()
        ]
        for pubend, cursor in self.cursors.items():
            if isinstance(cursor.start, Started):
                end = cursor.segments.end_of(segment)
                if end is not None:
                    ends.append((pubend, end))
        return ends

    @property
    def past_filters(self) -> tuple[PastFilter, ...]:
        """The filters before the newest that apply to some tick, and the ticks at which they end."""
        return tuple(
            PastFilter(segment.text, tuple(ends))
            for segment in self.segments[:-1]
            if (ends := [end for end in self.ends_of(segment) if end[1] > 0])
        )

    def review_segments(self) -> None:
        """Forget segments that no cursor needs any more (R17)."""
        cursors = self.cursors.values()
        for cursor in cursors:
            cursor.filter_switch.prune()
        for segment in self.segments[:-1]:
            if not any(each.is_live and each.segments.current is segment for each in cursors):
                self._filters.disown(segment)
        used = {id(segment) for each in cursors for segment in each.segments.uses()}
        used |= {id(segment) for segment, _ in self.imported_segments}
        newest = self.newest
        self.segments = [each for each in self.segments if each is newest or id(each) in used]

    def forget_start(self) -> None:
        """Start with the latest on pubends without a cursor: the filter was changed."""
        self.start = StartPoint()

    def forget_position(self, pubend: PubendId) -> None:
        """Forget the requested position on a closed pubend, of which the client knows the end."""
        if any(each == pubend for each, _ in self.start.position):
            rest = tuple(each for each in self.start.position if each[0] != pubend)
            self.start = replace(self.start, position=rest)

    # --- moves ---------------------------------------------------------------------------------

    def import_state(
        self, seek_count: int, segments: ImportedSegments, acked: dict[PubendId, Tick]
    ) -> None:
        """Take over the resume state of a client, before the first cursor is created."""
        self.seek_count = seek_count
        self.imported_segments = segments
        self.acked_elsewhere = acked

    def import_segments(self, segments: ImportedSegments) -> None:
        """Take over which filters ended at a former hosting broker."""
        self.imported_segments = segments

    def forget_imported(self) -> None:
        """The cursors have taken over which filters ended at a former hosting broker."""
        self.imported_segments = []

    def return_here(self, epoch: int, seek_count: int) -> None:
        """The subscription moved away and has returned. This is stored before its client is
        answered.

        After a crash before the write the client presents its resume state again.
        """

        def returned() -> None:
            self._returning -= 1
            self.mark_dirty()

        self.seek_count = max(self.seek_count, seek_count)
        self.epoch = epoch
        self._returning += 1
        self.save(returned)

    def raise_epoch(self, epoch: int) -> None:
        """Raise the epoch to the one that other brokers know; a crash may have lost it here."""
        self.epoch = max(self.epoch, epoch)
        self.note_change()

    def note_seek(self) -> int:
        """An operator moves the subscription. Return the number of the seek."""
        self.merge.reset(0)
        self.seek_count += 1
        return self.seek_count

    # --- the record ----------------------------------------------------------------------------

    def note_change(self) -> None:
        """Note that the state differs from the record, which is written at the next maintenance."""
        self._is_changed = True

    def save(self, then: Callable[[], None]) -> None:
        """Write the record; call ``then`` when it is durable."""
        saving = {pubend: cursor.saving() for pubend, cursor in self.cursors.items()}

        def saved() -> None:
            self.stored = True
            for pubend, state in saving.items():
                cursor = self.cursors.get(pubend)
                if cursor is not None:
                    cursor.saved(state)
            if self.closed_notices.noted:
                self.mark_dirty()  # the client may have acknowledged the end of a pubend
            then()

        self._context.write((PutRecord(record_of(self)),), saved)

    def created(self) -> None:
        """The first record is on disk: the subscription takes effect (R46)."""
        if self.ended:
            return
        self.cursor_set.update_all()
        pending = self.reply.pending
        if pending is not None:
            # the client's position may be above or below what it has acknowledged
            self.cursor_set.resume(pending.start, pending.seek_count, exactly=True)
        self.mark_dirty()

    def save_changes(self) -> None:
        """Write the record of a durable subscription if the state differs from it."""
        if not self.durable or not self.stored:
            return
        lag = self._context.parameters.aet_ms * TICKS_PER_MS
        for cursor in self.cursors.values():
            self._is_changed |= cursor.start.acked - cursor.start.acked_stored > lag
            self._is_changed |= cursor.ending.is_ack_unsaved
        if self._is_changed:
            self._is_changed = False
            self.save(self.review_segments)

    def restore(self, record: SubscriptionRecord) -> None:
        """Restore the subscription from its record, without a client."""
        self.stored = True
        self.merge.reset(record.merged)
        self.seek_count = record.seek_count
        stored: StoredSegments = []
        for each in record.segments:
            segment = self.add_segment(
                Filter(each.filter), required_from=each.time, former_host_times=each.since
            )
            stored.append((segment, each))
        self._filters.own(self.newest)
        self.guarantees.restore(record)
        self.imported_segments = imported_segments(record, stored)
        self.acked_elsewhere = acked_elsewhere(record)
        self.cursor_set.restore(record, stored)
        self.review_segments()  # the record may have segments that no longer apply

    def needed_logs(self) -> dict[PubendId, Tick]:
        """Return, for each pubend kept by reports, the tick above which its log is needed."""
        needed = {pubend: each.retention.needed for pubend, each in self.cursors.items()}
        return {pubend: tick for pubend, tick in needed.items() if tick is not None}
