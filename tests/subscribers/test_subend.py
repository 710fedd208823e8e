"""The subend: doubt horizon, uncovered ranges, released ranges, and curiosity (R42 to R45)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.messages.clients import Order, StartKind, StartPoint
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import (
    AckExpected,
    Attached,
    FeedUnavailable,
    FeedUnavailableReason,
    KnowledgeRange,
    Nack,
    Publication,
    Released,
    StreamData,
    StreamEpoch,
    StreamEpochRequest,
    StreamSilence,
)
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.subend import Subend
from gapless.subscribers.subend_state import Open
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import Publisher, Subscriber, of, shb


def live(**parameters: Any) -> tuple[BrokerHarness, Publisher, Subscriber, Subend]:
    """Return a world in which x at n is live on P at p."""
    world = BrokerHarness("p-n", **parameters)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    assert world.cursor("n", "x").phase is CursorPhase.LIVE
    return world, ann, x, world.subend("n", P)


def context(world: BrokerHarness) -> Context:
    return world["n"].context


def settle(world: BrokerHarness) -> None:
    """Let a step end at n."""
    world.happen("n", None)


def event(tick: int) -> Publication:
    return Publication(tick, "ann", tick, {}, f"at {tick}".encode())


def is_eager(subend: Subend) -> bool:
    """Return whether a subend requests silence at once."""
    assert isinstance(subend._state, Open)
    return subend._state.feed.eager


def newest_stream_epoch(subend: Subend) -> int:
    """Return the newest stream epoch that a subend knows."""
    return subend.stream_epochs.newest


def feed(subend: Subend, low: int, high: int, *ticks: int, stream_epoch: int | None = None) -> None:
    """Give a subend a knowledge range; ticks are counted from its horizon."""
    at = subend.horizon
    number = newest_stream_epoch(subend) if stream_epoch is None else stream_epoch
    events = tuple(event(at + tick) for tick in ticks)
    subend.receive(KnowledgeRange(at + low, at + high, number, 0, events))


# --- the horizon (R42) ----------------------------------------------------------------------------


def test_a_stream_starts_at_the_tick_given_by_the_first_feeder() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "TRUE")
    world.run(ms=10)
    (attached,) = world.sent_over(Attached, "p", "n")[:1]
    world.run(ms=5)
    horizon = world.subend("n", P).horizon
    assert horizon >= attached.sent_up_to


def test_the_horizon_stops_at_missing_ticks_and_then_passes_all_known_ones() -> None:
    world, _, x, subend = live()
    start = subend.horizon
    feed(subend, 6, 9, 8)
    assert subend.horizon == start
    feed(subend, 1, 5, 3)
    assert subend.horizon == start + 9
    settle(world)
    assert x.events == [f"at {start + 3}", f"at {start + 8}"]


def test_ticks_received_again_are_delivered_once() -> None:
    # P3
    world, _, x, subend = live()
    start = subend.horizon
    feed(subend, 1, 5, 3)
    feed(subend, -4, 3, -2)
    feed(subend, -4, 0, -2)
    assert subend.horizon == start + 8
    settle(world)
    assert x.events == [f"at {start + 3}"]


def test_knowledge_that_comes_before_the_stream_has_a_base_is_dropped() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    lost = world.lose(of(Attached, source="p", target="n"))
    world.subscriber("n", "x", "TRUE")
    world.run(ms=50)
    subend = world.subend("n", P)
    subend.receive(KnowledgeRange(5, 9, 0, 0, ()))
    assert not subend.has_base
    subend.ack_expected(AckExpected(P, 7))
    subend.released(Released(P, 7))
    assert not subend.has_base
    lost.end()


# --- stream epochs --------------------------------------------------------------------------------


def test_a_knowledge_range_waits_for_its_stream_epoch_which_is_requested_until_it_arrives() -> None:
    # R44: it waits like Q
    world, _, x, subend = live()
    start = subend.horizon
    world.hold(of(StreamSilence, source="p", target="n"))
    lost = world.lose(of(StreamEpochRequest, source="n", target="p"))
    known = subend.stream_epochs.get(newest_stream_epoch(subend))
    assert known is not None
    feed(subend, 1, 5, 3, stream_epoch=77)
    feed(subend, 6, 9, stream_epoch=77)
    settle(world)
    assert lost.messages == [StreamEpochRequest(P, 77)], "one request for all waiting ranges"
    assert subend.horizon == start
    world.run(ms=450)
    assert 3 <= len(lost.messages) <= 6, "the request is repeated"
    subend.stream_epoch(StreamEpoch(P, 77, start + 1, 1, None, tuple(known.entries.items())))
    settle(world)
    assert subend.horizon == start + 9
    assert x.events == [f"at {start + 3}"]
    count = len(lost.messages)
    world.run(ms=450)
    assert len(lost.messages) <= count + 1


# --- uncovered ranges (R44) -----------------------------------------------------------------------


def uncovered() -> tuple[BrokerHarness, Publisher, Subscriber, Subscriber]:
    """Publish an event in a stream epoch without n, which is cut off and inactive."""
    world = BrokerHarness("p-a-n", inactive_after_s=7, attach_expiry_ms=5_000)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "kind = 1")
    y = world.subscriber("n", "y", "kind = 3", durable=True)
    world.run(s=1)
    world.cut("a", "n")
    world.run(s=10)
    row = world.member("p", P, "n")
    assert row is not None
    assert row.inactive
    ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    world.run(s=1)
    return world, ann, x, y


def test_ticks_filtered_without_this_shb_are_read_from_the_log() -> None:
    world, _, x, y = uncovered()
    world.heal("a", "n")
    world.run(s=3)
    assert world["n"].coverage_marks["knowledge range not covered"] >= 1
    reads = world.sent_over(Read, "n", "a")
    assert reads
    assert {read.filter for read in reads} == {"kind IN (1, 3)"}, "for all live cursors"
    assert x.events == ["e1"]
    assert (x.gaps, y.events) == ([], [])


@pytest.mark.parametrize("joins", [False, True])
def test_a_range_is_read_again_if_another_cursor_became_live_meanwhile(joins: bool) -> None:
    # the range was read for the live cursors only, and may lack events for another
    world, _, x, y = uncovered()
    y.leave()
    held = world.hold(of(ReadReply, source="a", target="n"))
    world.heal("a", "n")
    assert world.wait(lambda: bool(held.messages), s=3)
    (first_read,) = world.sent_over(Read, "n", "a")
    since = world.now
    if joins:
        cursor = world.cursor("n", "y")
        cursor.phase = CursorPhase.LIVE
        cursor.subend.register(cursor)
    held.release()
    world.run(ms=20)
    again = [read.low for read in world.sent_over(Read, "n", "a", since)]
    assert (first_read.low in again) is joins
    world.run(s=3)
    assert x.events == ["e1"]


def test_a_reply_with_missing_ticks_is_ignored_and_requested_again() -> None:
    world, _, x, _ = uncovered()
    held = world.hold(of(ReadReply, source="a", target="n"))
    world.heal("a", "n")
    assert world.wait(lambda: any(reply.ranges for reply in held.messages), s=3)
    true = next(reply for reply in held.messages if reply.ranges)
    first = true.ranges[0]
    holed = replace(true, ranges=(replace(first, low=first.low + 1), *true.ranges[1:]))
    world.receive("n", "a", holed)
    assert world["n"].coverage_marks["invalid reply"] == 1
    world.faults.clear()
    world.run(s=3)
    assert x.events == ["e1"]
    assert x.gaps == []


def test_a_released_uncovered_range_is_a_gap_for_live_cursors() -> None:
    world, ann, x, y = uncovered()
    y.leave()
    pubend = world.pubend("p", P)
    pubend.members.retire(shb("n"))
    pubend.members.readmit(shb("n"))  # and it is active again
    world.run(s=2)
    assert world.released("p", P) > ann.ticks["e2"]
    world.heal("a", "n")
    world.run(s=3)
    (gap,) = x.gaps
    assert gap.low <= ann.ticks["e1"] <= gap.high
    assert x.events == []


# --- released ranges (R45) ------------------------------------------------------------------------


def test_a_released_range_above_the_horizon_is_a_gap_and_the_horizon_passes_it() -> None:
    world, _, x, subend = live()
    start = subend.horizon
    feed(subend, 11, 15, 12)
    subend.released(Released(P, start + 10))
    settle(world)
    (gap,) = x.gaps
    assert (gap.low, gap.high) == (start + 1, start + 10)
    assert x.events == [f"at {start + 12}"]
    assert subend.horizon == start + 15
    assert world["n"].coverage_marks["gap at a subend"] == 1


def test_a_released_range_below_the_horizon_is_no_gap() -> None:
    world, _, x, subend = live()
    subend.released(Released(P, subend.horizon))
    settle(world)
    assert x.gaps == []


# --- curiosity (R45) ------------------------------------------------------------------------------


def test_missing_ticks_are_nacked_after_a_delay_and_again() -> None:
    world, ann, x, _ = live(gct_ms=30)
    lost = world.lose(of(StreamData, source="p", target="n"))
    ann.publish("e1")
    world.run(ms=5)
    lost.end()
    nacks = world.lose(of(Nack, source="n", target="p"))
    ann.publish("e2")
    world.run(ms=25)
    assert nacks.messages == []
    world.run(ms=300)
    assert len(nacks.messages) >= 2
    nacks.end()
    world.run(s=1)
    assert x.events == ["e1", "e2"]


def test_ack_expected_reveals_missing_ticks_at_the_end_of_the_stream() -> None:
    # R57, GD 3.2: the last message may have been lost, and no later one reveals the gap
    world, _, _, subend = live(gct_ms=2_000)
    start = subend.horizon
    context(world).take_messages()
    subend.ack_expected(AckExpected(P, start + 7))
    (nack,) = [each for each in context(world).take_messages_to("n") if isinstance(each, Nack)]
    assert nack.ranges[0].low == start + 1
    assert nack.ranges[-1].high == start + 7


def test_under_pressure_lagging_cursors_release_the_log_and_live_ones_do_not() -> None:
    # R58
    world, ann, _, subend = live()
    away = world.subscriber("n", "away", "TRUE", durable=True)
    world.run(s=1)
    away.leave()
    tick = ann.publish("e1")
    world.run(s=1)
    subend.ack_expected(AckExpected(P, tick, pressure=False))
    assert world.cursor("n", "away").retention.given_up == 0
    subend.ack_expected(AckExpected(P, tick, pressure=True))
    assert world.cursor("n", "away").retention.given_up == tick
    assert world.cursor("n", "x").retention.given_up == 0
    assert world["n"].coverage_marks["gave up a log under pressure"] == 1
    world.run(s=2)
    assert world.released("p", P) >= tick
    away.come_back()
    world.run(s=1)
    (gap,) = away.gaps
    assert gap.low <= tick <= gap.high, "the client is notified of the gap"


def test_ticks_buffered_above_a_gap_are_bounded_and_requested_again() -> None:
    # R38, P7: cache_bytes
    world, ann, x, _ = live(cache_bytes=2_000, gct_ms=200)
    lost = world.lose(of(StreamData, source="p", target="n"))
    ann.publish("e0")
    world.run(ms=2)
    lost.end()
    for number in range(1, 30):
        ann.send_values(f"e{number}", {"text": "x" * 100})
        world.run(ms=2)
    assert world["n"].coverage_marks["subend cache full"] > 0
    world.run(s=3)
    assert x.events == [f"e{number}" for number in range(30)]


# --- feeds ----------------------------------------------------------------------------------------


def test_a_closed_subend_ignores_messages() -> None:
    world, _, _, subend = live()
    subend.close()
    before = subend.horizon
    feed(subend, 1, 5, 3)
    subend.take_attached("n", Attached(P, 3, 9, relayed=False))
    subend.take_feed_unavailable("n", FeedUnavailable(P, 3, FeedUnavailableReason.NO_FEED))
    subend.session_closed("n")
    subend.retry_feed()
    subend.register(world.cursor("n", "x"))
    subend.request_advance(99)
    assert subend.horizon == before
    assert subend.feeder is None


def test_a_subend_without_a_feeder_sends_no_nacks_until_it_has_one() -> None:
    world, ann, x, subend = live()
    world.cut("p", "n")
    world.run(s=2)
    assert world.subend("n", P).feeder is None
    since = world.now
    ann.publish("e1")
    subend.request_advance(2**60)
    subend.ack_expected(AckExpected(P, ann.ticks["e1"]))
    world.run(ms=500)
    assert world.sent_over(Nack, "n", "p", since) == []
    world.heal("p", "n")
    world.run(s=2)
    assert subend.feeder == "n"
    assert x.events == ["e1"]


def test_silence_is_eager_only_while_a_merge_in_total_order_waits() -> None:
    # R51
    world, _, _, subend = live()
    world.publisher("p", "Q")
    world.run(s=1)
    assert not is_eager(subend)
    y = world.subscriber("n", "y", "TRUE", order=Order.TOTAL, durable=True)
    world.run(s=1)
    assert is_eager(subend)
    y.leave()
    assert not is_eager(subend)


def test_stream_epochs_that_no_knowledge_range_needs_are_forgotten() -> None:
    # R38: stream_epochs_kept
    world, ann, _, subend = live(stream_epochs_kept=2, stream_epoch_interval_ms=1)
    for number in range(20):
        world.subscriber("n", f"y{number}", f"kind = {number}")
        world.run(ms=100)
        ann.publish(f"e{number}", kind=number)
        world.run(ms=20)
    world.run(s=1)
    assert len(subend.stream_epochs) <= 6
    assert len(world.subscription("n", "y19").cursors) == 1


def test_stream_epochs_are_forgotten_while_a_stream_is_stalled() -> None:
    _, _, _, subend = live(stream_epochs_kept=2)
    newest, horizon = newest_stream_epoch(subend), subend.horizon
    feed(subend, 5, 9, stream_epoch=newest + 1)  # the ticks below are missing
    for number in range(newest + 1, newest + 100):
        subend.stream_epoch(StreamEpoch(P, number, horizon + 1, 1, None, ()))
    assert subend.horizon == horizon
    assert subend.stream_epochs.knows(newest + 1), "a waiting range needs it"
    assert len(subend.stream_epochs) <= 8


def test_a_position_on_an_unknown_pubend_waits_for_its_announcement() -> None:
    world = BrokerHarness("p-n")
    start = StartPoint(StartKind.POSITION, ((PubendId("P"), 5),))
    x = world.subscriber("n", "x", "TRUE", start=start)
    world.run(s=3)
    assert world.subend("n", P).feeder is None
    ann = world.publisher("p")
    world.run(s=6)
    ann.publish("e1")
    world.run(s=1)
    assert x.events == ["e1"]
