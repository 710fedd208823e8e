"""How far subscriptions are behind: in events of the log and in time, whoever has the log."""

from __future__ import annotations

import pytest

from gapless.core.events import Stopping
from gapless.core.ticks import Tick
from gapless.inspection import lag, subscriptions
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.operating import (
    CursorState,
    GetLag,
    GetSubscription,
    LagReply,
    ListSubscriptions,
    SeekDurable,
    SubscriptionState,
)
from gapless.messages.pubend_requests import EventCounts
from gapless.pubend import serving
from gapless.wire import CLIENT_NOTICES, HEADER_BYTES
from tests.broker.harness import BrokerHarness, P, Q, Requester, reason
from tests.scenarios.brokers import Publisher, Subscriber


class Stage:
    """The line p - a - n: a pubend P at p, a durable subscription to rare events, an operator."""

    def __init__(self, host: str = "n", **parameters: int) -> None:
        self.world = BrokerHarness("p-a-n", cells=None, **parameters)
        self.host = host
        self.publisher: Publisher = self.world.publisher("p")
        self.subscriber: Subscriber = self.world.subscriber(host, "x", "rare = 1", durable=True)
        self.world.run(s=2)
        self.operator = Requester(self.world, host, "operator")

    def publish(self, count: int, *, rare: int = 0) -> Tick:
        """Publish events; return the tick of the last one."""
        return [self.publisher.publish(f"e{each}", rare=rare) for each in range(count)][-1]

    def acknowledge(self) -> None:
        """Acknowledge the last event that was received."""
        pubend, publication = self.subscriber.publications[-1]
        self.subscriber.acknowledge(pubend, publication.tick)

    def state(self) -> SubscriptionState:
        """Return the subscription with its lag."""
        request = GetSubscription(self.operator.number(), "x", lag=True)
        entry: SubscriptionState = self.operator.call(request, s=5).entry
        return entry

    def cursor(self) -> CursorState:
        """Return its only cursor, with its lag."""
        (cursor,) = self.state().cursors
        return cursor

    def survey(self) -> LagReply:
        """Return the lag of all durable subscriptions."""
        reply: LagReply = self.operator.call(GetLag(self.operator.number()), s=5)
        return reply


def test_a_caught_up_subscription_has_no_lag_and_no_pubend_is_asked() -> None:
    stage = Stage()
    stage.publish(3, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    request = GetSubscription(99, "x", lag=True)
    stage.operator.request(request)
    (cursor,) = stage.operator.answer(99).entry.cursors  # in the same step
    assert (cursor.lag_events, cursor.lag_s) == (0, 0.0)


def test_the_lag_does_not_grow_while_the_stream_is_idle() -> None:
    stage = Stage()
    stage.publish(3, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    stage.world.run(s=20)
    assert (stage.cursor().lag_events, stage.cursor().lag_s) == (0, 0.0)
    stage.subscriber.leave()
    stage.world.run(s=60)
    assert (stage.cursor().lag_events, stage.cursor().lag_s) == (0, 0.0)


def test_events_that_a_connected_filter_does_not_match_are_no_lag() -> None:
    stage = Stage()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    stage.publish(5)
    stage.world.run(s=1)
    assert stage.cursor().lag_events == 0
    stage.subscriber.leave()
    stage.world.run(s=1)
    assert stage.cursor().lag_events == 0  # the broker still knows what was settled


def test_an_event_that_was_sent_and_is_not_acknowledged_is_a_lag_of_its_age() -> None:
    stage = Stage()
    stage.publish(5)
    stage.world.run(s=4)
    stage.publish(1, rare=1)
    stage.world.run(s=3)
    cursor = stage.cursor()
    assert cursor.lag_events == 1  # not the five before it, which do not match
    assert cursor.lag_s is not None
    assert 3.0 <= cursor.lag_s < 3.5
    stage.acknowledge()
    stage.world.run(ms=100)
    assert stage.cursor().lag_events == 0


@pytest.mark.parametrize("host", ["p", "n"])
def test_the_lag_of_a_disconnected_subscription_is_counted_in_the_log(host: str) -> None:
    stage = Stage(host)
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    stage.world.run(s=1)
    stage.subscriber.leave()
    stage.world.run(s=60)  # longer than the interest grace: the broker is sent nothing any more
    stage.publish(4, rare=1)
    stage.publish(3)
    stage.world.run(s=30)
    cursor = stage.cursor()
    assert cursor.lag_events == 7  # all events of the log above the position
    assert cursor.lag_s is not None
    assert 30.0 <= cursor.lag_s < 40.0
    state = stage.state()
    assert (state.streams, state.streams_pending, state.lag_events) == (1, 0, 7)


@pytest.mark.parametrize("broker", ["p", "n"])
def test_the_lag_is_the_same_after_a_broker_restarts(broker: str) -> None:
    stage = Stage()
    stage.publish(2, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    stage.world.run(s=1)
    stage.subscriber.leave()
    stage.publish(5, rare=1)
    stage.world.run(s=1)
    stage.world.restart(broker)
    stage.world.run(s=10)
    stage.operator = Requester(stage.world, "n", "operator again")
    assert stage.cursor().lag_events == 5
    stage.publisher.connect()
    stage.publisher.open()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    assert stage.cursor().lag_events == 6


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_lag_of_a_rare_filter_is_the_same_after_its_broker_restarts(is_stopped: bool) -> None:
    # the client is told of its progress only every progress_ms, and acknowledges no event
    stage = Stage()
    stage.publish(20)
    stage.world.run(s=1)
    if is_stopped:
        stage.world.happen("n", Stopping())
    else:
        stage.subscriber.leave()
    stage.world.run(s=1)
    stage.world.restart("n")
    stage.publish(3)
    stage.world.run(s=10)
    stage.operator = Requester(stage.world, "n", "operator again")
    assert stage.cursor().lag_events == 3


def test_a_lag_is_unknown_while_the_pubends_broker_cannot_be_reached() -> None:
    stage = Stage()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    stage.world.cut("p", "a")
    stage.world.cut("p", "n")
    stage.world.run(s=10)
    assert (stage.cursor().lag_events, stage.cursor().lag_s) == (None, None)
    assert (stage.state().lag_events, stage.state().lag_s) == (None, None)
    found = stage.survey()
    assert (found.durable, found.behind, found.unknown, found.entries) == (1, 0, 1, ())


def test_a_subscription_in_the_middle_of_a_batch_counts_the_rest_of_it() -> None:
    stage = Stage()
    ticks = [stage.publisher.publish(f"e{each}", rare=1) for each in range(10)]
    stage.world.run(s=1)
    stage.subscriber.acknowledge(P, ticks[3])
    stage.world.run(ms=100)
    assert stage.cursor().lag_events == 6


def test_a_seek_back_adds_and_a_seek_forward_removes_lag() -> None:
    stage = Stage()
    ticks = [stage.publisher.publish(f"e{each}", rare=1) for each in range(10)]
    stage.world.run(s=1)
    stage.acknowledge()
    stage.world.run(s=1)
    stage.subscriber.leave()
    for tick, events in ((ticks[1], 8), (ticks[8], 1), (ticks[9], 0)):
        start = StartPoint(StartKind.POSITION, ((P, tick),))
        stage.operator.call(SeekDurable(stage.operator.number(), "x", start), s=5)
        assert stage.cursor().lag_events == events


def test_released_events_are_no_lag_because_nobody_can_get_them() -> None:
    stage = Stage(retention_s=5)
    stage.publish(4, rare=1)
    stage.world.run(s=1)
    stage.acknowledge()
    stage.world.run(s=1)
    stage.subscriber.leave()
    stage.world.run(s=10)
    stage.publish(2, rare=1)
    stage.world.run(s=1)
    start = StartPoint(StartKind.POSITION, ((P, 1),))
    stage.operator.call(SeekDurable(stage.operator.number(), "x", start), s=5)
    assert stage.cursor().lag_events == 2


def test_many_positions_are_counted_with_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    ticks = [stage.publisher.publish(f"e{each}", rare=1) for each in range(10)]
    names = [f"s{each}" for each in range(10)]
    others = [stage.world.subscriber("n", each, "rare = 1", durable=True) for each in names]
    stage.world.run(s=1)
    for each, tick in zip(others, ticks, strict=True):
        each.leave()
        start = StartPoint(StartKind.POSITION, ((P, tick),))
        stage.operator.call(SeekDurable(stage.operator.number(), each.name, start), s=5)
    monkeypatch.setattr(lag, "COUNTED_TICKS_MAX", 3)
    listed = ListSubscriptions(stage.operator.number(), pattern="s*", lag=True)
    found = stage.operator.call(listed, s=5).entries
    assert {each.name: each.lag_events for each in found} == {
        f"s{each}": 9 - each for each in range(10)
    }


def test_ticks_of_a_request_beyond_the_limit_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    ticks = [stage.publisher.publish(f"e{each}", rare=1) for each in range(4)]
    stage.world.run(s=1)
    monkeypatch.setattr(serving, "COUNTED_TICKS_MAX", 2)
    replies: list[EventCounts] = []
    requests = stage.world["n"].components.requests
    requests.count_events(P, tuple(ticks), replies.append)
    stage.world.run(s=1)
    (reply,) = replies
    assert (reply.total, [each.number for each in reply.counts]) == (4, [1, 2])


def test_more_measurements_than_the_limit_report_what_is_known_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    monkeypatch.setattr(lag, "LAG_MEASUREMENTS_MAX", 0)
    assert stage.cursor().lag_events is None
    monkeypatch.setattr(subscriptions, "LAG_MEASUREMENTS_MAX", 0)
    assert "request it later" in reason(stage.operator.call(GetLag(stage.operator.number())))


def test_the_survey_names_the_streams_that_are_farthest_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    for each in ("y", "z"):
        stage.world.subscriber("n", each, "TRUE", durable=True)
    stage.world.subscriber("n", "not durable", "TRUE")
    stage.world.run(s=1)
    stage.publish(2)
    stage.world.run(s=5)
    stage.publish(3, rare=1)
    stage.world.run(s=5)
    found = stage.survey()
    assert (found.durable, found.behind, found.unknown) == (3, 3, 0)
    assert found.events_max == 5
    assert 10.0 <= found.seconds_max < 12.0
    assert [(each.subscription, each.events) for each in found.entries] == [
        ("y", 5),
        ("z", 5),
        ("x", 3),
    ]
    assert {each.pubend for each in found.entries} == {P}
    monkeypatch.setattr(subscriptions, "SHOWN_LAGS_MAX", 1)
    monkeypatch.setattr(subscriptions, "LAG_CURSORS_MAX", 1)
    found = stage.survey()
    assert [each.subscription for each in found.entries] == ["y"]
    assert (found.durable, found.behind, found.events_max) == (3, 3, 5)
    frame = CLIENT_NOTICES.encode(found)
    assert CLIENT_NOTICES.decode(frame[HEADER_BYTES:]) == found


def test_the_survey_names_streams_without_lag_too() -> None:
    stage = Stage()
    stage.world.run(s=5)
    found = stage.survey()
    assert (found.behind, found.events_max, found.seconds_max) == (0, 0, 0.0)
    assert [(each.subscription, each.events, each.seconds) for each in found.entries] == [
        ("x", 0, 0.0)
    ]


def test_concurrent_surveys_are_all_answered() -> None:
    stage = Stage()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    for number in (71, 72):
        stage.operator.request(GetLag(number))
    stage.world.run(s=3)
    assert stage.operator.answer(71).behind == stage.operator.answer(72).behind == 1


def test_subscriptions_are_listed_by_a_pattern_and_up_to_a_number() -> None:
    stage = Stage()
    for name in ("orders-1", "orders-2", "orders_3", "quotes"):
        stage.world.subscriber("n", name, "TRUE", durable=True)
    stage.world.run(s=1)

    def listed(pattern: str, most: int = 0, after: str = "") -> tuple[list[str], bool]:
        request = ListSubscriptions(stage.operator.number(), after, pattern=pattern, most=most)
        answer = stage.operator.call(request)
        return [each.name for each in answer.entries], answer.more

    assert listed("orders*") == (["orders-1", "orders-2", "orders_3"], False)
    assert listed("orders_?") == (["orders_3"], False)
    assert listed("*-?") == (["orders-1", "orders-2"], False)
    assert listed("orders*", 2) == (["orders-1", "orders-2"], True)
    assert listed("orders*", 2, "orders-2") == (["orders_3"], False)
    assert listed("x", 1) == (["x"], False)
    assert listed("%") == ([], False)
    too_long = ListSubscriptions(stage.operator.number(), pattern="*" * 300)
    assert "more than 255 characters" in reason(stage.operator.call(too_long))


def test_a_list_without_lag_does_not_wait() -> None:
    stage = Stage()
    stage.publish(1, rare=1)
    stage.world.run(s=1)
    stage.operator.request(ListSubscriptions(81))
    (entry,) = stage.operator.answer(81).entries
    assert (entry.lag_events, entry.lag_s, entry.streams) == (None, None, 1)


def test_a_stream_that_is_joined_later_is_added_to_the_lag() -> None:
    stage = Stage()
    other = stage.world.publisher("p", "Q")
    stage.world.run(s=2)
    stage.publish(2, rare=1)
    other.publish("q", rare=1)
    stage.world.run(s=1)
    state = stage.state()
    assert {each.pubend: each.lag_events for each in state.cursors} == {P: 2, Q: 1}
    assert (state.streams, state.lag_events) == (2, 3)
