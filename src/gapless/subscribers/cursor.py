"""A strand: one subscription on one pubend (R46 to R48).

States::

    WAITING  has not started: no tick is owed yet
    LIVE     takes what the subend hands over
    CATCHING reads the log, from a position on
    JOINING  reads the last stretch up to a tick J and holds what the subend hands over above it
    AWAY     started, but its client is gone: what it is owed stays in the log

    WAITING --its virtual time is reached--> LIVE, CATCHING or AWAY
    WAITING --the pubend says since when it knew of it--> LIVE, CATCHING or AWAY
    CATCHING --near the horizon, and covered there--> JOINING --J is read--> LIVE
    JOINING --too much is held--> CATCHING
    LIVE --the client is slow, or a filter change was not answered--> CATCHING
    any but WAITING --the client goes--> AWAY --it comes back--> CATCHING

In total order a strand may be *adrift*: its broker was retired, and the others go on without it
(:mod:`.drifting`).

What a strand has for its client waits in its buffer, in tick order, until the subscription has
credit for it. ``position`` is up to where everything is in the buffer or beyond it; of a live
strand it is the tick from which on it listens, and the horizon is its position.

Which filter governs a tick is said by the strand's course: the segments that have ended here, each
with its last tick, and then the present one. A start and the end of a segment are on disk, for a
durable subscription, before the client is told anything that lies beyond them: a *barrier* holds
that back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.clients import Moment, Order
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Publication
from gapless.pubend.known_hosts import Known
from gapless.subscribers.buffer import Buffer
from gapless.subscribers.catch_up import CatchUp
from gapless.subscribers.cursor_state import FOREVER, Lost, State
from gapless.subscribers.exclusion import Drifting
from gapless.subscribers.filter_segments import Segment
from gapless.subscribers.log_hold import Holding
from gapless.subscribers.start_guarantee import NOT_OWED, joined

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend
    from gapless.subscribers.subscription import Subscription

__all__ = ["Strand"]

ADRIFT: Final = "its broker was retired; in total order the other pubends go on without it"


class Strand:
    """A subscription's sight of one guaranteed stream."""

    def __init__(self, subscription: Subscription, subend: Subend, segment: Segment) -> None:
        self.subscription = subscription
        self.subend = subend
        self.state = State.WAITING
        self.segment = segment
        """Governs what no ended segment does."""
        self.next: Segment | None = None
        """Waits to take over."""
        self.course: list[tuple[Segment, Tick]] = []
        """Segments that have ended, each with the last tick it governs, oldest first."""
        self.switched_at: Tick | None = None
        self.base: Tick | None = None
        """After which tick it began; None before."""
        self.base_stored = False
        """Whether that it has begun is on disk, where that matters."""
        self.is_asking = False
        """Whether the pubend is to be asked now since when it knew of it: at once, and if it did not, again
        where the stream reaches it, for meanwhile it does."""
        self._reached_after: Tick | None = None
        """After which tick the stream reached it first, while it asked."""
        self.began_by: tuple[Moment, ...] = ()
        """The moments by which it began, if it began so: until that is told its client may flee again."""
        self.origin: Tick = 0
        """After which tick the present connection goes on."""
        self.told_base = False
        """Whether its client was told in this connection that it has begun."""
        self.untold = False
        """Whether it began while the client was away, and that has not heard of it since."""
        self.position: Tick = 0
        self.acked: Tick = 0
        self.acked_stored: Tick = 0
        self.given_up: Tick = 0
        """Up to here it no longer keeps the log (R58)."""
        host = subscription.host
        self.buffer = Buffer(host.context.parameters, host.backlog)
        self.last_told: Tick = 0
        """The last tick that the client was sent an event of."""
        self.sought = 0
        """The number of the operator's seek that moved it, until its client is known to have seen
        that; 0 if there is none."""
        self.from_oldest = False
        """Whether it was moved to the oldest that the log has, and nobody has said yet what that is."""
        self.moves = 0
        """Counts such seeks: what was saved before one says nothing of now."""
        self.drifting = Drifting(self)
        self.holding = Holding(self)
        self._barriers: deque[Tick] = deque()
        self.catch_up = CatchUp(self)

    @property
    def pubend(self) -> PubendId:
        """Which stream."""
        return self.subend.pubend

    @property
    def is_early(self) -> bool:
        """Whether it was there before its pubend was known here: then the pubend is asked since when
        it knew of it, and nothing else lets it begin.
        """
        return self.subscription.early.get(self.pubend, NOT_OWED) != NOT_OWED

    @property
    def asks_for_earlier(self) -> bool:
        """Whether it has begun without its client, who brings along since when others were its home: the
        pubend is asked whether it knew of them earlier, and nothing is told before (MV-13).
        """
        return self.base is not None and self.is_early

    @property
    def is_untouched(self) -> bool:
        """Whether nothing of it was acknowledged or moved, and one filter has governed it all along."""
        is_moved = self.acked != self.base or self.sought or self.from_oldest
        return not is_moved and not self.course and self.next is None

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former homes of its subscription that the pubend is asked about."""
        return self.subscription.early[self.pubend].hosts

    @property
    def awaits_oldest(self) -> bool:
        """Whether it begins with the oldest that the log has, and nobody has said yet what that is."""
        return self.base is None and self.state is not State.WAITING

    @property
    def is_live(self) -> bool:
        """Whether it takes what the subend hands over."""
        return self.state is State.LIVE or self.state is State.JOINING

    @property
    def reads_log(self) -> bool:
        """Whether it reads what it is owed from the log."""
        return self.state is State.CATCHING or self.state is State.JOINING

    @property
    def total(self) -> bool:
        """Whether silence of this stream lets others go on."""
        subscription = self.subscription
        waits = subscription.order is Order.TOTAL and subscription.client is not None
        return waits and len(subscription.strands) > 1

    @property
    def frontier(self) -> Tick:
        """Up to where everything is in the buffer, or was."""
        if self.state is State.LIVE:
            return max(self.position, self.subend.horizon or 0)
        return self.position

    @property
    def told(self) -> Tick:
        """Up to where the client was told everything."""
        if self.buffer:
            return self.buffer.next_tick - 1
        return min(self.frontier, self.barrier)

    @property
    def barrier(self) -> Tick:
        """Up to here the client may be told, until a write is on disk."""
        return min(self._barriers, default=FOREVER)

    @property
    def is_up_to_date(self) -> bool:
        """Whether its client was surely told all up to the horizon, and it needs nothing below."""
        live = self.state is State.LIVE and not self.buffer and not self._barriers
        return live and not self.subscription.durable

    @property
    def settled(self) -> bool:
        """Whether it can be said where it goes on: that is on disk, and the log is kept for it."""
        if self.from_oldest or self.asks_for_earlier:
            return False
        kept = self.holding.current is None or self.holding.is_safe
        return self.base is not None and not self._barriers and kept

    @property
    def rests_at(self) -> Tick | None:
        """What is acknowledged, of a durable one that has begun, settled or not; else None."""
        is_begun = self.base is not None and self.base_stored and not self.asks_for_earlier
        return self.acked if is_begun and self.subscription.durable else None

    @property
    def is_writing(self) -> bool:
        """Whether something about it is on its way to the disk."""
        return bool(self._barriers)

    @property
    def fault(self) -> str:
        """Why the stream stands still for it, unless its pubend is out of reach; empty if it does not."""
        if self.drifting.is_adrift:
            return ADRIFT
        return self.catch_up.fault if self.reads_log else self.subend.fault

    def become(self, state: State) -> None:
        """Change the state."""
        self.state = state
        self.subend.register(self)

    # --- which filter governs ------------------------------------------------------------------

    def governing(self, tick: Tick) -> tuple[Segment, Tick]:
        """Return the segment that governs a tick, and the last tick that it governs."""
        for segment, end in self.course:
            if tick <= end:
                return segment, end
        return self.segment, FOREVER

    @property
    def wants_more(self) -> bool:
        """Whether its filters can match anything of the stream beyond what is told."""
        segments = [segment for segment, end in self.course if end > self.kept_from]
        segments += [self.segment] if self.next is None else [self.segment, self.next]
        return any(self.subscription.host.meets(self.pubend, each) for each in segments)

    def bring(self, ended: list[tuple[Segment, dict[PubendId, Tick]]]) -> None:
        """Take over which filters have ended where its subscription lived before."""
        for segment, ends in ended:
            end = ends.get(self.pubend, 0)
            if end > 0:
                self.course.append((segment, end))
                self.switched_at = end

    def prune(self) -> None:
        """Forget segments whose last tick will not be asked for again.

        After a seek that may be below what is acknowledged.
        """
        passed = self.kept_from
        self.course = [(segment, end) for segment, end in self.course if end > passed]

    # --- starting and switching ----------------------------------------------------------------

    def offer_start(self, low: Tick, time: VirtualTime) -> None:
        """Start at a tick whose regime serves this host up to a time, if that is enough (R44)."""
        subscription, owed_from = self.subscription, self._owed_from
        if owed_from is None or owed_from > time:
            return
        subscription.forget_early(self.pubend)
        # in total order a stream that comes later starts above what was merged before (R51)
        self.begin(max(low - 1, subscription.merged))
        if subscription.client is None:
            self.untold = True
            self.become(State.AWAY)
        elif self.segment.reached_by(time):
            self.become(State.LIVE)
        else:
            self.become(State.CATCHING)

    def known_after(self, known: Mapping[ShbId, Known]) -> Tick | None:
        """Return after which tick its pubend knew of it, by what that knew of hosts; None if it did not."""
        early = self.subscription.early[self.pubend]
        return early.known_after(self.subscription.host.context.identity.shb, known)

    def begin_early(self, after: Tick | None, reply: ReadReply) -> None:
        """Begin where its pubend knew of it, or where the stream reached it if that did not (R46).

        A filter that was changed meanwhile governs from there on: the one before never took hold. Below
        what is kept for this host, and below the horizon, the log is read like any past.
        """
        self.is_asking = False
        found = [each for each in (after, self._reached_after) if each is not None]
        if not found:
            self.position = reply.top  # the news of it comes later than this
            return
        after = min(found)
        early = self.subscription.early[self.pubend]
        self.began_by = early.all_moments(self.subscription.host.context.identity.shb)
        self.subscription.forget_early(self.pubend)
        if reply.gone <= after:
            after = max(after, reply.released)  # it was silence that was released
        after = max(after, self.subscription.merged)
        self.untold = self.subscription.client is None
        if after < max(reply.kept, self.subend.horizon or 0):
            self.begin_in_past(after)
        else:
            self.begin(after)
            self.become(State.AWAY if self.untold else State.LIVE)

    def reconsider(self, moments: tuple[Moment, ...]) -> None:
        """Have the pubend asked whether it knew of other homes before where it has begun."""
        joint = joined(*self.began_by, *moments)
        self.subscription.early[self.pubend] = NOT_OWED._replace(moments=joint)
        self.is_asking = True
        self.subend.register(self)
        self.subend.ask_since_when()

    def stay(self) -> None:
        """Ask no more whether it begins earlier."""
        if self.asks_for_earlier:
            self.is_asking = False
            self.subscription.forget_early(self.pubend)
            self.subend.register(self)

    def begin_earlier(self, after: Tick | None, reply: ReadReply) -> None:
        """Begin where its pubend knew of another home, if that is before where it has begun.

        Either way that is on disk before its client is told. The log is held anew: it was kept from there on
        where it had begun.
        """
        assert self.base is not None
        self.stay()
        if after is not None and reply.gone <= after:
            after = max(after, reply.released)  # it was silence that was released
        earliest = self.base if after is None else max(after, self.subscription.merged)
        if earliest < self.base and self.drifting.record() is None:
            self.subscription.host.context.mark("begins earlier at home")
            self.moves += 1
            self.acked_stored = max(self.acked_stored, self.base)
            self.base = self.acked = earliest
            self.given_up = min(self.given_up, earliest)
            if self.subscription.client is None:
                self.position = self.origin = earliest
                self._hold_if_needed()
            else:
                self.seek(earliest)
            self.acked_stored = earliest
            if self.holding.current is not None:
                self.holding.look_after(due=True)
        self.subscription.host.strand_began(self)

    def offer_early(self, low: Tick, time: VirtualTime) -> None:
        """Have the pubend asked again if a regime serves this host up to a time that is enough."""
        if self.asks_for_earlier:
            return
        early_from = self.subscription.early[self.pubend].time or self._owed_from
        if self._reached_after is None and early_from is not None and early_from <= time:
            self._reached_after = low - 1
            self.position = min(self.position, low - 1)  # it may have to begin there
            self.is_asking = True

    @property
    def _owed_from(self) -> VirtualTime | None:
        """From which virtual time on it is owed events."""
        return self.segment.owed_from if self.subscription.durable else self.segment.start

    def begin(self, after: Tick, *, acked: Tick = 0) -> None:
        """Note after which tick the strand begins; on disk before it is told.

        Who was sought back elsewhere has ``acked`` what lies above, and comes to it again (R50).
        """
        self.base = self.position = self.origin = after
        self.acked = max(after, acked)
        self.subscription.host.strand_began(self)

    def begin_in_past(self, after: Tick | None, *, acked: Tick = 0) -> None:
        """Begin at a position (R48), or, if it is None, with the oldest that the log has."""
        self.subscription.forget_early(self.pubend)
        self.is_asking = False
        self.position = after or 0
        self._hold_if_needed()
        if after is not None:
            self.begin(after, acked=acked)
        self.become(State.AWAY if self.subscription.client is None else State.CATCHING)

    def note_oldest(self) -> None:
        """Begin before all if the oldest was asked for and nobody has said yet what that is."""
        if self.base is None and self.state is not State.WAITING and self.subscription.durable:
            self.from_oldest = True
            self.begin(self.subscription.merged)  # in total order nothing can come below it (R51)

    def retake(self, ended: list[tuple[Segment, dict[PubendId, Tick]]]) -> None:
        """Let the filters of elsewhere govern: its client was told of them later than of those here."""
        self.course = []
        self.segment, self.next, self.switched_at = self.subscription.newest, None, None
        self.bring(ended)
        self.subend.register(self)
        self.subscription.host.strand_switched(self, self.position)

    def aim_at(self, segment: Segment) -> None:
        """Take a new filter over: where the stream reaches it, or at once if nothing is live."""
        if self.base is None:
            self.segment = segment
            self.catch_up.stop()  # what is under way is for the filter before
        else:
            self.next = segment
            self.subend.register(self)
            if self.state is not State.LIVE:
                self.switch_now()

    def offer_switch(self, low: Tick, time: VirtualTime) -> None:
        """Let the next filter take over at a tick, if that is reached (R47)."""
        if self.next is not None and self.state is State.LIVE and self.next.reached_by(time):
            # what was read from the log may lie beyond the horizon, and was read by the filter before
            self.switch(max(low - 1, self.position))

    def switch(self, end: Tick) -> None:
        """Let the present filter end after a tick."""
        assert self.next is not None
        self.course.append((self.segment, end))
        self.segment, self.next = self.next, None
        self.subend.register(self)
        self.switched_at = end
        self.subscription.host.strand_switched(self, end)

    def switch_now(self, *, surely: bool = False) -> None:
        """Let the next filter take over where the strand is, and read what it needs (R47).

        A filter that can match nothing keeps nothing of the log, so the next one cannot begin
        before the horizon; if that is not known yet, it waits, unless it must not.
        """
        if self.next is None:
            return
        keeps = self.subscription.host.meets(self.pubend, self.segment)
        if self.subend.horizon is None and not keeps and not surely:
            return
        end = max(
            self.subend.horizon or 0,
            self.position,
            self.acked,
            self.last_told,
            self.subscription.merged,  # in total order nothing can come below it
        )
        if self.is_live:
            self.leave_live()
        self.catch_up.stop()  # what is under way may go beyond the end
        self.switch(end)

    def raise_barrier(self, tick: Tick) -> None:
        """Tell the client nothing beyond a tick until :meth:`lower_barrier`."""
        self._barriers.append(tick)

    def lower_barrier(self) -> None:
        """A write is on disk, the oldest that was waited for."""
        self._barriers.popleft()

    # --- live ------------------------------------------------------------------------------------

    def take(self, segment: Segment, publications: list[Publication]) -> None:
        """Take publications, in tick order, that a segment matches, where it governs."""
        if publications[0].tick <= self.position or self.course or segment is not self.segment:
            publications = [
                each
                for each in publications
                if each.tick > self.position and self.governing(each.tick)[0] is segment
            ]
        if self.state is State.LIVE:
            self._put(publications)
        elif self.state is State.JOINING:
            self.catch_up.hold_back(publications)

    def _put(self, publications: list[Publication]) -> None:
        """Buffer what there is room for, and the rest when that is sent, while the client is live."""
        taken = self.buffer.put(publications)
        while taken < len(publications) and self.state is State.LIVE:
            publications = publications[taken:]
            self.subscription.review_answer()  # where it begins is told before its events
            self.subscription.drain()
            taken = self.buffer.put(publications)
            if not taken and self.state is State.LIVE:
                if not self.buffer.put_beyond(publications):
                    self.subscription.too_slow(self)
                    return
                break
        self.subscription.host.touch(self.subscription)

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take events that may be told: so many, up to a tick, before any loss."""
        return self.buffer.take_events(most, min(up_to, self.barrier))

    def take_loss(self, up_to: Tick) -> Lost | None:
        """Take a loss, if it is the next that may be told."""
        return self.buffer.take_loss(min(up_to, self.barrier))

    def lose(self, low: Tick, high: Tick) -> None:
        """Note that the log has lost a range that was owed."""
        low = max(low, self.position + 1)
        if self.state is State.JOINING:
            self.catch_up.held.clear()
            self.become(State.CATCHING)  # reading will say what is gone
        elif low <= high and self.wants_more:
            self.buffer.append_loss(Lost(low, high))
            self.subscription.host.touch(self.subscription)

    def rewind(self) -> None:
        """Drop what the client has no room for, and read it again later."""
        position = self.told
        self.leave_live()
        self.buffer.clear()
        self.position = position
        self.switch_now()

    def leave_live(self) -> None:
        """Read the log from here on."""
        self.position = self.frontier
        self.catch_up.held.clear()
        self.become(State.CATCHING)

    # --- going and coming ----------------------------------------------------------------------------

    def leave(self) -> None:
        """The client is gone; what it has not acknowledged comes from the log again."""
        self.catch_up.stop()
        self.switch_now()
        self.buffer.clear()
        self.catch_up.held.clear()
        self.last_told = 0
        if self.state is not State.WAITING:
            self.become(State.AWAY)

    def resume(self, position: Tick | None, *, exactly: bool = False) -> None:
        """The client is back and has seen everything up to its own position (R50)."""
        if self.base is None:  # it went before the log had said where it begins
            self.become(State.CATCHING)
        elif exactly and position is not None:
            self.seek(position)
        else:
            self.seek(max(self.acked, position or 0))

    def seek(self, position: Tick) -> None:
        """Go on after a tick."""
        self.catch_up.stop()
        self.buffer.clear()
        self.catch_up.held.clear()
        self.last_told = position  # what is below is not acknowledged by silence
        self.catch_up.forget_top()
        self.position = self.origin = position
        self._hold_if_needed()
        self.become(State.CATCHING)
        self.switch_now()

    def move_to(self, tick: Tick, *, oldest: bool = False) -> None:
        """Go on after a tick when the client comes, whatever it has acknowledged or seen.

        Below what is kept for this strand the log has to be held anew. If that is where the
        ``oldest`` is that the log has, what it has lost before is no gap.
        """
        assert self.subscription.client is None, "a stream does not jump inside a connection"
        if self.base is None:
            self.begin_in_past(tick)
        else:
            kept = tick >= max(self.kept_from, self.given_up)
            self.stay()
            self.moves += 1
            self.base = min(self.base, tick)
            self.position = self.origin = self.acked = tick
            self.drifting.sought(tick)
            self.acked_stored = min(self.acked_stored, tick)
            self.given_up = min(self.given_up, tick)
            self.untold = False
            if not kept and self.wants_more:
                self.holding.take()
        if self.holding.current is not None:
            self.from_oldest = oldest
            self.holding.look_after(due=True)

    def learn_oldest(self, released: Tick) -> None:
        """The log is held for it, and has nothing up to a tick: there it begins, if it is to."""
        if self.from_oldest:
            self.from_oldest = False
            if released > self.position:
                self.begin(released)

    # --- how much of the log must be kept ----------------------------------------------------------------

    def _hold_if_needed(self) -> None:
        """Take a hold for reading from a position that this host does not keep by reports (R49)."""
        if self.subscription.durable and self.base is not None:
            kept = self.position >= self.acked_stored  # by the floor, or by the hold that it has
        else:
            floor = self.subend.kept_above
            kept = floor is not None and self.position >= floor
        if not kept and self.wants_more:
            self.holding.take()
        elif not self.subscription.durable and self.holding.current is not None:
            # the hold it has may be above; reports keep the log for it from here on
            self.holding.release()

    @property
    def kept_from(self) -> Tick:
        """Above which tick the log is kept for it: from what is acknowledged, or where it reads."""
        if not self.subscription.durable:
            return self.told
        acked = max(self.acked_stored, self.base or 0)  # nothing below its base is ever needed
        return acked if self.state is State.AWAY else min(acked, self.told)

    @property
    def needed(self) -> Tick | None:
        """Up to where this strand needs the stream no more; None if it keeps nothing by reports."""
        if self.is_early and self.base is None:
            return self.position
        if self.state is State.WAITING or self.holding.is_safe:
            return None
        if not self.wants_more and not self._barriers:
            return None
        return max(self.kept_from, self.given_up)

    @property
    def waited_for(self) -> Tick | None:
        """Up to where reports may go, as far as this strand is concerned; None if that is far.

        One that is live has read what its hold was for. Reports wait for its client, whose
        acknowledgements would else stay behind them for ever, and the hold could not go.
        """
        if self.state is State.LIVE and self.holding.is_safe:
            return max(self.kept_from, self.subend.reported or 0)
        return self.needed

    def acknowledge(self, tick: Tick) -> None:
        """The client needs no more what is up to a tick."""
        self.acked = max(self.acked, min(tick, self.told))

    def give_up(self, tick: Tick) -> None:
        """Keep the log no more up to a tick: it is under pressure, and others wait (R58)."""
        if self.state is State.WAITING or max(self.kept_from, self.given_up) >= tick:
            return
        self.subscription.host.context.mark("gave up under pressure")
        self.given_up = tick
        if self.holding.current is not None:
            self.holding.release()

    @property
    def _parameters(self) -> Parameters:
        return self.subscription.host.context.parameters
