"""Operators' calls on durable subscriptions: seek, filter and removal, connected or not."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    FilterSet,
    Gap,
    Order,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    Unsubscribed,
)
from gapless.messages.operating import (
    DurableSeekDone,
    RemoveDurable,
    SeekDurable,
    SetDurableFilter,
)
from gapless.messages.pubend_requests import ReadReply
from tests.broker.harness import BrokerHarness, P, Q, Requester, reason
from tests.scenarios.brokers import Publisher, Subscriber, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher, Requester]:
    """Return a world with a pubend P at p, next to the SHB n, and an operator at n."""
    world = BrokerHarness("p-n", **{"retention_s": 3_600, **parameters})
    return world, world.publisher("p"), Requester(world, "n", "operator")


def at(*positions: tuple[PubendId, Tick]) -> StartPoint:
    return StartPoint(StartKind.POSITION, positions)


def durable(
    world: BrokerHarness, wanted: str = "TRUE", order: Order = Order.PUBLISHER
) -> Subscriber:
    """Return a durable subscriber that has started."""
    made = world.subscriber("n", "x", wanted, durable=True, order=order)
    world.run(s=1)
    return made


def seek(operator: Requester, start: StartPoint, name: str = "x", *, force: bool = False) -> Any:
    return operator.call(SeekDurable(operator.number(), name, start, force), s=5)


def disconnected_after(
    world: BrokerHarness, ann: Publisher, *labels: str
) -> tuple[Subscriber, list[Tick]]:
    """Return a durable subscriber that received and acknowledged some events and disconnected."""
    x = durable(world)
    ticks = [ann.publish(label) for label in labels]
    world.run(ms=100)
    assert x.events == [*labels]
    x.acknowledge(P, ticks[-1])
    world.run(s=1)
    x.leave()
    world.run(s=1)
    return x, ticks


def resubscribe(x: Subscriber, start: StartPoint, seek_count: int = 0) -> Subscribed:
    """Resume with a position and the count of the seeks before it; return the answer."""
    x.notices.clear()
    x.connect()
    call = Subscribe(x.number(), x.name, "TRUE", True, start, x.order, 1_000, seek_count=seek_count)
    answer = x.call(call, s=5)
    assert isinstance(answer, Subscribed)
    x.world.run(s=1)
    return answer


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SeekDurable, SetDurableFilter, RemoveDurable])
def test_operator_calls_are_refused_for_unknown_and_nondurable_subscriptions(kind: Any) -> None:
    world, _, operator = stage()
    what = {SeekDurable: (StartPoint(),), SetDurableFilter: ("TRUE",), RemoveDurable: ()}[kind]
    refusal = reason(operator.call(kind(1, "x", *what)))
    assert refusal == "there is no subscription 'x' at this broker"
    world.subscriber("n", "x", "TRUE")
    refusal = reason(operator.call(kind(2, "x", *what)))
    assert refusal == "the subscription 'x' is not durable: it belongs to its connection"


def test_a_connected_subscription_is_neither_repositioned_nor_removed_without_force() -> None:
    world, ann, operator = stage()
    x = durable(world)
    refusal = reason(seek(operator, StartPoint(StartKind.EARLIEST)))
    assert refusal.startswith("the subscription 'x' is connected (x): stop that client first")
    assert reason(operator.call(RemoveDurable(8, "x"))).startswith("the subscription 'x' is con")
    ann.publish("e1")
    world.run(ms=100)
    assert x.events == ["e1"]
    assert x.of_kind(SubscriptionEnded) == []


def test_invalid_positions_are_refused_without_effect() -> None:
    world, ann, operator = stage()
    _, ticks = disconnected_after(world, ann, "e1")
    assert "cannot be negative" in reason(seek(operator, at((P, -1))))
    assert "has no stream on Q" in reason(seek(operator, at((Q, 5))))
    later = world["n"].context.clock + 60_000_000
    assert "is in the future of P" in reason(seek(operator, at((P, later))))
    assert "is in the future" in reason(seek(operator, StartPoint(StartKind.TIME, clock=later)))
    assert world.cursor("n", "x").start.acked >= ticks[0]
    assert world.subscription("n", "x").seek_count == 0


def test_an_invalid_filter_is_refused_with_the_column_of_the_error() -> None:
    world, ann, operator = stage()
    disconnected_after(world, ann, "e1")
    assert "column 8" in reason(operator.call(SetDurableFilter(1, "x", "price >")))


# --- seeking --------------------------------------------------------------------------------------


def test_after_a_seek_back_the_client_receives_all_later_events_again() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    answer = seek(operator, at((P, ticks[0])))
    assert answer == DurableSeekDone(answer.request, ((P, ticks[0]),))
    x.notices.clear()
    x.come_back()
    world.run(s=1)
    assert x.events == ["e2", "e3"]
    assert x.gaps == []


def test_a_seek_to_a_time_and_to_the_earliest_reads_the_log_from_there() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2")
    seek(operator, StartPoint(StartKind.TIME, clock=ticks[1]))
    resubscribe(x, StartPoint())
    assert x.events == ["e2"]
    x.leave()
    seek(operator, StartPoint(StartKind.EARLIEST))
    resubscribe(x, StartPoint())
    assert x.events == ["e1", "e2"]


def test_a_seek_forward_skips_the_events_before_it() -> None:
    world, ann, operator = stage()
    x, _ = disconnected_after(world, ann, "e1")
    ticks = [ann.publish(label) for label in ("e2", "e3", "e4")]
    world.run(s=1)
    answer = seek(operator, at((P, ticks[1])))
    assert answer.position == ((P, ticks[1]),)
    resubscribe(x, StartPoint())
    assert x.events == ["e4"]


def test_a_seek_to_the_latest_delivers_only_new_events() -> None:
    world, ann, operator = stage()
    x, _ = disconnected_after(world, ann, "e1")
    ann.publish("e2")
    world.run(s=1)
    seek(operator, StartPoint())
    ann.publish("e3")
    resubscribe(x, StartPoint())
    assert x.events == ["e3"]


def test_a_seek_survives_a_crash_of_the_broker() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    world.restart("n")
    world.run(s=3)
    answer = resubscribe(x, at((P, ticks[2])))
    assert x.events == ["e2", "e3"]
    assert answer.seek_count == 1


def test_a_seek_back_retains_the_log_that_it_needs() -> None:
    world, ann, operator = stage(retention_s=8, log_hold_ttl_s=40)
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    world.run(s=30)  # after the end of the retention time
    (hold,) = world.log_holds("p")
    assert hold.tick == ticks[0]
    resubscribe(x, StartPoint())
    assert x.events == ["e2", "e3"]
    x.acknowledge(P, ticks[2])
    world.run(s=30)
    assert all(each.tick >= ticks[2] for each in world.log_holds("p"))


def test_a_seek_to_a_released_tick_causes_a_gap() -> None:
    world, ann, operator = stage(retention_s=0)
    x, ticks = disconnected_after(world, ann, "e1", "e2")
    world.run(s=5)
    assert seek(operator, at((P, ticks[0] - 1))).pending == ()
    resubscribe(x, StartPoint())
    assert x.events == []
    (gap,) = x.of_kind(Gap)
    assert gap.low == ticks[0]


def test_a_seek_to_the_earliest_starts_at_the_oldest_log_row_without_a_gap() -> None:
    world, ann, operator = stage(retention_s=5)
    x, _ = disconnected_after(world, ann, "e1")
    world.run(s=10)
    late = ann.publish("e2")
    world.run(s=1)
    ((_, oldest),) = seek(operator, StartPoint(StartKind.EARLIEST)).position
    assert 0 < oldest < late
    resubscribe(x, StartPoint())
    assert (x.events, x.gaps) == (["e2"], [])


def test_a_seek_to_the_earliest_causes_no_gap_for_a_client_that_resumes_at_once() -> None:
    world, ann, operator = stage(retention_s=0)
    x, _ = disconnected_after(world, ann, "e1")
    world.run(s=5)
    operator.request(SeekDurable(9, "x", StartPoint(StartKind.EARLIEST)))
    resubscribe(x, StartPoint())
    assert (x.events, x.gaps) == ([], [])


def test_an_answer_names_the_pubends_that_have_not_confirmed() -> None:
    world, ann, operator = stage()
    _, ticks = disconnected_after(world, ann, "e1", "e2")
    world.lose(of(ReadReply))
    answer = seek(operator, at((P, ticks[0])))
    (waiting,) = answer.pending
    assert (waiting.pubend, waiting.reason) == (
        P,
        "this pubend has not confirmed yet that it keeps its log from there on",
    )


def test_a_pending_write_from_before_a_seek_does_not_undo_it() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2")
    world.stop_disk("n")
    subscription = world.subscription("n", "x")
    subscription.save(lambda: None)
    operator.request(SeekDurable(9, "x", at((P, ticks[0] - 1))))
    world.resume_disk("n")
    world.run(s=2)
    cursor = world.cursor("n", "x")
    assert (cursor.start.acked, cursor.start.acked_stored) == (ticks[0] - 1, ticks[0] - 1)
    resubscribe(x, StartPoint())
    assert x.events == ["e1", "e2"]


def test_a_forced_seek_notifies_the_client_that_its_subscription_ended() -> None:
    world, ann, operator = stage()
    x = durable(world)
    ticks = [ann.publish(label) for label in ("e1", "e2")]
    world.run(ms=100)
    answer = seek(operator, at((P, ticks[0])), force=True)
    assert answer.position == ((P, ticks[0]),)
    (ended,) = x.of_kind(SubscriptionEnded)
    assert "an operator moved the subscription 'x'" in ended.reason
    ann.publish("e3")
    world.run(ms=100)
    assert x.events == ["e1", "e2"], "the former connection receives nothing more"
    resubscribe(x, StartPoint())
    assert x.events == ["e2", "e3"]


# --- a client that resumes with its own position --------------------------------------------------


def test_a_position_from_before_a_seek_does_not_undo_it() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    answer = resubscribe(x, at((P, ticks[2])))
    assert dict(answer.position) == {P: ticks[0]}
    assert answer.seek_count == 1
    assert x.events == ["e2", "e3"]
    assert world["n"].coverage_marks["position from before a seek"] == 1


def test_a_position_from_after_the_seek_is_used_without_an_acknowledgement() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    seeks = resubscribe(x, at((P, ticks[2]))).seek_count
    x.leave()
    resubscribe(x, at((P, ticks[1])), seeks)
    assert x.events == ["e3"], "e2 was received after the seek"


def test_a_client_that_ignores_seeks_continues_from_its_acknowledged_tick() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    resubscribe(x, at((P, ticks[2])))
    x.acknowledge(P, ticks[1])
    world.run(s=1)
    x.leave()
    resubscribe(x, at((P, ticks[2])))
    assert x.events == [], "its position is valid again: e3 was sent since the seek"


def test_an_acknowledgement_above_the_ticks_sent_since_the_seek_is_ignored() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1", "e2", "e3")
    seek(operator, at((P, ticks[0])))
    x.notices.clear()
    x.connect()
    x.call(Subscribe(50, "x", "TRUE", True, StartPoint(), Order.PUBLISHER, 1), s=5)
    world.run(s=1)
    assert x.events == ["e2"]
    x.request(Ack("x", ((P, ticks[2]),)))
    world.run(s=1)
    assert world.cursor("n", "x").start.acked == ticks[0]
    assert world["n"].coverage_marks["acknowledgement from before a seek"] == 1
    x.request(Ack("x", ((P, ticks[1]),)))
    assert world.cursor("n", "x").start.acked == ticks[1]


def test_positions_on_streams_without_a_seek_stay_valid() -> None:
    world, ann, operator = stage()
    bob = world.publisher("p", "Q")
    world.run(s=1)
    x = durable(world)
    ticks = [ann.publish(label) for label in ("p1", "p2")]
    others = [bob.publish(label) for label in ("q1", "q2")]
    world.run(s=1)
    x.leave()
    seek(operator, at((P, ticks[0])))
    resubscribe(x, at((P, ticks[1]), (Q, others[0])))
    assert sorted(x.events) == ["p2", "q2"]


def test_in_total_order_events_after_a_seek_back_are_merged_again() -> None:
    world, ann, operator = stage()
    bob = world.publisher("p", "Q")
    world.run(s=1)
    x = durable(world, order=Order.TOTAL)
    first = ann.publish("p1")
    world.run(ms=10)
    bob.publish("q1")
    world.run(ms=10)
    last = ann.publish("p2")
    world.run(s=1)
    assert x.events == ["p1", "q1", "p2"]
    x.leave()
    seek(operator, StartPoint(StartKind.TIME, clock=first))
    answer = resubscribe(x, at((P, last), (Q, last)))
    assert x.events == ["p1", "q1", "p2"]
    assert answer.seek_count == 1


# --- the filter -----------------------------------------------------------------------------------


def test_a_filter_set_by_an_operator_applies_to_the_live_stream_of_the_client() -> None:
    world, ann, operator = stage()
    x = durable(world, "a = 1")
    ann.publish("old", a=1)
    ann.publish("not yet", a=2)
    answer = operator.call(SetDurableFilter(7, "x", "a = 2"), s=5)
    assert isinstance(answer, FilterSet)
    switch = dict(answer.position)[P]
    late = ann.publish("new", a=2)
    ann.publish("no more", a=1)
    world.run(s=1)
    assert x.events == ["old", "new"]
    assert switch < late
    assert x.of_kind(FilterSet) == [], "the client did not call"
    assert x.of_kind(SubscriptionEnded) == []


def test_a_filter_set_while_the_client_is_disconnected_stays_when_it_resumes() -> None:
    world, ann, operator = stage()
    x, _ = disconnected_after(world, ann, "e1")
    ann.publish("e2", a=1)
    world.run(s=1)
    answer = operator.call(SetDurableFilter(7, "x", "a = 3"), s=5)
    assert isinstance(answer, FilterSet)
    ann.publish("e3", a=1)
    ann.publish("e4", a=3)
    world.run(s=1)
    resubscribe(x, StartPoint())
    assert x.events == ["e2", "e4"], "the old filter applies before the change"


def test_a_filter_change_completes_when_the_client_disconnects_meanwhile() -> None:
    world, ann, operator = stage()
    x = durable(world, "a = 1")
    operator.request(SetDurableFilter(7, "x", "a = 2"))
    operator.request(SetDurableFilter(8, "x", "a = 3"))
    x.leave()
    world.run(s=20)
    assert isinstance(operator.answer(7), FilterSet)
    assert isinstance(operator.answer(8), FilterSet)
    ann.publish("e1", a=2)
    ann.publish("e2", a=3)
    resubscribe(x, StartPoint())
    assert x.events == ["e2"]


def test_a_filter_change_is_refused_if_the_subscription_ends_meanwhile() -> None:
    world, _, operator = stage()
    durable(world, "a = 1")
    operator.request(SetDurableFilter(7, "x", "a = 2"))
    operator.request(SetDurableFilter(8, "x", "a = 3"))
    operator.request(RemoveDurable(9, "x", force=True))
    world.run(s=1)
    assert reason(operator.answer(7)) == "the subscription 'x' has ended"
    assert reason(operator.answer(8)) == "the subscription 'x' has ended"
    assert isinstance(operator.answer(9), Unsubscribed)


# --- removal --------------------------------------------------------------------------------------


def test_a_removed_subscription_is_deleted_from_disk_and_retains_no_log() -> None:
    world, ann, operator = stage()
    x, ticks = disconnected_after(world, ann, "e1")
    assert isinstance(operator.call(RemoveDurable(1, "x")), Unsubscribed)
    assert world.record("n", "x") is None
    assert world["n"].components.registry.subscriptions == {}
    answer = resubscribe(x, StartPoint())
    assert dict(answer.position)[P] >= ticks[0]
    assert answer.seek_count == 0


def test_a_forced_removal_notifies_the_client() -> None:
    world, _, operator = stage()
    x = durable(world)
    assert isinstance(operator.call(RemoveDurable(1, "x", force=True)), Unsubscribed)
    (ended,) = x.of_kind(SubscriptionEnded)
    assert ended.reason == "an operator removed the subscription 'x'"
    assert world.record("n", "x") is None
