"""Durable subscriptions as they come back from disk after a crash (R50)."""

from __future__ import annotations

from gapless.content.filter import Filter
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import SegmentRecord, SubscriptionRecord
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless.subscribers.filter_segments import Segment
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.start_guarantee import NOT_OWED, Early
from gapless.subscribers.subscription import Subscription, Told

__all__ = ["restore"]


def restore(host: SubscriberHost, record: SubscriptionRecord) -> Subscription:
    """Bring a durable subscription back, without a client."""
    made = Subscription(
        host,
        record.subscription,
        durable=True,
        order=record.order,
        begin=record.begin,
        expiry_s=record.expiry_s,
    )
    made.stored = True
    made.away_since = host.context.now
    made.merged = record.merged
    made.seeks = record.seeks
    made.birth, made.epoch = record.birth, record.epoch
    host.subscriptions[made.name] = made
    stored: list[tuple[Segment, SegmentRecord]] = []
    for each in record.segments:
        segment = host.make_segment(made, Filter(each.filter))
        segment.owed_from, segment.since = each.time, each.since
        stored.append((segment, each))
    host.own(made.newest)
    made.told = made.newest_told
    if record.told is not None:
        text, time = record.told
        made.told = Told(Filter(text), time, record.told_since)
    made.told_before = made.told
    if record.told_before is not None:
        text, time, since = record.told_before
        made.told_before = Told(Filter(text), time, since)
    made.early = {pubend: Early(time) for pubend, time in record.early}
    for pubend, moments in record.owed:
        made.early[pubend] = made.early.get(pubend, NOT_OWED)._replace(moments=moments)
    made.brought = _brought(record, stored)
    acked, sought = dict(record.acked), dict(record.sought)
    drifts = {each.pubend: each for each in record.drifts}
    begun = dict(record.base)
    made.acked_elsewhere = {each: tick for each, tick in record.acked if each not in begun}
    for pubend, base in record.base:
        strand = _strand(made, pubend, base, stored)
        strand.position = strand.acked = strand.acked_stored = acked.get(pubend, base)
        names = [name for held, name in record.holds if held == pubend]
        holds = [HoldId(host.context.identity.shb, name) for name in names]
        strand.holding.restore(holds)
        strand.untold = pubend in record.untold
        strand.sought = sought.get(pubend, 0)
        strand.from_oldest = pubend in record.oldest
        if pubend in drifts:
            strand.drifting.restore(drifts[pubend])
        strand.base_stored = True
        strand.is_asking = strand.asks_for_earlier
        strand.become(State.AWAY)
        strand.subend.ask_since_when()
    made.review_segments()  # the crash may have come before those went that govern nothing
    return made


def _brought(
    record: SubscriptionRecord, stored: list[tuple[Segment, SegmentRecord]]
) -> list[tuple[Segment, dict[PubendId, Tick]]]:
    """Return which filters had ended elsewhere on streams that have not begun here."""
    begun = {pubend for pubend, _ in record.base}
    placed = {pubend for pubend, _ in record.begin.position} - begun
    return [
        (segment, ends)
        for segment, each in stored[:-1]
        if (ends := {pubend: end for pubend, end in each.ends if pubend in placed})
    ]


def _strand(
    subscription: Subscription,
    pubend: PubendId,
    base: Tick,
    stored: list[tuple[Segment, SegmentRecord]],
) -> Strand:
    """Return a strand with its course: which filters have ended on it, and which still governs."""
    host = subscription.host
    strand = Strand(subscription, host.subend(pubend, restored=True), subscription.newest)
    subscription.strands[pubend] = strand
    strand.base = base
    for segment, record in stored[:-1]:
        end = dict(record.ends).get(pubend)
        if end is None:
            # the crash came before the next filter took over; it does when the client is back
            strand.segment, strand.next = segment, subscription.newest
        elif end > 0:
            strand.course.append((segment, end))
            strand.switched_at = end
    return strand
