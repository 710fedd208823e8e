"""All subends of this SHB: pubends are joined when they are needed, fed, reported and left (R42,
R43).

When a subscription needs a pubend, the SHB *joins* it: it stores the membership, then attaches the
subend to a feeder and sends reports. The SHB leaves a pubend that no subscription has needed for a
while, and the PHB may forget the SHB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gapless.core.context import Context
from gapless.core.ids import BrokerId, MembershipId, PubendId
from gapless.core.ticks import Tick
from gapless.feeds.paths import FeedPaths
from gapless.messages.clients import Order
from gapless.messages.records import JoinedPubendRecord
from gapless.messages.streams import ForgetMemberSet, KnowledgeRange, Publication
from gapless.stream.istream import MemoryAccount
from gapless.subscribers.best_effort_end import BestEffortSubend
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.filters import Filters
from gapless.subscribers.membership import Memberships
from gapless.subscribers.protocols import PubendRequester, PubendStatus
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.subend import Subend

__all__ = ["Subends"]


class Subends:
    """The ends of all streams at this SHB."""

    def __init__(
        self,
        context: Context,
        filters: Filters,
        requests: PubendRequester,
        status: PubendStatus,
        paths: FeedPaths,
        joined_pubends: Iterable[JoinedPubendRecord] = (),
    ) -> None:
        self._context = context
        self._filters = filters
        self._requests = requests
        self._status = status
        self._paths = paths
        self.account = MemoryAccount()
        """The size of the ranges that wait above the horizons."""
        self.guaranteed: dict[PubendId, Subend] = {}
        self.best_effort: dict[PubendId, BestEffortSubend] = {}
        self.memberships = Memberships(context, requests, joined_pubends)
        self.reporter = AckReporter(context, filters.interest)

    def get(self, pubend: PubendId) -> Subend | BestEffortSubend | None:
        """Return the subend of a pubend of either kind."""
        return self.guaranteed.get(pubend) or self.best_effort.get(pubend)

    # --- joining and leaving -------------------------------------------------------------------

    def join(self, pubend: PubendId, *, restored: bool = False) -> Subend:
        """Return the subend of a pubend. Join the pubend if it has no subend yet (R43)."""
        found = self.guaranteed.get(pubend)
        if found is None:
            membership, is_new = self.memberships.join(pubend, restored=restored)
            found = self.guaranteed[pubend] = self._new_subend(pubend, membership.id)
            sealed_at = self._status.sealed_at(pubend)
            if sealed_at is not None:
                found.seal(sealed_at)
            if is_new:
                self.memberships.store(pubend, found.open)
            else:
                found.open()
        elif found.has_left:
            membership, _ = self.memberships.join(pubend, restored=False)
            found.rejoin(membership.id)
            self.memberships.store(pubend, found.open)
        if not found.is_over:
            self.memberships.needed(pubend)
        return found

    def _new_subend(self, pubend: PubendId, membership: MembershipId) -> Subend:
        return Subend(
            self._context,
            pubend,
            membership,
            self._filters.new_number(),
            self,
            self._requests,
            self.account,
            self._paths,
        )

    def join_best_effort(self, pubend: PubendId) -> None:
        """Attach to a best-effort pubend."""
        if pubend not in self.best_effort:
            self.best_effort[pubend] = BestEffortSubend(self._context, pubend, self, self._paths)

    def review(self, needs_best_effort: Callable[[PubendId], bool]) -> None:
        """Leave pubends that no subscription has needed for a while (R43)."""
        self._review_memberships()
        for pubend, subend in [*self.guaranteed.items()]:
            if pubend not in self.memberships and not subend.cursors:
                subend.close()
                del self.guaranteed[pubend]
        for pubend, end in [*self.best_effort.items()]:
            if not needs_best_effort(pubend):
                end.close()
                del self.best_effort[pubend]

    def leave_unneeded(self) -> None:
        """Leave all pubends that no subscription needs now, because this broker leaves the tree."""
        self._review_memberships(at_once=True)

    def _review_memberships(self, *, at_once: bool = False) -> None:
        for pubend in self.memberships:
            subend = self.guaranteed.get(pubend)
            needed = subend is not None and bool(subend.cursors)
            if self.memberships.review(pubend, needed=needed, at_once=at_once):
                self._leave(pubend)

    def _leave(self, pubend: PubendId) -> None:
        subend = self.guaranteed.pop(pubend, None)
        if subend is not None:
            self._close_feed(subend)
        self.memberships.leave(pubend)

    # --- closed pubends (RS-32, RS-34) -----------------------------------------------------------

    def pubend_sealed(self, pubend: PubendId, last: Tick) -> None:
        """A pubend is sealed at its last tick."""
        subend = self.guaranteed.get(pubend)
        if subend is not None and subend.sealed_at is None:
            subend.seal(last)
            self.end_reached(subend)

    def end_reached(self, subend: Subend) -> None:
        """A stream has come up to its last tick, or will come up to it."""
        for cursor in subend.cursors.values():
            cursor.subscription.closed_notices.note(subend.pubend)

    def review_end(self, subend: Subend) -> None:
        """Leave a sealed pubend if nothing of it is needed; join it again if it is needed again."""
        last, pubend = subend.sealed_at, subend.pubend
        if last is None or subend.is_over:
            return
        if subend.has_left:
            if subend.groups.holding and pubend not in self.memberships:
                self._context.mark("sealed pubend joined again")
                self.join(pubend)
            return
        if not subend.is_at_end or subend.groups.holding or subend.groups.guaranteed:
            return
        if self.memberships.may_finish(pubend) and self.reporter.ack_floor(subend) >= last:
            self._context.mark("sealed pubend left")
            self._close_feed(subend)
            self.memberships.finish(pubend)

    def pubend_ended(self, pubend: PubendId, last: Tick, last_event: Tick) -> None:
        """A pubend is a tombstone: its memberships, log holds and feeds end (RS-34)."""
        self.memberships.pubend_ended(pubend)
        best_effort = self.best_effort.pop(pubend, None)
        if best_effort is not None:
            best_effort.close()
        subend = self.guaranteed.get(pubend)
        if subend is None or subend.is_over:
            return
        subend.end(last, last_event)
        if not subend.cursors:
            del self.guaranteed[pubend]

    def restore_ended(self, pubend: PubendId, last: Tick, last_event: Tick) -> None:
        """Make the subend of a tombstone for a subscription that was not sent its end."""
        if pubend not in self.guaranteed:
            subend = self.guaranteed[pubend] = self._new_subend(pubend, MembershipId(0, 0))
            subend.end(last, last_event)

    def _close_feed(self, subend: Subend) -> None:
        if subend.feeder is not None:
            self._context.send(subend.feeder, ForgetMemberSet(-subend.number))
        subend.close()

    # --- pubends whose PHB was retired (R26) ---------------------------------------------------

    def review_abandoned(self, pubend: PubendId) -> None:
        """Abandon a pubend if its PHB was retired and no broker feeds it."""
        if pubend not in self.memberships or not self._status.is_phb_gone(pubend):
            return
        subend = self.guaranteed.get(pubend)
        if subend is None or subend.feeder is None:
            if self.memberships.abandon(pubend):
                self._review_exclusions(pubend)
            self.memberships.give_up_leaving(pubend)

    def pubend_returned(self, pubend: PubendId) -> None:
        """A pubend is fed again, or its PHB has returned with it."""
        self._status.found(pubend)
        if self.memberships.pubend_returned(pubend):
            self._review_exclusions(pubend)

    def _review_exclusions(self, pubend: PubendId) -> None:
        subend = self.guaranteed.get(pubend)
        for cursor in [] if subend is None else [*subend.cursors.values()]:
            self.review_exclusion(cursor)

    def review_exclusion(
        self, cursor: Cursor, *, positioned: bool = False, excluded: bool = False
    ) -> None:
        """Let a merge wait for a cursor, or continue without it.

        ``positioned`` means that the client named the cursor's position. The merge may have
        continued without the pubend at another SHB, and the pubend may have returned since. Then
        the position is below what the client has merged, and the range between is skipped here too.
        """
        subscription = cursor.subscription
        if self.memberships.is_abandoned(cursor.pubend):
            cursor.merge_exclusion.start()
        elif subscription.client is None or subscription.order is not Order.TOTAL:
            return
        elif cursor.merge_exclusion.is_excluded:
            cursor.merge_exclusion.end()
        elif positioned:
            merged = subscription.merged
            cursor.merge_exclusion.suspect(
                merged if excluded else self._status.returned_at(cursor.pubend)
            )

    # --- events of the streams -------------------------------------------------------------------

    def matched(self, knowledge: KnowledgeRange, then: Callable[[], None]) -> KnowledgeRange | None:
        """Match the publications of a range, as far as this step may."""
        return self._filters.matcher.part(knowledge, then)

    def count_matched(self, publications: tuple[Publication, ...], then: Callable[[], None]) -> int:
        """Match the first of some publications, as far as this step may."""
        return self._filters.matcher.count(publications, then)

    def deliver(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Pass publications, in tick order, to the live cursors."""
        segments = self._filters.segments
        for number, matching in self._filters.matcher.take(publications):
            segment = segments[number]
            cursor = segment.subscription.cursors.get(pubend)
            if cursor is not None and cursor.is_live:
                cursor.take(segment, matching)

    def deliver_best_effort(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        """Pass best-effort publications to the matching connected subscriptions (R33)."""
        for number, matching in self._filters.matcher.take(publications):
            subscription = self._filters.segments[number].subscription
            if subscription.client is not None and subscription.newest.number == number:
                subscription.delivery.take_best_effort(pubend, matching)

    def feed_found(self, subend: Subend) -> None:
        """A feeder was found: report the membership of this SHB to it at once (R43)."""
        self.pubend_returned(subend.pubend)
        self.reporter.report(subend)
        for cursor in subend.cursors.values():
            cursor.subscription.mark_dirty()

    def feed_lost(self, subend: Subend) -> None:
        """A feeder was lost."""
        self.review_abandoned(subend.pubend)

    def advanced(self, subend: Subend) -> None:
        """The horizon of a stream has moved: the cursors that wait for it continue."""
        for cursor in subend.groups.behind.values():
            cursor.subscription.mark_dirty()

    def stalled(self, subend: Subend) -> None:
        """A stream is stalled because its log is corrupt there, or continues (P8)."""
        for cursor in subend.cursors.values():
            cursor.subscription.stalls.note(subend.pubend)

    def served_at(self, pubend: PubendId, version: int) -> None:
        """A stream is in a stream epoch with an announcement version."""
        self._filters.served_at(pubend, version)

    def covering_filter(self) -> str:
        """Return the text of a filter that covers all filters of this SHB."""
        return self._filters.covering_filter()

    # --- sessions --------------------------------------------------------------------------------

    def announced(self, pubend: PubendId) -> None:
        """A pubend was announced, and the subscriptions have created their cursors on it."""
        self.memberships.announced(pubend)
        subend = self.guaranteed.get(pubend)
        if subend is not None:
            subend.retry_feed()
        self.review_abandoned(pubend)

    def reshaped(self) -> None:
        """The tree has changed: try the feed candidates again."""
        self.session_opened()

    def session_opened(self) -> None:
        """A peer session has opened: try the feed candidates again."""
        for subend in self.guaranteed.values():
            subend.retry_feed()
        for end in self.best_effort.values():
            end.retry_feed()

    def session_closed(self, peer: BrokerId) -> None:
        """A broker cannot be reached any more."""
        for subend in self.guaranteed.values():
            subend.session_closed(peer)
        for end in self.best_effort.values():
            end.session_closed(peer)
