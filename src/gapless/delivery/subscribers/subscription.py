"""A subscription: its filters, its strands, and what it sends to its client.

The client gives credit for events; what it has no credit for waits in the strands' buffers, which
are bounded. In publisher order each strand is sent as it comes. In total order the strands are
merged by (tick, pubend) up to the least frontier of all that have begun: nothing can come below
that any more (R51).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from gapless.content.filter import Filter
from gapless.core.ids import PubendId
from gapless.core.machine import Timer
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.delivery.subscribers.segments import Segment
from gapless.delivery.subscribers.strand import Lost, State, Strand
from gapless.messages.clients import (
    Begin,
    Delivery,
    FilterSet,
    Gap,
    Order,
    PositionTuple,
    Refused,
    SetFilter,
    Started,
    Subscribed,
    Waiting,
)
from gapless.messages.records import SegmentRecord, SubscriptionRecord
from gapless.messages.streams import Publication

if TYPE_CHECKING:
    from gapless.delivery.subscribers.host import SubscriberHost

__all__ = ["Answer", "Change", "Subscription"]


class Answer(msgspec.Struct):
    """A call that returns when all strands that can have begun."""

    request: int
    timer: Timer | None = None
    is_due: bool = False
    """Whether it is given as soon as the subscription is on disk, begun or not."""


class Change(msgspec.Struct):
    """A filter change that is not through on all strands."""

    request: int
    client: str
    segment: Segment
    stored: bool
    """Whether the new filter is on disk, where that matters."""
    repeated: bool
    """Whether the filter was there already, from a change before."""
    timer: Timer | None = None


class Subscription:
    """One subscription of a host, with a client or, if it is durable, without one."""

    def __init__(
        self,
        host: SubscriberHost,
        name: str,
        *,
        durable: bool,
        order: Order,
        begin: Begin,
        expiry_s: int,
    ) -> None:
        self.host = host
        self.name = name
        self.durable = durable
        self.order = order
        self.begin = begin
        self.expiry_s = expiry_s
        self.client: str | None = None
        self.credit = 0
        self.segments: list[Segment] = []
        """Those that govern some tick of some strand, oldest first; the last is the newest."""
        self.strands: dict[PubendId, Strand] = {}
        self.answer: Answer | None = None
        self.change: Change | None = None
        self.changes: deque[tuple[str, SetFilter, Filter]] = deque()
        """Filter changes that wait for the one before."""
        self.stored = not durable
        """Whether it is on disk, where that matters."""
        self.ended = False
        self.dirty = False
        """Whether its record lags behind."""
        self.away_since = 0
        self.merged: Tick = 0
        """In total order: the tick of the last event that was sent."""
        self.linger: Timer | None = None
        self.best_effort: deque[tuple[PubendId, Publication]] = deque()
        """Events without guarantee that wait for credit."""
        self._impatience: Timer | None = None
        self._pause_us = 0
        self._turn = 0
        """Whose turn it is to be sent first."""

    @property
    def newest(self) -> Segment:
        """The filter that governs in the end."""
        return self.segments[-1]

    # --- to the client -------------------------------------------------------------------------

    def drain(self) -> None:
        """Send what there is credit for, in order, and let the strands read on.

        Nothing is sent before the call is answered. In total order this matters for more than
        tidiness: what was merged before all have begun would lock the late ones out.
        """
        if self.client is None:
            return
        events: list[tuple[PubendId, Publication]] = []
        for strand, item in self._sendable():
            if isinstance(item, Lost):
                self._deliver(events)
                events = []
                self._say(Gap(self.name, strand.pubend, item.low, item.high))
                # a gap is to be acknowledged like an event: it may be lost on the way
                strand.last_told = max(strand.last_told, item.high)
            else:
                events.append((strand.pubend, item))
                strand.last_told = item.tick
                if self.order is Order.TOTAL:
                    self.merged = max(self.merged, item.tick)
                self.credit -= 1
        while self.best_effort and self.credit > 0 and self.answer is None:
            events.append(self.best_effort.popleft())
            self.credit -= 1
        self._deliver(events)
        for strand in self.strands.values():
            if strand.state in {State.CATCHING, State.JOINING}:
                strand.pump()
        if self.order is Order.TOTAL:
            self._watch_merge()

    def _deliver(self, events: list[tuple[PubendId, Publication]]) -> None:
        most = self.host.context.parameters.frame_events_max
        for first in range(0, len(events), most):
            self._say(Delivery(self.name, tuple(events[first : first + most])))

    def _say(self, notice: Delivery | Gap | Started | Subscribed) -> None:
        assert self.client is not None
        self.host.context.tell(self.client, notice)

    def _sendable(self) -> Iterator[tuple[Strand, Publication | Lost]]:
        """Take from the buffers what may be sent, in order, while there is credit."""
        if self.answer is not None:
            return
        if self.order is Order.TOTAL:
            yield from self._merged()
            return
        # one of each in turn, so that a busy stream does not take all credit
        waiting = [strand for strand in self.strands.values() if strand.buffer]
        first = self._turn % len(waiting) if waiting else 0
        ring = deque(waiting[first:] + waiting[:first])
        while ring:
            strand = ring.popleft()
            item = strand.buffer[0] if strand.buffer else None
            if item is None or item.tick > strand.barrier:
                continue
            if self.credit > 0 or isinstance(item, Lost):
                self._turn += 1
                ring.append(strand)
                yield strand, strand.buffer.popleft()

    def _merged(self) -> Iterator[tuple[Strand, Publication | Lost]]:
        begun = [each for each in self.strands.values() if each.state is not State.WAITING]
        if not begun:
            return
        limit = min(min(strand.frontier, strand.barrier) for strand in begun)
        while True:
            ready = [strand for strand in begun if strand.buffer]
            if not ready:
                return
            strand = min(ready, key=lambda each: (each.buffer[0].tick, each.pubend))
            item = strand.buffer[0]
            if item.tick > limit or (self.credit <= 0 and not isinstance(item, Lost)):
                return
            yield strand, strand.buffer.popleft()

    def too_slow(self, strand: Strand) -> None:
        """A buffer is full: what is in it comes from the log later, or the client goes (R48)."""
        ours = self.answer is not None or (self.order is Order.TOTAL and self.credit > 0)
        if self.durable or ours:
            self.host.context.mark("slow subscriber reads the log")
            strand.rewind()
        else:
            self.host.context.mark("slow subscriber dismissed")
            self.host.dismiss_later(self)

    # --- total order ---------------------------------------------------------------------------

    def _watch_merge(self) -> None:
        """If the merge waits for a silent stream, have it advance (R51)."""
        waiting = self._blocking() is not None
        if not waiting:
            if self._impatience is not None:
                self._impatience.cancel()
                self._impatience = None
        elif self._impatience is None:
            self._pause_us = us(ms=self.host.context.parameters.eager_silence_ms)
            self._impatience = self.host.context.after(self._pause_us, self._hurry)

    def _blocking(self) -> Tick | None:
        """Return the tick that the merge waits to send, None if it waits for nothing but credit."""
        heads = [strand.buffer[0].tick for strand in self.strands.values() if strand.buffer]
        if not heads or self.credit <= 0 or self.client is None or self.answer is not None:
            return None
        return min(heads)

    def _hurry(self) -> None:
        self._impatience = None
        tick = self._blocking()
        if tick is None:
            return
        for strand in self.strands.values():
            if strand.state is not State.WAITING and strand.frontier < tick:
                strand.subend.ask_to_advance(tick)
        longest = us(ms=self.host.context.parameters.silence_ms)
        self._pause_us = min(2 * self._pause_us, longest)
        self._impatience = self.host.context.after(self._pause_us, self._hurry)

    # --- answers -------------------------------------------------------------------------------

    def position(self) -> PositionTuple:
        """Return after which ticks this connection goes on, of all strands that have begun."""
        return tuple(
            (pubend, strand.origin) for pubend, strand in self.strands.items() if strand.settled
        )

    def review_answer(self) -> None:
        """Answer a call if every strand that can has begun; tell of those that begin later."""
        if self.client is None or not self.stored:
            return
        if self.answer is not None:
            settled = all(strand.settled for strand in self.strands.values())
            if self.answer.is_due or settled:
                self.give_answer()
            return
        for pubend, strand in self.strands.items():
            if strand.settled and not strand.told_base:
                strand.told_base = True
                self.dirty |= strand.untold
                strand.untold = False
                self._say(Started(self.name, pubend, strand.origin))

    def give_answer(self) -> None:
        """Say where the subscription goes on, and what it still waits for."""
        if self.answer is not None and not self.stored:
            self.answer.is_due = True  # when the write is through
            return
        answer, self.answer = self.answer, None
        if answer is None or self.client is None:
            return
        if answer.timer is not None:
            answer.timer.cancel()
        waiting = tuple(
            Waiting(pubend, self._reason(strand))
            for pubend, strand in self.strands.items()
            if not strand.settled
        )
        for strand in self.strands.values():
            strand.told_base = strand.settled
            if strand.settled and strand.untold:
                strand.untold, self.dirty = False, True
        self._say(Subscribed(answer.request, self.position(), waiting))
        self.drain()

    def _reason(self, strand: Strand) -> str:
        if strand.subend.feeder is None:
            cut = self.host.cut_of(strand.pubend)
            named = "" if cut is None else f" (partition {cut})"
            return f"no broker on the way to this pubend can be reached now{named}"
        if strand.state is State.CATCHING:
            return "the broker of this pubend has not answered yet"
        return "the news of this subscription has not reached this pubend yet"

    def forget_client(self) -> None:
        """The client is gone, and with it all that was for it alone."""
        for waiting in (self.answer, self.change):
            if waiting is not None and waiting.timer is not None:
                waiting.timer.cancel()
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None
        self.client = None
        self.credit = 0
        self.answer = self.change = None
        self.changes.clear()
        self.best_effort.clear()

    # --- changing the filter -------------------------------------------------------------------

    def ask_for_change(self, client: str, call: SetFilter, wanted: Filter) -> None:
        """Change the filter, now or after the change before it (R47)."""
        most = self.host.context.parameters.segments_max
        again = wanted == self.newest.filter and not self.changes
        if not again and len(self.segments) + len(self.changes) > most:
            reason = f"{most} filter changes are not through yet (segments_max); try again later"
            self.host.context.tell(client, Refused(call.request, reason))
        elif self.change is not None or not self.stored:
            self.changes.append((client, call, wanted))
        else:
            self._begin_change(client, call, wanted)

    def _begin_change(self, client: str, call: SetFilter, wanted: Filter) -> None:
        if wanted == self.newest.filter:
            # asked for again, perhaps because the answer was lost: say where it happened
            self.change = Change(call.request, client, self.newest, stored=True, repeated=True)
            self.host.touch(self)
            return
        segment = self.host.make_segment(self, wanted)
        self.host.own(segment)
        if self.client is None:
            self.host.disown(segment)  # an absent client's filter is in no table
        self.begin = Begin()
        wait = us(s=self.host.context.parameters.filter_wait_s)
        timer = self.host.context.after(wait, self._switch_by_position)
        self.change = Change(
            call.request, client, segment, stored=not self.durable, repeated=False, timer=timer
        )
        for strand in self.strands.values():
            strand.aim_at(segment)
        self.host.look_at_all(self)
        if self.durable:
            self.host.save(self, lambda: self._change_stored(segment))
        self.host.touch(self)

    def _change_stored(self, segment: Segment) -> None:
        if self.change is not None and self.change.segment is segment:
            self.change.stored = True
            self.host.touch(self)

    def _switch_by_position(self) -> None:
        """Some streams have not answered: the new filter governs where they are."""
        self.host.context.mark("filter switched by position")
        for strand in self.strands.values():
            strand.switch_now(surely=True)
        self.host.touch(self)

    def review_change(self) -> None:
        """Answer a filter change that is through on all strands, and begin the next."""
        change = self.change
        if change is None:
            self._next_change()
            return
        begun = [strand for strand in self.strands.values() if strand.base is not None]
        if not change.stored or any(each.next is not None or each.is_writing for each in begun):
            return
        self.change = None
        if change.timer is not None:
            change.timer.cancel()
        position = self._switch_position(repeated=change.repeated)
        self.host.context.tell(change.client, FilterSet(change.request, position))
        self.review_segments()
        for pubend in [*self.strands]:
            self.host.look_at(self, pubend)  # the filter that was left may have been the only one
        self._next_change()

    def _next_change(self) -> None:
        if self.changes and self.stored and self.change is None:
            self._begin_change(*self.changes.popleft())

    def _switch_position(self, *, repeated: bool) -> PositionTuple:
        """Return up to where the filter before the present one governed.

        Where that is no longer known, it is not above what is acknowledged: else it would be kept.
        """
        found = []
        for pubend, strand in self.strands.items():
            if strand.base is not None:
                began = strand.acked if repeated else strand.base
                found.append((pubend, began if strand.switched_at is None else strand.switched_at))
        return tuple(found)

    # --- the record ----------------------------------------------------------------------------

    def record(self) -> SubscriptionRecord:
        """Return what is to be on disk."""
        begun = [(pubend, each) for pubend, each in self.strands.items() if each.base is not None]
        return SubscriptionRecord(
            self.name,
            tuple(self._segment_record(segment) for segment in self.segments),
            tuple((pubend, strand.acked) for pubend, strand in begun),
            tuple((pubend, strand.base or 0) for pubend, strand in begun),
            self.order,
            self.begin,
            tuple(
                (pubend, hold.subscription)
                for pubend, strand in self.strands.items()
                for hold in strand.holding.all
            ),
            self.expiry_s,
            self.merged,
            tuple(pubend for pubend, strand in begun if strand.untold),
        )

    def _segment_record(self, segment: Segment) -> SegmentRecord:
        assert segment.owed_from is not None
        ends = []
        for pubend, strand in self.strands.items():
            if strand.base is not None and segment not in {strand.segment, strand.next}:
                # 0: it has governed nothing there that will be asked for again
                ended = [end for each, end in strand.course if each is segment]
                ends.append((pubend, ended[0] if ended else 0))
        return SegmentRecord(segment.text, segment.owed_from, tuple(ends))

    # --- segments ------------------------------------------------------------------------------

    def review_segments(self) -> None:
        """Let filters go that no strand needs any more (R17)."""
        for strand in self.strands.values():
            strand.prune()
        strands = self.strands.values()
        for segment in self.segments[:-1]:
            live = any(each.is_live and each.segment is segment for each in strands)
            if not live:
                self.host.disown(segment)
        used = {id(each.segment) for each in strands} | {id(each.next) for each in strands}
        used |= {id(segment) for each in strands for segment, _ in each.course}
        self.segments = [
            segment
            for segment in self.segments
            if segment is self.segments[-1] or id(segment) in used
        ]
