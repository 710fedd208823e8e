"""The subscriber host: all subends and subscriptions of a broker, and what joins them (R42 to R50).

It knows which pubends there are and which subscriptions could match something of each. A pubend
that somebody needs is *joined*: the join is on disk, then its subend is fed and reported (R43). One
that nobody has needed for a while is left, and its broker may forget this host.

One index over all filters finds who wants a publication; which filter of a subscription governs a
tick is asked of the strand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from gapless.content import Conjunction
from gapless.content.filter import EVERYTHING, Filter
from gapless.content.matching import MatchIndex
from gapless.core.ids import BrokerId, Join, PubendId, VirtualTime
from gapless.core.limits import ROOTS_READ_MAX
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate
from gapless.messages.clients import BeginKind, Cause, Ended, Order, Owed
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import Erase, JoinRecord, Store, SubscriptionRecord
from gapless.messages.streams import Publication, SetForget
from gapless.requests.carrier import Errand, Requests
from gapless.stream.istream import Account
from gapless.subscribers.abandonment import Abandonment
from gapless.subscribers.best_effort_end import LooseEnd
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless.subscribers.filter_segments import Segment
from gapless.subscribers.start_guarantee import NOT_OWED, Early, joined
from gapless.subscribers.subend import Subend
from gapless.subscribers.subscription import Subscription, Told

__all__ = ["Leaf", "SubscriberHost"]


class Leaf(Protocol):
    """The table that says what this host wants."""

    @property
    def time(self) -> VirtualTime:
        """The virtual time of what was said last."""

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that cover all others."""

    def own(self, owner: int, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Let an owner want conjunctions; return its virtual start time."""

    def disown(self, owner: int) -> None:
        """Let an owner want nothing more."""


class _Offer:
    """A pubend that is announced."""

    __slots__ = ("advertisement", "best_effort", "version")

    def __init__(self, advertisement: Filter, version: int, *, best_effort: bool) -> None:
        self.advertisement = advertisement
        self.version = version
        self.best_effort = best_effort


class SubscriberHost:
    """A broker in its role as host of subscribers."""

    def __init__(
        self,
        context: Context,
        leaf: Leaf,
        requests: Requests,
        candidates: Callable[[PubendId], list[Candidate]],
        joins: Iterable[JoinRecord] = (),
    ) -> None:
        self.context = context
        self.requests = requests
        self.leaf = leaf
        self.subscriptions: dict[str, Subscription] = {}
        self.subends: dict[PubendId, Subend] = {}
        self.loose: dict[PubendId, LooseEnd] = {}
        self.report: Callable[[Subend], None] = _no_report
        """Reports a pubend now."""
        self.obstacle: Callable[[PubendId], str] = _no_way
        """Says what is in the way of a feed of a pubend; only for people (R11, R12)."""
        self._candidates = candidates
        self._account = Account()
        self.backlog = Account()
        """What waits for slow clients beyond what always may."""
        self.ending: list[dict[PubendId, Tick]] = []
        """What durable subscriptions need that have ended and are not gone from the disk yet."""
        joins = tuple(joins)
        self.joins: dict[PubendId, Join] = {each.pubend: each.join for each in joins}
        """The stays of this host, those that are about to end included."""
        self.unheard = {*self.joins}
        """Pubends that an earlier life has joined and this one has not heard of yet."""
        self.abandonment = Abandonment(self, joins)
        self._unneeded: dict[PubendId, int] = {}
        """Since when nobody needs a pubend that is joined."""
        self._leaving: dict[PubendId, Join] = {}
        self._farewells: dict[PubendId, Errand] = {}
        """The leave that is taken of each pubend that is left."""
        self._offers: dict[PubendId, _Offer] = {}
        self._index = MatchIndex()
        self._segments: dict[int, Segment] = {}
        self._count = 0
        self._join_count = 0
        self._touched: dict[str, Subscription] = {}
        self._behind: dict[str, tuple[Subscription, int]] = {}
        """Subscriptions that are not durable and could not keep up, and since when."""
        self._slow: list[Subscription] = []
        self._full: set[str] = set()
        """Clients whose connections take no more now; what they are owed waits here."""
        context.after(self._review_us, self._review)

    @property
    def _review_us(self) -> int:
        return max(1, us(s=self.context.parameters.linger_s) // 4)

    # --- filters -------------------------------------------------------------------------------

    def make_segment(self, subscription: Subscription, wanted: Filter) -> Segment:
        """Return a new segment of a subscription; nobody is told of it yet."""
        self._count += 1
        segment = Segment(subscription, self._count, wanted)
        subscription.segments.append(segment)
        return segment

    def own(self, segment: Segment) -> None:
        """Put a segment into the table and the index (R16)."""
        if segment.start is None:
            segment.start = self.leaf.own(segment.number, segment.filter.conjunctions)
            self._index.add(segment.number, segment.filter)
            self._segments[segment.number] = segment
            if segment.owed_from is None:
                segment.owed_from = segment.start

    def disown(self, segment: Segment) -> None:
        """Take a segment out of the table and the index (R17)."""
        if segment.start is not None:
            segment.start = None
            self.leaf.disown(segment.number)
            self._index.remove(segment.number)
            del self._segments[segment.number]

    def meets(self, pubend: PubendId, segment: Segment) -> bool:
        """Say whether a segment may match something of a pubend."""
        found = segment.meets.get(pubend)
        if found is None:
            offer = self._offers.get(pubend)
            if offer is None:
                return True  # of a pubend that is not announced (yet) nothing is known
            found = segment.meets[pubend] = offer.advertisement.intersects(segment.filter)
        return found

    def everything_wanted(self) -> str:
        """Return the text of a filter that covers all that this host wants now."""
        roots = self.leaf.roots
        return str(Filter.of(roots)) if len(roots) <= ROOTS_READ_MAX else "TRUE"

    # --- pubends -------------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, advertisement: Filter, version: int, *, best_effort: bool
    ) -> None:
        """A pubend exists, or its advertisement became wider."""
        self._offers[pubend] = _Offer(advertisement, version, best_effort=best_effort)
        for subscription in self.subscriptions.values():
            for segment in subscription.segments:
                segment.meets.pop(pubend, None)
            if subscription.stored:
                self.look_at(subscription, pubend, is_news=True)
            elif pubend not in subscription.early and self._could_begin(subscription, pubend):
                self._note_early(subscription, pubend)  # of one that comes from elsewhere
        self.unheard.discard(pubend)
        subend = self.subends.get(pubend)
        if subend is not None:
            subend.hasten()
        self.abandonment.look_at(pubend)

    def served_at(self, pubend: PubendId, version: int) -> None:
        """A stream is in a regime of an announcement version, perhaps of one not announced here yet.

        Then nobody here knows what is advertised, and it may be anything: else a report could let
        events go that somebody wants by the wider advertisement (A22).
        """
        offer = self._offers.get(pubend)
        if offer is not None and offer.version < version:
            self.context.mark("wider than announced")
            self._offers[pubend] = _Offer(EVERYTHING, version, best_effort=offer.best_effort)
            for subscription in self.subscriptions.values():
                for segment in subscription.segments:
                    segment.meets.pop(pubend, None)

    def look_at_all(self, subscription: Subscription) -> None:
        """Let a subscription have a strand on every pubend that it could match, or has a place on."""
        begin = subscription.begin
        placed = [pubend for pubend, _ in begin.position if begin.kind is BeginKind.POSITION]
        for pubend in sorted({*self._offers, *placed}):
            self.look_at(subscription, pubend)
        subscription.brought = []  # every strand that has a place has taken it over

    def look_at(
        self, subscription: Subscription, pubend: PubendId, *, is_news: bool = False
    ) -> None:
        """Let a subscription have a strand on a pubend if it could match something of it.

        If the pubend ``is_news``, a client that was told that its subscription has begun could not
        know of it, and expects all of it (R46).
        """
        met = any(self.meets(pubend, segment) for segment in subscription.segments)
        offer = self._offers.get(pubend)
        if offer is not None and offer.best_effort:
            if met and pubend not in self.loose:
                self.loose[pubend] = LooseEnd(
                    self.context, pubend, self, partial(self._candidates, pubend)
                )
            return
        strand = subscription.strands.get(pubend)
        placed = subscription.begin.on(pubend) is BeginKind.POSITION
        if strand is None and (met or placed):
            if is_news:
                self._note_early(subscription, pubend)
            self._begin_strand(subscription, pubend)
        elif strand is None:
            subscription.forget_early(pubend)
        elif not met and strand.state is State.WAITING:
            self.drop_strand(strand)

    def _note_early(self, subscription: Subscription, pubend: PubendId) -> None:
        """Note from which filter on a subscription is owed a pubend that its client could not know of."""
        advertisement = self._offers[pubend].advertisement
        told, held = subscription.told_when_heard(pubend), subscription.early.get(pubend)
        if told is None or (held is not None and held.time is not None):
            return
        if not advertisement.intersects(told.filter):
            told = subscription.newest_told
        subscription.early[pubend] = Early(told.time, told.since if held is None else held.moments)
        subscription.dirty = True

    def owe(
        self, subscription: Subscription, owed: Owed, placed: Collection[PubendId] = ()
    ) -> None:
        """Take over since when a subscription that comes here is owed what its client has no place on.

        Of a pubend that this host has heard of before, only former homes count: else it begins with what
        comes, as any other that comes to it. Where it has begun without its client, one of them may have been
        known earlier.
        """
        subscription.newest.since = owed.since
        subscription.told = subscription.newest_told
        known = [each for each in sorted(self._offers) if self._could_begin(subscription, each)]
        brought = {**dict.fromkeys(known, owed.since), **dict(owed.others)}
        for pubend, moments in brought.items():
            strand = subscription.strands.get(pubend)
            if subscription.begin.on(pubend) is not BeginKind.LATEST:
                continue
            if strand is not None and strand.state is not State.WAITING:
                if pubend not in placed and moments and strand.is_untouched:
                    strand.reconsider(moments)
                continue
            before = subscription.early.get(pubend, NOT_OWED)
            joint = joined(*before.moments, *moments)
            subscription.early[pubend] = before._replace(moments=joint)
            if strand is not None:
                strand.is_asking = strand.is_early
                strand.become(State.WAITING)
                strand.subend.ask_since_when()

    def _could_begin(self, subscription: Subscription, pubend: PubendId) -> bool:
        offer = self._offers[pubend]
        return not offer.best_effort and self.meets(pubend, subscription.newest)

    def owe_as_before(
        self, subscription: Subscription, told: Told | None, early: Mapping[PubendId, Early]
    ) -> None:
        """Take over what an old form of a subscription was owed here: nobody else may know of that.

        Also what its client was ``told`` of its filter, unless that says so itself.
        """
        if subscription.told is None:
            subscription.told = told
        for pubend, each in early.items():
            brought = subscription.early.get(pubend, NOT_OWED)
            moments = joined(*brought.moments, *each.moments)
            subscription.early[pubend] = each._replace(moments=moments)

    def owed_of(self, subscription: Subscription) -> dict[PubendId, Early]:
        """Return what a form of a subscription is owed, also where it has begun: its client may have no place there."""
        begun = {
            pubend: Early(None, strand.began_by)
            for pubend, strand in subscription.strands.items()
            if strand.began_by
        }
        return {**subscription.early_unheard, **begun, **subscription.early}

    def _begin_strand(self, subscription: Subscription, pubend: PubendId) -> None:
        strand = Strand(subscription, self.subend(pubend), subscription.newest)
        subscription.strands[pubend] = strand
        begin = subscription.begin
        match begin.on(pubend):
            case BeginKind.POSITION:
                strand.bring(subscription.brought)
                acked = subscription.acked_elsewhere.get(pubend, 0)
                strand.begin_in_past(dict(begin.position)[pubend], acked=acked)
            case BeginKind.EARLIEST:
                strand.begin_in_past(None)
            case BeginKind.TIME:
                strand.untold = subscription.client is None
                strand.begin_in_past(max(begin.clock - 1, subscription.merged))
            case BeginKind.LATEST:
                strand.is_asking = strand.is_early
                strand.become(State.WAITING)
                strand.subend.ask_since_when()
        if subscription.order is Order.TOTAL:
            for each in subscription.strands.values():
                each.subend.register(each)
                each.subend.review_eager()
        self.abandonment.look_at(pubend)
        self.abandonment.review(strand)
        self.touch(subscription)

    def place(
        self, subscription: Subscription, pubend: PubendId, after: Tick, *, seeks: int
    ) -> None:
        """Let a subscription that comes back go on after a tick, if it has begun here only above.

        Where an operator has moved it more than so many ``seeks``, it stays.
        """
        strand = subscription.strands.get(pubend)
        if strand is None:
            strand = Strand(subscription, self.subend(pubend), subscription.newest)
            subscription.strands[pubend] = strand
            self.abandonment.look_at(pubend)
        if strand.base is None:
            strand.bring(subscription.brought)
            strand.move_to(after)
        elif strand.sought <= seeks:
            if after < strand.base or (seeks > subscription.seeks and after < strand.acked):
                strand.move_to(after)
            strand.retake(subscription.brought)

    def drop_strand(self, strand: Strand) -> None:
        """A subscription looks at a pubend no more."""
        strand.catch_up.stop()
        strand.buffer.clear()
        strand.subend.forget(strand)
        subscription = strand.subscription
        if subscription.strands.get(strand.pubend) is strand:
            del subscription.strands[strand.pubend]
            subscription.forget_early(strand.pubend)
        strand.holding.release()

    def subend(self, pubend: PubendId, *, restored: bool = False) -> Subend:
        """Return the subend of a pubend, joined if it is the first that needs it (R43)."""
        found = self.subends.get(pubend)
        if found is None:
            join = self.joins.get(pubend)
            # of an earlier life only durable subscriptions need a join; else its end may be under way
            is_new = join is None or self._leaving.get(pubend) == join
            is_new |= join is not None and not restored and join.life < self.context.identity.life
            if join is None or is_new:
                self._join_count += 1
                join = self.joins[pubend] = Join(self.context.identity.life, self._join_count)
            self._count += 1
            found = self.subends[pubend] = Subend(
                self.context,
                pubend,
                join,
                self._count,
                self,
                self.requests,
                self._account,
                partial(self._candidates, pubend),
            )
            if is_new:
                record = JoinRecord(pubend, join, pubend in self.abandonment)
                self.context.write((Store(record),), found.open)
            else:
                found.open()
        self._unneeded.pop(pubend, None)
        return found

    def _review(self) -> None:
        """Leave pubends that nobody has needed for a while (R43)."""
        self.context.after(self._review_us, self._review)
        now = self.context.now
        for pubend in [*self.joins]:
            subend = self.subends.get(pubend)
            if (subend is not None and subend.strands) or pubend in self._leaving:
                self._unneeded.pop(pubend, None)
            elif now - self._unneeded.setdefault(pubend, now) >= us(
                s=self.context.parameters.linger_s
            ):
                self._leave(pubend)
        for pubend, loose in [*self.loose.items()]:
            if not self._wants_loose(pubend):
                loose.close()
                del self.loose[pubend]

    def _leave(self, pubend: PubendId) -> None:
        join = self._leaving[pubend] = self.joins[pubend]
        del self._unneeded[pubend]
        subend = self.subends.pop(pubend, None)
        if subend is not None:
            if subend.feeder is not None:
                self.context.post(subend.feeder, SetForget(-subend.number))
            subend.close()

        if pubend in self.abandonment:
            self._left(pubend, join)  # there is nobody to take leave of
        else:
            shb = self.context.identity.shb
            self._farewells[pubend] = self.requests.leave(
                pubend, shb, join, lambda: self._left(pubend, join)
            )

    def _left(self, pubend: PubendId, join: Join) -> None:
        """A stay has ended."""
        self._farewells.pop(pubend, None)
        if self._leaving.get(pubend) == join:
            del self._leaving[pubend]
        if self.joins.get(pubend) == join:
            del self.joins[pubend]
            self.abandonment.forget(pubend)
            self.context.write((Erase(JoinRecord(pubend, join).key),), _nothing)

    def give_up_leaving(self, pubend: PubendId) -> None:
        """Take leave no more of a pubend whose broker will not answer."""
        errand = self._farewells.get(pubend)
        if errand is not None:
            errand.cancel()
            self._left(pubend, self._leaving[pubend])

    def _wants_loose(self, pubend: PubendId) -> bool:
        return pubend in self._offers and any(
            self.meets(pubend, subscription.newest) for subscription in self.subscriptions.values()
        )

    # --- what the streams bring ------------------------------------------------------------------

    def hand_over(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications, in tick order, to the strands that are live."""
        for number, wanted in self._wanted(publications):
            segment = self._segments[number]
            strand = segment.subscription.strands.get(pubend)
            if strand is not None and strand.is_live:
                strand.take(segment, wanted)

    def _wanted(self, publications: tuple[Publication, ...]) -> list[tuple[int, list[Publication]]]:
        """Return by segment, oldest first, the publications that it matches."""
        attributes = [each.attributes for each in publications]
        return sorted(self._index.distribute(attributes, publications).items())

    def hand_over_loose(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications without guarantee to whoever has room for them (R33)."""
        for number, wanted in self._wanted(publications):
            subscription = self._segments[number].subscription
            if subscription.client is None or subscription.newest.number != number:
                continue
            room = self.context.parameters.prefetch_max - len(subscription.best_effort)
            if room < len(wanted):
                self.context.mark("best effort dropped")
            subscription.best_effort.extend((pubend, each) for each in wanted[: max(0, room)])
            self.touch(subscription)

    def fed(self, subend: Subend) -> None:
        """A feeder was found: it hears at once that this host wants the pubend (R43)."""
        self.abandonment.end(subend.pubend)
        self.report(subend)
        for strand in subend.strands.values():
            self.touch(strand.subscription)

    def unfed(self, subend: Subend) -> None:
        """A feeder was lost."""
        self.abandonment.look_at(subend.pubend)

    def advanced(self, subend: Subend) -> None:
        """The horizon of a stream has moved: whoever waits for that goes on."""
        for strand in subend.attentive():
            self.touch(strand.subscription)

    def stalled(self, subend: Subend) -> None:
        """A stream stands still because its log cannot be read there, or goes on (P8)."""
        for strand in subend.strands.values():
            strand.subscription.stalls.note(subend.pubend)

    # --- the end of a step -------------------------------------------------------------------------

    def touch(self, subscription: Subscription) -> None:
        """Look at a subscription when the step ends."""
        self._touched[subscription.name] = subscription

    def takes_more(self, client: str | None) -> bool:
        """Say whether a client is there whose connection can take more."""
        return client is not None and client not in self._full

    def hold_back(self, client: str) -> None:
        """Send a client no events until it has read what waits for it, whatever credit it gave."""
        self.context.mark("client held back")
        self._full.add(client)

    def go_on(self, client: str) -> None:
        """Send to a client again; also when it is gone."""
        if client in self._full:
            self._full.remove(client)
            for subscription in self.subscriptions.values():
                if subscription.client == client:
                    self.touch(subscription)

    def fell_behind(self, subscription: Subscription) -> None:
        """Note that a subscription that is not durable has to read the log."""
        self._behind.setdefault(subscription.name, (subscription, self.context.now))

    def review_behind(self) -> None:
        """End subscriptions that do not catch up: for those that are not durable no log is kept long."""
        limit = us(s=self.context.parameters.slow_after_s)
        for name, (subscription, since) in [*self._behind.items()]:
            strands = subscription.strands.values()
            reads_log = any(each.reads_log and not each.drifting.is_adrift for each in strands)
            if subscription.ended or not reads_log:
                del self._behind[name]
            elif self.context.now - since > limit:
                del self._behind[name]
                self._slow.append(subscription)

    def flush(self, end: Callable[[Subscription], Any]) -> None:
        """Send what the step brought; end subscriptions that are too slow."""
        slow, self._slow = self._slow, []
        for subscription in slow:
            if subscription.client is not None:
                self.context.mark("slow subscription ended")
                parameters = self.context.parameters
                reason = (
                    f"it fell more than {parameters.prefetch_max:,} events behind and did not catch "
                    f"up within {parameters.slow_after_s} s; read faster, or be durable"
                )
                notice = Ended(subscription.name, reason, Cause.TOO_SLOW)
                self.context.tell(subscription.client, notice)
                end(subscription)
        while self._touched:
            touched, self._touched = self._touched, {}
            for subscription in touched.values():
                if not subscription.ended:
                    subscription.review_answer()
                    subscription.drain()
                    if subscription.stalls.noted:
                        subscription.stalls.review()
                    subscription.review_change()

    # --- the disk ----------------------------------------------------------------------------------

    def save(self, subscription: Subscription, then: Callable[[], None]) -> None:
        """Put a durable subscription on disk and go on."""
        acked = {
            pubend: (strand.moves, strand.acked) for pubend, strand in subscription.strands.items()
        }
        holds = {pubend: each.holding.current for pubend, each in subscription.strands.items()}

        def saved() -> None:
            subscription.stored = True
            for pubend, (moves, tick) in acked.items():
                strand = subscription.strands.get(pubend)
                if strand is not None:
                    if strand.moves == moves:
                        strand.acked_stored = max(strand.acked_stored, tick)
                    strand.holding.saved(holds[pubend])
            then()

        self.context.write((Store(subscription.record()),), saved)

    def erase(self, subscription: Subscription) -> None:
        """Take a durable subscription from the disk; a crash before that brings it back as it was."""
        let_go = self.keep_for(subscription)
        self.context.write((Erase(SubscriptionRecord.key_of(subscription.name)),), let_go)

    def keep_for(self, subscription: Subscription) -> Callable[[], None]:
        """Keep the logs for a subscription that ends, until its record is gone; return what ends that."""
        needed = {pubend: each.needed for pubend, each in subscription.strands.items()}
        kept = {pubend: tick for pubend, tick in needed.items() if tick is not None}
        self.ending.append(kept)

        def let_go() -> None:
            self.ending = [each for each in self.ending if each is not kept]

        return let_go

    def strand_began(self, strand: Strand) -> None:
        """A strand has begun: on disk, where that matters, before its client is told."""
        self._guard(strand, strand.position, began=True)

    def strand_switched(self, strand: Strand, end: int) -> None:
        """A filter has ended on a strand."""
        self._guard(strand, end)

    def _guard(self, strand: Strand, tick: int, *, began: bool = False) -> None:
        subscription = strand.subscription
        if subscription.durable:
            strand.raise_barrier(tick)

            def durable() -> None:
                strand.lower_barrier()
                strand.base_stored |= began
                self.touch(subscription)

            self.save(subscription, durable)
        self.touch(subscription)

    def new_hold(self, subscription: str) -> HoldId:
        """Return the name of a hold that no other has, in any life."""
        self._count += 1
        name = f"{subscription}/{self.context.identity.life}.{self._count}"
        return HoldId(self.context.identity.shb, name)

    # --- sessions ------------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Somebody can be asked for a feed who could not before."""
        for subend in self.subends.values():
            subend.hasten()
        for loose in self.loose.values():
            loose.hasten()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        for subend in self.subends.values():
            subend.session_closed(peer)
        for loose in self.loose.values():
            loose.session_closed(peer)


def _nothing() -> None:
    """Nothing depends on this."""


def _no_report(subend: Subend) -> None:
    """Nobody reports yet."""


def _no_way(pubend: PubendId) -> str:
    """Nobody knows more."""
    del pubend
    return "there is no way to its broker now"
