"""Calls of subscribers: refusals, resuming by name, ending, expiry, seeking (R46, R50)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.core.limits import UNKNOWN_STREAMS_MAX
from gapless.messages.clients import (
    Ack,
    Credit,
    Delivery,
    FilterSet,
    Gap,
    LeaveSubscription,
    RefusalCause,
    Refused,
    Seek,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    Unsubscribed,
)
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.streams import AckReport
from gapless.subscribers.cursor_state import CursorPhase
from tests.broker.harness import BrokerHarness, P, Q, Requester, position, reason
from tests.scenarios.brokers import Publisher, Subscriber, of, shb


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n."""
    world = BrokerHarness("p-n", **parameters)
    return world, world.publisher("p")


def at(*positions: tuple[PubendId, int]) -> StartPoint:
    return StartPoint(StartKind.POSITION, positions)


def seek(client: Subscriber | Requester, start: StartPoint) -> Any:
    return client.call(Seek(client.number(), client.name, start))


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_subscription_needs_a_name(name: str) -> None:
    world, _ = stage()
    answer = Requester(world, "n", "x").call(Subscribe(1, name, "TRUE"))
    assert reason(answer) == "a subscription's name has 1 to 256 characters"
    assert world["n"].components.registry.subscriptions == {}


def test_a_name_may_be_as_long_as_the_limit() -> None:
    world, _ = stage()
    assert P in position(Requester(world, "n", "x").subscribe(name="x" * 256))


def test_an_invalid_filter_is_refused_with_the_column_of_the_error() -> None:
    world, _ = stage()
    x = Requester(world, "n", "x")
    assert "column 8" in reason(x.subscribe("price >"))
    assert world["n"].components.registry.subscriptions == {}
    x.subscribe("price > 1")
    answer = x.call(SetFilter(9, "x", "price <"))
    assert "column 8" in reason(answer)
    assert world.subscription("n", "x").newest.text == "price > 1"


def test_credit_cannot_be_negative() -> None:
    world, _ = stage()
    answer = Requester(world, "n", "x").subscribe(credit=-3)
    assert reason(answer) == "credit cannot be negative (-3)"


def test_a_durable_and_a_nondurable_subscription_cannot_share_a_name() -> None:
    world, _ = stage()
    x, y = Requester(world, "n", "x"), Requester(world, "n", "y")
    x.subscribe(durable=True)
    y.subscribe()
    refusal = reason(Requester(world, "n", "z").subscribe(name="x"))
    assert refusal == "there is a subscription 'x' that is durable; end it first"
    refusal = reason(Requester(world, "n", "z").subscribe(name="y", durable=True))
    assert refusal == "there is a subscription 'y' that is not durable; end it first"
    assert world.subscription("n", "x").client == "x"


def test_a_client_without_the_subscription_cannot_change_it() -> None:
    world, _ = stage()
    x, z = Requester(world, "n", "x"), Requester(world, "n", "z")
    refusal = "this connection has no subscription 'x'; subscribe first"
    assert reason(z.call(SetFilter(1, "x", "TRUE"))) == refusal
    assert reason(z.call(Seek(2, "x", StartPoint()))) == refusal
    x.subscribe()
    assert reason(z.call(SetFilter(3, "x", "FALSE"))) == refusal
    assert reason(z.call(Seek(4, "x", StartPoint()))) == refusal
    assert world.subscription("n", "x").newest.text == "TRUE"


def test_credit_and_acknowledgements_of_another_client_are_ignored() -> None:
    world, ann = stage()
    x, z = Requester(world, "n", "x"), Requester(world, "n", "z")
    x.subscribe(durable=True, credit=0)
    tick = ann.publish("e1")
    world.run(ms=100)
    z.request(Credit("x", 5))
    z.request(Ack("x", ((P, tick),)))
    x.request(Credit("x", -5))
    x.request(Credit("x", 0))
    world.run(ms=100)
    assert world.subscription("n", "x").delivery.credit == 0
    assert x.of_kind(Delivery) == []
    assert world.cursor("n", "x").start.acked < tick


def test_an_acknowledgement_counts_only_up_to_the_tick_that_was_sent() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True, credit=1)
    world.run(s=1)
    ann.publish("e1")
    second = ann.publish("e2")
    world.run(ms=100)
    assert x.events == ["e1"]
    x.acknowledge(P, second + 1_000_000)
    x.acknowledge(Q, 5)  # a pubend on which it has no cursor
    assert world.cursor("n", "x").start.acked == second - 1


def test_acknowledgements_of_a_nondurable_subscription_are_ignored() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    tick = ann.publish("e1")
    world.run(ms=100)
    x.acknowledge(P, tick)
    assert world.cursor("n", "x").start.acked < tick


# --- resuming by name (R50) -----------------------------------------------------------------------


def test_a_client_that_subscribes_by_name_fences_the_former_client_of_a_durable_subscription() -> (
    None
):
    world, ann = stage()
    first = Requester(world, "n", "first")
    first.subscribe(name="x", durable=True)
    ann.publish("e1")
    world.run(ms=100)
    second = Requester(world, "n", "second")
    answer = second.subscribe("kind = 1", name="x", durable=True)
    assert position(answer).keys() == {P}
    world.run(ms=100)
    ann.publish("e2")
    world.run(ms=100)
    payloads = [
        [event.payload.decode() for each in client.of_kind(Delivery) for _, event in each.events]
        for client in (first, second)
    ]
    assert payloads == [["e1"], ["e1", "e2"]], "unacknowledged events come again; the filter stays"
    # late calls of the fenced client are ignored
    first.request(Ack("x", ((P, ann.ticks["e2"]),)))
    assert world.cursor("n", "x").start.acked < ann.ticks["e1"]
    first.leave()
    assert world.subscription("n", "x").client == "second"


def test_a_nondurable_subscription_is_replaced_by_a_new_one_of_its_name() -> None:
    world, ann = stage()
    first, second = Requester(world, "n", "first"), Requester(world, "n", "second")
    first.subscribe("kind = 1", name="x")
    second.subscribe("kind = 2", name="x")
    ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    world.run(ms=100)
    assert first.of_kind(Delivery) == []
    assert len(second.of_kind(Delivery)) == 1
    first.leave()
    assert world.subscription("n", "x").client == "second"


def test_an_invalid_filter_leaves_the_subscription_of_that_name_unchanged() -> None:
    world, _ = stage()
    x = Requester(world, "n", "x")
    x.subscribe("kind = 1")
    assert "column" in reason(x.subscribe("kind ="))
    assert world.subscription("n", "x").client == "x"


def test_a_client_that_resumes_continues_after_its_own_position() -> None:
    # R50: from max(acked, the client's position)
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    seen = [ann.publish(f"e{number}") for number in range(3)]
    world.run(ms=100)
    x.acknowledge(P, seen[0])
    x.leave()
    x.come_back()
    world.run(s=1)
    assert x.events == ["e0", "e1", "e2", "e1", "e2"]
    x.leave()
    x.come_back(at((P, seen[1])))
    world.run(s=1)
    assert x.events[5:] == ["e2"]
    x.leave()
    x.come_back(at((P, 5)))  # below its acknowledged tick
    world.run(s=1)
    assert x.events[6:] == ["e1", "e2"]


def test_a_client_that_resumes_with_a_position_before_the_start_starts_there() -> None:
    world, ann = stage(retention_s=3_600)
    first = ann.publish("e1")
    world.run(ms=100)
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=2)
    assert world.cursor("n", "x").phase is CursorPhase.PENDING
    x.leave()
    x.come_back(at((P, first - 1)))
    world.run(s=1)
    assert x.events == ["e1"]
    table_updates.release()


# --- ending ---------------------------------------------------------------------------------------


def test_a_subscription_may_be_ended_twice() -> None:
    # R50: the first answer may have been lost
    world, _ = stage()
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    assert world.record("n", "x") is not None
    assert x.unsubscribe() == Unsubscribed(2)
    assert world.record("n", "x") is None
    assert x.unsubscribe() == Unsubscribed(3)
    assert x.unsubscribe("never was") == Unsubscribed(4)


def test_the_end_of_a_durable_subscription_is_on_disk_before_it_is_confirmed() -> None:
    # I13
    world, _ = stage()
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    world.stop_disk("n")
    assert x.unsubscribe() is None
    world.restart("n")
    world.run(s=1)
    assert "x" in world["n"].components.registry.subscriptions, (
        "the end was not confirmed and is not stored"
    )


def test_a_durable_subscription_can_be_ended_by_another_connection() -> None:
    world, ann = stage()
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    assert Requester(world, "n", "operator").unsubscribe("x") == Unsubscribed(1)
    ann.publish("e1")
    world.run(ms=100)
    assert x.of_kind(Delivery) == []


def test_a_subscription_that_is_ended_before_it_is_on_disk_is_not_restored() -> None:
    world, _ = stage()
    x = Requester(world, "n", "x")
    world.stop_disk("n")
    assert x.subscribe(durable=True) is None
    x.unsubscribe()
    world.resume_disk("n")
    world.run(s=1)
    assert world.record("n", "x") is None
    assert world["n"].components.registry.subscriptions == {}


def test_a_nondurable_subscription_ends_when_its_client_disconnects() -> None:
    world, _ = stage()
    x = world.subscriber("n", "x", "TRUE")
    y = world.subscriber("n", "y", "TRUE", durable=True)
    world.run(s=1)
    x.leave()
    y.leave()
    assert world["n"].components.registry.subscriptions.keys() == {"y"}
    assert world.cursor("n", "y").phase is CursorPhase.DISCONNECTED


def test_the_filter_of_a_disconnected_client_stays_in_the_tables_for_the_interest_grace() -> None:
    # R17, R50: interest_grace_s
    world, _ = stage(interest_grace_s=5)
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    x.leave()
    world.run(s=4)
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 1"]
    world.run(s=2)
    assert world["n"].components.exchange.roots == frozenset()
    x.come_back()
    world.run(s=4)
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 1"]
    world.run(s=5)
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 1"], (
        "the client is connected again"
    )


def test_the_interest_grace_starts_again_when_a_client_disconnects_again() -> None:
    world, _ = stage(interest_grace_s=5)
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    x.leave()
    world.run(s=3)
    x.come_back()
    world.run(s=1)
    x.leave()
    world.run(s=3)
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 1"]


def test_a_durable_subscription_whose_client_does_not_return_expires() -> None:
    # R50: otherwise a lost answer keeps a log for ever
    world, ann = stage(interest_grace_s=1)
    x, y = Requester(world, "n", "x"), Requester(world, "n", "y")
    x.subscribe(durable=True, expiry_s=10)
    y.subscribe(durable=True, expiry_s=10)
    x.leave()
    ann.publish("e1")
    world.run(s=9)
    assert world["n"].components.registry.subscriptions.keys() == {"x", "y"}
    world.run(s=3)
    assert world["n"].components.registry.subscriptions.keys() == {"y"}, "y has a client"
    assert world.record("n", "x") is None
    assert world["n"].coverage_marks["durable subscription expired"] == 1
    y.request(Ack("y", ((P, world.horizon("n", P)),)))
    world.run(s=3)
    assert world.released("p", P) >= ann.ticks["e1"]


def test_the_expiry_time_starts_again_when_the_broker_was_down() -> None:
    # it could not connect before, and a clock that was set forward does not end it
    world, _ = stage(interest_grace_s=1)
    x = Requester(world, "n", "x")
    x.subscribe(durable=True, expiry_s=10)
    x.leave()
    world.run(s=2)
    world.crash("n")
    world.run(s=10)
    world.start("n")
    world.set_clock("n", 1_000)
    world.run(s=8)
    assert world.record("n", "x") is not None
    world.run(s=4)
    assert world.record("n", "x") is None


# --- seeking --------------------------------------------------------------------------------------


def replay(**options: Any) -> tuple[BrokerHarness, Publisher, Subscriber]:
    """Let x have received three events that the log still has."""
    world, ann = stage(retention_s=3_600)
    x = world.subscriber("n", "x", "TRUE", **options)
    world.run(s=1)
    for number in range(3):
        ann.publish(f"e{number}")
        world.run(ms=10)
    world.run(ms=100)
    assert x.events == ["e0", "e1", "e2"]
    x.notices.clear()
    return world, ann, x


@pytest.mark.parametrize("durable", [False, True])
def test_a_subscriber_seeks_a_position_and_continues_from_there(durable: bool) -> None:
    world, ann, x = replay(durable=durable)
    sought = at((P, ann.ticks["e0"]))
    assert seek(x, sought) == Subscribed(2, ((P, ann.ticks["e0"]),))
    ann.publish("e3")
    world.run(s=1)
    assert x.events == ["e1", "e2", "e3"]
    assert world.cursor("n", "x").phase is CursorPhase.LIVE


def test_events_read_again_after_a_seek_match_the_filter_of_their_tick() -> None:
    world, ann, x = replay(durable=True)
    world.cut("n", "p")
    world.run(s=2)
    x.acknowledge(P, ann.ticks["e2"])
    world.run(s=2)  # and with it the silence up to the horizon, where the filter will change
    seek(x, at((P, ann.ticks["e0"])))
    for wanted in ("kind = 'none'", "kind = 'nothing'"):
        x.set_filter(wanted)
        world.run(s=2)  # the change is complete, and filters without use are removed
    world.heal("n", "p")
    world.run(s=5)
    assert x.events == ["e1", "e2"]


def test_a_subscriber_seeks_a_time() -> None:
    world, ann, x = replay()
    assert P in position(seek(x, StartPoint(StartKind.TIME, (), ann.ticks["e1"])))
    world.run(s=1)
    assert x.events == ["e1", "e2"]


def test_a_subscriber_seeks_the_earliest_event_of_the_log() -> None:
    world, _, x = replay()
    assert position(seek(x, StartPoint(StartKind.EARLIEST))) == {P: 0}
    world.run(s=1)
    assert x.events == ["e0", "e1", "e2"]


def test_a_subscriber_that_seeks_the_latest_skips_buffered_events() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", credit=0)
    world.run(s=1)
    old = ann.publish("e1")
    world.run(ms=200)
    sought = position(seek(x, StartPoint()))
    assert sought[P] >= old
    x.give_credit(10)
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["e2"]


def test_a_seek_does_not_change_pubends_that_it_does_not_name() -> None:
    world, ann, x = replay()
    assert seek(x, at((Q, 5))) == Subscribed(2, ())
    ann.publish("e3")
    world.run(ms=100)
    assert x.events == ["e3"]


def test_a_seek_to_a_released_tick_causes_a_gap() -> None:
    # R48, A14: never by silence
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    first = ann.publish("e1")
    world.run(s=3)
    assert world.released("p", P) > first
    seek(x, at((P, first - 1)))
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["e1", "e2"]
    (gap,) = x.gaps
    assert isinstance(gap, Gap)
    assert gap.low == first
    assert first <= gap.high < ann.ticks["e2"]


def test_a_filter_may_be_set_while_the_client_is_disconnected() -> None:
    # R47, example 14.6
    world, _ = stage()
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    x.leave()
    z = Requester(world, "n", "operator")
    answer = z.call(SetFilter(1, "x", "kind = 2"))
    assert isinstance(answer, FilterSet)
    record = world.record("n", "x")
    assert record is not None
    assert record.segments[-1].filter == "kind = 2"


def test_ack_reports_state_whether_the_shb_has_durable_subscriptions() -> None:
    # R53
    world, _ = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    row = world.member("p", P, "n")
    assert row is not None
    assert not row.durable
    world.subscriber("n", "y", "TRUE", durable=True)
    x.leave()
    world.run(s=2)
    assert world.sent_over(AckReport, "n", "p")
    row = world["p"].components.hosted[P].members.row(shb("n"))  # type: ignore[union-attr]
    assert row is not None
    assert row.durable


def test_a_durable_subscription_without_a_requested_filter_keeps_the_one_it_has() -> None:
    world, _ = stage()
    x, y = Requester(world, "n", "x"), Requester(world, "n", "y")
    x.subscribe("k = 1", name="desk", durable=True)
    answer = y.subscribe(None, name="desk", durable=True)
    assert answer.filter == "k = 1"
    assert world.subscription("n", "desk").newest.text == "k = 1"
    assert world.subscription("n", "desk").client == "y"


def test_no_filter_for_a_name_that_does_not_exist_is_refused_and_creates_nothing() -> None:
    world, _ = stage()
    answer = Requester(world, "n", "x").subscribe(None, name="desk", durable=True)
    assert answer.cause is RefusalCause.FILTER_REQUIRED
    assert "give a filter" in reason(answer)
    assert "needs a filter" in reason(Requester(world, "n", "y").subscribe(None))
    assert world["n"].components.registry.subscriptions == {}


def test_a_subscription_that_is_in_use_is_taken_over_only_on_request() -> None:
    world, _ = stage()
    x, y = Requester(world, "n", "x"), Requester(world, "n", "y")
    x.subscribe("k = 1", name="desk", durable=True)
    refusal = reason(y.subscribe("k = 2", name="desk", durable=True, take_over=False))
    assert refusal.startswith("the subscription 'desk' is in use by the client x")
    assert world.subscription("n", "desk").client == "x"
    assert world.subscription("n", "desk").newest.text == "k = 1"
    assert isinstance(x.subscribe(None, name="desk", durable=True, take_over=False), Subscribed)
    y.subscribe("k = 2", name="desk", durable=True)
    assert world.subscription("n", "desk").client == "y"


def unknown(count: int, first: int = 0) -> tuple[tuple[PubendId, int], ...]:
    """Return a position on pubends that do not exist."""
    return tuple((PubendId(f"unknown{number}"), 1) for number in range(first, first + count))


def test_a_position_on_more_unknown_pubends_than_allowed_is_refused_and_costs_nothing() -> None:
    world, _ = stage()
    client = Requester(world, "n", "hostile")
    before = len(world["n"].components.subends.guaranteed)
    start = StartPoint(StartKind.POSITION, unknown(30_000))
    refused = client.call(Subscribe(1, "x", "TRUE", durable=True, start=start))
    assert isinstance(refused, Refused)
    assert refused.cause is RefusalCause.UNAVAILABLE
    assert "UNKNOWN_STREAMS_MAX" in refused.reason
    assert len(world["n"].components.subends.guaranteed) == before
    assert world.record("n", "x") is None


def test_the_unknown_pubends_of_all_subscriptions_together_are_bounded() -> None:
    world, _ = stage()
    client = Requester(world, "n", "hostile")
    half = UNKNOWN_STREAMS_MAX // 2
    for number, first in enumerate((0, half), 1):
        start = StartPoint(StartKind.POSITION, unknown(half, first))
        assert isinstance(
            client.call(Subscribe(number, f"x{number}", "TRUE", start=start)), Subscribed
        )
    again = StartPoint(StartKind.POSITION, unknown(half))
    assert isinstance(client.call(Subscribe(3, "x3", "TRUE", start=again)), Subscribed)
    more = StartPoint(StartKind.POSITION, unknown(1, UNKNOWN_STREAMS_MAX))
    assert isinstance(client.call(Subscribe(4, "x4", "TRUE", start=more)), Refused)
    latest = StartPoint(StartKind.LATEST, unknown(1, UNKNOWN_STREAMS_MAX))
    assert isinstance(client.call(Subscribe(5, "x5", "TRUE", start=latest)), Subscribed)


def test_a_durable_subscription_that_its_client_leaves_is_free_for_another_client() -> None:
    world, ann = stage()
    x, y = Requester(world, "n", "x"), Requester(world, "n", "y")
    x.subscribe("TRUE", name="desk", durable=True)
    y.request(LeaveSubscription("desk"))
    assert world.subscription("n", "desk").client == "x", "only its client leaves it"
    x.request(LeaveSubscription("desk"))
    world.run(s=1)
    assert world.subscription("n", "desk").client is None
    ann.publish("e1")
    world.run(s=1)
    assert x.of_kind(Delivery) == []
    answer = y.subscribe(None, name="desk", durable=True, take_over=False)
    assert isinstance(answer, Subscribed)
    y.request(LeaveSubscription("no such"))
    z = Requester(world, "n", "z")
    z.subscribe("TRUE", name="brief")
    z.request(LeaveSubscription("brief"))
    assert world.subscription("n", "brief").client == "z"
