"""Durable subscriptions as they come back from disk after a crash (R50)."""

from __future__ import annotations

from gapless.content.filter import Filter
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import FilterSegmentRecord, SubscriptionRecord
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.start_guarantee import NO_GUARANTEE, StartGuarantee
from gapless.subscribers.subscription import ConfirmedFilter, HostedSubscription

__all__ = ["restore"]


def restore(host: SubscriberHost, record: SubscriptionRecord) -> HostedSubscription:
    """Bring a durable subscription back, without a client."""
    made = HostedSubscription(
        host,
        record.subscription,
        durable=True,
        order=record.order,
        start=record.start,
        expiry_s=record.expiry_s,
    )
    made.stored = True
    made.disconnected_since = host.context.now
    made.merged = record.merged
    made.seek_count = record.seek_count
    made.incarnation_key, made.epoch = record.incarnation_key, record.epoch
    host.subscriptions[made.name] = made
    stored: list[tuple[FilterSegment, FilterSegmentRecord]] = []
    for each in record.segments:
        segment = host.make_segment(made, Filter(each.filter))
        segment.required_from, segment.former_host_times = each.time, each.since
        stored.append((segment, each))
    host.own(made.newest)
    made.confirmed_filter = made.newest_to_confirm
    if record.confirmed_filter is not None:
        text, time = record.confirmed_filter
        made.confirmed_filter = ConfirmedFilter(Filter(text), time, record.confirmed_filter_times)
    made.previous_confirmed_filter = made.confirmed_filter
    if record.previous_confirmed_filter is not None:
        text, time, since = record.previous_confirmed_filter
        made.previous_confirmed_filter = ConfirmedFilter(Filter(text), time, since)
    made.guarantees = {pubend: StartGuarantee(time) for pubend, time in record.host_guarantees}
    for pubend, host_times in record.former_host_guarantees:
        made.guarantees[pubend] = made.guarantees.get(pubend, NO_GUARANTEE)._replace(
            former_host_times=host_times
        )
    made.imported_segments = _imported_segments(record, stored)
    acked, seek_numbers = dict(record.acked), dict(record.unconfirmed_seeks)
    merge_exclusions = {each.pubend: each for each in record.merge_exclusions}
    started = dict(record.started_after)
    made.acked_elsewhere = {each: tick for each, tick in record.acked if each not in started}
    for pubend, started_after in record.started_after:
        cursor = _cursor(made, pubend, started_after, stored)
        cursor.position = cursor.acked = cursor.acked_stored = acked.get(pubend, started_after)
        names = [name for held, name in record.log_holds if held == pubend]
        holds = [LogHoldId(host.context.identity.shb, name) for name in names]
        cursor.log_holds.restore(holds)
        cursor.start_unconfirmed = pubend in record.unconfirmed_starts
        cursor.seek_number = seek_numbers.get(pubend, 0)
        cursor.from_earliest = pubend in record.from_earliest
        if pubend in merge_exclusions:
            cursor.merge_exclusion.restore(merge_exclusions[pubend])
        cursor.start_stored = True
        cursor.is_verifying = cursor.is_start_unverified
        cursor.set_phase(CursorPhase.DISCONNECTED)
        cursor.subend.verify_starts()
    made.review_segments()  # the crash may have come before those went that govern nothing
    return made


def _imported_segments(
    record: SubscriptionRecord, stored: list[tuple[FilterSegment, FilterSegmentRecord]]
) -> list[tuple[FilterSegment, dict[PubendId, Tick]]]:
    """Return which filters had ended elsewhere on streams that have not begun here."""
    started = {pubend for pubend, _ in record.started_after}
    positioned = {pubend for pubend, _ in record.start.position} - started
    return [
        (segment, ends)
        for segment, each in stored[:-1]
        if (ends := {pubend: end for pubend, end in each.ends if pubend in positioned})
    ]


def _cursor(
    subscription: HostedSubscription,
    pubend: PubendId,
    started_after: Tick,
    stored: list[tuple[FilterSegment, FilterSegmentRecord]],
) -> Cursor:
    """Return a strand with its course: which filters have ended on it, and which still governs."""
    host = subscription.host
    cursor = Cursor(subscription, host.subend(pubend, restored=True), subscription.newest)
    subscription.cursors[pubend] = cursor
    cursor.started_after = started_after
    for segment, record in stored[:-1]:
        end = dict(record.ends).get(pubend)
        if end is None:
            # the crash came before the next filter took over; it does when the client is back
            cursor.segment, cursor.next = segment, subscription.newest
        elif end > 0:
            cursor.ended_segments.append((segment, end))
            cursor.switched_at = end
    return cursor
