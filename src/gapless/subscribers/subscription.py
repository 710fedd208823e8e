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
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Begin,
    Cause,
    Delivery,
    Ended,
    FilterSet,
    Gap,
    Governed,
    Home,
    Moment,
    Order,
    Owed,
    PositionTuple,
    Refused,
    Started,
    Subscribed,
    Switched,
    Waiting,
)
from gapless.messages.records import SegmentRecord, SubscriptionRecord
from gapless.messages.streams import Publication
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import FOREVER, State
from gapless.subscribers.filter_segments import Segment
from gapless.subscribers.progress import ProgressNews
from gapless.subscribers.runs import Runs
from gapless.subscribers.stalls import Stalls
from gapless.subscribers.start_guarantee import Early, told_of

if TYPE_CHECKING:
    from gapless.subscribers.host import SubscriberHost

__all__ = ["Answer", "Change", "Subscription", "Told"]


class Answer(msgspec.Struct):
    """A call that returns when all strands that can have begun."""

    request: int
    begin: Begin
    """Where the client that asked goes on."""
    seeks: int
    timer: Timer | None = None
    later: list[Callable[[], None]] = []
    """What the client asked since, which is done when this is answered."""
    is_due: bool = False
    """Whether it is given as soon as the subscription is on disk, begun or not."""


class Told(NamedTuple):
    """A filter that a client was told of, and since which virtual time it was wanted."""

    filter: Filter
    time: VirtualTime
    since: tuple[Moment, ...] = ()
    """When it was wanted where the subscription lived before."""


class Change(msgspec.Struct):
    """A filter change that is not through on all strands."""

    request: int
    asker: str
    """Its client, or an operator."""
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
        self.birth = ""
        """Of a durable one: which it is, wherever it moves."""
        self.epoch = 0
        """How often it has moved."""
        self.client: str | None = None
        self.credit = 0
        self.segments: list[Segment] = []
        """Those that govern some tick of some strand, oldest first; the last is the newest."""
        self.brought: list[tuple[Segment, dict[PubendId, Tick]]] = []
        """Filters that had ended where it lived before, and up to where each governs: until it has
        strands, which know that themselves."""
        self.acked_elsewhere: dict[PubendId, Tick] = {}
        """What was acknowledged where it lived before, of streams that it has not begun on here."""
        self.strands: dict[PubendId, Strand] = {}
        self.answer: Answer | None = None
        self.change: Change | None = None
        self.changes: deque[tuple[str, int, Filter]] = deque()
        """Filter changes that wait for the one before: who asked, and under which number."""
        self.seeks = 0
        """How often an operator has moved it."""
        self.stored = not durable
        """Whether it is on disk, where that matters."""
        self.returning = 0
        """Counts writes under way that it is here again: its client brings along what it knows until it is
        answered, and no longer."""
        self.told: Told | None = None
        """What its client was told of its filter; None before it is told that the subscription has begun.
        The newest may be another: an operator's, or one whose answer was on its way in a crash."""
        self.told_before: Told | None = None
        """What its client had been told when the life before this one ended; None if it is younger."""
        self.early: dict[PubendId, Early] = {}
        """Pubends that it has not begun on and that were made later than it, each with the virtual time of the
        filter that its client knew of when this host heard of the pubend, or before that elsewhere; and
        those of which its client has brought along that they were not (R46)."""
        self.ended = False
        self.dirty = False
        """Whether its record lags behind."""
        self.away_since = 0
        self.merged: Tick = 0
        """In total order: the tick of the last event that was sent."""
        self.linger: Timer | None = None
        self.best_effort: deque[tuple[PubendId, Publication]] = deque()
        """Events without guarantee that wait for credit."""
        self.stalls = Stalls(self)
        self.progress = ProgressNews(self)
        self._impatience: Timer | None = None
        self._pause_us = 0
        self._turn = 0
        """Whose turn it is to be sent first."""

    @property
    def home(self) -> Home | None:
        """What the client of a durable one shows where it goes on."""
        broker = self.host.context.identity.broker
        return Home(self.birth, self.epoch, broker) if self.durable else None

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
        if self.stalls.noted:  # that a stream is passed by is told before what lies beyond
            self.stalls.review()
        if self.answer is None and self.host.takes_more(self.client):
            runs = Runs()
            if self.order is Order.TOTAL:
                self._drain_merged(runs)
            else:
                self._drain_in_turn(runs)
            while self.best_effort and self.credit > 0:
                pubend, publication = self.best_effort.popleft()
                runs.add(pubend, [publication])
                self.credit -= 1
            self._deliver(runs)
        for strand in self.strands.values():
            if strand.reads_log:
                strand.catch_up.pump()
        if self.order is Order.TOTAL:
            self._watch_merge()

    def _deliver(self, runs: Runs) -> None:
        for part in runs.take(self.host.context.parameters.frame_events_max):
            self._say(Delivery(self.name, part))

    def _say(self, notice: Delivery | Gap | Started | Subscribed | Switched) -> None:
        assert self.client is not None
        self.host.context.tell(self.client, notice)

    def _drain_in_turn(self, runs: Runs) -> None:
        """Send of each strand its share, so that a busy stream does not take all credit."""
        # of a stream nothing comes before its start was told, or it would have no place
        strands = self.strands.values()
        waiting = [strand for strand in strands if strand.buffer and strand.told_base]
        first = self._turn % len(waiting) if waiting else 0
        ring = deque(waiting[first:] + waiting[:first])
        while ring:
            strand = ring.popleft()
            share = min(self.credit, max(1, self.credit // (len(ring) + 1)))
            if self._drain_strand(strand, share, runs, FOREVER):
                self._turn += 1
                if strand.buffer:
                    ring.append(strand)

    def _drain_strand(self, strand: Strand, most: int, runs: Runs, up_to: Tick) -> bool:
        """Send so many events of a strand, or a loss; return whether there was anything."""
        events = strand.take_events(most, up_to)
        if events:
            runs.add(strand.pubend, events)
            strand.last_told = events[-1].tick
            if self.order is Order.TOTAL:
                self.merged = max(self.merged, strand.last_told)
            self.credit -= len(events)
            return True
        lost = strand.take_loss(up_to)
        if lost is not None:
            self._deliver(runs)
            self._say(Gap(self.name, strand.pubend, lost.low, lost.high))
            # a gap is to be acknowledged like an event: it may be lost on the way
            strand.last_told = max(strand.last_told, lost.high)
        return lost is not None

    def _drain_merged(self, runs: Runs) -> None:
        begun = [each for each in self.strands.values() if each.state is not State.WAITING]
        awaited = [each for each in begun if not each.drifting.is_passed_by]
        limit = min((min(each.frontier, each.barrier) for each in awaited), default=FOREVER)
        while ready := [strand for strand in begun if strand.buffer]:
            strand = min(ready, key=lambda each: (each.buffer.next_tick, each.pubend))
            if strand.buffer.next_tick > limit or not strand.told_base:
                return
            # the first, and with it what lies below the first of every other stream
            others = [each.buffer.next_tick - 1 for each in ready if each is not strand]
            up_to = max(strand.buffer.next_tick, min([limit, *others]))
            if not self._drain_strand(strand, self.credit, runs, up_to):
                return

    def too_slow(self, strand: Strand) -> None:
        """A buffer is full: what is in it comes from the log later (R48)."""
        ours = self.answer is not None or (self.order is Order.TOTAL and self.credit > 0)
        self.host.context.mark("slow subscriber reads the log")
        strand.rewind()
        if not self.durable and not ours:
            self.host.fell_behind(self)

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
        heads = [strand.buffer.next_tick for strand in self.strands.values() if strand.buffer]
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

    @property
    def is_on_disk(self) -> bool:
        """Whether it is on disk, where that matters, and that it is here again."""
        return self.stored and not self.returning

    def review_answer(self) -> None:
        """Answer a call if every strand that can has begun; tell of those that begin later."""
        if self.client is None or not self.is_on_disk:
            return
        if self.answer is not None:
            settled = all(strand.settled for strand in self.strands.values())
            if self.answer.is_due or settled:
                self.give_answer()
            return
        for pubend, strand in self.strands.items():
            if not strand.told_base and strand.settled:
                strand.told_base = True
                self.dirty |= strand.untold
                strand.untold = False
                self._say(Started(self.name, pubend, strand.origin))

    def give_answer(self) -> None:
        """Say where the subscription goes on, and what it still waits for."""
        if self.answer is not None and not self.is_on_disk:
            self.answer.is_due = True  # when the write is through
            return
        answer, self.answer = self.answer, None
        if answer is None or self.client is None:
            return
        if answer.timer is not None:
            answer.timer.cancel()
        waiting = tuple(
            Waiting(pubend, self.reason(strand), strand.rests_at)
            for pubend, strand in self.strands.items()
            if not strand.settled
        )
        for strand in self.strands.values():
            strand.told_base = strand.settled
            if strand.settled and strand.untold:
                strand.untold, self.dirty = False, True
        self._say(self._subscribed(answer.request, waiting))
        self._note_told()
        for each in answer.later:
            each()
        self.progress.begin()
        self.drain()

    def _subscribed(self, request: int, waiting: tuple[Waiting, ...]) -> Subscribed:
        if not self.durable:
            return Subscribed(request, self.position(), waiting)
        earlier = tuple(
            Governed(segment.text, tuple(ends))
            for segment in self.segments[:-1]
            if (ends := [end for end in self._ends_of(segment) if end[1] > 0])
        )
        return Subscribed(
            request,
            self.position(),
            waiting,
            self.seeks,
            self.home,
            self.newest.text,
            earlier,
            self.begin.elsewhere(),
            self.owed,
            self.told is None and not self.epoch,
        )

    def reason(self, strand: Strand) -> str:
        """Say why a strand has not begun."""
        if strand.fault:
            return strand.fault
        if strand.subend.feeder is None:
            return self.host.obstacle(strand.pubend)
        if self.client is None:
            return "its client is away; it begins there when that is back"
        if strand.state is State.CATCHING:
            return "the broker of this pubend has not answered yet"
        return "the news of this subscription has not reached this pubend yet"

    def dismiss(
        self, reason: str, cause: Cause = Cause.TAKEN_OVER, home: Home | None = None
    ) -> None:
        """Tell the client that it has the subscription no more; a call that waits is its answer."""
        if self.client is None:
            return
        if self.answer is not None:
            broker = "" if home is None else home.broker
            notice = Refused(self.answer.request, reason, cause, broker, home)
            self.host.context.tell(self.client, notice)
        else:
            self.host.context.tell(self.client, Ended(self.name, reason, cause, home))

    def forget_client(self) -> None:
        """The client is gone, and with it all that was for it alone; what others asked goes on."""
        gone, change = self.client, self.change
        if self.answer is not None and self.answer.timer is not None:
            self.answer.timer.cancel()
        if change is not None and change.asker == gone:
            if change.timer is not None:
                change.timer.cancel()
            self.change = None
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None
        self.client = None
        self.credit = 0
        self.answer = None
        self.changes = deque(each for each in self.changes if each[0] != gone)
        self.best_effort.clear()
        self.stalls.forget_client()
        self.progress.forget_client()

    def _note_told(self) -> None:
        """Its client knows of the newest filter."""
        self.dirty |= self.told != self.newest_told
        self.told = self.newest_told

    def told_when_heard(self, pubend: PubendId) -> Told | None:
        """Return what its client knew when this host heard of a pubend, in this life or before.

        What was noted when an earlier life heard of it may have been lost with that life.
        """
        return self.told_before or self.told if pubend in self.host.unheard else self.told

    @property
    def early_unheard(self) -> dict[PubendId, Early]:
        """Since when it is owed pubends that an earlier life had heard of, and this one has not."""
        before = self.told_before
        if before is None:
            return {}
        early = Early(before.time, before.since)
        return {each: early for each in sorted(self.host.unheard) if each not in self.strands}

    @property
    def newest_told(self) -> Told:
        """The newest filter, as its client is told of it."""
        assert self.newest.owed_from is not None, "it was in a table before anybody was told"
        return Told(self.newest.filter, self.newest.owed_from, self.newest.since)

    @property
    def owed(self) -> Owed | None:
        """What the client of a durable one takes along of what it is owed, by its newest filter."""
        if not self.durable:
            return None
        shb, told = self.host.context.identity.shb, self.newest_told
        early = {**self.early_unheard, **self.early}
        others = {pubend: each.all_moments(shb) for pubend, each in early.items()}
        for pubend, strand in self.strands.items():
            if not strand.told_base and pubend not in others:
                others[pubend] = strand.began_by
        return told_of(Early(told.time, told.since).all_moments(shb), others)

    def forget_early(self, pubend: PubendId) -> None:
        """It has begun on a pubend, or will not."""
        self.dirty |= self.early.pop(pubend, None) is not None

    # --- changing the filter -------------------------------------------------------------------

    def ask_for_change(self, asker: str, request: int, wanted: Filter) -> None:
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
            self.host.context.tell(asker, Refused(request, reason, Cause.TRY_LATER))
        elif self.change is not None or not self.stored:
            self.changes.append((asker, request, wanted))
        else:
            self._begin_change(asker, request, wanted)

    def refuse_changes(self, reason: str) -> None:
        """The subscription has ended: say so to those whose changes are not through."""
        waiting = [(asker, request) for asker, request, _ in self.changes]
        if self.change is not None:
            waiting.insert(0, (self.change.asker, self.change.request))
            if self.change.timer is not None:
                self.change.timer.cancel()
        self.change = None
        self.changes.clear()
        for asker, request in waiting:
            self.host.context.tell(asker, Refused(request, reason))

    def _begin_change(self, asker: str, request: int, wanted: Filter) -> None:
        if wanted == self.newest.filter:
            # asked for again, perhaps because the answer was lost: say where it happened
            newest, stored = self.newest, not self.durable
            wait = us(s=self.host.context.parameters.filter_wait_s)
            timer = self.host.context.after(wait, self._switch_by_position)
            self.change = Change(request, asker, newest, stored=stored, repeated=True, timer=timer)
            if self.durable:
                # behind its first write, which may be under way for a client that is gone (I13)
                self.host.context.write((), lambda: self._change_stored(newest))
            self.host.touch(self)
            return
        # a crash may have come between the record and its strands: their places are in ``begin`` alone
        self.host.look_at_all(self)
        for strand in self.strands.values():
            strand.note_oldest()
        segment = self.host.make_segment(self, wanted)
        self.host.own(segment)
        if self.client is None:
            self.host.disown(segment)  # an absent client's filter is in no table
        self.begin = Begin()
        wait = us(s=self.host.context.parameters.filter_wait_s)
        timer = self.host.context.after(wait, self._switch_by_position)
        self.change = Change(
            request, asker, segment, stored=not self.durable, repeated=False, timer=timer
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
            if self.changes:
                self._next_change()
            return
        begun = [strand for strand in self.strands.values() if strand.base is not None]
        if not change.stored or any(each.next is not None or each.is_writing for each in begun):
            return
        self.change = None
        if change.timer is not None:
            change.timer.cancel()
        position = self._switch_position(repeated=change.repeated)
        waiting = tuple(each for each, strand in self.strands.items() if strand.awaits_oldest)
        owed = self.owed
        self.host.context.tell(change.asker, FilterSet(change.request, position, waiting, owed))
        if self.client not in {change.asker, None}:
            self._say(Switched(self.name, self.newest.text, position, owed))
        if self.client is not None and self.answer is None:
            self._note_told()
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
            self._acked(),
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
            self.seeks,
            tuple((pubend, strand.sought) for pubend, strand in begun if strand.sought),
            tuple(pubend for pubend, strand in begun if strand.from_oldest),
            self.birth,
            self.epoch,
            tuple(
                (each, early.time) for each, early in self.early.items() if early.time is not None
            ),
            *self._told_before(),
            tuple(
                (pubend, early.moments)
                for pubend, early in self.early.items()
                if early.moments or early.time is None
            ),
            tuple(drift for _, strand in begun if (drift := strand.drifting.record()) is not None),
            self._told_earlier(),
        )

    def _told_earlier(self) -> tuple[str, VirtualTime, tuple[Moment, ...]] | None:
        """Return what its client knew before this life, while there is a pubend that only that one heard of."""
        before = self.told_before
        if before is None or before == self.told or not self.host.unheard:
            return None
        return str(before.filter), before.time, before.since

    def _acked(self) -> PositionTuple:
        begun = {
            pubend: each.acked for pubend, each in self.strands.items() if each.base is not None
        }
        return tuple({**self.acked_elsewhere, **begun}.items())

    def _told_before(self) -> tuple[tuple[str, VirtualTime] | None, tuple[Moment, ...]]:
        """Return what its client knows, if that is not the newest, and when other hosts had it."""
        told = self.told
        if told is None or told == self.newest_told:
            return None, ()
        return (str(told.filter), told.time), told.since

    def _segment_record(self, segment: Segment) -> SegmentRecord:
        assert segment.owed_from is not None
        ends = tuple(self._ends_of(segment))
        return SegmentRecord(segment.text, segment.owed_from, ends, segment.since)

    def _ends_of(self, segment: Segment) -> list[tuple[PubendId, Tick]]:
        """Return up to where a filter governs each stream that it governs no more."""
        ends = [end for each, places in self.brought if each is segment for end in places.items()]
        for pubend, strand in self.strands.items():
            if strand.base is not None and segment not in {strand.segment, strand.next}:
                # 0: it has governed nothing there that will be asked for again
                ended = [end for each, end in strand.course if each is segment]
                ends.append((pubend, ended[0] if ended else 0))
        return ends

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
        used |= {id(segment) for segment, _ in self.brought}
        self.segments = [
            segment
            for segment in self.segments
            if segment is self.segments[-1] or id(segment) in used
        ]
