"""A subscription: its filters, its strands, and what it sends to its client.

The client gives credit for events; what it has no credit for waits in the strands' buffers, which
are bounded. In publisher order each strand is sent as it comes. In total order the strands are
merged by (tick, pubend) up to the least frontier of all that have begun: nothing can come below
that any more (R51).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gapless.content.filter import Filter
from gapless.core.ids import PubendId, VirtualTime
from gapless.core.machine import Timer
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    FilterChanged,
    FilterSet,
    Gap,
    HostingReference,
    HostTime,
    Order,
    PastFilter,
    PendingStart,
    PositionTuple,
    RefusalCause,
    Refused,
    StartGuarantees,
    StartPoint,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.messages.records import FilterSegmentRecord, SubscriptionRecord
from gapless.messages.streams import Publication
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import FOREVER, CursorPhase
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.progress import ProgressNotifier
from gapless.subscribers.runs import DeliveryRuns
from gapless.subscribers.stalls import StallNotifier
from gapless.subscribers.start_guarantee import StartGuarantee, guarantees_message

if TYPE_CHECKING:
    from gapless.subscribers.host import SubscriberHost

__all__ = ["ConfirmedFilter", "FilterChange", "HostedSubscription", "PendingReply"]


class PendingReply(msgspec.Struct):
    """A call that returns when all strands that can have begun."""

    request: int
    start: StartPoint
    """Where the client that asked goes on."""
    seek_count: int
    timer: Timer | None = None
    later: list[Callable[[], None]] = []
    """What the client asked since, which is done when this is answered."""
    is_due: bool = False
    """Whether it is given as soon as the subscription is on disk, begun or not."""


class ConfirmedFilter(NamedTuple):
    """A filter that a client was told of, and since which virtual time it was wanted."""

    filter: Filter
    time: VirtualTime
    former_host_times: tuple[HostTime, ...] = ()
    """When it was wanted where the subscription lived before."""


class FilterChange(msgspec.Struct):
    """A filter change that is not through on all strands."""

    request: int
    requester: str
    """Its client, or an operator."""
    segment: FilterSegment
    stored: bool
    """Whether the new filter is on disk, where that matters."""
    repeated: bool
    """Whether the filter was there already, from a change before."""
    timer: Timer | None = None


class HostedSubscription:
    """One subscription of a host, with a client or, if it is durable, without one."""

    def __init__(
        self,
        host: SubscriberHost,
        name: str,
        *,
        durable: bool,
        order: Order,
        start: StartPoint,
        expiry_s: int,
    ) -> None:
        self.host = host
        self.name = name
        self.durable = durable
        self.order = order
        self.start = start
        self.expiry_s = expiry_s
        self.incarnation_key = ""
        """Of a durable one: which it is, wherever it moves."""
        self.epoch = 0
        """How often it has moved."""
        self.client: str | None = None
        self.credit = 0
        self.segments: list[FilterSegment] = []
        """Those that govern some tick of some strand, oldest first; the last is the newest."""
        self.imported_segments: list[tuple[FilterSegment, dict[PubendId, Tick]]] = []
        """Filters that had ended where it lived before, and up to where each governs: until it has
        strands, which know that themselves."""
        self.acked_elsewhere: dict[PubendId, Tick] = {}
        """What was acknowledged where it lived before, of streams that it has not begun on here."""
        self.cursors: dict[PubendId, Cursor] = {}
        self.pending_reply: PendingReply | None = None
        self.change: FilterChange | None = None
        self.changes: deque[tuple[str, int, Filter]] = deque()
        """Filter changes that wait for the one before: who asked, and under which number."""
        self.seek_count = 0
        """How often an operator has moved it."""
        self.stored = not durable
        """Whether it is on disk, where that matters."""
        self.returning = 0
        """Counts writes under way that it is here again: its client brings along what it knows until it is
        answered, and no longer."""
        self.confirmed_filter: ConfirmedFilter | None = None
        """What its client was told of its filter; None before it is told that the subscription has begun.
        The newest may be another: an operator's, or one whose answer was on its way in a crash."""
        self.previous_confirmed_filter: ConfirmedFilter | None = None
        """What its client had been told when the life before this one ended; None if it is younger."""
        self.guarantees: dict[PubendId, StartGuarantee] = {}
        """Pubends that it has not begun on and that were made later than it, each with the virtual time of the
        filter that its client knew of when this host heard of the pubend, or before that elsewhere; and
        those of which its client has brought along that they were not (R46)."""
        self.ended = False
        self.dirty = False
        """Whether its record lags behind."""
        self.disconnected_since = 0
        self.merged: Tick = 0
        """In total order: the tick of the last event that was sent."""
        self.interest_grace: Timer | None = None
        self.best_effort: deque[tuple[PubendId, Publication]] = deque()
        """Events without guarantee that wait for credit."""
        self.stalls = StallNotifier(self)
        self.progress = ProgressNotifier(self)
        self._advance_timer: Timer | None = None
        self._pause_us = 0
        self._turn = 0
        """Whose turn it is to be sent first."""

    @property
    def hosting_reference(self) -> HostingReference | None:
        """What the client of a durable one shows where it goes on."""
        broker = self.host.context.identity.broker
        return HostingReference(self.incarnation_key, self.epoch, broker) if self.durable else None

    @property
    def newest(self) -> FilterSegment:
        """The filter that governs in the end."""
        return self.segments[-1]

    # --- to the client -------------------------------------------------------------------------

    def send_available(self) -> None:
        """Send what there is credit for, in order, and let the strands read on.

        Nothing is sent before the call is answered. In total order this matters for more than
        tidiness: what was merged before all have begun would lock the late ones out.
        """
        if self.client is None:
            return
        if self.stalls.noted:  # that a stream is passed by is told before what lies beyond
            self.stalls.review()
        if self.pending_reply is None and self.host.takes_more(self.client):
            runs = DeliveryRuns()
            if self.order is Order.TOTAL:
                self._drain_merged(runs)
            else:
                self._drain_in_turn(runs)
            while self.best_effort and self.credit > 0:
                pubend, publication = self.best_effort.popleft()
                runs.add(pubend, [publication])
                self.credit -= 1
            self._deliver(runs)
        for cursor in self.cursors.values():
            if cursor.reads_log:
                cursor.catch_up.continue_reading()
        if self.order is Order.TOTAL:
            self._watch_merge()

    def _deliver(self, runs: DeliveryRuns) -> None:
        for part in runs.take(self.host.context.parameters.frame_events_max):
            self._notify(Delivery(self.name, part))

    def _notify(
        self, notice: Delivery | Gap | SubscriptionStarted | Subscribed | FilterChanged
    ) -> None:
        assert self.client is not None
        self.host.context.notify(self.client, notice)

    def _drain_in_turn(self, runs: DeliveryRuns) -> None:
        """Send of each strand its share, so that a busy stream does not take all credit."""
        # of a stream nothing comes before its start was told, or it would have no place
        cursors = self.cursors.values()
        waiting = [cursor for cursor in cursors if cursor.buffer and cursor.start_confirmed]
        first = self._turn % len(waiting) if waiting else 0
        ring = deque(waiting[first:] + waiting[:first])
        while ring:
            cursor = ring.popleft()
            share = min(self.credit, max(1, self.credit // (len(ring) + 1)))
            if self._drain_cursor(cursor, share, runs, FOREVER):
                self._turn += 1
                if cursor.buffer:
                    ring.append(cursor)

    def _drain_cursor(self, cursor: Cursor, most: int, runs: DeliveryRuns, up_to: Tick) -> bool:
        """Send so many events of a strand, or a loss; return whether there was anything."""
        events = cursor.take_events(most, up_to)
        if events:
            runs.add(cursor.pubend, events)
            cursor.last_sent = events[-1].tick
            if self.order is Order.TOTAL:
                self.merged = max(self.merged, cursor.last_sent)
            self.credit -= len(events)
            return True
        gap = cursor.take_gap(up_to)
        if gap is not None:
            self._deliver(runs)
            self._notify(Gap(self.name, cursor.pubend, gap.low, gap.high))
            # a gap is to be acknowledged like an event: it may be lost on the way
            cursor.last_sent = max(cursor.last_sent, gap.high)
        return gap is not None

    def _drain_merged(self, runs: DeliveryRuns) -> None:
        started = [each for each in self.cursors.values() if each.phase is not CursorPhase.PENDING]
        awaited = [each for each in started if not each.merge_exclusion.is_in_effect]
        limit = min(
            (min(each.buffered_up_to, each.delivery_limit) for each in awaited), default=FOREVER
        )
        while ready := [cursor for cursor in started if cursor.buffer]:
            cursor = min(ready, key=lambda each: (each.buffer.next_tick, each.pubend))
            if cursor.buffer.next_tick > limit or not cursor.start_confirmed:
                return
            # the first, and with it what lies below the first of every other stream
            others = [each.buffer.next_tick - 1 for each in ready if each is not cursor]
            up_to = max(cursor.buffer.next_tick, min([limit, *others]))
            if not self._drain_cursor(cursor, self.credit, runs, up_to):
                return

    def too_slow(self, cursor: Cursor) -> None:
        """A buffer is full: what is in it comes from the log later (R48)."""
        ours = self.pending_reply is not None or (self.order is Order.TOTAL and self.credit > 0)
        self.host.context.mark("slow subscriber reads the log")
        cursor.rewind()
        if not self.durable and not ours:
            self.host.fell_behind(self)

    # --- total order ---------------------------------------------------------------------------

    def _watch_merge(self) -> None:
        """If the merge waits for a silent stream, have it advance (R51)."""
        waiting = self._blocking() is not None
        if not waiting:
            if self._advance_timer is not None:
                self._advance_timer.cancel()
                self._advance_timer = None
        elif self._advance_timer is None:
            self._pause_us = microseconds(ms=self.host.context.parameters.eager_silence_ms)
            self._advance_timer = self.host.context.call_later(
                self._pause_us, self._request_advance
            )

    def _blocking(self) -> Tick | None:
        """Return the tick that the merge waits to send, None if it waits for nothing but credit."""
        heads = [cursor.buffer.next_tick for cursor in self.cursors.values() if cursor.buffer]
        if not heads or self.credit <= 0 or self.client is None or self.pending_reply is not None:
            return None
        return min(heads)

    def _request_advance(self) -> None:
        self._advance_timer = None
        tick = self._blocking()
        if tick is None:
            return
        for cursor in self.cursors.values():
            if cursor.phase is not CursorPhase.PENDING and cursor.buffered_up_to < tick:
                cursor.subend.ask_to_advance(tick)
        longest = microseconds(ms=self.host.context.parameters.silence_ms)
        self._pause_us = min(2 * self._pause_us, longest)
        self._advance_timer = self.host.context.call_later(self._pause_us, self._request_advance)

    # --- answers -------------------------------------------------------------------------------

    def position(self) -> PositionTuple:
        """Return after which ticks this connection goes on, of all strands that have begun."""
        return tuple(
            (pubend, cursor.origin)
            for pubend, cursor in self.cursors.items()
            if cursor.is_resumable
        )

    @property
    def is_on_disk(self) -> bool:
        """Whether it is on disk, where that matters, and that it is here again."""
        return self.stored and not self.returning

    def reply_if_ready(self) -> None:
        """Answer a call if every strand that can has begun; tell of those that begin later."""
        if self.client is None or not self.is_on_disk:
            return
        if self.pending_reply is not None:
            settled = all(cursor.is_resumable for cursor in self.cursors.values())
            if self.pending_reply.is_due or settled:
                self.reply()
            return
        for pubend, cursor in self.cursors.items():
            if not cursor.start_confirmed and cursor.is_resumable:
                cursor.start_confirmed = True
                self.dirty |= cursor.start_unconfirmed
                cursor.start_unconfirmed = False
                self._notify(SubscriptionStarted(self.name, pubend, cursor.origin))

    def reply(self) -> None:
        """Say where the subscription goes on, and what it still waits for."""
        if self.pending_reply is not None and not self.is_on_disk:
            self.pending_reply.is_due = True  # when the write is through
            return
        answer, self.pending_reply = self.pending_reply, None
        if answer is None or self.client is None:
            return
        if answer.timer is not None:
            answer.timer.cancel()
        pending = tuple(
            PendingStart(pubend, self.reason(cursor), cursor.acked_at)
            for pubend, cursor in self.cursors.items()
            if not cursor.is_resumable
        )
        for cursor in self.cursors.values():
            cursor.start_confirmed = cursor.is_resumable
            if cursor.is_resumable and cursor.start_unconfirmed:
                cursor.start_unconfirmed, self.dirty = False, True
        self._notify(self._subscribed(answer.request, pending))
        self._note_confirmed()
        for each in answer.later:
            each()
        self.progress.start()
        self.send_available()

    def _subscribed(self, request: int, pending: tuple[PendingStart, ...]) -> Subscribed:
        if not self.durable:
            return Subscribed(request, self.position(), pending)
        past_filters = tuple(
            PastFilter(segment.text, tuple(ends))
            for segment in self.segments[:-1]
            if (ends := [end for end in self._ends_of(segment) if end[1] > 0])
        )
        return Subscribed(
            request,
            self.position(),
            pending,
            self.seek_count,
            self.hosting_reference,
            self.newest.text,
            past_filters,
            self.start.for_unnamed(),
            self.start_guarantees,
            self.confirmed_filter is None and not self.epoch,
        )

    def reason(self, cursor: Cursor) -> str:
        """Say why a strand has not begun."""
        if cursor.fault:
            return cursor.fault
        if cursor.subend.feeder is None:
            return self.host.obstacle(cursor.pubend)
        if self.client is None:
            return "its client is disconnected; it starts there when the client returns"
        if cursor.phase is CursorPhase.CATCHING_UP:
            return "the broker of this pubend has not answered yet"
        return "this subscription has not reached this pubend yet"

    def notify_ended(
        self,
        reason: str,
        cause: RefusalCause = RefusalCause.FENCED,
        reference: HostingReference | None = None,
    ) -> None:
        """Tell the client that it has the subscription no more; a call that waits is its answer."""
        if self.client is None:
            return
        if self.pending_reply is not None:
            broker = "" if reference is None else reference.broker
            notice = Refused(self.pending_reply.request, reason, cause, broker, reference)
            self.host.context.notify(self.client, notice)
        else:
            self.host.context.notify(
                self.client, SubscriptionEnded(self.name, reason, cause, reference)
            )

    def forget_client(self) -> None:
        """The client is gone, and with it all that was for it alone; what others asked goes on."""
        client, change = self.client, self.change
        if self.pending_reply is not None and self.pending_reply.timer is not None:
            self.pending_reply.timer.cancel()
        if change is not None and change.requester == client:
            if change.timer is not None:
                change.timer.cancel()
            self.change = None
        if self._advance_timer is not None:
            self._advance_timer.cancel()
            self._advance_timer = None
        self.client = None
        self.credit = 0
        self.pending_reply = None
        self.changes = deque(each for each in self.changes if each[0] != client)
        self.best_effort.clear()
        self.stalls.forget_client()
        self.progress.forget_client()

    def _note_confirmed(self) -> None:
        """Its client knows of the newest filter."""
        self.dirty |= self.confirmed_filter != self.newest_to_confirm
        self.confirmed_filter = self.newest_to_confirm

    def confirmed_at(self, pubend: PubendId) -> ConfirmedFilter | None:
        """Return what its client knew when this host heard of a pubend, in this life or before.

        What was noted when an earlier life heard of it may have been lost with that life.
        """
        return (
            self.previous_confirmed_filter or self.confirmed_filter
            if pubend in self.host.unannounced
            else self.confirmed_filter
        )

    @property
    def unannounced_guarantees(self) -> dict[PubendId, StartGuarantee]:
        """Since when it is owed pubends that an earlier life had heard of, and this one has not."""
        before = self.previous_confirmed_filter
        if before is None:
            return {}
        guarantee = StartGuarantee(before.time, before.former_host_times)
        return {
            each: guarantee for each in sorted(self.host.unannounced) if each not in self.cursors
        }

    @property
    def newest_to_confirm(self) -> ConfirmedFilter:
        """The newest filter, as its client is told of it."""
        assert self.newest.required_from is not None, "it was in a table before anybody was told"
        return ConfirmedFilter(
            self.newest.filter, self.newest.required_from, self.newest.former_host_times
        )

    @property
    def start_guarantees(self) -> StartGuarantees | None:
        """What the client of a durable one takes along of what it is owed, by its newest filter."""
        if not self.durable:
            return None
        shb, confirmed = self.host.context.identity.shb, self.newest_to_confirm
        guarantees = {**self.unannounced_guarantees, **self.guarantees}
        by_pubend = {pubend: each.all_times(shb) for pubend, each in guarantees.items()}
        for pubend, cursor in self.cursors.items():
            if not cursor.start_confirmed and pubend not in by_pubend:
                by_pubend[pubend] = cursor.started_by
        return guarantees_message(
            StartGuarantee(confirmed.time, confirmed.former_host_times).all_times(shb), by_pubend
        )

    def clear_guarantee(self, pubend: PubendId) -> None:
        """It has begun on a pubend, or will not."""
        self.dirty |= self.guarantees.pop(pubend, None) is not None

    # --- changing the filter -------------------------------------------------------------------

    def ask_for_change(self, requester: str, request: int, wanted: Filter) -> None:
        """Change the filter, now or after the change before it, and tell the asker (R47)."""
        most = self.host.context.parameters.segments_max
        again = wanted == self.newest.filter and not self.changes
        if not again and len(self.segments) + len(self.changes) > most:
            reason = (
                f"{most} filters before it still govern what is not acknowledged (segments_max); "
                "acknowledge and try again later"
                if self.durable
                else f"{most} filter changes are not through yet (segments_max); try again later"
            )
            self.host.context.notify(requester, Refused(request, reason, RefusalCause.UNAVAILABLE))
        elif self.change is not None or not self.stored:
            self.changes.append((requester, request, wanted))
        else:
            self._start_change(requester, request, wanted)

    def refuse_changes(self, reason: str) -> None:
        """The subscription has ended: say so to those whose changes are not through."""
        waiting = [(requester, request) for requester, request, _ in self.changes]
        if self.change is not None:
            waiting.insert(0, (self.change.requester, self.change.request))
            if self.change.timer is not None:
                self.change.timer.cancel()
        self.change = None
        self.changes.clear()
        for requester, request in waiting:
            self.host.context.notify(requester, Refused(request, reason))

    def _start_change(self, requester: str, request: int, wanted: Filter) -> None:
        if wanted == self.newest.filter:
            # asked for again, perhaps because the answer was lost: say where it happened
            newest, stored = self.newest, not self.durable
            wait = microseconds(s=self.host.context.parameters.filter_change_timeout_s)
            timer = self.host.context.call_later(wait, self._switch_by_position)
            self.change = FilterChange(
                request, requester, newest, stored=stored, repeated=True, timer=timer
            )
            if self.durable:
                # behind its first write, which may be under way for a client that is gone (I13)
                self.host.context.write((), lambda: self._change_stored(newest))
            self.host.mark_dirty(self)
            return
        # a crash may have come between the record and its strands: their places are in ``begin`` alone
        self.host.update_cursors(self)
        for cursor in self.cursors.values():
            cursor.note_earliest()
        segment = self.host.make_segment(self, wanted)
        self.host.own(segment)
        if self.client is None:
            self.host.disown(segment)  # an absent client's filter is in no table
        self.start = StartPoint()
        wait = microseconds(s=self.host.context.parameters.filter_change_timeout_s)
        timer = self.host.context.call_later(wait, self._switch_by_position)
        self.change = FilterChange(
            request, requester, segment, stored=not self.durable, repeated=False, timer=timer
        )
        for cursor in self.cursors.values():
            cursor.set_next_segment(segment)
        self.host.update_cursors(self)
        if self.durable:
            self.host.save(self, lambda: self._change_stored(segment))
        self.host.mark_dirty(self)

    def _change_stored(self, segment: FilterSegment) -> None:
        if self.change is not None and self.change.segment is segment:
            self.change.stored = True
            self.host.mark_dirty(self)

    def _switch_by_position(self) -> None:
        """Some streams have not answered: the new filter governs where they are."""
        self.host.context.mark("filter switched by position")
        for cursor in self.cursors.values():
            cursor.switch_now(surely=True)
        self.host.mark_dirty(self)

    def finish_change(self) -> None:
        """Answer a filter change that is through on all strands, and begin the next."""
        change = self.change
        if change is None:
            if self.changes:
                self._next_change()
            return
        started = [cursor for cursor in self.cursors.values() if cursor.started_after is not None]
        if not change.stored or any(each.next is not None or each.is_writing for each in started):
            return
        self.change = None
        if change.timer is not None:
            change.timer.cancel()
        position = self._switch_position(repeated=change.repeated)
        pending = tuple(each for each, cursor in self.cursors.items() if cursor.awaits_earliest)
        guarantees = self.start_guarantees
        self.host.context.notify(
            change.requester, FilterSet(change.request, position, pending, guarantees)
        )
        if self.client not in {change.requester, None}:
            self._notify(FilterChanged(self.name, self.newest.text, position, guarantees))
        if self.client is not None and self.pending_reply is None:
            self._note_confirmed()
        self.review_segments()
        for pubend in [*self.cursors]:
            self.host.update_cursor(
                self, pubend
            )  # the filter that was left may have been the only one
        self._next_change()

    def _next_change(self) -> None:
        if self.changes and self.stored and self.change is None:
            self._start_change(*self.changes.popleft())

    def _switch_position(self, *, repeated: bool) -> PositionTuple:
        """Return up to where the filter before the present one governed.

        Where that is no longer known, it is not above what is acknowledged: else it would be kept.
        """
        found = []
        for pubend, cursor in self.cursors.items():
            if cursor.started_after is not None:
                start = cursor.acked if repeated else cursor.started_after
                found.append((pubend, start if cursor.switched_at is None else cursor.switched_at))
        return tuple(found)

    # --- the record ----------------------------------------------------------------------------

    def record(self) -> SubscriptionRecord:
        """Return what is to be on disk."""
        started = [
            (pubend, each)
            for pubend, each in self.cursors.items()
            if each.started_after is not None
        ]
        return SubscriptionRecord(
            self.name,
            tuple(self._segment_record(segment) for segment in self.segments),
            self._acked(),
            tuple((pubend, cursor.started_after or 0) for pubend, cursor in started),
            self.order,
            self.start,
            tuple(
                (pubend, hold.subscription)
                for pubend, cursor in self.cursors.items()
                for hold in cursor.log_holds.all
            ),
            self.expiry_s,
            self.merged,
            tuple(pubend for pubend, cursor in started if cursor.start_unconfirmed),
            self.seek_count,
            tuple((pubend, cursor.seek_number) for pubend, cursor in started if cursor.seek_number),
            tuple(pubend for pubend, cursor in started if cursor.from_earliest),
            self.incarnation_key,
            self.epoch,
            tuple(
                (each, guarantee.time)
                for each, guarantee in self.guarantees.items()
                if guarantee.time is not None
            ),
            *self._confirmed_record(),
            tuple(
                (pubend, guarantee.former_host_times)
                for pubend, guarantee in self.guarantees.items()
                if guarantee.former_host_times or guarantee.time is None
            ),
            tuple(
                merge_exclusion
                for _, cursor in started
                if (merge_exclusion := cursor.merge_exclusion.record()) is not None
            ),
            self._previous_confirmed_record(),
        )

    def _previous_confirmed_record(self) -> tuple[str, VirtualTime, tuple[HostTime, ...]] | None:
        """Return what its client knew before this life, while there is a pubend that only that one heard of."""
        before = self.previous_confirmed_filter
        if before is None or before == self.confirmed_filter or not self.host.unannounced:
            return None
        return str(before.filter), before.time, before.former_host_times

    def _acked(self) -> PositionTuple:
        started = {
            pubend: each.acked
            for pubend, each in self.cursors.items()
            if each.started_after is not None
        }
        return tuple({**self.acked_elsewhere, **started}.items())

    def _confirmed_record(self) -> tuple[tuple[str, VirtualTime] | None, tuple[HostTime, ...]]:
        """Return what its client knows, if that is not the newest, and when other hosts had it."""
        confirmed = self.confirmed_filter
        if confirmed is None or confirmed == self.newest_to_confirm:
            return None, ()
        return (str(confirmed.filter), confirmed.time), confirmed.former_host_times

    def _segment_record(self, segment: FilterSegment) -> FilterSegmentRecord:
        assert segment.required_from is not None
        ends = tuple(self._ends_of(segment))
        return FilterSegmentRecord(
            segment.text, segment.required_from, ends, segment.former_host_times
        )

    def _ends_of(self, segment: FilterSegment) -> list[tuple[PubendId, Tick]]:
        """Return up to where a filter governs each stream that it governs no more."""
        ends = [
            end
            for each, positions in self.imported_segments
            if each is segment
            for end in positions.items()
        ]
        for pubend, cursor in self.cursors.items():
            if cursor.started_after is not None and segment not in {cursor.segment, cursor.next}:
                # 0: it has governed nothing there that will be asked for again
                ended = [end for each, end in cursor.ended_segments if each is segment]
                ends.append((pubend, ended[0] if ended else 0))
        return ends

    # --- segments ------------------------------------------------------------------------------

    def review_segments(self) -> None:
        """Let filters go that no strand needs any more (R17)."""
        for cursor in self.cursors.values():
            cursor.prune()
        cursors = self.cursors.values()
        for segment in self.segments[:-1]:
            live = any(each.is_live and each.segment is segment for each in cursors)
            if not live:
                self.host.disown(segment)
        used = {id(each.segment) for each in cursors} | {id(each.next) for each in cursors}
        used |= {id(segment) for each in cursors for segment, _ in each.ended_segments}
        used |= {id(segment) for segment, _ in self.imported_segments}
        self.segments = [
            segment
            for segment in self.segments
            if segment is self.segments[-1] or id(segment) in used
        ]
