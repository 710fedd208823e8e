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
from gapless.core.ids import BrokerId, MembershipId, PubendId, VirtualTime
from gapless.core.limits import ROOTS_READ_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.feeds.feed import Candidate
from gapless.messages.clients import (
    Order,
    RefusalCause,
    StartGuarantees,
    StartKind,
    SubscriptionEnded,
)
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import DeleteRecord, JoinedPubendRecord, PutRecord, SubscriptionRecord
from gapless.messages.streams import ForgetMemberSet, Publication
from gapless.requests.carrier import PendingRequest, PubendRequests
from gapless.stream.istream import MemoryAccount
from gapless.subscribers.abandonment import AbandonedPubends
from gapless.subscribers.best_effort_end import BestEffortSubend
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.start_guarantee import NO_GUARANTEE, StartGuarantee, earliest_times
from gapless.subscribers.subend import Subend
from gapless.subscribers.subscription import ConfirmedFilter, HostedSubscription

__all__ = ["Interest", "SubscriberHost"]


class Interest(Protocol):
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


class _AnnouncedPubend:
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
        leaf: Interest,
        requests: PubendRequests,
        candidates: Callable[[PubendId], list[Candidate]],
        joined_pubends: Iterable[JoinedPubendRecord] = (),
    ) -> None:
        self.context = context
        self.requests = requests
        self.leaf = leaf
        self.subscriptions: dict[str, HostedSubscription] = {}
        self.subends: dict[PubendId, Subend] = {}
        self.best_effort_subends: dict[PubendId, BestEffortSubend] = {}
        self.report: Callable[[Subend], None] = _no_report
        """Reports a pubend now."""
        self.obstacle: Callable[[PubendId], str] = _no_route
        """Says what is in the way of a feed of a pubend; only for people (R11, R12)."""
        self._candidates = candidates
        self._account = MemoryAccount()
        self.backlog = MemoryAccount()
        """What waits for slow clients beyond what always may."""
        self.ending: list[dict[PubendId, Tick]] = []
        """What durable subscriptions need that have ended and are not gone from the disk yet."""
        joined_pubends = tuple(joined_pubends)
        self.memberships: dict[PubendId, MembershipId] = {
            each.pubend: each.membership for each in joined_pubends
        }
        """The stays of this host, those that are about to end included."""
        self.unannounced = {*self.memberships}
        """Pubends that an earlier life has joined and this one has not heard of yet."""
        self.abandonment = AbandonedPubends(self, joined_pubends)
        self._unneeded: dict[PubendId, int] = {}
        """Since when nobody needs a pubend that is joined."""
        self._leaving: dict[PubendId, MembershipId] = {}
        self._leave_requests: dict[PubendId, PendingRequest] = {}
        """The leave that is taken of each pubend that is left."""
        self._announced_pubends: dict[PubendId, _AnnouncedPubend] = {}
        self._index = MatchIndex()
        self._segments: dict[int, FilterSegment] = {}
        self._count = 0
        self._membership_count = 0
        self._dirty: dict[str, HostedSubscription] = {}
        self._behind: dict[str, tuple[HostedSubscription, int]] = {}
        """Subscriptions that are not durable and could not keep up, and since when."""
        self._slow: list[HostedSubscription] = []
        self._full: set[str] = set()
        """Clients whose connections take no more now; what they are owed waits here."""
        context.call_later(self._review_us, self._review)

    @property
    def _review_us(self) -> int:
        return max(1, microseconds(s=self.context.parameters.interest_grace_s) // 4)

    # --- filters -------------------------------------------------------------------------------

    def make_segment(self, subscription: HostedSubscription, wanted: Filter) -> FilterSegment:
        """Return a new segment of a subscription; nobody is told of it yet."""
        self._count += 1
        segment = FilterSegment(subscription, self._count, wanted)
        subscription.segments.append(segment)
        return segment

    def own(self, segment: FilterSegment) -> None:
        """Put a segment into the table and the index (R16)."""
        if segment.start is None:
            segment.start = self.leaf.own(segment.number, segment.filter.conjunctions)
            self._index.add(segment.number, segment.filter)
            self._segments[segment.number] = segment
            if segment.required_from is None:
                segment.required_from = segment.start

    def disown(self, segment: FilterSegment) -> None:
        """Take a segment out of the table and the index (R17)."""
        if segment.start is not None:
            segment.start = None
            self.leaf.disown(segment.number)
            self._index.remove(segment.number)
            del self._segments[segment.number]

    def may_match(self, pubend: PubendId, segment: FilterSegment) -> bool:
        """Say whether a segment may match something of a pubend."""
        found = segment.may_match.get(pubend)
        if found is None:
            announced = self._announced_pubends.get(pubend)
            if announced is None:
                return True  # of a pubend that is not announced (yet) nothing is known
            found = segment.may_match[pubend] = announced.advertisement.intersects(segment.filter)
        return found

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all that this host wants now."""
        roots = self.leaf.roots
        return str(Filter.of(roots)) if len(roots) <= ROOTS_READ_MAX else "TRUE"

    # --- pubends -------------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, advertisement: Filter, version: int, *, best_effort: bool
    ) -> None:
        """A pubend exists, or its advertisement became wider."""
        self._announced_pubends[pubend] = _AnnouncedPubend(
            advertisement, version, best_effort=best_effort
        )
        for subscription in self.subscriptions.values():
            for segment in subscription.segments:
                segment.may_match.pop(pubend, None)
            if subscription.stored:
                self.update_cursor(subscription, pubend, newly_announced=True)
            elif pubend not in subscription.guarantees and self._could_start(subscription, pubend):
                self._note_guarantee(subscription, pubend)  # of one that comes from elsewhere
        self.unannounced.discard(pubend)
        subend = self.subends.get(pubend)
        if subend is not None:
            subend.retry_feed()
        self.abandonment.look_at(pubend)

    def served_at(self, pubend: PubendId, version: int) -> None:
        """A stream is in a regime of an announcement version, perhaps of one not announced here yet.

        Then nobody here knows what is advertised, and it may be anything: else a report could let
        events go that somebody wants by the wider advertisement (A22).
        """
        announced = self._announced_pubends.get(pubend)
        if announced is not None and announced.version < version:
            self.context.mark("wider than announced")
            self._announced_pubends[pubend] = _AnnouncedPubend(
                EVERYTHING, version, best_effort=announced.best_effort
            )
            for subscription in self.subscriptions.values():
                for segment in subscription.segments:
                    segment.may_match.pop(pubend, None)

    def update_cursors(self, subscription: HostedSubscription) -> None:
        """Let a subscription have a strand on every pubend that it could match, or has a place on."""
        start = subscription.start
        positioned = [pubend for pubend, _ in start.position if start.kind is StartKind.POSITION]
        for pubend in sorted({*self._announced_pubends, *positioned}):
            self.update_cursor(subscription, pubend)
        subscription.imported_segments = []  # every strand that has a place has taken it over

    def update_cursor(
        self, subscription: HostedSubscription, pubend: PubendId, *, newly_announced: bool = False
    ) -> None:
        """Let a subscription have a strand on a pubend if it could match something of it.

        If the pubend ``newly_announced``, a client that was told that its subscription has begun could not
        know of it, and expects all of it (R46).
        """
        met = any(self.may_match(pubend, segment) for segment in subscription.segments)
        announced = self._announced_pubends.get(pubend)
        if announced is not None and announced.best_effort:
            if met and pubend not in self.best_effort_subends:
                self.best_effort_subends[pubend] = BestEffortSubend(
                    self.context, pubend, self, partial(self._candidates, pubend)
                )
            return
        cursor = subscription.cursors.get(pubend)
        positioned = subscription.start.on(pubend) is StartKind.POSITION
        if cursor is None and (met or positioned):
            if newly_announced:
                self._note_guarantee(subscription, pubend)
            self._start_cursor(subscription, pubend)
        elif cursor is None:
            subscription.clear_guarantee(pubend)
        elif not met and cursor.phase is CursorPhase.PENDING:
            self.drop_cursor(cursor)

    def _note_guarantee(self, subscription: HostedSubscription, pubend: PubendId) -> None:
        """Note from which filter on a subscription is owed a pubend that its client could not know of."""
        advertisement = self._announced_pubends[pubend].advertisement
        confirmed, held = subscription.confirmed_at(pubend), subscription.guarantees.get(pubend)
        if confirmed is None or (held is not None and held.time is not None):
            return
        if not advertisement.intersects(confirmed.filter):
            confirmed = subscription.newest_to_confirm
        subscription.guarantees[pubend] = StartGuarantee(
            confirmed.time, confirmed.former_host_times if held is None else held.former_host_times
        )
        subscription.dirty = True

    def set_guarantees(
        self,
        subscription: HostedSubscription,
        guarantees: StartGuarantees,
        positioned: Collection[PubendId] = (),
    ) -> None:
        """Take over since when a subscription that comes here is owed what its client has no place on.

        Of a pubend that this host has heard of before, only former homes count: else it begins with what
        comes, as any other that comes to it. Where it has begun without its client, one of them may have been
        known earlier.
        """
        subscription.newest.former_host_times = guarantees.default
        subscription.confirmed_filter = subscription.newest_to_confirm
        known = [
            each
            for each in sorted(self._announced_pubends)
            if self._could_start(subscription, each)
        ]
        imported = {**dict.fromkeys(known, guarantees.default), **dict(guarantees.by_pubend)}
        for pubend, times in imported.items():
            cursor = subscription.cursors.get(pubend)
            if subscription.start.on(pubend) is not StartKind.LATEST:
                continue
            if cursor is not None and cursor.phase is not CursorPhase.PENDING:
                if pubend not in positioned and times and cursor.is_untouched:
                    cursor.verify_start(times)
                continue
            before = subscription.guarantees.get(pubend, NO_GUARANTEE)
            joint = earliest_times(*before.former_host_times, *times)
            subscription.guarantees[pubend] = before._replace(former_host_times=joint)
            if cursor is not None:
                cursor.is_verifying = cursor.has_guarantee
                cursor.set_phase(CursorPhase.PENDING)
                cursor.subend.verify_starts()

    def _could_start(self, subscription: HostedSubscription, pubend: PubendId) -> bool:
        announced = self._announced_pubends[pubend]
        return not announced.best_effort and self.may_match(pubend, subscription.newest)

    def restore_guarantees(
        self,
        subscription: HostedSubscription,
        confirmed: ConfirmedFilter | None,
        guarantees: Mapping[PubendId, StartGuarantee],
    ) -> None:
        """Take over what an old form of a subscription was owed here: nobody else may know of that.

        Also what its client was ``told`` of its filter, unless that says so itself.
        """
        if subscription.confirmed_filter is None:
            subscription.confirmed_filter = confirmed
        for pubend, each in guarantees.items():
            imported = subscription.guarantees.get(pubend, NO_GUARANTEE)
            times = earliest_times(*imported.former_host_times, *each.former_host_times)
            subscription.guarantees[pubend] = each._replace(former_host_times=times)

    def guarantees_of(self, subscription: HostedSubscription) -> dict[PubendId, StartGuarantee]:
        """Return what a form of a subscription is owed, also where it has begun: its client may have no place there."""
        started = {
            pubend: StartGuarantee(None, cursor.started_by)
            for pubend, cursor in subscription.cursors.items()
            if cursor.started_by
        }
        return {**subscription.unannounced_guarantees, **started, **subscription.guarantees}

    def _start_cursor(self, subscription: HostedSubscription, pubend: PubendId) -> None:
        cursor = Cursor(subscription, self.subend(pubend), subscription.newest)
        subscription.cursors[pubend] = cursor
        start = subscription.start
        match start.on(pubend):
            case StartKind.POSITION:
                cursor.import_segments(subscription.imported_segments)
                acked = subscription.acked_elsewhere.get(pubend, 0)
                cursor.start_in_past(dict(start.position)[pubend], acked=acked)
            case StartKind.EARLIEST:
                cursor.start_in_past(None)
            case StartKind.TIME:
                cursor.start_unconfirmed = subscription.client is None
                cursor.start_in_past(max(start.clock - 1, subscription.merged))
            case StartKind.LATEST:
                cursor.is_verifying = cursor.has_guarantee
                cursor.set_phase(CursorPhase.PENDING)
                cursor.subend.verify_starts()
        if subscription.order is Order.TOTAL:
            for each in subscription.cursors.values():
                each.subend.register(each)
                each.subend.review_eager()
        self.abandonment.look_at(pubend)
        self.abandonment.review(cursor)
        self.mark_dirty(subscription)

    def reposition(
        self, subscription: HostedSubscription, pubend: PubendId, after: Tick, *, seek_count: int
    ) -> None:
        """Let a subscription that comes back go on after a tick, if it has begun here only above.

        Where an operator has moved it more than so many ``seeks``, it stays.
        """
        cursor = subscription.cursors.get(pubend)
        if cursor is None:
            cursor = Cursor(subscription, self.subend(pubend), subscription.newest)
            subscription.cursors[pubend] = cursor
            self.abandonment.look_at(pubend)
        if cursor.started_after is None:
            cursor.import_segments(subscription.imported_segments)
            cursor.move_to(after)
        elif cursor.seek_number <= seek_count:
            if after < cursor.started_after or (
                seek_count > subscription.seek_count and after < cursor.acked
            ):
                cursor.move_to(after)
            cursor.replace_segments(subscription.imported_segments)

    def drop_cursor(self, cursor: Cursor) -> None:
        """A subscription looks at a pubend no more."""
        cursor.catch_up.stop()
        cursor.buffer.clear()
        cursor.subend.forget(cursor)
        subscription = cursor.subscription
        if subscription.cursors.get(cursor.pubend) is cursor:
            del subscription.cursors[cursor.pubend]
            subscription.clear_guarantee(cursor.pubend)
        cursor.log_holds.release()

    def subend(self, pubend: PubendId, *, restored: bool = False) -> Subend:
        """Return the subend of a pubend, joined if it is the first that needs it (R43)."""
        found = self.subends.get(pubend)
        if found is None:
            membership = self.memberships.get(pubend)
            # of an earlier life only durable subscriptions need a join; else its end may be under way
            is_new = membership is None or self._leaving.get(pubend) == membership
            is_new |= (
                membership is not None
                and not restored
                and membership.incarnation < self.context.identity.incarnation
            )
            if membership is None or is_new:
                self._membership_count += 1
                membership = self.memberships[pubend] = MembershipId(
                    self.context.identity.incarnation, self._membership_count
                )
            self._count += 1
            found = self.subends[pubend] = Subend(
                self.context,
                pubend,
                membership,
                self._count,
                self,
                self.requests,
                self._account,
                partial(self._candidates, pubend),
            )
            if is_new:
                record = JoinedPubendRecord(pubend, membership, pubend in self.abandonment)
                self.context.write((PutRecord(record),), found.open)
            else:
                found.open()
        self._unneeded.pop(pubend, None)
        return found

    def _review(self) -> None:
        """Leave pubends that nobody has needed for a while (R43)."""
        self.context.call_later(self._review_us, self._review)
        now = self.context.now
        for pubend in [*self.memberships]:
            subend = self.subends.get(pubend)
            if (subend is not None and subend.cursors) or pubend in self._leaving:
                self._unneeded.pop(pubend, None)
            elif now - self._unneeded.setdefault(pubend, now) >= microseconds(
                s=self.context.parameters.interest_grace_s
            ):
                self._leave(pubend)
        for pubend, best_effort_subend in [*self.best_effort_subends.items()]:
            if not self._wants_best_effort(pubend):
                best_effort_subend.close()
                del self.best_effort_subends[pubend]

    def _leave(self, pubend: PubendId) -> None:
        membership = self._leaving[pubend] = self.memberships[pubend]
        del self._unneeded[pubend]
        subend = self.subends.pop(pubend, None)
        if subend is not None:
            if subend.feeder is not None:
                self.context.send(subend.feeder, ForgetMemberSet(-subend.number))
            subend.close()

        if pubend in self.abandonment:
            self._left(pubend, membership)  # there is nobody to take leave of
        else:
            shb = self.context.identity.shb
            self._leave_requests[pubend] = self.requests.leave(
                pubend, shb, membership, lambda: self._left(pubend, membership)
            )

    def _left(self, pubend: PubendId, membership: MembershipId) -> None:
        """A stay has ended."""
        self._leave_requests.pop(pubend, None)
        if self._leaving.get(pubend) == membership:
            del self._leaving[pubend]
        if self.memberships.get(pubend) == membership:
            del self.memberships[pubend]
            self.abandonment.forget(pubend)
            self.context.write(
                (DeleteRecord(JoinedPubendRecord(pubend, membership).key),), _nothing
            )

    def give_up_leaving(self, pubend: PubendId) -> None:
        """Take leave no more of a pubend whose broker will not answer."""
        pending_request = self._leave_requests.get(pubend)
        if pending_request is not None:
            pending_request.cancel()
            self._left(pubend, self._leaving[pubend])

    def _wants_best_effort(self, pubend: PubendId) -> bool:
        return pubend in self._announced_pubends and any(
            self.may_match(pubend, subscription.newest)
            for subscription in self.subscriptions.values()
        )

    # --- what the streams bring ------------------------------------------------------------------

    def deliver(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications, in tick order, to the strands that are live."""
        for number, wanted in self._wanted(publications):
            segment = self._segments[number]
            cursor = segment.subscription.cursors.get(pubend)
            if cursor is not None and cursor.is_live:
                cursor.take(segment, wanted)

    def _wanted(self, publications: tuple[Publication, ...]) -> list[tuple[int, list[Publication]]]:
        """Return by segment, oldest first, the publications that it matches."""
        attributes = [each.attributes for each in publications]
        return sorted(self._index.distribute(attributes, publications).items())

    def deliver_best_effort(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Give publications without guarantee to whoever has room for them (R33)."""
        for number, wanted in self._wanted(publications):
            subscription = self._segments[number].subscription
            if subscription.client is None or subscription.newest.number != number:
                continue
            room = self.context.parameters.prefetch_max - len(subscription.best_effort)
            if room < len(wanted):
                self.context.mark("best effort dropped")
            subscription.best_effort.extend((pubend, each) for each in wanted[: max(0, room)])
            self.mark_dirty(subscription)

    def feed_found(self, subend: Subend) -> None:
        """A feeder was found: it hears at once that this host wants the pubend (R43)."""
        self.abandonment.end(subend.pubend)
        self.report(subend)
        for cursor in subend.cursors.values():
            self.mark_dirty(cursor.subscription)

    def feed_lost(self, subend: Subend) -> None:
        """A feeder was lost."""
        self.abandonment.look_at(subend.pubend)

    def advanced(self, subend: Subend) -> None:
        """The horizon of a stream has moved: whoever waits for that goes on."""
        for cursor in subend.cursors_behind():
            self.mark_dirty(cursor.subscription)

    def stalled(self, subend: Subend) -> None:
        """A stream stands still because its log cannot be read there, or goes on (P8)."""
        for cursor in subend.cursors.values():
            cursor.subscription.stalls.note(subend.pubend)

    # --- the end of a step -------------------------------------------------------------------------

    def mark_dirty(self, subscription: HostedSubscription) -> None:
        """Look at a subscription when the step ends."""
        self._dirty[subscription.name] = subscription

    def takes_more(self, client: str | None) -> bool:
        """Say whether a client is there whose connection can take more."""
        return client is not None and client not in self._full

    def pause_client(self, client: str) -> None:
        """Send a client no events until it has read what waits for it, whatever credit it gave."""
        self.context.mark("client paused")
        self._full.add(client)

    def resume_client(self, client: str) -> None:
        """Send to a client again; also when it is gone."""
        if client in self._full:
            self._full.remove(client)
            for subscription in self.subscriptions.values():
                if subscription.client == client:
                    self.mark_dirty(subscription)

    def fell_behind(self, subscription: HostedSubscription) -> None:
        """Note that a subscription that is not durable has to read the log."""
        self._behind.setdefault(subscription.name, (subscription, self.context.now))

    def end_slow_subscriptions(self) -> None:
        """End subscriptions that do not catch up: for those that are not durable no log is kept long."""
        limit = microseconds(s=self.context.parameters.slow_consumer_timeout_s)
        for name, (subscription, since) in [*self._behind.items()]:
            cursors = subscription.cursors.values()
            reads_log = any(
                each.reads_log and not each.merge_exclusion.is_excluded for each in cursors
            )
            if subscription.ended or not reads_log:
                del self._behind[name]
            elif self.context.now - since > limit:
                del self._behind[name]
                self._slow.append(subscription)

    def flush(self, end: Callable[[HostedSubscription], Any]) -> None:
        """Send what the step brought; end subscriptions that are too slow."""
        slow, self._slow = self._slow, []
        for subscription in slow:
            if subscription.client is not None:
                self.context.mark("slow subscription ended")
                parameters = self.context.parameters
                reason = (
                    f"it fell more than {parameters.prefetch_max:,} events behind and did not catch "
                    f"up within {parameters.slow_consumer_timeout_s} s; read faster, or be durable"
                )
                notice = SubscriptionEnded(subscription.name, reason, RefusalCause.SLOW_CONSUMER)
                self.context.notify(subscription.client, notice)
                end(subscription)
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for subscription in dirty.values():
                if not subscription.ended:
                    subscription.reply_if_ready()
                    subscription.send_available()
                    if subscription.stalls.noted:
                        subscription.stalls.review()
                    subscription.finish_change()

    # --- the disk ----------------------------------------------------------------------------------

    def save(self, subscription: HostedSubscription, then: Callable[[], None]) -> None:
        """Put a durable subscription on disk and go on."""
        acked = {
            pubend: (cursor.seek_count, cursor.acked)
            for pubend, cursor in subscription.cursors.items()
        }
        holds = {pubend: each.log_holds.current for pubend, each in subscription.cursors.items()}

        def saved() -> None:
            subscription.stored = True
            for pubend, (seek_count, tick) in acked.items():
                cursor = subscription.cursors.get(pubend)
                if cursor is not None:
                    if cursor.seek_count == seek_count:
                        cursor.acked_stored = max(cursor.acked_stored, tick)
                    cursor.log_holds.saved(holds[pubend])
            then()

        self.context.write((PutRecord(subscription.record()),), saved)

    def erase(self, subscription: HostedSubscription) -> None:
        """Take a durable subscription from the disk; a crash before that brings it back as it was."""
        let_go = self.retain_logs_for(subscription)
        self.context.write((DeleteRecord(SubscriptionRecord.key_of(subscription.name)),), let_go)

    def retain_logs_for(self, subscription: HostedSubscription) -> Callable[[], None]:
        """Keep the logs for a subscription that ends, until its record is gone; return what ends that."""
        needed = {pubend: each.needed for pubend, each in subscription.cursors.items()}
        kept = {pubend: tick for pubend, tick in needed.items() if tick is not None}
        self.ending.append(kept)

        def let_go() -> None:
            self.ending = [each for each in self.ending if each is not kept]

        return let_go

    def cursor_started(self, cursor: Cursor) -> None:
        """A strand has begun: on disk, where that matters, before its client is told."""
        self._guard(cursor, cursor.position, started=True)

    def cursor_filter_changed(self, cursor: Cursor, end: int) -> None:
        """A filter has ended on a strand."""
        self._guard(cursor, end)

    def _guard(self, cursor: Cursor, tick: int, *, started: bool = False) -> None:
        subscription = cursor.subscription
        if subscription.durable:
            cursor.limit_delivery(tick)

            def durable() -> None:
                cursor.lift_limit()
                cursor.start_stored |= started
                self.mark_dirty(subscription)

            self.save(subscription, durable)
        self.mark_dirty(subscription)

    def new_log_hold(self, subscription: str) -> LogHoldId:
        """Return the name of a hold that no other has, in any life."""
        self._count += 1
        name = f"{subscription}/{self.context.identity.incarnation}.{self._count}"
        return LogHoldId(self.context.identity.shb, name)

    # --- sessions ------------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Somebody can be asked for a feed who could not before."""
        for subend in self.subends.values():
            subend.retry_feed()
        for best_effort_subend in self.best_effort_subends.values():
            best_effort_subend.retry_feed()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        for subend in self.subends.values():
            subend.session_closed(peer)
        for best_effort_subend in self.best_effort_subends.values():
            best_effort_subend.session_closed(peer)


def _nothing() -> None:
    """Nothing depends on this."""


def _no_report(subend: Subend) -> None:
    """Nobody reports yet."""


def _no_route(pubend: PubendId) -> str:
    """Nobody knows more."""
    del pubend
    return "there is no route to its broker now"
