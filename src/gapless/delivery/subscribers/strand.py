"""A strand: one subscription on one pubend (R46 to R48).

States::

    WAITING  has not started: no tick is owed yet
    LIVE     takes what the subend hands over
    CATCHING reads the log, from a position on
    JOINING  reads the last stretch up to a tick J and holds what the subend hands over above it
    AWAY     started, but its client is gone: what it is owed stays in the log

    WAITING --its virtual time is reached--> LIVE, CATCHING or AWAY
    CATCHING --near the horizon, and covered there--> JOINING --J is read--> LIVE
    JOINING --too much is held--> CATCHING
    LIVE --the client is slow, or a filter change was not answered--> CATCHING
    any but WAITING --the client goes--> AWAY --it comes back--> CATCHING

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
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from gapless.core.ids import PubendId, VirtualTime
from gapless.core.parameters import Parameters
from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.delivery.subscribers.holding import Holding
from gapless.delivery.subscribers.segments import Segment
from gapless.messages.clients import Order
from gapless.messages.requests import ReadReply
from gapless.messages.streams import Publication

if TYPE_CHECKING:
    from gapless.delivery.requests import Errand
    from gapless.delivery.subscribers.subend import Subend
    from gapless.delivery.subscribers.subscription import Subscription

__all__ = ["FOREVER", "Lost", "State", "Strand"]

FOREVER: Final = 2**62
"""Above every tick."""


class State(Enum):
    """Where a strand stands."""

    WAITING = "waiting"
    LIVE = "live"
    CATCHING = "catching"
    JOINING = "joining"
    AWAY = "away"


class Lost(NamedTuple):
    """A range in a buffer that the log no longer has."""

    low: Tick
    high: Tick

    @property
    def tick(self) -> Tick:
        """Where it stands among publications."""
        return self.low


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
        self.buffer: deque[Publication | Lost] = deque()
        self.last_told: Tick = 0
        """The last tick that the client was sent an event of."""
        self.holding = Holding(self)
        self._barriers: deque[Tick] = deque()
        self._held: list[Publication] = []
        self._join_at: Tick = 0
        self._top: Tick | None = None
        """The stream's top when the log was last read."""
        self._errand: Errand | None = None
        self._reading = 0
        """Counts reads: an answer to an older one is not for us."""

    @property
    def pubend(self) -> PubendId:
        """Which stream."""
        return self.subend.pubend

    @property
    def is_live(self) -> bool:
        """Whether it takes what the subend hands over."""
        return self.state in {State.LIVE, State.JOINING}

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
            return self.buffer[0].tick - 1
        return min(self.frontier, self.barrier)

    @property
    def barrier(self) -> Tick:
        """Up to here the client may be told, until a write is on disk."""
        return min(self._barriers, default=FOREVER)

    @property
    def settled(self) -> bool:
        """Whether it can be said where it goes on: that is on disk, and the log is kept for it."""
        kept = self.holding.current is None or self.holding.is_safe
        return self.base is not None and not self._barriers and kept

    @property
    def is_writing(self) -> bool:
        """Whether something about it is on its way to the disk."""
        return bool(self._barriers)

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
        passed = self.acked_stored if self.subscription.durable else self.told
        segments = [segment for segment, end in self.course if end > passed]
        segments += [self.segment] if self.next is None else [self.segment, self.next]
        return any(self.subscription.host.meets(self.pubend, each) for each in segments)

    def prune(self) -> None:
        """Forget segments whose last tick will not be asked for again."""
        passed = self.acked_stored if self.subscription.durable else self.told
        self.course = [(segment, end) for segment, end in self.course if end > passed]

    # --- starting and switching ----------------------------------------------------------------

    def offer_start(self, low: Tick, time: VirtualTime) -> None:
        """Start at a tick whose regime serves this host up to a time, if that is enough (R44)."""
        subscription = self.subscription
        owed_from = self.segment.owed_from if subscription.durable else self.segment.start
        if owed_from is None or owed_from > time:
            return
        # in total order a stream that comes later starts above what was merged before (R51)
        self.begin(max(low - 1, subscription.merged))
        if subscription.client is None:
            self.untold = True
            self.become(State.AWAY)
        elif self.segment.reached_by(time):
            self.become(State.LIVE)
        else:
            self.become(State.CATCHING)

    def begin(self, after: Tick) -> None:
        """Note after which tick the strand begins; on disk before it is told."""
        self.base = self.position = self.acked = self.origin = after
        self.subscription.host.strand_began(self)

    def begin_in_past(self, after: Tick | None) -> None:
        """Begin at a position (R48), or, if it is None, with the oldest that the log has."""
        self.position = after or 0
        self._hold_if_needed()
        if after is not None:
            self.begin(after)
        self.become(State.AWAY if self.subscription.client is None else State.CATCHING)

    def aim_at(self, segment: Segment) -> None:
        """Take a new filter over: where the stream reaches it, or at once if nothing is live."""
        if self.base is None:
            self.segment = segment
            self.stop_reading()  # what is under way is for the filter before
        else:
            self.next = segment
            if self.state is not State.LIVE:
                self.switch_now()

    def offer_switch(self, low: Tick, time: VirtualTime) -> None:
        """Let the next filter take over at a tick, if that is reached (R47)."""
        if self.next is not None and self.state is State.LIVE and self.next.reached_by(time):
            self.switch(low - 1)

    def switch(self, end: Tick) -> None:
        """Let the present filter end after a tick."""
        assert self.next is not None
        self.course.append((self.segment, end))
        self.segment, self.next = self.next, None
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
            self._leave_live()
        self.stop_reading()  # what is under way may go beyond the end
        self.switch(end)

    def raise_barrier(self, tick: Tick) -> None:
        """Tell the client nothing beyond a tick until :meth:`lower_barrier`."""
        self._barriers.append(tick)

    def lower_barrier(self) -> None:
        """A write is on disk, the oldest that was waited for."""
        self._barriers.popleft()

    # --- live ------------------------------------------------------------------------------------

    def take(self, segment: Segment, publication: Publication) -> None:
        """Take a publication that a segment of the subscription matches, if it governs here."""
        tick = publication.tick
        if tick <= self.position or self.governing(tick)[0] is not segment:
            return
        if self.state is State.LIVE:
            self._put(publication)
        elif self.state is State.JOINING and tick > self._join_at:
            self._held.append(publication)
            if len(self._held) > self._parameters.join_hold:
                self.subscription.host.context.mark("joining held too much")
                self._held.clear()
                self.become(State.CATCHING)

    def _put(self, publication: Publication) -> None:
        if len(self.buffer) >= self._parameters.prefetch_max:
            self.subscription.review_answer()  # where it begins is told before its events
            self.subscription.drain()
            if len(self.buffer) >= self._parameters.prefetch_max:
                self.subscription.too_slow(self)
                return
        self.buffer.append(publication)
        self.subscription.host.touch(self.subscription)

    def lose(self, low: Tick, high: Tick) -> None:
        """Note that the log has lost a range that was owed."""
        low = max(low, self.position + 1)
        if self.state is State.JOINING:
            self._held.clear()
            self.become(State.CATCHING)  # reading will say what is gone
        elif low <= high and self.wants_more:
            self.buffer.append(Lost(low, high))
            self.subscription.host.touch(self.subscription)

    def rewind(self) -> None:
        """Drop what the client has no room for, and read it again later."""
        position = self.told
        self._leave_live()
        self.buffer.clear()
        self.position = position
        self.switch_now()

    def _leave_live(self) -> None:
        self.position = self.frontier
        self._held.clear()
        self.become(State.CATCHING)

    # --- catching up -------------------------------------------------------------------------------

    def pump(self) -> None:
        """Go on reading, or join the live stream (R48)."""
        if self._errand is not None or self.subscription.client is None:
            return
        if len(self.buffer) >= self._parameters.prefetch_max:
            return  # nor join: the next event would be one too many, and all be read again
        if self.state is State.CATCHING:
            self._try_to_join()
        if self.state not in {State.CATCHING, State.JOINING}:
            return
        known = max(self.subend.horizon or 0, self._top or 0)
        if self._top is not None and self.position >= known:
            return  # nothing more is there yet
        segment, end = self.governing(self.position + 1)
        if self.base is not None and not self.subscription.host.meets(self.pubend, segment):
            self._pass_over(min(end, known))
        else:
            high = min(end, self._join_at) if self.state is State.JOINING else end
            self._read(segment, high)

    def _pass_over(self, high: Tick) -> None:
        """Go on without reading: a filter that can match nothing of the stream governs here."""
        if high > self.position:
            self.position = high
            self._join_if_read()
            self.subscription.host.touch(self.subscription)

    def _try_to_join(self) -> None:
        horizon = self.subend.horizon
        if horizon is None or self.base is None or not self.segment.reached_by(self.subend.served):
            return
        window = self._parameters.join_window_ms * TICKS_PER_MS
        if self.position < horizon - window or self.governing(self.position + 1)[1] != FOREVER:
            return
        if self.position >= horizon:
            self.become(State.LIVE)
        else:
            self._join_at = horizon
            self.become(State.JOINING)

    def _read(self, segment: Segment, high: Tick) -> None:
        self._reading += 1
        turn, hold = self._reading, self.holding.named()

        def read(reply: ReadReply) -> None:
            if turn == self._reading:
                self._reading += 1
                self._errand = None
                self.holding.answered(hold)
                self._take_read(reply, segment, high)

        errand = self.subscription.host.requests.read(
            self.pubend,
            segment.text,
            self.position + 1,
            high,
            hold=hold,
            hold_tick=self.kept_from,
            then=read,
        )
        if turn == self._reading:
            self._errand = errand

    def _take_read(self, reply: ReadReply, segment: Segment, high: Tick) -> None:
        self._top = reply.top
        if reply.released > self.position:
            if self.base is not None and self.subscription.host.meets(self.pubend, segment):
                self.buffer.append(Lost(self.position + 1, reply.released))
            self.position = reply.released
        if self.base is None:
            self.begin(max(self.position, self.subscription.merged))
        for piece in reply.pieces:
            self.buffer.extend(
                each for each in piece.publications if self.position < each.tick <= high
            )
        self.position = max(self.position, min(reply.done, high))
        self._join_if_read()
        # what is to be told of the strand itself is told before its events, when the step ends
        self.subscription.host.touch(self.subscription)

    def _join_if_read(self) -> None:
        if self.state is State.JOINING and self.position >= self._join_at:
            self.buffer.extend(self._held)
            self._held.clear()
            self.become(State.LIVE)

    def stop_reading(self) -> None:
        """An answer that is under way is no longer wanted."""
        self._reading += 1
        if self._errand is not None:
            self._errand.cancel()
            self._errand = None

    # --- going and coming ----------------------------------------------------------------------------

    def leave(self) -> None:
        """The client is gone; what it has not acknowledged comes from the log again."""
        self.stop_reading()
        self.switch_now()
        self.buffer.clear()
        self._held.clear()
        self.last_told = 0
        if self.state is not State.WAITING:
            self.become(State.AWAY)

    def resume(self, position: Tick | None) -> None:
        """The client is back and has seen everything up to its own position (R50)."""
        if self.base is None:  # it went before the log had said where it begins
            self.become(State.CATCHING)
        else:
            self.seek(max(self.acked, position or 0))

    def seek(self, position: Tick) -> None:
        """Go on after a tick."""
        self.stop_reading()
        self.buffer.clear()
        self._held.clear()
        self.last_told = position  # what is below is not acknowledged by silence
        self._top = None
        self.position = self.origin = position
        self._hold_if_needed()
        self.become(State.CATCHING)
        self.switch_now()

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
        if self.state is State.WAITING or self.holding.is_safe:
            return None
        if not self.wants_more and not self._barriers:
            return None
        return max(self.kept_from, self.given_up)

    def acknowledge(self, tick: Tick) -> None:
        """The client needs no more what is up to a tick."""
        self.acked = max(self.acked, min(tick, self.told))

    def acknowledge_silence(self) -> None:
        """If all that was told is acknowledged, so is the silence behind it."""
        if self.state in {State.LIVE, State.CATCHING, State.JOINING} and (
            self.last_told <= self.acked
        ):
            self.acked = max(self.acked, self.told)

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
