"""A subend: one stream of one pubend for all subscribers of a host (GD 2.3, 4.1; R42 to R45).

Theory of operation
-------------------
Pieces come from a feed, in any order, and wait in an input stream. Those that follow the doubt
horizon are handed over one by one. A piece says by its regime up to which virtual time this host is
served in its ticks:

- a strand that waits starts at the piece's first tick if its virtual start time is reached (VT
  4.1.8), and a filter that waits to take over does so there;
- if a strand that is live is *not* reached (this host was parked, or is listed at less), what the
  piece calls silence may hide events for it. The piece is not covered: its range is read from the
  log instead, exact for everything this host wants;
- then its publications go to the strands that are live, and the horizon moves to its end.

What is missing above the horizon is asked for: after a while, again, lowest first (GD 3.2). What the
log no longer has is told as a gap. The horizon never falls and passes over each tick once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gapless.core.ids import VIRTUAL_TIME_ZERO, MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.limits import FORMER_HOSTS_PER_READ_MAX
from gapless.core.machine import Context, Timer
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate, Feed
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import (
    AckExpected,
    AdvanceRequest,
    Attached,
    AttachKind,
    FeedUnavailable,
    KnowledgeRange,
    Member,
    Nack,
    Publication,
    Released,
    StreamEpoch,
    StreamEpochRequest,
    Unreadable,
)
from gapless.requests.carrier import PendingRequest, PubendRequests
from gapless.stream.curiosity import Curiosity
from gapless.stream.epochs import StreamEpochs
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import IStream, MemoryAccount
from gapless.stream.ranges import cut
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.groups import CursorGroups

__all__ = ["Subend", "SubendOwner"]


class SubendOwner(Protocol):
    """The host of which a subend is a part."""

    def deliver(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications, in tick order, to the strands that are live."""

    def feed_found(self, subend: Subend) -> None:
        """A feeder was found."""

    def feed_lost(self, subend: Subend) -> None:
        """The feeder was lost."""

    def advanced(self, subend: Subend) -> None:
        """The horizon has moved."""

    def stalled(self, subend: Subend) -> None:
        """The stream stands still because its log cannot be read there, or goes on."""

    def served_at(self, pubend: PubendId, version: int) -> None:
        """The stream is in a regime of an announcement version."""

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all that this host wants now."""


class Subend:
    """One guaranteed stream at a subscriber host."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        membership: MembershipId,
        number: int,
        owner: SubendOwner,
        requests: PubendRequests,
        account: MemoryAccount,
        candidates: Callable[[], list[Candidate]],
    ) -> None:
        self.pubend = pubend
        self.membership = membership
        self.number = number
        """Names it among the subends of its host."""
        self.groups = CursorGroups()
        self.reported: Tick | None = None
        """The greatest tick that this host has reported in this life."""
        self.listed_after: Tick | None = None
        """Above this the log is kept by the pubend's row of this host; None if that is not known."""
        self.served: VirtualTime | None = None
        """Up to which virtual time this host is served at the horizon."""
        self._context = context
        self._shb = context.identity.shb
        self._owner = owner
        self._requests = requests
        self._candidates = candidates
        self._stream = IStream(pubend, account)
        self._stream_epochs = StreamEpochs()
        self._horizon: DoubtHorizon | None = None
        self._curiosity = Curiosity(context.parameters)
        self._feed: Feed | None = None
        self._due: Timer | None = None
        self._requested_epoch: tuple[int, int] | None = None
        """A regime that was asked for, and when to ask again."""
        self._version = 0
        """The greatest announcement version of what was handed over."""
        self._reading: PendingRequest | None = None
        self._verification: PendingRequest | None = None
        """Asks the pubend since when it knew of this host."""
        self._verified_hosts: set[ShbId] = set()
        """Of which other hosts that asks too."""
        self._fed_at: Tick | None = None
        """Where the stream would begin if the pubend did not know more."""
        self._closed = False
        self.fault = ""
        """Why the stream stands still though it is fed: its log cannot be read there (P8)."""
        self._fault_at: Tick = 0
        """The lowest tick that could not be read."""

    # --- what others ask -----------------------------------------------------------------------

    @property
    def cursors(self) -> dict[str, Cursor]:
        """All strands of the stream, by subscription."""
        return self.groups.all

    @property
    def horizon(self) -> Tick | None:
        """The doubt horizon; None until the stream has a base."""
        return None if self._horizon is None else self._horizon.tick

    @property
    def retained_above(self) -> Tick | None:
        """Above which tick reports keep the log; a new member's row begins with its regime (R53)."""
        if self.reported is None or self.listed_after is None:
            return None
        return max(self.reported, self.listed_after)

    @property
    def feeder(self) -> str | None:
        """Who feeds the stream now."""
        return None if self._feed is None else self._feed.feeder

    @property
    def is_cut_off(self) -> bool:
        """Whether somebody wants this pubend and nobody feeds it."""
        return bool(self.cursors) and self.feeder is None

    def open(self) -> None:
        """Begin to be fed; the join is on disk."""
        if self._feed is None and not self._closed:
            self._feed = Feed(
                self._context,
                self.pubend,
                AttachKind.LEAF,
                str(self._shb),
                self,
                self._candidates,
                eager=self.groups.is_merged,
            )
            self.verify_starts()

    def close(self) -> None:
        """End for good."""
        self._closed = True
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        self._stop_reading()
        if self._verification is not None:
            self._verification.cancel()
            self._verification = None
        self._stream.forget_all()
        if self._due is not None:
            self._due.cancel()

    def retry_feed(self) -> None:
        """Somebody can be asked for a feed who could not before."""
        if self._feed is not None:
            self._feed.session_opened()

    def session_closed(self, peer: str) -> None:
        """A broker cannot be reached any more."""
        if self._feed is not None:
            self._feed.session_closed(peer)

    def register(self, cursor: Cursor) -> None:
        """Note the state and the filters of a strand, old or new."""
        if self.groups.register(cursor):
            self.review_eager()

    def forget(self, cursor: Cursor) -> None:
        """A subscription has ended."""
        if self.groups.forget(cursor):
            self.review_eager()

    def cursors_behind(self) -> Iterable[Cursor]:
        """Return the strands that wait for the horizon to move."""
        return self.groups.behind.values()

    def review_eager(self) -> None:
        """Have silence come at once if somebody waits in total order."""
        if self._feed is not None:
            self._feed.set_eager(self.groups.is_merged)

    # --- the feed ------------------------------------------------------------------------------

    def take_attached(self, peer: str, message: Attached) -> None:
        """A router feeds this host."""
        if self._feed is not None:
            self._feed.attached(peer, message)

    def take_feed_unavailable(self, peer: str, message: FeedUnavailable) -> None:
        """A router cannot feed this host."""
        if self._feed is not None:
            self._feed.feed_unavailable(peer, message)

    def feed_found(self, at: Tick) -> None:
        """A feeder was found; where the first one begins, the stream begins (R42).

        Unless the pubend, when it is asked, knows an earlier beginning.
        """
        if self._verification is not None:
            self._fed_at = at
        elif self._horizon is None:
            self._start_after(at)
        self._stream.raise_top(at)
        self._look_for_gaps()
        self._curiosity.restart(self._context.now)
        self._requested_epoch = None
        self._ask()
        self._owner.feed_found(self)
        self.advance()
        self._owner.advanced(self)

    def _start_after(self, tick: Tick) -> None:
        self._horizon = DoubtHorizon(tick)
        for cursor in [*self.cursors.values()]:
            if cursor.subscription.client is not None and not cursor.is_live:
                cursor.switch_now()

    def verify_starts(self) -> None:
        """Ask since when the pubend knew of this host, if somebody was here before it (R46).

        When the join is on disk: the pubend keeps its log for it from the answer on.
        """
        if self._verification is not None or self._feed is None:
            return
        verifying = [cursor for cursor in self.groups.guaranteed.values() if cursor.is_verifying]
        if verifying:
            self._verified_hosts = set()
            for cursor in verifying:
                if len(self._verified_hosts | cursor.former_hosts) <= FORMER_HOSTS_PER_READ_MAX:
                    self._verified_hosts |= cursor.former_hosts
            durable = any(cursor.subscription.durable for cursor in self.cursors.values())
            joining_member = Member(self._shb, self.membership, durable, VIRTUAL_TIME_ZERO)
            self._verification = self._requests.read(
                self.pubend,
                "FALSE",
                1,
                0,
                log_hold=None,
                joining_member=joining_member,
                former_hosts=tuple(sorted(self._verified_hosts)),
                then=self._starts_verified,
            )

    def _starts_verified(self, reply: ReadReply) -> None:
        """Begin where the pubend knew of this host; each strand where it knew of that."""
        self._context.mark("start verified by the pubend")
        self._verification = None
        known = {**dict(reply.others), self._shb: reply.known}
        guaranteed = self.groups.guaranteed.values()
        asked = [
            each
            for each in guaranteed
            if each.is_verifying and each.former_hosts <= self._verified_hosts
        ]
        starts = [(cursor, cursor.guaranteed_start_after(known)) for cursor in asked]
        if self._horizon is None:
            ticks = [
                tick for _, tick in starts if tick is not None and tick >= reply.retained_above
            ]
            ticks += [] if self._fed_at is None else [self._fed_at]
            if ticks:
                self._start_after(min(ticks))
        for cursor, tick in starts:
            if cursor.is_start_unverified:
                cursor.move_start_back(tick, reply)
            else:
                cursor.start_guaranteed(tick, reply)
        self.verify_starts()  # for those that came since, and those of too many hosts
        self._look_for_gaps()
        self._ask()
        self.advance()
        self._owner.advanced(self)

    def feed_sent_up_to(self, at: Tick) -> None:
        """Everything up to a tick was sent; what is not here was lost."""
        if at > self._stream.top:
            self._stream.raise_top(at)
            self._look_for_gaps()
            self._plan()

    def feed_lost(self) -> None:
        """There is no feeder; what is missing waits for the next one."""
        self._owner.feed_lost(self)

    # --- knowledge -----------------------------------------------------------------------------

    def receive(self, knowledge: KnowledgeRange) -> None:
        """Take a piece in and hand over what can be."""
        if self._feed is None:
            return
        horizon = self._horizon
        if knowledge.high > self._stream.top:
            self._feed.note_progress()
        if horizon is None or knowledge.high <= horizon.tick:
            return
        if knowledge.low <= horizon.tick:
            knowledge = cut(knowledge, horizon.tick + 1, knowledge.high)
        self._curiosity.answered(knowledge.low, knowledge.high, self._context.now)
        if not self._take_next(knowledge):
            self._stream.accumulate(knowledge)
            self.advance()
            self._bound()
        if horizon.tick != self._stream.top or len(self._curiosity):
            self._look_for_gaps()
            self._plan()

    def _take_next(self, knowledge: KnowledgeRange) -> bool:
        """Hand a piece over if it is the next one and nothing waits, which is the usual case.

        Then it has no place among those that wait. Says whether it was handed over.
        """
        horizon = self._horizon
        if horizon is None or self._reading is not None or len(self._stream):
            return False
        if knowledge.low != horizon.tick + 1:
            return False
        self._stream.raise_top(knowledge.high)
        if not self._hand_over(knowledge):
            return False
        self._passed()
        return True

    def _bound(self) -> None:
        """Forget what is farthest from the horizon if too much waits (R38)."""
        while len(self._stream) and (
            self._stream.account.bytes > self._context.parameters.cache_bytes
        ):
            self._context.mark("subend forgot")
            self._stream.forget_highest()

    def stream_epoch(self, message: StreamEpoch) -> None:
        """Learn a regime that a piece may wait for."""
        self._forget_stream_epochs()  # a stream that stands still hears of them, too
        if self._stream_epochs.learn(message):
            self.advance()

    def _forget_stream_epochs(self) -> None:
        kept = self._context.parameters.stream_epochs_kept
        if len(self._stream_epochs) > 2 * kept + 1:
            self._stream_epochs.forget(self._stream.stream_epochs(), kept)

    def advance(self) -> None:
        """Hand over all pieces that follow the horizon (R44)."""
        if self._horizon is None or self._reading is not None:
            return
        before = self._horizon.tick
        for knowledge in self._horizon.next_ranges(self._stream):
            if not self._hand_over(knowledge):
                break
        if self._horizon.tick > before:
            self._stream.forget_up_to(self._horizon.tick)
            self._passed()

    def _hand_over(self, knowledge: KnowledgeRange) -> bool:
        """Hand over the next piece, if what it is for is known and it is covered; say whether."""
        vector = self._stream_epochs.get(knowledge.stream_epoch)
        if vector is None:
            self._request_stream_epoch(knowledge.stream_epoch)
            return False
        if vector.announcement_version > self._version:
            self._version = vector.announcement_version
            self._owner.served_at(self.pubend, self._version)
        entry = vector.entries.get(self._shb)
        time = None if entry is None else entry.time
        if not self.groups.is_covered(time):
            self._read_uncovered(knowledge)
            return False
        self._start_cursors(knowledge.low, time)
        self._pass_over(knowledge, time)
        return True

    def _passed(self) -> None:
        """Pieces were handed over: forget regimes, and let others know."""
        self._forget_stream_epochs()
        self._moved()

    def _start_cursors(self, low: Tick, time: VirtualTime | None) -> None:
        if time is None:
            return
        for cursor in [*self.groups.pending.values()]:
            cursor.start_if_served(low, time)
        if self.groups.guaranteed:
            for cursor in self.groups.guaranteed.values():
                cursor.verify_again(low, time)
            self.verify_starts()
        for cursor in [*self.groups.changing.values()]:
            cursor.switch_if_served(low, time)

    def _pass_over(self, knowledge: KnowledgeRange, time: VirtualTime | None) -> None:
        assert self._horizon is not None
        self.served = time
        if time is not None and self.listed_after is None:
            self.listed_after = knowledge.low - 1
        if knowledge.publications and self.groups.live:
            self._owner.deliver(self.pubend, knowledge.publications)
        self._horizon.pass_over(knowledge)

    # --- what is not covered ---------------------------------------------------------------------

    def _read_uncovered(self, knowledge: KnowledgeRange) -> None:
        """Read a range whose silence was not made for all who are live (R44)."""
        self._context.mark("knowledge range not covered")
        turn = self.groups.turn

        def read(reply: ReadReply) -> None:
            self._reading = None
            if turn == self.groups.turn:
                self._take_read(reply, knowledge.high)
            self.advance()

        self._reading = self._requests.read(
            self.pubend,
            self._owner.covering_filter(),
            knowledge.low,
            knowledge.high,
            log_hold=None,
            then=read,
            fault=lambda reason: self._stall(knowledge.low, reason),
        )

    def _take_read(self, reply: ReadReply, high: Tick) -> None:
        """Hand over what was read; it stands for the pieces of that range."""
        assert self._horizon is not None
        before = self._horizon.tick
        self._add_gap(reply.released, reply.last_released_match)
        for knowledge in reply.ranges:
            if knowledge.low > high or knowledge.high <= self._horizon.tick:
                continue
            part = cut(knowledge, self._horizon.tick + 1, high)
            vector = self._stream_epochs.get(part.stream_epoch)
            entry = None if vector is None else vector.entries.get(self._shb)
            self._pass_over(part, None if entry is None else entry.time)
        if self._horizon.tick > before:
            self._stream.forget_up_to(self._horizon.tick)
            self._moved()

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    # --- what is gone ----------------------------------------------------------------------------

    def released(self, message: Released) -> None:
        """The log no longer has what was asked for: a gap, never silence (R45)."""
        if self._horizon is not None and message.up_to > self._horizon.tick:
            self._add_gap(message.up_to, message.up_to)
            self.advance()
            self._moved()

    def _add_gap(self, up_to: Tick, last_match: Tick) -> None:
        """Go on above what is released; up to ``gone`` there may have been events."""
        assert self._horizon is not None
        low = self._horizon.tick + 1
        if up_to < low:
            return
        self._context.mark("gap at a subend")
        for cursor in [*self.groups.live.values()]:
            cursor.add_gap(low, last_match)
        self._horizon.skip_to(up_to)
        self._stream.raise_top(up_to)
        self._stream.forget_up_to(up_to)
        self._stop_reading()

    # --- what cannot be read -----------------------------------------------------------------------

    def unreadable(self, message: Unreadable) -> None:
        """The log has what was asked for, and it cannot be read: wait, and let all know (P8)."""
        if self._horizon is not None and message.low > self._horizon.tick:
            self._stall(message.low, message.reason)

    def _stall(self, low: Tick, reason: str) -> None:
        """Note where the stream stands still; also again, for those who came since."""
        self._context.mark("stream stalled by corruption")
        self.fault, self._fault_at = reason, low
        self._owner.stalled(self)

    def _moved(self) -> None:
        """Let those who wait for it know that the horizon has moved."""
        assert self._horizon is not None
        if self.fault and self._horizon.tick >= self._fault_at:
            self.fault = ""
            self._owner.stalled(self)
        self._owner.advanced(self)

    # --- curiosity -------------------------------------------------------------------------------

    def ack_expected(self, message: AckExpected) -> None:
        """An acknowledgement is overdue: look for gaps at once; under pressure let go (R57, R58)."""
        if self._horizon is None:
            return
        if message.pressure:
            for cursor in self.cursors.values():
                cursor.give_up(message.tick)
        if message.tick > self._stream.top:
            self._stream.raise_top(message.tick)
        self._look_for_gaps()
        self._curiosity.expedite(message.tick, self._context.now)
        self._ask()

    def ask_to_advance(self, tick: Tick) -> None:
        """Somebody waits in total order for silence up to a tick (R51)."""
        if self.feeder is not None:
            self._context.send(self.feeder, AdvanceRequest(self.pubend, tick))

    def _look_for_gaps(self) -> None:
        if self._horizon is not None:
            doubts = self._horizon.unknown_ranges(self._stream, self._stream.top)
            self._curiosity.observe(doubts, self._context.now)

    def _ask(self) -> None:
        """Ask the feeder for what is due, and plan the next time."""
        if self.feeder is None:
            return
        ranges = self._curiosity.due(self._context.now)
        if ranges:
            self._context.send(self.feeder, Nack(self.pubend, tuple(ranges)))
        if self._requested_epoch is not None and self._requested_epoch[1] <= self._context.now:
            self._request_stream_epoch(self._requested_epoch[0])
        self._plan()

    def _request_stream_epoch(self, number: int) -> None:
        requested = self._requested_epoch
        if requested is not None and requested[0] == number and requested[1] > self._context.now:
            return
        again = self._context.now + 2 * microseconds(ms=self._context.parameters.nrt_min_ms)
        self._requested_epoch = (number, again)
        if self.feeder is not None:
            self._context.send(self.feeder, StreamEpochRequest(self.pubend, number))
        self._plan()

    def _plan(self) -> None:
        """Set the timer to when something is to be asked; a new feeder is asked at once."""
        if self.feeder is None:
            return
        due = self._curiosity.next_due()
        if self._requested_epoch is not None:
            if self._stream_epochs.knows(self._requested_epoch[0]):
                self._requested_epoch = None
            elif due is None or self._requested_epoch[1] < due:
                due = self._requested_epoch[1]
        if self._due is not None:
            if self._due.action is not None and self._due.at == due:
                return
            self._due.cancel()
            self._due = None
        if due is not None:
            self._due = self._context.call_later(max(1, due - self._context.now), self._ask)
