"""Forced moves: the hosting broker did not answer, the client continues here (MV-13).

The client brings its resume state: its position, what it has acknowledged, its past filters, and
the host times at which its hosting brokers had its filter. This broker creates the subscription
from it. If the broker already has the subscription, it continues with it at the client's position.
"""

from __future__ import annotations

from collections.abc import Collection

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.numbers import next_epoch
from gapless.messages.clients import (
    HostingReference,
    StartGuarantees,
    StartKind,
    StartPoint,
    Subscribe,
)
from gapless.mobility.epochs import is_behind, is_outdated
from gapless.mobility.protocols import HostedSubscriptions, StartFilters
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.filter_segments import ImportedSegments
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["ForcedMoves"]


def _retained_from(call: Subscribe) -> StartPoint:
    """Return the start of a new subscription; in a move, not above the acknowledged position.

    The client may have received more than it has acknowledged. If it loses received events, they
    are delivered again, as at the former hosting broker.
    """
    if call.hosting is None or call.start.kind is not StartKind.POSITION:
        return call.start
    acked = dict(call.acked)
    position = (
        (pubend, min(tick, acked.get(pubend, tick))) for pubend, tick in call.start.position
    )
    start = call.start
    return StartPoint(
        start.kind, tuple(position), start.clock, start.unnamed, start.merged, start.excluded
    )


class ForcedMoves:
    """Takes over subscriptions from the resume states of their clients."""

    def __init__(
        self, context: Context, filters: StartFilters, registry: HostedSubscriptions
    ) -> None:
        self._context = context
        self._filters = filters
        self._registry = registry
        self._here = context.identity.broker

    # --- epochs --------------------------------------------------------------------------------

    def is_behind(self, found: HostedSubscription, reference: HostingReference) -> bool:
        """Return whether the client may have used another broker since it left this one."""
        return is_behind(found, reference, self._here)

    def is_outdated(self, found: HostedSubscription, call: Subscribe, new_filter: Filter) -> bool:
        """Return whether the client used another broker, with filters that are missing here."""
        return is_outdated(found, call, new_filter, self._here)

    def identity(self, reference: HostingReference) -> tuple[str, int]:
        """Return the incarnation key and the epoch of a subscription that moves here."""
        self._context.mark("subscription moved here")
        return reference.incarnation_key, next_epoch(reference.epoch)

    # --- a new subscription --------------------------------------------------------------------

    def retained_start(self, call: Subscribe) -> StartPoint:
        """Return the start of a new subscription. The logs are kept from this start on."""
        return _retained_from(call)

    def adopt_resume_state(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take seeks, past filters and acknowledgements from the client's resume state."""
        if call.hosting is None:
            return
        imported: ImportedSegments = []
        for each in call.past_filters:
            time = self._filters.interest.time
            segment = made.add_segment(Filter(each.filter), required_from=time)
            imported.append((segment, dict(each.ends)))
        positioned = dict(call.start.position)
        acked = {each: tick for each, tick in call.acked if each in positioned}
        made.import_state(call.seek_count, imported, acked)

    def adopt_guarantees(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take the start guarantees of a new subscription, whose filter is already in the table."""
        if made.durable and call.hosting is not None and call.start_guarantees is not None:
            self._set_guarantees(made, call.start_guarantees)

    # --- an existing subscription --------------------------------------------------------------

    def resume_returned(self, found: HostedSubscription, call: Subscribe) -> bool:
        """Continue with a subscription whose client may have used another broker.

        Returns whether the subscription continues exactly at the client's position, also if that is
        below the acknowledged tick. The client may have started on pubends that this SHB does not
        know, or earlier than this SHB did. There the subscription continues from the client's
        position.
        """
        reference = call.hosting
        if reference is None or not self.is_behind(found, reference):
            return False
        is_elsewhere = reference.broker != self._here
        if is_elsewhere:
            if call.start.kind is StartKind.POSITION:
                self._adopt_positions(found, call)
            if call.start_guarantees is not None:
                positioned = {pubend for pubend, _ in (*call.start.position, *call.acked)}
                self._set_guarantees(found, call.start_guarantees, positioned)
        found.return_here(next_epoch(reference.epoch), call.seek_count)
        return is_elsewhere

    def _adopt_positions(self, found: HostedSubscription, call: Subscribe) -> None:
        # the subscription is not outdated, so its filters are those of the client
        past_filters = zip(found.segments[:-1], call.past_filters, strict=True)
        found.import_segments([(segment, dict(each.ends)) for segment, each in past_filters])
        self._registry.disconnect(found)
        for pubend, tick in _retained_from(call).position:
            found.cursor_set.reposition(pubend, tick, seek_count=call.seek_count)
        found.forget_imported()
        for pubend, tick in call.acked:
            cursor = found.cursors.get(pubend)
            if (
                cursor is not None
                and isinstance(cursor.start, Started)
                and cursor.seek_number <= call.seek_count
            ):
                cursor.raise_acked(tick)

    # --- start guarantees ----------------------------------------------------------------------

    def _set_guarantees(
        self,
        subscription: HostedSubscription,
        guarantees: StartGuarantees,
        positioned: Collection[PubendId] = (),
    ) -> None:
        """Take over the start guarantees for pubends on which the client has no position.

        For a pubend that this SHB knows already, only the host times of former SHBs count. Without
        them the subscription starts there with the latest events, like any new one. If it has
        started without its client, the PHB is queried whether it knew a former SHB earlier.
        """
        subscription.guarantees.adopt_default(guarantees.default)
        newest = subscription.newest
        announced = sorted(self._filters.announced_pubends)
        known = [each for each in announced if self._filters.may_start(each, newest)]
        imported = {**dict.fromkeys(known, guarantees.default), **dict(guarantees.by_pubend)}
        for pubend, times in imported.items():
            cursor = subscription.cursors.get(pubend)
            if subscription.cursor_set.start_kind(pubend) is not StartKind.LATEST:
                continue
            if cursor is not None and not cursor.is_pending:
                if pubend not in positioned and times and cursor.is_untouched:
                    cursor.verification.verify_earlier(times)
                continue
            subscription.guarantees.add_former(pubend, times)
            if cursor is not None:
                cursor.wait_for_start()
