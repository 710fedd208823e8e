"""Cursors: where a subscription starts on a stream, catching up, joining, and slow clients."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import TICKS_PER_MS
from gapless.messages.clients import (
    FilterSet,
    Gap,
    Order,
    RefusalCause,
    Seek,
    StartKind,
    StartPoint,
    Subscribed,
    SubscriptionEnded,
)
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import StreamData
from gapless.subscribers.cursor_state import FOREVER, NOT_STARTED, CursorPhase, GapRange, Started
from tests.broker.harness import BrokerHarness, P, Q, Requester, started, state_of
from tests.scenarios.brokers import Fault, Publisher, Subscriber, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n; its log is retained."""
    world = BrokerHarness("p-n", **{"retention_s": 3_600, **parameters})
    return world, world.publisher("p")


def past(count: int = 3, **parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return the same with some events in the log."""
    world, ann = stage(**parameters)
    for number in range(count):
        ann.publish(f"e{number}", number=number)
        world.run(ms=10)
    world.run(ms=200)
    return world, ann


def at(*positions: tuple[PubendId, int]) -> StartPoint:
    return StartPoint(StartKind.POSITION, positions)


# --- the start (R46, R48) -------------------------------------------------------------------------


def test_latest_starts_with_the_events_after_the_answer() -> None:
    world, ann = past()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    assert x.starts[P] >= ann.ticks["e2"]
    ann.publish("e3")
    world.run(ms=100)
    assert x.events == ["e3"]


@pytest.mark.parametrize("durable", [False, True])
def test_earliest_delivers_all_events_of_the_log(durable: bool) -> None:
    world, ann = past()
    x = world.subscriber("n", "x", "TRUE", start=StartPoint(StartKind.EARLIEST), durable=durable)
    world.run(s=1)
    assert x.starts[P] < ann.ticks["e0"]
    ann.publish("e3")
    world.run(ms=100)
    assert x.events == ["e0", "e1", "e2", "e3"]
    assert x.gaps == []
    assert world.cursor("n", "x").phase is CursorPhase.LIVE


def test_earliest_on_a_partly_released_log_starts_above_the_released_ticks_without_a_gap() -> None:
    world, ann = stage(retention_s=0)
    lost = ann.publish("lost")
    world.run(s=2)
    kept = world.subscriber("n", "kept", "TRUE", durable=True)  # retains the log from now on
    world.run(s=1)
    ann.publish("e1")
    world.run(ms=100)
    x = world.subscriber("n", "x", "TRUE", start=StartPoint(StartKind.EARLIEST))
    world.run(s=1)
    assert kept.events == x.events == ["e1"]
    assert x.gaps == []
    assert lost <= x.starts[P] < ann.ticks["e1"]


def test_a_start_at_a_position_delivers_all_later_events() -> None:
    world, ann = past()
    x = world.subscriber("n", "x", "TRUE", start=at((P, ann.ticks["e0"])))
    world.run(s=1)
    assert x.starts == {P: ann.ticks["e0"]}
    assert x.events == ["e1", "e2"]


def test_a_start_at_a_released_position_causes_a_gap() -> None:
    # R48
    world, ann = past(retention_s=0)
    world.run(s=2)
    assert world.released("p", P) >= ann.ticks["e2"]
    x = world.subscriber("n", "x", "TRUE", start=at((P, ann.ticks["e0"])))
    world.run(s=1)
    ann.publish("e3")
    world.run(s=1)
    (gap,) = x.gaps
    assert gap.low == ann.ticks["e0"] + 1
    assert ann.ticks["e2"] <= gap.high < ann.ticks["e3"]
    assert x.events == ["e3"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_start_at_a_position_in_the_future_delivers_only_events_after_it(durable: bool) -> None:
    world, ann = past()
    future = world.pubend("p", P).top + 1_000 * TICKS_PER_MS
    x = world.subscriber("n", "x", "TRUE", start=at((P, future)), durable=durable)
    world.run(ms=500)
    assert x.starts == {P: future}
    ann.publish("too early")
    world.run(s=1)
    ann.publish("in time")
    world.run(s=1)
    assert ann.ticks["too early"] <= future < ann.ticks["in time"]
    assert x.events == ["in time"]
    assert x.gaps == []


def test_a_position_on_one_pubend_does_not_apply_to_another() -> None:
    world, ann = past()
    bob = world.publisher("p", "Q")
    bob.publish("q0")
    world.run(ms=100)
    x = world.subscriber("n", "x", "TRUE", start=at((P, ann.ticks["e1"])))
    world.run(s=1)
    bob.publish("q1")
    world.run(ms=100)
    assert x.events == ["e2", "q1"]


def test_a_position_on_an_unknown_pubend_is_named_as_pending() -> None:
    world, _ = past()
    answer = Requester(world, "n", "x").subscribe(start=at((PubendId("nowhere"), 5)))
    assert isinstance(answer, Subscribed)
    (waiting,) = answer.pending
    assert waiting.pubend == PubendId("nowhere")
    assert waiting.reason == "no broker has announced this pubend yet"


def test_a_start_at_a_time_delivers_all_events_published_since() -> None:
    world, ann = past()
    start = StartPoint(StartKind.TIME, (), ann.ticks["e1"])
    x = world.subscriber("n", "x", "TRUE", start=start)
    world.run(s=1)
    assert x.starts == {P: ann.ticks["e1"] - 1}
    assert x.events == ["e1", "e2"]


def test_the_start_point_of_the_call_applies_to_a_pubend_that_is_announced_later() -> None:
    world, _ = past()
    x = world.subscriber("n", "x", "TRUE", start=StartPoint(StartKind.EARLIEST))
    world.run(s=1)
    frames = world.hold(of(StreamData, source="p", target="n"))
    bob = world.publisher("p", "Q")
    bob.publish("q0")
    frames.release()
    world.run(s=1)
    assert x.events == ["e0", "e1", "e2", "q0"]
    assert started(x)[Q] < bob.ticks["q0"]


def test_a_start_in_the_past_is_confirmed_when_the_log_hold_exists() -> None:
    # R49: the log hold is on disk before the first answer
    world, ann = past()
    lost = world.lose(of(ReadReply, source="p", target="n"))
    answer = Requester(world, "n", "x").subscribe(start=at((P, ann.ticks["e0"])))
    assert isinstance(answer, Subscribed)
    assert answer.position == ()
    (waiting,) = answer.pending
    assert waiting.reason == "the broker of this pubend has not answered yet"
    lost.end()
    world.run(s=5)
    client = world.nodes["n"].clients["x"]
    assert started(client) == {P: ann.ticks["e0"]}


# --- catching up and joining (R48) ----------------------------------------------------------------


def test_a_long_log_is_read_in_chunks() -> None:
    world, ann = past(20, read_chunk_bytes=1)
    since = world.now
    x = world.subscriber("n", "x", "number >= 10", start=StartPoint(StartKind.EARLIEST))
    world.run(s=1)
    assert x.events == [f"e{number}" for number in range(10, 20)]
    assert len(world.sent_over(Read, "n", "p", since)) >= 10
    assert len(ann.ticks) == 20


def test_a_cursor_reads_no_more_events_than_the_buffer_of_its_client_holds() -> None:
    # P7: prefetch_max
    world, _ = past(20, read_chunk_bytes=1, prefetch_max=4, backlog_bytes=0)
    x = world.subscriber("n", "x", "TRUE", start=StartPoint(StartKind.EARLIEST), credit=0)
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert (len(cursor.buffer), cursor.phase) == (4, CursorPhase.CATCHING_UP)
    x.give_credit(3)
    world.run(s=1)
    assert x.events == ["e0", "e1", "e2"]
    assert len(cursor.buffer) == 4
    x.give_credit(100)
    world.run(s=1)
    assert x.events == [f"e{number}" for number in range(20)]


def joining(**parameters: Any) -> tuple[BrokerHarness, Publisher, Fault]:
    """Let x read the last range up to the live stream; the answer is delayed."""
    world, ann = past(join_window_ms=5_000, **parameters)
    world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    slow = world.hold(of(ReadReply, source="p", target="n"))
    world.subscriber("n", "x", "TRUE", start=at((P, ann.ticks["e0"])))
    world.run(ms=1_300)
    assert world.cursor("n", "x").phase is CursorPhase.JOINING
    assert slow.messages
    return world, ann, slow


def test_a_joining_cursor_buffers_few_live_events_and_otherwise_reads_again() -> None:
    # R48: join_buffer_events_max; A19
    world, ann, slow = joining(join_buffer_events_max=2)
    cursor, x = world.cursor("n", "x"), world.nodes["n"].clients["x"]
    assert isinstance(x, Subscriber)
    ann.publish("e3")
    ann.publish("e4")
    world.run(ms=20)
    assert state_of(cursor) is CursorPhase.JOINING
    ann.publish("e5")
    world.run(ms=20)
    assert state_of(cursor) is CursorPhase.CATCHING_UP
    assert world["n"].coverage_marks["join buffer full"] == 1
    slow.release()
    world.run(s=3)
    assert x.events == [f"e{number}" for number in range(1, 6)]
    assert state_of(cursor) is CursorPhase.LIVE


def test_a_joined_cursor_delivers_buffered_live_events_after_those_it_read() -> None:
    world, ann, slow = joining()
    x = world.nodes["n"].clients["x"]
    assert isinstance(x, Subscriber)
    ann.publish("e3")
    world.run(ms=20)
    slow.release()
    world.run(ms=100)
    assert x.events == [f"e{number}" for number in range(1, 4)]
    assert world.cursor("n", "x").phase is CursorPhase.LIVE


def test_live_events_buffered_while_joining_are_delivered_although_the_log_is_released() -> None:
    # R48, A14: the log was released beyond the join tick; a gap over the buffered events, then
    # these events, would be out of order and wrong
    world, ann, slow = joining()
    cursor, x = world.cursor("n", "x"), world.nodes["n"].clients["x"]
    assert isinstance(x, Subscriber)
    joins_at = cursor.catch_up.join_at
    last = ann.publish("e3")
    world.run(ms=20)
    for place, (source, target, packet) in enumerate(slow.struck):
        replies = [
            msgspec.structs.replace(
                each, ranges=(), done=last, released=last, last_released_match=last
            )
            for each in packet.messages
        ]
        changed = msgspec.structs.replace(packet, messages=tuple(replies))
        slow.struck[place] = (source, target, changed)
    slow.release()
    world.run(ms=100)
    assert x.gaps == [Gap("x", P, ann.ticks["e0"] + 1, joins_at)]
    assert x.events == ["e3"]


def test_a_read_reply_is_ignored_when_the_client_has_disconnected() -> None:
    world, ann = past()
    slow = world.hold(of(ReadReply, source="p", target="n"))
    x = world.subscriber("n", "x", "TRUE", start=StartPoint(StartKind.EARLIEST), durable=True)
    world.run(ms=100)
    assert slow.messages
    x.leave()
    slow.release()
    world.run(ms=100)
    cursor = world.cursor("n", "x")
    assert (cursor.phase, cursor.start) == (CursorPhase.DISCONNECTED, NOT_STARTED)
    x.come_back()
    world.run(s=1)
    ann.publish("e3")
    world.run(ms=100)
    assert x.events == ["e0", "e1", "e2", "e3"]


def test_the_log_is_not_read_when_the_filter_cannot_match_the_advertisement() -> None:
    world = BrokerHarness("p-n", retention_s=3_600)
    ann = world.publisher("p", advertisement="number >= 0")
    first = ann.publish("e0", number=0)
    world.run(ms=100)
    since = world.now
    x = world.subscriber("n", "x", "number < 0", start=at((P, first - 1)))
    world.run(s=1)
    assert x.starts == {P: first - 1}
    reads = world.sent_over(Read, "n", "p", since)
    assert all(read.filter == "FALSE" or read.low > read.high for read in reads)


# --- slow clients (R48, P7) -----------------------------------------------------------------------


def overrun(*, durable: bool) -> tuple[BrokerHarness, Subscriber]:
    """Publish more events than fit into the buffer of a client without credit."""
    world, ann = stage(prefetch_max=3, backlog_bytes=0, read_chunk_bytes=1)
    x = world.subscriber("n", "x", "TRUE", durable=durable, credit=0)
    y = world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    for number in range(10):
        ann.publish(f"e{number}")
    world.run(s=1)
    assert y.events == [f"e{number}" for number in range(10)], "other clients do not wait"
    return world, x


def test_a_client_that_is_briefly_behind_continues_from_memory() -> None:
    world, ann = stage(prefetch_max=3)
    x = world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    since = len(world.sent_over(Read, "n", "p"))
    for number in range(10):
        ann.publish(f"e{number}")
    world.run(s=1)
    assert world["n"].components.registry.backlog.bytes > 0
    x.give_credit(100)
    world.run(s=1)
    assert x.events == [f"e{number}" for number in range(10)]
    assert len(world.sent_over(Read, "n", "p")) == since, "no event is read again"
    assert world["n"].components.registry.backlog.bytes == 0


def test_the_end_of_a_subscription_frees_its_buffered_events() -> None:
    world, ann = stage(prefetch_max=3)
    x = world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    for number in range(10):
        ann.publish(f"e{number}")
    world.run(s=1)
    assert world["n"].components.registry.backlog.bytes > 0
    x.end()
    world.run(s=60)
    assert world["n"].components.registry.backlog.bytes == 0


def test_a_slow_durable_subscriber_reads_the_log() -> None:
    world, x = overrun(durable=True)
    cursor = world.cursor("n", "x")
    assert state_of(cursor) is not CursorPhase.LIVE
    assert len(cursor.buffer) == 3
    assert world["n"].coverage_marks["slow subscriber reads the log"] == 1
    assert world.disconnected == {}
    x.give_credit(100)
    world.run(s=1)
    assert x.events == [f"e{number}" for number in range(10)]
    assert state_of(cursor) is CursorPhase.LIVE


def test_a_slow_durable_subscriber_does_not_read_the_log_again_for_every_event() -> None:
    # it joins the live stream with a full buffer, cannot buffer the next event, and reads again
    world, ann = stage(prefetch_max=3, backlog_bytes=0)
    x = world.subscriber("n", "x", "TRUE", durable=True, credit=0)
    world.run(s=1)
    for number in range(40):
        ann.publish(f"e{number}")
        world.run(ms=50)
    x.give_credit(100)
    world.run(s=1)
    assert x.events == [f"e{number}" for number in range(40)]
    assert len(world.sent_over(Read, "n", "p")) < 20


def test_a_slow_nondurable_subscription_ends_with_a_reason_and_its_client_stays_connected() -> None:
    world, x = overrun(durable=False)
    assert x.of_kind(SubscriptionEnded) == [], "slow_consumer_timeout_s is not over"
    world.run(s=30)
    (ended,) = x.of_kind(SubscriptionEnded)
    assert ended.cause is RefusalCause.SLOW_CONSUMER
    assert "more than 3 events behind and did not catch up within 30 s" in ended.reason
    assert world.disconnected == {}
    assert "x" not in world["n"].components.registry.subscriptions
    assert x.events == []


def test_a_subscriber_that_waits_for_its_own_answer_is_not_slow() -> None:
    world, ann = stage(prefetch_max=3, backlog_bytes=0)
    world.publisher("p", "Q")
    world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    lost = world.hold(of(ReadReply, source="p", target="n"))
    start = at((Q, 5))
    x = world.subscriber("n", "x", "TRUE", start=start)
    ann.publish("before")  # and so there is a knowledge range to start with
    world.run(ms=300)
    assert world.cursor("n", "x", P).phase is CursorPhase.LIVE
    assert x.of_kind(Subscribed) == [], "it waits for Q"
    for number in range(10):
        ann.publish(f"e{number}")
    world.run(ms=50)
    assert world.disconnected == {}
    lost.release()
    world.run(s=3)
    assert x.events[-10:] == [f"e{number}" for number in range(10)]


# --- properties of a cursor -----------------------------------------------------------------------


def test_sent_up_to_ends_before_the_first_buffered_event() -> None:
    world, ann = stage()
    world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert cursor.sent_up_to == cursor.buffered_up_to == world.horizon("n", P)
    first = ann.publish("e1")
    world.run(ms=200)
    assert cursor.sent_up_to == first - 1
    assert cursor.buffered_up_to == world.horizon("n", P) >= first


def test_the_delivery_limit_is_the_least_limit_whose_write_is_not_durable() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    limits = cursor.limits
    assert limits.tick == FOREVER
    limits.add(70)
    limits.add(50)
    assert (limits.tick, bool(limits)) == (50, True)
    assert (cursor.sent_up_to, cursor.is_resumable) == (50, False)
    limits.lift()
    assert limits.tick == 50
    limits.lift()
    assert cursor.is_resumable


def test_the_first_segment_that_ends_at_or_after_a_tick_applies_to_it() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    now = cursor.segments.current
    subscription = cursor.subscription
    old, older = (subscription.add_segment(now.filter) for _ in range(2))
    cursor.segments.ended = [(older, 10), (old, 20)]
    found = [cursor.segments.at(tick) for tick in (10, 11, 20, 21)]
    assert found == [(older, 10), (old, 20), (old, 20), (now, FOREVER)]


def test_a_gap_is_ordered_among_events_by_its_first_tick() -> None:
    assert GapRange(5, 9).tick == 5


@pytest.mark.parametrize("durable", [False, True])
def test_a_released_range_above_a_live_cursor_is_a_gap(durable: bool) -> None:
    # R45
    world, ann = stage(retention_s=0)
    x = world.subscriber("n", "x", "TRUE", durable=durable)
    world.run(s=1)
    cursor = world.cursor("n", "x")
    horizon = world.horizon("n", P)
    cursor.add_gap(horizon + 1, horizon + 50)
    world.run(ms=10)
    (gap,) = x.gaps
    assert (gap.low, gap.high) == (horizon + 1, horizon + 50)
    ann.publish("e1")
    world.run(ms=100)
    assert x.events == ["e1"]


def test_a_gap_is_sent_without_credit() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    horizon = world.horizon("n", P)
    world.cursor("n", "x").add_gap(horizon + 1, horizon + 50)
    world.run(ms=300)
    assert [(each.low, each.high) for each in x.gaps] == [(horizon + 1, horizon + 50)]


def test_a_released_range_below_its_start_is_no_gap_for_a_cursor() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert isinstance(cursor.start, Started)
    cursor.add_gap(1, cursor.position)
    world.run(ms=10)
    assert x.gaps == []


def test_a_gap_while_joining_makes_the_cursor_read_the_range_from_the_log() -> None:
    world, _, slow = joining()
    cursor = world.cursor("n", "x")
    horizon = world.horizon("n", P)
    cursor.add_gap(horizon + 1, horizon + 5)
    assert state_of(cursor) is CursorPhase.CATCHING_UP
    slow.release()
    world.run(s=3)
    x = world.nodes["n"].clients["x"]
    assert isinstance(x, Subscriber)
    assert (x.events, x.gaps) == (["e1", "e2"], []), "the log has all events"


def test_a_cursor_is_in_the_merge_only_if_there_are_other_streams() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=1)
    assert not world.cursor("n", "x").in_merge
    world.publisher("p", "Q")
    world.run(s=1)
    assert world.cursor("n", "x", P).in_merge
    assert world.cursor("n", "x", Q).in_merge
    x.leave()


def test_a_nondurable_subscription_that_catches_up_in_time_continues() -> None:
    world, x = overrun(durable=False)
    x.give_credit(100)
    world.run(s=60)
    assert x.events == [f"e{number}" for number in range(10)]
    assert x.of_kind(SubscriptionEnded) == []
    assert state_of(world.cursor("n", "x")) is CursorPhase.LIVE


def test_a_new_filter_applies_above_events_that_were_read_ahead_of_the_live_stream() -> None:
    world, ann = stage(retention_s=3_600)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    ann.publish("e0")
    world.run(ms=100)
    late = world.hold(of(StreamData, source="p", target="n"))
    ann.publish("e1")
    x.request(
        Seek(x.number(), "x", at((P, ann.ticks["e0"] - microseconds(ms=500))))
    )  # far back, so it reads all
    world.run(ms=100)
    assert x.events == ["e0", "e0", "e1"], (
        "e1 was read from the log, before the live stream brought it"
    )
    number = x.set_filter("kind = 'none'")
    late.release()
    world.run(s=2)
    (changed,) = [each for each in x.of_kind(FilterSet) if each.request == number]
    assert dict(changed.position)[P] >= ann.ticks["e1"]
