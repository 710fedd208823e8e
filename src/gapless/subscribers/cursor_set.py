"""The cursors of a subscription: on which pubends it has one, and where each starts (R46, R50)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, StartKind, StartPoint
from gapless.messages.records import SubscriptionRecord
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.filter_segments import StoredSegments
from gapless.subscribers.merge import merged_by_client
from gapless.subscribers.record import stored_cursors

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["CursorSet"]


class CursorSet:
    """The cursors of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        resources = subscription.resources
        self._context = resources.context
        self._filters = resources.filters
        self._subends = resources.subends
        self.by_pubend: dict[PubendId, Cursor] = {}
        self._positioned: tuple[StartPoint, dict[PubendId, Tick]] = (StartPoint(), {})
        """A start of the subscription, and its position by pubend."""

    # --- where it starts -----------------------------------------------------------------------

    def _positions(self) -> dict[PubendId, Tick]:
        """Return the position of the start, which may have tens of thousands of pubends."""
        start = self._subscription.start
        if self._positioned[0] is not start:
            is_positioned = start.kind is StartKind.POSITION
            self._positioned = start, dict(start.position) if is_positioned else {}
        return self._positioned[1]

    def start_kind(self, pubend: PubendId) -> StartKind:
        """Return how the subscription starts on a pubend."""
        start = self._subscription.start
        if start.kind is not StartKind.POSITION:
            return start.kind
        return start.kind if pubend in self._positions() else start.unnamed

    # --- which pubends -------------------------------------------------------------------------

    def update_all(self) -> None:
        """Create missing cursors: on pubends that the filters may match or that have a position."""
        subscription = self._subscription
        for pubend in sorted({*self._filters.announced_pubends, *self._positions()}):
            self.update(pubend)
        subscription.forget_imported()  # the cursors with a position have taken the segments over

    def update(self, pubend: PubendId, *, newly_announced: bool = False) -> None:
        """Create or drop the cursor on a pubend, as the filters and the advertisement require.

        If the pubend is ``newly_announced`` and the client's subscription was confirmed before, the
        subscription gets a start guarantee for the pubend (R46).
        """
        subscription, filters = self._subscription, self._filters
        is_met = any(filters.may_match(pubend, segment) for segment in subscription.segments)
        if filters.is_best_effort(pubend):
            if is_met:
                self._subends.join_best_effort(pubend)
            return
        cursor = self.by_pubend.get(pubend)
        if cursor is None and subscription.resources.status.is_closed(pubend):
            self._start_ended(pubend)
            return
        is_positioned = pubend in self._positions()
        if cursor is None and (is_met or is_positioned):
            if newly_announced:
                self._note_guarantee(pubend)
            self._start(pubend)
        elif cursor is None:
            subscription.guarantees.clear(pubend)
        elif not is_met and cursor.is_pending:
            self.drop(cursor)

    def _start_ended(self, pubend: PubendId) -> None:
        """A position on a tombstone counts as passed, with a gap if events are missing (RS-34)."""
        end = self._subscription.resources.status.end_of(pubend)
        is_known = pubend in self._subscription.start.closed
        if pubend in self._positions() and not is_known and end is not None:
            self._subends.restore_ended(pubend, *end)
            self._start(pubend)

    def pubend_announced(self, pubend: PubendId) -> None:
        """A pubend was announced, or its advertisement became wider."""
        subscription = self._subscription
        if subscription.stored:
            self.update(pubend, newly_announced=True)
        elif pubend not in subscription.guarantees.by_pubend and self._filters.may_start(
            pubend, subscription.newest
        ):
            self._note_guarantee(
                pubend
            )  # the subscription moves here, its record is not stored yet

    def _note_guarantee(self, pubend: PubendId) -> None:
        advertisement = self._filters.announced_pubends[pubend].advertisement
        self._subscription.guarantees.note(pubend, advertisement)

    def _start(self, pubend: PubendId) -> None:
        subscription = self._subscription
        cursor = self._add(pubend)
        start = subscription.start
        match self.start_kind(pubend):
            case StartKind.POSITION:
                cursor.filter_switch.import_segments(subscription.imported_segments)
                acked = subscription.acked_elsewhere.get(pubend, 0)
                cursor.start_in_past(self._positions()[pubend], acked=acked)
            case StartKind.EARLIEST:
                cursor.start_in_past(None)
            case StartKind.TIME:
                cursor.note_unconfirmed(unconfirmed=subscription.client is None)
                cursor.start_in_past(max(start.clock - 1, subscription.merged))
            case StartKind.LATEST:
                cursor.wait_for_start()
        if len(self.by_pubend) == 2:
            self._review_merge()  # the first stream waits for the second from now on
        if cursor.subend.sealed_at is not None:
            subscription.closed_notices.note(pubend)
        self._subends.review_abandoned(pubend)
        self._subends.review_exclusion(cursor)
        subscription.mark_dirty()

    def _add(self, pubend: PubendId, *, restored: bool = False) -> Cursor:
        subend = self._subends.join(pubend, restored=restored)
        made = Cursor(self._subscription, subend, self._subscription.newest)
        self.by_pubend[pubend] = made
        return made

    def _review_merge(self) -> None:
        """In total order, note again which streams the merge waits for (R51).

        A merge waits for silence while there is a client, and more than one stream.
        """
        if self._subscription.order is Order.TOTAL:
            for cursor in self.by_pubend.values():
                cursor.subend.register(cursor)

    def drop(self, cursor: Cursor) -> None:
        """The subscription does not need the pubend any more."""
        cursor.drop()
        if self.by_pubend.get(cursor.pubend) is cursor:
            del self.by_pubend[cursor.pubend]
            self._subscription.guarantees.clear(cursor.pubend)
        cursor.log_holds.release()
        if len(self.by_pubend) == 1:
            self._review_merge()  # a single stream waits for no other

    def restore(self, record: SubscriptionRecord, segments: StoredSegments) -> None:
        """Restore the cursors that have started."""
        ended = {pubend: (last, event) for pubend, last, event in record.ended}
        for pubend, stored in stored_cursors(record, self._context.identity.shb):
            if pubend in ended:
                self._subends.restore_ended(pubend, *ended[pubend])
                self._subscription.closed_notices.note(pubend)
            cursor = self._add(pubend, restored=True)
            cursor.restore(stored, self._subscription.newest, segments)

    # --- clients -------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The client has disconnected."""
        for cursor in self.by_pubend.values():
            cursor.disconnect()
        self._review_merge()

    def resume(self, start: StartPoint, seek_count: int, *, exactly: bool) -> None:
        """Continue at the client's position; ``exactly`` there, also below the acknowledged tick.

        A client that used another broker may have sought back. The past filters that it brings
        apply to the range between, and are forgotten where the cursor has passed them.
        """
        subscription = self._subscription
        position = self._position_after_seeks(start, seek_count)
        is_total = subscription.order is Order.TOTAL
        if is_total:
            merged = max(subscription.merged, merged_by_client(start, position))
            subscription.merge.reset(merged)
        is_positioned = start.kind is StartKind.POSITION
        for pubend, cursor in self.by_pubend.items():
            cursor.forget_confirmation()
            own = position.get(pubend)
            if pubend in start.closed:
                cursor.ending.note_known()
            if not cursor.is_pending:
                # the client does not know this stream: it starts above what the client has merged
                is_unknown = own is None and cursor.start_unconfirmed
                if is_total and is_positioned and is_unknown:
                    own = subscription.merged
                cursor.resume(own, exactly=exactly)
            elif own is not None:
                cursor.start_in_past(own)
            else:
                cursor.stay_pending()
            self._subends.review_exclusion(
                cursor, positioned=own is not None, excluded=pubend in start.excluded
            )

    def _position_after_seeks(self, start: StartPoint, seek_count: int) -> dict[PubendId, Tick]:
        """Return the position of a client, without the streams that an operator has moved since."""
        position = dict(start.position) if start.kind is StartKind.POSITION else {}
        for pubend in [*position]:
            cursor = self.by_pubend.get(pubend)
            if cursor is not None and cursor.seek_number > seek_count:
                # the position is older than the operator's seek and would undo it
                self._context.mark("position from before a seek")
                del position[pubend]
        return position

    def reposition(self, pubend: PubendId, after: Tick, *, seek_count: int) -> None:
        """Continue after a tick for a client that returns, if the cursor has started only above it.

        A cursor that an operator has moved since ``seek_count`` seeks is not moved.
        """
        subscription = self._subscription
        cursor = self.by_pubend.get(pubend)
        if cursor is None:
            cursor = self._add(pubend)
            self._subends.review_abandoned(pubend)
        start, imported = cursor.start, subscription.imported_segments
        if not isinstance(start, Started):
            cursor.filter_switch.import_segments(imported)
            cursor.move_to(after)
        elif cursor.seek_number <= seek_count:
            is_sought_back = seek_count > subscription.seek_count and after < start.acked
            if after < start.after or is_sought_back:
                cursor.move_to(after)
            cursor.filter_switch.replace_segments(imported)

    @property
    def retains_logs(self) -> bool:
        """Whether this SHB keeps all logs that the subscription needs.

        This includes known pubends with start guarantees by former SHBs, because so far only those
        SHBs may keep the logs. An abandoned pubend is not waited for (R26): if it returns, it still
        has the member rows of the former SHBs. A closed one has no log.
        """
        subscription, cursors = self._subscription, self.by_pubend
        positioned = {pubend for pubend, _ in subscription.start.position}
        # a pubend that this broker does not know may never be announced, or never match
        guaranteed = {
            each
            for each, guarantee in subscription.guarantees.by_pubend.items()
            if guarantee.former_host_times and each in cursors
        }
        started = {pubend for pubend, each in cursors.items() if not each.is_pending}
        is_abandoned = self._subends.memberships.is_abandoned
        is_closed = subscription.resources.status.is_closed
        return all(
            is_abandoned(pubend)
            or is_closed(pubend)
            or (pubend in cursors and cursors[pubend].is_resumable)
            for pubend in positioned | guaranteed | started
        )
