"""Conversion of durable subscriptions to and from their records (R50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.ids import PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.clients import PositionTuple
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import (
    FilterSegmentRecord,
    MergeExclusionRecord,
    SubscriptionRecord,
)
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.filter_segments import FilterSegment, ImportedSegments, StoredSegments

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = [
    "SavedCursor",
    "StoredCursor",
    "acked_elsewhere",
    "imported_segments",
    "record_of",
    "stored_cursors",
]


class SavedCursor(NamedTuple):
    """The state of a cursor in a record that is being written."""

    seek_count: int
    acked: Tick
    log_hold: LogHoldId | None
    end_known: bool


class StoredCursor(NamedTuple):
    """A started cursor in the record of its subscription."""

    start: Started
    log_holds: list[LogHoldId]
    start_unconfirmed: bool
    seek_number: int
    from_earliest: bool
    merge_exclusion: MergeExclusionRecord | None
    settled: Tick
    end_known: bool


# --- to a record -----------------------------------------------------------------------------------


def record_of(subscription: HostedSubscription) -> SubscriptionRecord:
    """Return the record of a durable subscription."""
    started = [
        (pubend, each, each.start)
        for pubend, each in subscription.cursors.items()
        if isinstance(each.start, Started)
    ]
    guarantees = subscription.guarantees
    confirmed_filter, confirmed_filter_times = guarantees.confirmed_record()
    exclusions = [cursor.merge_exclusion.record() for _, cursor, _ in started]
    return SubscriptionRecord(
        subscription=subscription.name,
        segments=tuple(_segment_record(subscription, each) for each in subscription.segments),
        acked=_acked(subscription),
        started_after=tuple((pubend, start.after) for pubend, _, start in started),
        order=subscription.order,
        start=subscription.start,
        log_holds=tuple(
            (pubend, hold.subscription)
            for pubend, cursor in subscription.cursors.items()
            for hold in cursor.log_holds.all
        ),
        expiry_s=subscription.expiry_s,
        merged=subscription.merged,
        unconfirmed_starts=tuple(pubend for pubend, each, _ in started if each.start_unconfirmed),
        seek_count=subscription.seek_count,
        unconfirmed_seeks=tuple(
            (pubend, each.seek_number) for pubend, each, _ in started if each.seek_number
        ),
        from_earliest=tuple(pubend for pubend, each, _ in started if each.from_earliest),
        incarnation_key=subscription.incarnation_key,
        epoch=subscription.epoch,
        host_guarantees=tuple(
            (pubend, guarantee.time)
            for pubend, guarantee in guarantees.by_pubend.items()
            if guarantee.time is not None
        ),
        confirmed_filter=confirmed_filter,
        confirmed_filter_times=confirmed_filter_times,
        former_host_guarantees=tuple(
            (pubend, guarantee.former_host_times)
            for pubend, guarantee in guarantees.by_pubend.items()
            if guarantee.former_host_times or guarantee.time is None
        ),
        merge_exclusions=tuple(each for each in exclusions if each is not None),
        previous_confirmed_filter=guarantees.previous_record(),
        ended=tuple(
            (pubend, each.subend.sealed_at, each.subend.last_event)
            for pubend, each, _ in started
            if each.subend.is_over and each.subend.sealed_at is not None
        ),
        known_ends=tuple(pubend for pubend, each, _ in started if each.ending.is_known),
        settled=tuple(
            (pubend, tick)
            for pubend, each, start in started
            if (tick := each.settled.tick) > start.acked
        ),
    )


def _acked(subscription: HostedSubscription) -> PositionTuple:
    started = {
        pubend: each.start.acked
        for pubend, each in subscription.cursors.items()
        if isinstance(each.start, Started)
    }
    return tuple({**subscription.acked_elsewhere, **started}.items())


def _segment_record(
    subscription: HostedSubscription, segment: FilterSegment
) -> FilterSegmentRecord:
    assert segment.required_from is not None
    ends = tuple(subscription.ends_of(segment))
    return FilterSegmentRecord(segment.text, segment.required_from, ends, segment.former_host_times)


# --- from a record ---------------------------------------------------------------------------------


def stored_cursors(record: SubscriptionRecord, shb: ShbId) -> list[tuple[PubendId, StoredCursor]]:
    """Return the cursors that have started, in the order of the record."""
    acked, seek_numbers = dict(record.acked), dict(record.unconfirmed_seeks)
    exclusions = {each.pubend: each for each in record.merge_exclusions}
    settled = dict(record.settled)
    found = []
    for pubend, after in record.started_after:
        position = acked.get(pubend, after)
        names = [name for held, name in record.log_holds if held == pubend]
        cursor = StoredCursor(
            start=Started(after, 0, position, position),
            log_holds=[LogHoldId(shb, name) for name in names],
            start_unconfirmed=pubend in record.unconfirmed_starts,
            seek_number=seek_numbers.get(pubend, 0),
            from_earliest=pubend in record.from_earliest,
            merge_exclusion=exclusions.get(pubend),
            settled=settled.get(pubend, 0),
            end_known=pubend in record.known_ends,
        )
        found.append((pubend, cursor))
    return found


def acked_elsewhere(record: SubscriptionRecord) -> dict[PubendId, Tick]:
    """Return the acknowledged ticks of pubends on which the subscription has not started here."""
    started = dict(record.started_after)
    return {each: tick for each, tick in record.acked if each not in started}


def imported_segments(record: SubscriptionRecord, stored: StoredSegments) -> ImportedSegments:
    """Return the filters that ended at a former hosting broker, of pubends not started here."""
    started = {pubend for pubend, _ in record.started_after}
    positioned = {pubend for pubend, _ in record.start.position} - started
    return [
        (segment, ends)
        for segment, each in stored[:-1]
        if (ends := {pubend: end for pubend, end in each.ends if pubend in positioned})
    ]
