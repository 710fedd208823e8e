"""A subend: one stream of one pubend for all subscriptions of an SHB (GD 2.3, 4.1; R42 to R45).

Theory of operation
-------------------
Knowledge ranges come from a feed, in any order, and wait in an istream. The subend hands over, one
by one, the ranges that follow the doubt horizon. The stream epoch of a range contains the virtual
time up to which this SHB is served in its ticks:

- A pending cursor starts at the first tick of the range if its virtual start time is reached
  (VT 4.1.8). A pending next filter applies from that tick on. If nothing is known to exist above
  the horizon, both do so behind the horizon at once, by the stream epoch of the horizon.
- If a live cursor is *not* served (this SHB is inactive, or listed with a lower time), the range
  may be silent where the cursor has events. The range is not covered: the subend reads it from the
  log, exactly for every filter of this SHB.
- Then the publications go to the live cursors, and the horizon moves to the end of the range.

The subend sends nacks for ticks missing above the horizon (:mod:`.subend_nacks`). Ticks that the
log has released become a gap. The horizon never falls and passes over each tick once.
"""

from __future__ import annotations

from typing import Final

from gapless.core.context import Context
from gapless.core.ids import MembershipId, PubendId, VirtualTime
from gapless.core.ticks import Tick
from gapless.feeds.feed import Feed
from gapless.feeds.paths import FeedPaths
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import (
    AckExpected,
    AdvanceRequest,
    Attached,
    AttachKind,
    FeedUnavailable,
    KnowledgeRange,
    Released,
    StreamEpoch,
    Unreadable,
)
from gapless.stream.epochs import EMPTY_VECTOR, StreamEpochs
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import IStream, MemoryAccount
from gapless.stream.ranges import KnowledgeConflictError, cut
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_starts import start_at_end, start_cursors
from gapless.subscribers.groups import CursorGroups
from gapless.subscribers.protocols import PubendRequester
from gapless.subscribers.report_state import ReportState
from gapless.subscribers.start_query import StartQuery
from gapless.subscribers.subend_nacks import SubendNacks
from gapless.subscribers.subend_state import Joining, Left, NoBase, Open, SubendListener
from gapless.subscribers.uncovered_read import UncoveredRead

__all__ = ["Subend"]


class Subend:
    """One guaranteed stream at an SHB."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        membership: MembershipId,
        number: int,
        listener: SubendListener,
        requests: PubendRequester,
        account: MemoryAccount,
        paths: FeedPaths,
    ) -> None:
        self.pubend = pubend
        self.membership = membership
        self.number = number
        """Identifies the subend among those of this SHB."""
        self.groups = CursorGroups()
        self.reports = ReportState()
        self.served: VirtualTime | None = None
        """The virtual time up to which this SHB is served at the horizon."""
        self.fault = ""
        """Why the stream is stalled although it is fed: its log is corrupt there (P8)."""
        self._fault_at: Tick = 0
        """The lowest tick that could not be read."""
        self._context = context
        self._shb = context.identity.shb
        self._listener = listener
        self._paths = paths
        self._state: Joining | Open | Left = Joining()
        self._stream = IStream(pubend, account)
        self._stream_epochs = StreamEpochs()
        self._horizon: NoBase | DoubtHorizon = NoBase()
        self._listed_after: Tick | None = None
        """The member row of this SHB keeps the log above this tick; None if not known."""
        self._version = 0
        """The greatest announcement version of the ranges that were handed over."""
        self.sealed_at: Tick | None = None
        """The last tick of a pubend that is sealed or a tombstone (RS-32)."""
        self.last_event: Tick = 0
        self.is_over = False
        """Whether the pubend is a tombstone: nothing comes any more (RS-34)."""
        self._uncovered_read = UncoveredRead(context, self, requests, listener.covering_filter)
        self._query = StartQuery(context, self, requests)
        self._nacks = SubendNacks(context, self, self._stream_epochs)

    # --- state ---------------------------------------------------------------------------------

    @property
    def cursors(self) -> dict[str, Cursor]:
        """All cursors of the stream, by subscription."""
        return self.groups.all

    @property
    def stream(self) -> IStream:
        """The ranges that wait above the horizon."""
        return self._stream

    @property
    def stream_epochs(self) -> StreamEpochs:
        """The known stream epochs."""
        return self._stream_epochs

    @property
    def has_base(self) -> bool:
        """Whether the first tick of the stream is known."""
        return not isinstance(self._horizon, NoBase)

    @property
    def horizon(self) -> Tick:
        """The doubt horizon; 0 until the stream has a base."""
        return self._horizon.tick

    @property
    def retained_above(self) -> Tick | None:
        """Reports keep the log above this tick. A new member's row starts with its epoch (R53)."""
        if self.reports.greatest is None or self._listed_after is None:
            return None
        return max(self.reports.greatest, self._listed_after)

    @property
    def is_open(self) -> bool:
        """Whether the membership is on disk, and this SHB has not left."""
        return isinstance(self._state, Open)

    @property
    def feeder(self) -> str | None:
        """The broker that feeds the stream now."""
        state = self._state
        return state.feed.feeder if isinstance(state, Open) else None

    @property
    def is_cut_off(self) -> bool:
        """Whether a subscription needs the pubend and no broker feeds it."""
        return bool(self.cursors) and self.feeder is None and not self.is_at_end

    @property
    def is_at_end(self) -> bool:
        """Whether the horizon is at the last tick of a sealed pubend: it counts as being at ∞."""
        return self.sealed_at is not None and self.has_base and self.horizon >= self.sealed_at

    def open(self) -> None:
        """Look for a feeder; the membership is on disk."""
        if isinstance(self._state, Joining):
            leaf, eager = (AttachKind.LEAF, str(self._shb)), self.groups.is_merged
            feed = Feed(self._context, self.pubend, *leaf, self, self._paths, eager=eager)
            self._state = Open(feed)
            self.verify_starts()

    def close(self) -> None:
        """Close the subend for good."""
        state, self._state = self._state, Left()
        if isinstance(state, Open):
            state.feed.close()
        self._uncovered_read.stop()
        self._query.cancel()
        self._stream.forget_all()
        self._nacks.close()

    def rejoin(self, membership: MembershipId) -> None:
        """Join a sealed pubend again: its log is needed again, after this SHB had left."""
        assert isinstance(self._state, Left), "only a subend that has left joins again"
        self.membership, self._state = membership, Joining()

    @property
    def has_left(self) -> bool:
        """Whether this SHB has left a sealed pubend, of which it needed nothing any more."""
        return isinstance(self._state, Left) and not self.is_over

    def seal(self, last: Tick) -> None:
        """The pubend is sealed: no tick above the last one is ever D."""
        self.sealed_at = last
        if self.has_base:
            self._nacks.note_top(last)
        self._moved()

    def end(self, last: Tick, last_event: Tick) -> None:
        """The pubend is a tombstone: what was not received up to the last tick is a gap."""
        self.close()
        self.is_over, self.sealed_at, self.last_event = True, last, last_event
        if self.has_base:
            self._add_gap(last, last_event)
        else:
            self._horizon = DoubtHorizon(last)
        for cursor in [*self.cursors.values()]:
            cursor.ending.pubend_ended()
        self._moved()

    def register(self, cursor: Cursor) -> None:
        """Note the phase and the filters of a cursor, which may be new."""
        self.groups.register(cursor)
        self.reports.note_news()
        self._review_eager()

    def forget(self, cursor: Cursor) -> None:
        """A subscription does not need the pubend any more."""
        self.groups.forget(cursor)
        self.reports.note_news()
        self._review_eager()

    def _review_eager(self) -> None:
        """Request silence without delay if a merge waits for it."""
        if isinstance(self._state, Open):
            self._state.feed.set_eager(self.groups.is_merged)

    # --- the feed ------------------------------------------------------------------------------

    def retry_feed(self) -> None:
        """A peer session has opened: try the feed candidates again."""
        if isinstance(self._state, Open):
            self._state.feed.session_opened()

    def session_closed(self, peer: str) -> None:
        """A broker cannot be reached any more."""
        if isinstance(self._state, Open):
            self._state.feed.session_closed(peer)

    def take_attached(self, peer: str, message: Attached) -> None:
        """A router feeds this SHB."""
        if isinstance(self._state, Open):
            self._state.feed.attached(peer, message)

    def take_feed_unavailable(self, peer: str, message: FeedUnavailable) -> None:
        """A router cannot feed this SHB."""
        if isinstance(self._state, Open):
            self._state.feed.feed_unavailable(peer, message)

    after: Final = None  # a guaranteed stream has no position of best effort

    def feed_found(self, at: Tick, position: object = None) -> None:
        """A feeder was found. The stream starts above the tick of the first feeder (R42).

        The reply to a pending start query may contain an earlier start.
        """
        del position
        if self._query.is_pending:
            self._query.note_feed(at)
        elif not self.has_base:
            self.set_base(at)
        self._stream.raise_top(at if self.sealed_at is None else max(at, self.sealed_at))
        self._nacks.look_for_gaps()
        self._nacks.feed_found()
        self._listener.feed_found(self)
        self.advance()
        self._listener.advanced(self)

    def set_base(self, tick: Tick) -> None:
        """The stream starts after a tick."""
        self._horizon = DoubtHorizon(tick)
        for cursor in [*self.cursors.values()]:
            if cursor.subscription.client is not None and not cursor.is_live:
                cursor.filter_switch.switch_now()
        start_at_end(self, self._listener)

    def verify_starts(self) -> None:
        """Query the PHB since when it knew this SHB, if a cursor has a start guarantee (R46)."""
        self._query.send_if_due()

    def starts_verified(self) -> None:
        """The PHB has answered, and the cursors that waited for the answer have started."""
        self._nacks.look_for_gaps()
        self._nacks.send_due()
        self.advance()
        self._listener.advanced(self)

    def feed_sent_up_to(self, at: Tick) -> bool:
        """The feeder has sent everything up to a tick; nack what is missing at once (RS-11)."""
        is_new = at > self._stream.top
        if is_new:
            self._nacks.expedite(at)
        return is_new

    def feed_lost(self) -> None:
        """There is no feeder; nacks wait for the next one."""
        self._listener.feed_lost(self)

    # --- knowledge -----------------------------------------------------------------------------

    def receive(self, knowledge: KnowledgeRange) -> None:
        """Store a range and hand over the ranges that follow the horizon.

        A range that contradicts what is known counts as lost.
        """
        state, horizon = self._state, self._horizon
        if not isinstance(state, Open):
            return
        if knowledge.high > self._stream.top:
            state.feed.note_progress()
        if isinstance(horizon, NoBase) or knowledge.high <= horizon.tick:
            return
        if knowledge.low <= horizon.tick:
            knowledge = cut(knowledge, horizon.tick + 1, knowledge.high)
        state.feed.note_received()
        curiosity = self._nacks.curiosity
        curiosity.answered(knowledge.low, knowledge.high, self._context.now)
        if not self._take_next(knowledge, horizon):
            try:
                self._stream.accumulate(cut(knowledge, horizon.tick + 1, knowledge.high))
            except KnowledgeConflictError:
                self._context.mark("contradictory knowledge range")
            else:
                self.advance()
                self._bound()
        if horizon.tick != self._stream.top or len(curiosity):
            self._nacks.look_for_gaps()
            self._nacks.plan()

    def _take_next(self, knowledge: KnowledgeRange, horizon: DoubtHorizon) -> bool:
        """Hand over a range directly if it is next and no range waits, which is the usual case.

        Returns whether the whole range was handed over. Then it is not put into the istream.
        """
        if self._uncovered_read.is_pending or len(self._stream):
            return False
        if knowledge.low != horizon.tick + 1:
            return False
        self._stream.raise_top(knowledge.high)
        whole = self._hand_over(knowledge)
        if horizon.tick >= knowledge.low:
            self.ranges_passed()
        return whole

    def _bound(self) -> None:
        """Forget the ranges farthest from the horizon if too many bytes wait (R38)."""
        while len(self._stream) and (
            self._stream.account.bytes > self._context.parameters.cache_bytes
        ):
            self._context.mark("subend cache full")
            self._stream.forget_highest()

    def stream_epoch(self, message: StreamEpoch) -> None:
        """Learn a stream epoch that a range may wait for."""
        self._forget_stream_epochs()  # epochs also arrive while the stream is stalled
        if self._stream_epochs.learn(message):
            self.advance()

    def _forget_stream_epochs(self) -> None:
        kept = self._context.parameters.stream_epochs_kept
        if len(self._stream_epochs) > 2 * kept + 1:
            self._stream_epochs.forget(self._stream.stream_epochs(), kept)

    def advance(self) -> None:
        """Hand over all ranges that follow the horizon (R44)."""
        horizon = self._horizon
        if isinstance(horizon, NoBase) or self._uncovered_read.is_pending:
            return
        before = horizon.tick
        for knowledge in horizon.next_ranges(self._stream):
            if not self._hand_over(knowledge):
                break
        if horizon.tick > before:
            self._stream.forget_up_to(horizon.tick)
            self.ranges_passed()

    def _hand_over(self, knowledge: KnowledgeRange) -> bool:
        """Hand over the next range if its epoch is known and covers it; return whether."""
        vector = self._stream_epochs.get(knowledge.stream_epoch)
        if vector is None:
            if not self._nacks.is_epoch_lost(knowledge.stream_epoch):
                self._nacks.request_stream_epoch(knowledge.stream_epoch)
                return False
            self._context.mark("stream epoch is lost")
            vector = EMPTY_VECTOR  # no broker knows it: the range covers no SHB
        if vector.announcement_version > self._version:
            self._version = vector.announcement_version
            self._listener.served_at(self.pubend, self._version)
        entry = vector.entries.get(self._shb)
        time = None if entry is None else entry.time
        if not self.groups.is_covered(time):
            self._uncovered_read.start(knowledge)
            return False
        start_cursors(self, knowledge.low, time)
        return self._pass_matched(knowledge, time)

    def _pass_matched(self, knowledge: KnowledgeRange, time: VirtualTime | None) -> bool:
        """Pass over the part that may be delivered in this step; return whether it is all."""
        part = self._listener.matched(knowledge, self.advance) if self.groups.live else knowledge
        if part is not None:
            self.pass_over(part, time)
        return part is knowledge

    def ranges_passed(self) -> None:
        """Ranges were handed over: forget stream epochs and notify the listener."""
        self._forget_stream_epochs()
        self._moved()

    def pass_over(self, knowledge: KnowledgeRange, time: VirtualTime | None) -> None:
        """Deliver the publications of a range and move the horizon to its end.

        ``time`` is the virtual time up to which this SHB is served in the range.
        """
        horizon = self._horizon
        assert isinstance(horizon, DoubtHorizon)
        self.served = time
        if time is not None and self._listed_after is None:
            self._listed_after = knowledge.low - 1
        if knowledge.publications and self.groups.live:
            self._listener.deliver(self.pubend, knowledge.publications)
        horizon.pass_over(knowledge)

    def take_read(self, reply: ReadReply, high: Tick) -> bool:
        """Hand over a read in the place of the ranges up to ``high``; return whether all fits."""
        horizon = self._horizon
        assert isinstance(horizon, DoubtHorizon)
        before, whole = horizon.tick, True
        self._add_gap(reply.released, reply.last_released_match)
        for knowledge in reply.ranges:
            if knowledge.low > high or knowledge.high <= horizon.tick:
                continue
            part = cut(knowledge, horizon.tick + 1, high)
            vector = self._stream_epochs.get(part.stream_epoch)
            entry = None if vector is None else vector.entries.get(self._shb)
            if not self._pass_matched(part, None if entry is None else entry.time):
                whole = False
                break
        if horizon.tick > before:
            self._stream.forget_up_to(horizon.tick)
            self._moved()
        return whole

    # --- released and corrupt ranges -------------------------------------------------------------

    def released(self, message: Released) -> None:
        """The log has released ticks that a nack requested: a gap, never silence (R45)."""
        if self.has_base and message.up_to > self.horizon:
            self._add_gap(message.up_to, message.up_to)
            self.advance()
            self._moved()

    def _add_gap(self, up_to: Tick, last_match: Tick) -> None:
        """Continue above a released range. It may have contained events up to ``last_match``."""
        horizon = self._horizon
        assert isinstance(horizon, DoubtHorizon)
        low = horizon.tick + 1
        if up_to < low:
            return
        self._context.mark("gap at a subend")
        for cursor in [*self.groups.live.values()]:
            cursor.add_gap(low, last_match)
        horizon.skip_to(up_to)
        self._stream.raise_top(up_to)
        self._stream.forget_up_to(up_to)
        self._uncovered_read.stop()

    def unreadable(self, message: Unreadable) -> None:
        """The log is corrupt at ticks that a nack requested: stall, and notify the cursors (P8)."""
        if self.has_base and message.low > self.horizon:
            self.stall(message.low, message.reason)

    def stall(self, low: Tick, reason: str) -> None:
        """Note that the stream is stalled. A repeated call informs cursors added since."""
        self._context.mark("stream stalled by corruption")
        self.fault, self._fault_at = reason, low
        self._listener.stalled(self)

    def _moved(self) -> None:
        """Notify the listener that the horizon has moved."""
        self.reports.note_news()
        if self.fault and self.horizon >= self._fault_at:
            self.fault = ""
            self._listener.stalled(self)
        start_at_end(self, self._listener)
        self._listener.advanced(self)

    # --- requests --------------------------------------------------------------------------------

    def ack_expected(self, message: AckExpected) -> None:
        """An acknowledgement is overdue: send nacks; under pressure give up ticks (R57, R58)."""
        if not self.has_base:
            return
        self.reports.repeat_soon()  # what is expected may be lost, and is repeated seldom (R52)
        if message.pressure:
            for cursor in self.cursors.values():
                cursor.retention.give_up(message.tick)
        self._nacks.expedite(message.tick)

    def request_advance(self, tick: Tick) -> None:
        """Request silence up to a tick, for which a merge waits (R51)."""
        feeder = self.feeder
        if feeder is not None:
            self._context.send(feeder, AdvanceRequest(self.pubend, tick))
