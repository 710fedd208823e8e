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

from gapless.core.ids import ORIGIN, Join, PubendId, ShbId, VirtualTime
from gapless.core.limits import HOSTS_ASKED_MAX
from gapless.core.machine import Context, Timer
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate, Feed
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import (
    AckExpected,
    Advance,
    Attached,
    AttachKind,
    Member,
    Nack,
    Piece,
    Publication,
    Regime,
    RegimeWant,
    Released,
    Unfed,
    Unreadable,
)
from gapless.requests.carrier import Errand, Requests
from gapless.stream.curiosity import Curiosity
from gapless.stream.epochs import Regimes
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import Account, Stream
from gapless.stream.ranges import cut
from gapless.subscribers.cursor import Strand
from gapless.subscribers.groups import Crew

__all__ = ["Subend", "SubendOwner"]


class SubendOwner(Protocol):
    """The host of which a subend is a part."""

    def hand_over(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications, in tick order, to the strands that are live."""

    def fed(self, subend: Subend) -> None:
        """A feeder was found."""

    def unfed(self, subend: Subend) -> None:
        """The feeder was lost."""

    def advanced(self, subend: Subend) -> None:
        """The horizon has moved."""

    def stalled(self, subend: Subend) -> None:
        """The stream stands still because its log cannot be read there, or goes on."""

    def served_at(self, pubend: PubendId, version: int) -> None:
        """The stream is in a regime of an announcement version."""

    def everything_wanted(self) -> str:
        """Return the text of a filter that covers all that this host wants now."""


class Subend:
    """One guaranteed stream at a subscriber host."""

    def __init__(
        self,
        context: Context,
        pubend: PubendId,
        join: Join,
        number: int,
        owner: SubendOwner,
        requests: Requests,
        account: Account,
        candidates: Callable[[], list[Candidate]],
    ) -> None:
        self.pubend = pubend
        self.join = join
        self.number = number
        """Names it among the subends of its host."""
        self.crew = Crew()
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
        self._stream = Stream(pubend, account)
        self._regimes = Regimes()
        self._horizon: DoubtHorizon | None = None
        self._curiosity = Curiosity(context.parameters)
        self._feed: Feed | None = None
        self._due: Timer | None = None
        self._wanted_regime: tuple[int, int] | None = None
        """A regime that was asked for, and when to ask again."""
        self._version = 0
        """The greatest announcement version of what was handed over."""
        self._reading: Errand | None = None
        self._asking: Errand | None = None
        """Asks the pubend since when it knew of this host."""
        self._asked_of: set[ShbId] = set()
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
    def strands(self) -> dict[str, Strand]:
        """All strands of the stream, by subscription."""
        return self.crew.all

    @property
    def horizon(self) -> Tick | None:
        """The doubt horizon; None until the stream has a base."""
        return None if self._horizon is None else self._horizon.tick

    @property
    def kept_above(self) -> Tick | None:
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
        return bool(self.strands) and self.feeder is None

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
                eager=self.crew.is_merged,
            )
            self.ask_since_when()

    def close(self) -> None:
        """End for good."""
        self._closed = True
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        self._stop_reading()
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._stream.forget_all()
        if self._due is not None:
            self._due.cancel()

    def hasten(self) -> None:
        """Somebody can be asked for a feed who could not before."""
        if self._feed is not None:
            self._feed.session_opened()

    def session_closed(self, peer: str) -> None:
        """A broker cannot be reached any more."""
        if self._feed is not None:
            self._feed.session_closed(peer)

    def register(self, strand: Strand) -> None:
        """Note the state and the filters of a strand, old or new."""
        if self.crew.register(strand):
            self.review_eager()

    def forget(self, strand: Strand) -> None:
        """A subscription has ended."""
        if self.crew.forget(strand):
            self.review_eager()

    def attentive(self) -> Iterable[Strand]:
        """Return the strands that wait for the horizon to move."""
        return self.crew.attentive.values()

    def review_eager(self) -> None:
        """Have silence come at once if somebody waits in total order."""
        if self._feed is not None:
            self._feed.set_eager(self.crew.is_merged)

    # --- the feed ------------------------------------------------------------------------------

    def take_attached(self, peer: str, message: Attached) -> None:
        """A router feeds this host."""
        if self._feed is not None:
            self._feed.attached(peer, message)

    def take_unfed(self, peer: str, message: Unfed) -> None:
        """A router cannot feed this host."""
        if self._feed is not None:
            self._feed.unfed(peer, message)

    def fed(self, at: Tick) -> None:
        """A feeder was found; where the first one begins, the stream begins (R42).

        Unless the pubend, when it is asked, knows an earlier beginning.
        """
        if self._asking is not None:
            self._fed_at = at
        elif self._horizon is None:
            self._begin_after(at)
        self._stream.raise_top(at)
        self._look_for_gaps()
        self._curiosity.restart(self._context.now)
        self._wanted_regime = None
        self._ask()
        self._owner.fed(self)
        self.advance()
        self._owner.advanced(self)

    def _begin_after(self, tick: Tick) -> None:
        self._horizon = DoubtHorizon(tick)
        for strand in [*self.strands.values()]:
            if strand.subscription.client is not None and not strand.is_live:
                strand.switch_now()

    def ask_since_when(self) -> None:
        """Ask since when the pubend knew of this host, if somebody was here before it (R46).

        When the join is on disk: the pubend keeps its log for it from the answer on.
        """
        if self._asking is not None or self._feed is None:
            return
        asking = [strand for strand in self.crew.early.values() if strand.is_asking]
        if asking:
            self._asked_of = set()
            for strand in asking:
                if len(self._asked_of | strand.former_hosts) <= HOSTS_ASKED_MAX:
                    self._asked_of |= strand.former_hosts
            durable = any(strand.subscription.durable for strand in self.strands.values())
            newcomer = Member(self._shb, self.join, durable, ORIGIN)
            self._asking = self._requests.read(
                self.pubend,
                "FALSE",
                1,
                0,
                hold=None,
                newcomer=newcomer,
                hosts=tuple(sorted(self._asked_of)),
                then=self._since_when,
            )

    def _since_when(self, reply: ReadReply) -> None:
        """Begin where the pubend knew of this host; each strand where it knew of that."""
        self._context.mark("began before it came")
        self._asking = None
        known = {**dict(reply.others), self._shb: reply.known}
        early = self.crew.early.values()
        asked = [each for each in early if each.is_asking and each.former_hosts <= self._asked_of]
        begins = [(strand, strand.known_after(known)) for strand in asked]
        if self._horizon is None:
            ticks = [tick for _, tick in begins if tick is not None and tick >= reply.kept]
            ticks += [] if self._fed_at is None else [self._fed_at]
            if ticks:
                self._begin_after(min(ticks))
        for strand, tick in begins:
            if strand.asks_for_earlier:
                strand.begin_earlier(tick, reply)
            else:
                strand.begin_early(tick, reply)
        self.ask_since_when()  # for those that came since, and those of too many hosts
        self._look_for_gaps()
        self._ask()
        self.advance()
        self._owner.advanced(self)

    def fed_up_to(self, at: Tick) -> None:
        """Everything up to a tick was sent; what is not here was lost."""
        if at > self._stream.top:
            self._stream.raise_top(at)
            self._look_for_gaps()
            self._plan()

    def unfed(self) -> None:
        """There is no feeder; what is missing waits for the next one."""
        self._owner.unfed(self)

    # --- knowledge -----------------------------------------------------------------------------

    def receive(self, piece: Piece) -> None:
        """Take a piece in and hand over what can be."""
        if self._feed is None:
            return
        horizon = self._horizon
        if piece.high > self._stream.top:
            self._feed.note_progress()
        if horizon is None or piece.high <= horizon.tick:
            return
        if piece.low <= horizon.tick:
            piece = cut(piece, horizon.tick + 1, piece.high)
        self._curiosity.answered(piece.low, piece.high, self._context.now)
        if not self._take_next(piece):
            self._stream.accumulate(piece)
            self.advance()
            self._bound()
        if horizon.tick != self._stream.top or len(self._curiosity):
            self._look_for_gaps()
            self._plan()

    def _take_next(self, piece: Piece) -> bool:
        """Hand a piece over if it is the next one and nothing waits, which is the usual case.

        Then it has no place among those that wait. Says whether it was handed over.
        """
        horizon = self._horizon
        if horizon is None or self._reading is not None or len(self._stream):
            return False
        if piece.low != horizon.tick + 1:
            return False
        self._stream.raise_top(piece.high)
        if not self._hand_over(piece):
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

    def regime(self, message: Regime) -> None:
        """Learn a regime that a piece may wait for."""
        self._forget_regimes()  # a stream that stands still hears of them, too
        if self._regimes.learn(message):
            self.advance()

    def _forget_regimes(self) -> None:
        kept = self._context.parameters.regimes_kept
        if len(self._regimes) > 2 * kept + 1:
            self._regimes.forget(self._stream.regimes(), kept)

    def advance(self) -> None:
        """Hand over all pieces that follow the horizon (R44)."""
        if self._horizon is None or self._reading is not None:
            return
        before = self._horizon.tick
        for piece in self._horizon.next_pieces(self._stream):
            if not self._hand_over(piece):
                break
        if self._horizon.tick > before:
            self._stream.forget_up_to(self._horizon.tick)
            self._passed()

    def _hand_over(self, piece: Piece) -> bool:
        """Hand over the next piece, if what it is for is known and it is covered; say whether."""
        vector = self._regimes.get(piece.regime)
        if vector is None:
            self._want_regime(piece.regime)
            return False
        if vector.announcement_version > self._version:
            self._version = vector.announcement_version
            self._owner.served_at(self.pubend, self._version)
        entry = vector.entries.get(self._shb)
        time = None if entry is None else entry.time
        if not self.crew.is_covered(time):
            self._read_uncovered(piece)
            return False
        self._start_strands(piece.low, time)
        self._pass_over(piece, time)
        return True

    def _passed(self) -> None:
        """Pieces were handed over: forget regimes, and let others know."""
        self._forget_regimes()
        self._moved()

    def _start_strands(self, low: Tick, time: VirtualTime | None) -> None:
        if time is None:
            return
        for strand in [*self.crew.waiting.values()]:
            strand.offer_start(low, time)
        if self.crew.early:
            for strand in self.crew.early.values():
                strand.offer_early(low, time)
            self.ask_since_when()
        for strand in [*self.crew.changing.values()]:
            strand.offer_switch(low, time)

    def _pass_over(self, piece: Piece, time: VirtualTime | None) -> None:
        assert self._horizon is not None
        self.served = time
        if time is not None and self.listed_after is None:
            self.listed_after = piece.low - 1
        if piece.publications and self.crew.live:
            self._owner.hand_over(self.pubend, piece.publications)
        self._horizon.pass_over(piece)

    # --- what is not covered ---------------------------------------------------------------------

    def _read_uncovered(self, piece: Piece) -> None:
        """Read a range whose silence was not made for all who are live (R44)."""
        self._context.mark("piece not covered")
        turn = self.crew.turn

        def read(reply: ReadReply) -> None:
            self._reading = None
            if turn == self.crew.turn:
                self._take_read(reply, piece.high)
            self.advance()

        self._reading = self._requests.read(
            self.pubend,
            self._owner.everything_wanted(),
            piece.low,
            piece.high,
            hold=None,
            then=read,
            fault=lambda reason: self._stall(piece.low, reason),
        )

    def _take_read(self, reply: ReadReply, high: Tick) -> None:
        """Hand over what was read; it stands for the pieces of that range."""
        assert self._horizon is not None
        before = self._horizon.tick
        self._lose(reply.released, reply.gone)
        for piece in reply.pieces:
            if piece.low > high or piece.high <= self._horizon.tick:
                continue
            part = cut(piece, self._horizon.tick + 1, high)
            vector = self._regimes.get(part.regime)
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
            self._lose(message.up_to, message.up_to)
            self.advance()
            self._moved()

    def _lose(self, up_to: Tick, gone: Tick) -> None:
        """Go on above what is released; up to ``gone`` there may have been events."""
        assert self._horizon is not None
        low = self._horizon.tick + 1
        if up_to < low:
            return
        self._context.mark("gap at a subend")
        for strand in [*self.crew.live.values()]:
            strand.lose(low, gone)
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
        self._context.mark("stream stalled by damage")
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
            for strand in self.strands.values():
                strand.give_up(message.tick)
        if message.tick > self._stream.top:
            self._stream.raise_top(message.tick)
        self._look_for_gaps()
        self._curiosity.hasten(message.tick, self._context.now)
        self._ask()

    def ask_to_advance(self, tick: Tick) -> None:
        """Somebody waits in total order for silence up to a tick (R51)."""
        if self.feeder is not None:
            self._context.post(self.feeder, Advance(self.pubend, tick))

    def _look_for_gaps(self) -> None:
        if self._horizon is not None:
            doubts = self._horizon.doubts(self._stream, self._stream.top)
            self._curiosity.observe(doubts, self._context.now)

    def _ask(self) -> None:
        """Ask the feeder for what is due, and plan the next time."""
        if self.feeder is None:
            return
        ranges = self._curiosity.due(self._context.now)
        if ranges:
            self._context.post(self.feeder, Nack(self.pubend, tuple(ranges)))
        if self._wanted_regime is not None and self._wanted_regime[1] <= self._context.now:
            self._want_regime(self._wanted_regime[0])
        self._plan()

    def _want_regime(self, number: int) -> None:
        wanted = self._wanted_regime
        if wanted is not None and wanted[0] == number and wanted[1] > self._context.now:
            return
        again = self._context.now + 2 * us(ms=self._context.parameters.nrt_min_ms)
        self._wanted_regime = (number, again)
        if self.feeder is not None:
            self._context.post(self.feeder, RegimeWant(self.pubend, number))
        self._plan()

    def _plan(self) -> None:
        """Set the timer to when something is to be asked; a new feeder is asked at once."""
        if self.feeder is None:
            return
        due = self._curiosity.next_due()
        if self._wanted_regime is not None:
            if self._regimes.knows(self._wanted_regime[0]):
                self._wanted_regime = None
            elif due is None or self._wanted_regime[1] < due:
                due = self._wanted_regime[1]
        if self._due is not None:
            if self._due.action is not None and self._due.at == due:
                return
            self._due.cancel()
            self._due = None
        if due is not None:
            self._due = self._context.after(max(1, due - self._context.now), self._ask)
