"""Subscriptions: credit, answers, total order, filter changes, and their record (R46, R47, R51)."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    Order,
    Refused,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribed,
)
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import AdvanceRequest, StreamData, StreamSilence
from gapless.subscribers.cursor_state import CursorPhase
from tests.broker.harness import BrokerHarness, P, Q, R, Requester, position, reason, started
from tests.scenarios.brokers import Publisher, Subscriber, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n."""
    world = BrokerHarness("p-n", **parameters)
    return world, world.publisher("p")


# --- credit ---------------------------------------------------------------------------------------


def test_a_client_receives_as_many_events_as_it_has_given_credit_for() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", credit=2)
    world.run(s=1)
    for number in range(5):
        ann.publish(f"e{number}")
    world.run(ms=100)
    assert x.events == ["e0", "e1"]
    x.give_credit(1)
    assert x.events == ["e0", "e1", "e2"]
    x.give_credit(10)
    assert x.events == [f"e{number}" for number in range(5)]


def test_a_delivery_holds_no_more_events_than_a_frame() -> None:
    # P7: frame_events_max
    world, ann = stage(frame_events_max=2)
    x = world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    for number in range(5):
        ann.publish(f"e{number}")
    world.run(ms=100)
    x.give_credit(10)
    assert [len(each.events) for each in x.of_kind(Delivery)] == [2, 2, 1]


# --- answers (R46) --------------------------------------------------------------------------------


def barred(**parameters: Any) -> tuple[BrokerHarness, Publisher, Publisher]:
    """Return a world in which s reaches P at p but not R at r."""
    world = BrokerHarness("p-s-r", **parameters)
    pann, rann = world.publisher("p"), world.publisher("r", "R")
    world.cut("s", "r")
    return world, pann, rann


def test_the_reply_names_the_started_and_the_pending_pubends() -> None:
    world, pann, rann = barred()
    x = Requester(world, "s", "x")
    since = world.now
    answer = x.subscribe()
    assert isinstance(answer, Subscribed)
    assert world.now - since >= 1_000_000, "attach_timeout_ms"
    assert position(answer).keys() == {P}
    (waiting,) = answer.pending
    assert waiting.pubend == R
    assert waiting.reason.startswith("there is no route to its broker r in cell r now")
    assert started(x) == {}
    world.heal("s", "r")
    world.run(s=1)
    assert started(x).keys() == {R}, "confirmed when it starts"
    pann.publish("p1")
    rann.publish("r1")
    world.run(ms=100)
    labels = [event.payload for each in x.of_kind(Delivery) for _, event in each.events]
    assert sorted(labels) == [b"p1", b"r1"]


def test_a_delayed_table_update_is_named_as_the_reason() -> None:
    world, _ = stage()
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    answer = Requester(world, "n", "x").subscribe()
    assert isinstance(answer, Subscribed)
    (waiting,) = answer.pending
    assert waiting.reason == "the broker of this pubend does not know this subscription yet"
    table_updates.release()
    world.run(s=1)
    assert started(world.nodes["n"].clients["x"]).keys() == {P}


def test_the_reason_for_a_pending_start_names_a_disconnected_client() -> None:
    world = BrokerHarness("p-n")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    x.leave()
    world.hold(of(ReadReply, source="p", target="n"))
    world.publisher("p")
    world.run(s=5)
    subscription = world["n"].components.registry.subscriptions["x"]
    (cursor,) = subscription.cursors.values()
    assert not cursor.is_resumable
    assert (
        subscription.reply.reason(cursor)
        == "the client is disconnected; the subscription starts when the client returns"
    )


def test_nothing_is_delivered_before_the_answer() -> None:
    world, pann, _ = barred()
    x = world.subscriber("s", "x", "TRUE")
    world.run(ms=500)
    pann.publish("p1")
    world.run(ms=100)
    assert world.cursor("s", "x").phase is CursorPhase.LIVE
    assert x.notices == []
    world.run(s=1)
    assert [type(each) for each in x.notices] == [Subscribed, Delivery]


def test_a_durable_subscription_is_on_disk_before_the_answer() -> None:
    # R46
    world, ann = stage()
    world.stop_disk("n")
    x = Requester(world, "n", "x")
    assert x.subscribe(durable=True, s=0) is None
    ann.publish("e1")
    world.run(ms=500)
    assert x.notices == []
    world.resume_disk("n")
    world.run(s=1)
    (answer,) = x.of_kind(Subscribed)
    assert position(answer).keys() == {P}


def test_a_slow_disk_does_not_make_the_call_wait_for_an_unreachable_pubend() -> None:
    # R46: the reply names pending pubends, even if the timeout ends before the record is on disk
    world, pann, _ = barred()
    world.stop_disk("s")
    x = Requester(world, "s", "x")
    assert x.subscribe(durable=True) is None
    world.resume_disk("s")
    world.run(s=3)
    pann.publish("p1")
    world.run(s=1)
    (answer,) = x.of_kind(Subscribed)
    assert R in [each.pubend for each in answer.pending]
    assert {**position(answer), **started(x)}.keys() == {P}
    assert len(x.of_kind(Delivery)) == 1


def test_the_start_of_a_durable_cursor_is_on_disk_before_it_is_confirmed() -> None:
    # I13: after a crash it would start elsewhere
    world, ann = stage()
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    world.stop_disk("n")
    table_updates.release()
    world.run(s=1)
    ann.publish("e1")
    world.run(ms=200)
    assert world.started_after("n", "x", P) is not None
    assert started(x) == {}
    assert x.of_kind(Delivery) == []
    world.resume_disk("n")
    world.run(ms=100)
    assert started(x).keys() == {P}
    assert len(x.of_kind(Delivery)) == 1


# --- total order (R51) ----------------------------------------------------------------------------


def merged(**options: Any) -> tuple[BrokerHarness, Publisher, Publisher, Subscriber]:
    """Let x at n be live in total order on P at p and Q at q."""
    world = BrokerHarness("p-n-q", **options)
    pann, qann = world.publisher("p"), world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=2)
    assert x.starts.keys() == {P, Q}
    return world, pann, qann, x


def test_events_of_all_pubends_are_merged_by_tick() -> None:
    world, pann, qann, x = merged()
    late = world.hold(of(StreamData, StreamSilence, source="p", target="n"))
    pann.publish("1")
    world.run(ms=2)
    qann.publish("2")
    world.run(ms=2)
    pann.publish("3")
    world.run(ms=20)
    assert pann.ticks["1"] < qann.ticks["2"] < pann.ticks["3"]
    assert x.events == [], "event 2 arrived first and waits for the late stream"
    late.release()
    world.run(ms=100)
    assert x.events == ["1", "2", "3"]


def test_two_subscribers_in_total_order_see_the_same_order() -> None:
    world, pann, qann, x = merged()
    y = world.subscriber("p", "y", "TRUE", order=Order.TOTAL)
    world.run(s=2)
    for number in range(10):
        (pann, qann)[number % 2].send_event(f"e{number}")
        (qann, pann)[number % 2].send_event(f"f{number}")
        world.run(ms=1)
    world.run(s=1)
    assert len(x.events) == 20
    assert x.events == y.events


def test_a_silent_pubend_receives_an_advance_request() -> None:
    # eager silence would suffice while the clocks agree: here the clock of q is behind
    world = BrokerHarness("p-n-q")
    pann = world.publisher("p")
    world.set_clock("q", -2)
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=3)
    assert x.starts.keys() == {P, Q}
    since = world.now
    pann.publish("p1")
    world.run(ms=300)
    requests = world.sent_over(AdvanceRequest, "n", "q", since)
    assert requests
    assert {each.pubend for each in requests} == {Q}
    assert requests[0].tick == pann.ticks["p1"]
    assert x.events == ["p1"]
    assert world.pubend("q", Q).top >= pann.ticks["p1"]
    world.run(s=1)
    since = world.now
    world.run(ms=500)
    assert world.sent_over(AdvanceRequest, "n", "q", since) == [], "no merge waits"


def test_an_unreachable_pubend_stalls_the_merge() -> None:
    world, pann, qann, x = merged()
    world.cut("n", "q")
    world.run(s=2)
    pann.publish("p1")
    world.run(s=2)
    assert x.events == []
    qann.publish("q1")
    world.heal("n", "q")
    world.run(s=3)
    assert x.events == ["p1", "q1"]


def test_without_credit_no_advance_request_is_sent() -> None:
    world = BrokerHarness("p-n-q")
    pann = world.publisher("p")
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL, credit=0)
    world.run(s=2)
    since = world.now
    pann.publish("p1")
    world.run(s=1)
    assert world.sent_over(AdvanceRequest, "n", "q", since) == []
    x.give_credit(1)
    world.run(s=1)
    assert x.events == ["p1"]


def test_a_pubend_that_is_created_later_starts_above_the_merged_ticks() -> None:
    # A20
    world, pann, _, x = merged()
    pann.publish("p1")
    world.run(s=1)
    assert x.events == ["p1"]
    world.set_clock("q", -1)
    rann = world.publisher("q", "R")
    world.run(s=2)
    rann.publish("r1")
    world.run(s=3)
    assert started(x)[R] >= pann.ticks["p1"]
    ticks = [publication.tick for _, publication in x.publications]
    assert ticks == sorted(ticks)


def test_a_client_that_resumes_in_total_order_continues_above_the_merged_ticks() -> None:
    world, pann, qann, _ = merged(retention_s=3_600)
    x = world.subscriber("n", "d", "TRUE", order=Order.TOTAL, durable=True)
    world.run(s=1)
    first = pann.publish("p1")
    world.run(ms=300)
    assert x.events == ["p1"]
    x.leave()
    qann.publish("q1")
    pann.publish("p2")
    world.run(ms=300)
    x.come_back(StartPoint(StartKind.POSITION, ((P, first),)))
    world.run(s=1)
    assert x.events == ["p1", "q1", "p2"]


def test_a_client_with_credit_is_not_slow_while_the_merge_waits_for_a_stream() -> None:
    # the merge waits for a stream, not for the client, which reads the log later
    world, pann, _, x = merged(prefetch_max=3, backlog_bytes=0, retention_s=3_600)
    world.cut("n", "q")
    for number in range(10):
        pann.publish(f"e{number}")
        world.run(ms=10)
    assert world.disconnected == {}
    assert world["n"].coverage_marks["slow subscriber reads the log"] >= 1
    world.heal("n", "q")
    world.run(s=4)
    assert x.events == [f"e{number}" for number in range(10)]


# --- filter changes (R47) -------------------------------------------------------------------------


def test_filter_changes_run_one_after_another_and_all_are_answered() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 0")
    world.run(s=1)
    changes = [x.set_filter(f"kind = {kind}") for kind in (1, 2, 3)]
    world.run(s=4)
    ends = []
    for change in changes:
        switched = x.filter_changed(change)
        assert switched is not None
        ends.append(switched[P])
    assert ends == sorted(ends)
    for kind in range(4):
        ann.publish(f"e{kind}", kind=kind)
    world.run(ms=100)
    assert x.events == ["e3"]
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 3"]


def test_filters_of_unacknowledged_events_count_towards_segments_max_until_acknowledged() -> None:
    # R17, P7: a durable subscription gets unacknowledged events again, by the filter of their tick
    world, ann = stage(segments_max=2)
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    tick = ann.publish("e1")
    world.run(ms=100)
    for wanted in ("kind = 1", "kind = 2"):
        assert isinstance(x.call(SetFilter(x.number(), "x", wanted)), FilterSet)
    refusal = reason(x.call(SetFilter(x.number(), "x", "kind = 3")))
    assert refusal == (
        "2 earlier filters still apply to unacknowledged events (segments_max); "
        "acknowledge and try again later"
    )
    x.acknowledge(P, tick)
    world.run(s=15)
    assert isinstance(x.call(SetFilter(x.number(), "x", "kind = 3")), FilterSet)


def test_more_filter_changes_than_the_limit_are_refused() -> None:
    # P7: segments_max
    world, _ = stage(segments_max=2)
    x = world.subscriber("n", "x", "kind = 0")
    world.run(s=1)
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    changes = [x.set_filter(f"kind = {kind}") for kind in (1, 2, 3, 4)]
    world.run(ms=100)
    refused = [each for each in changes if isinstance(x.answer(each), Refused)]
    assert refused == changes[-2:] or refused == changes[-1:]
    refusal = reason(x.answer(refused[-1]))
    assert refusal == "2 filter changes are not complete yet (segments_max); try again later"
    table_updates.release()
    world.run(s=3)
    through = [each for each in changes if each not in refused]
    assert all(x.filter_changed(each) is not None for each in through)
    again = x.set_filter("kind = 9")
    world.run(s=2)
    assert x.filter_changed(again) is not None


def test_a_repeated_filter_change_is_answered_with_the_position_of_the_first() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "kind = 0", durable=True)
    world.run(s=1)
    first = x.set_filter("kind = 1")
    world.run(s=1)
    again = x.set_filter("kind = 1")
    world.run(ms=10)
    assert x.filter_changed(again) == x.filter_changed(first) is not None


def test_a_repeated_filter_change_is_on_disk_before_the_answer() -> None:
    # I13: the client that called first is disconnected and its change is not on disk yet;
    # no cursor delays the answer
    world = BrokerHarness("p-n")
    x = world.subscriber("n", "x", "kind = 0", durable=True)
    world.run(s=1)
    world.stop_disk("n")
    x.set_filter("kind = 1")
    world.run(ms=10)
    x.leave()
    x.come_back()
    again = x.set_filter("kind = 1")
    world.run(s=1)
    assert x.filter_changed(again) is None
    world.resume_disk("n")
    world.run(s=1)
    assert x.filter_changed(again) is not None


def test_a_filter_change_waits_until_the_durable_subscription_is_on_disk() -> None:
    world, _ = stage()
    world.stop_disk("n")
    x = world.subscriber("n", "x", "kind = 0", durable=True)
    world.run(ms=100)
    change = x.set_filter("kind = 1")
    world.run(ms=500)
    assert x.answer(change) is None
    world.resume_disk("n")
    world.run(s=2)
    assert x.filter_changed(change) is not None
    record = world.record("n", "x")
    assert record is not None
    assert record.segments[-1].filter == "kind = 1"


def test_the_new_filter_of_a_durable_subscription_is_on_disk_before_the_call_returns() -> None:
    # R47, I13
    world, _ = stage()
    x = world.subscriber("n", "x", "kind = 0", durable=True)
    world.run(s=1)
    world.stop_disk("n")
    change = x.set_filter("kind = 1")
    world.run(s=2)
    assert x.answer(change) is None
    world.resume_disk("n")
    world.run(ms=100)
    assert x.filter_changed(change) is not None


def test_after_the_timeout_a_filter_change_applies_at_the_current_position() -> None:
    # R47: filter_change_timeout_s
    world, _ = stage(filter_change_timeout_s=2)
    x = world.subscriber("n", "x", "kind = 0")
    world.run(s=1)
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    change = x.set_filter("kind = 1")
    world.run(ms=1_900)
    assert x.answer(change) is None
    world.run(ms=200)
    switched = x.filter_changed(change)
    assert switched is not None
    assert switched[P] <= world.horizon("n", P)
    assert world["n"].coverage_marks["filter switched by position"] == 1
    table_updates.release()


def test_a_filter_change_of_a_disconnected_client_is_not_answered() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 0", durable=True)
    world.run(s=1)
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    change = x.set_filter("kind = 1")
    queued = x.set_filter("kind = 2")
    world.run(ms=50)
    x.leave()
    table_updates.release()
    world.run(s=1)
    x.come_back()
    world.run(s=1)
    assert x.answer(change) is x.answer(queued) is None
    ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    world.run(ms=200)
    assert x.events == ["e1"], "the first change completed, the second never started"


def test_a_filter_change_starts_on_newly_matching_pubends_and_stops_on_others() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p", advertisement="kind = 1")
    bob = world.publisher("p", "Q", advertisement="kind = 2")
    x = world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    assert world.subscription("n", "x").cursors.keys() == {P}
    x.set_filter("kind = 2")
    world.run(s=2)
    assert world.subscription("n", "x").cursors.keys() >= {Q}
    ann.publish("p1", kind=1)
    bob.publish("q1", kind=2)
    world.run(ms=200)
    assert x.events == ["q1"]


def test_a_subscription_starts_with_the_filter_that_was_set_before_the_start() -> None:
    world, ann = stage()
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x = world.subscriber("n", "x", "kind = 0")
    world.run(s=2)
    change = x.set_filter("kind = 1")
    world.run(ms=100)
    assert x.filter_changed(change) == {}, "it has started on no pubend"
    table_updates.release()
    world.run(s=1)
    ann.publish("e0", kind=0)
    ann.publish("e1", kind=1)
    world.run(ms=200)
    assert x.events == ["e1"]


def test_a_reply_has_the_request_number_of_its_filter_change() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "kind = 0")
    world.run(s=1)
    answer = x.call(SetFilter(99, "x", "kind = 1"), s=2)
    assert isinstance(answer, FilterSet)
    assert answer.request == 99
    assert [pubend for pubend, _ in answer.position] == [PubendId("P")]
