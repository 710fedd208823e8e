"""Forced moves: a durable subscription goes on where its client is, and its old home lets it go."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    HostingReference,
    PastFilter,
    RefusalCause,
    Refused,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    Unsubscribe,
)
from gapless.messages.mobility import Superseded
from gapless.messages.pubend_requests import Read
from gapless.messages.records import LogHoldRecord
from gapless.messages.streams import Attach
from tests.broker.harness import BrokerHarness, P, Requester
from tests.scenarios.brokers import Publisher, of

Ticks: TypeAlias = dict[PubendId, Tick]


def stage() -> tuple[BrokerHarness, Publisher, Requester, Subscribed]:
    """Return the line p - a - b with a pubend at p, and a client whose subscription lives at a."""
    world = BrokerHarness("p-a-b", delta=1, retention_s=0)
    ann = world.publisher("p")
    world.run(s=1)
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    return world, ann, client, answer


def come(
    client: Requester,
    broker: BrokerId,
    hosting: HostingReference | None,
    after: int,
    wanted: str = "TRUE",
) -> Any:
    """Let a client come to a broker with its token and position; return the answer."""
    client.connect(broker)
    start = StartPoint(StartKind.POSITION, ((P, after),))
    call = Subscribe(client.number(), "desk", wanted, True, start, credit=1_000, hosting=hosting)
    return client.call(call, s=5)


def payloads(client: Requester) -> list[str]:
    """Return the labels of the events that a client was given."""
    return [
        publication.payload.decode()
        for notice in client.of_kind(Delivery)
        for _, publication in notice.events
    ]


def hosting_brokers(world: BrokerHarness, *brokers: BrokerId) -> list[BrokerId]:
    """Return at which of the brokers the subscription is."""
    return [name for name in brokers if "desk" in world[name].components.registry.subscriptions]


def test_a_client_whose_broker_is_dead_goes_on_at_another_from_its_position() -> None:
    # MV-13: nothing lost, nothing twice, and what was published meanwhile comes from the log
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    ann.publish("e2")
    moved = come(client, "b", answer.hosting, seen)
    assert isinstance(moved, Subscribed)
    assert moved.hosting is not None
    assert answer.hosting is not None
    assert (moved.hosting.incarnation_key, moved.hosting.epoch) == (
        answer.hosting.incarnation_key,
        1,
    )
    ann.publish("e3")
    world.run(s=2)
    assert payloads(client)[-2:] == ["e2", "e3"]
    assert payloads(client).count("e1") == 1


def test_the_old_home_lets_a_subscription_go_when_it_is_back() -> None:
    # MV-14: it hears of it when it comes back, and its log is not kept for nobody
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.hosting, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]
    assert world["a"].coverage_marks["subscription moved away"] == 1


def test_the_old_home_keeps_the_log_until_the_new_one_does() -> None:
    # run 20: the new home says that it is one only when the log is held for it
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    client.leave()
    lost = world.lose(lambda *_: True)
    client.connect("b")
    start = StartPoint(StartKind.POSITION, ((P, seen),))
    call = Subscribe(client.number(), "desk", "TRUE", True, start, credit=9, hosting=answer.hosting)
    client.request(call)
    world.run(s=1)
    assert hosting_brokers(world, "a", "b") == ["a", "b"], "nobody has heard of anything"
    lost.end()
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_token_of_before_a_move_is_refused_with_the_new_home() -> None:
    # MV-16
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    client.leave()
    moved = come(client, "b", answer.hosting, seen)
    world.run(s=2)
    late = Requester(world, "a", "late")
    refused = come(late, "a", answer.hosting, seen)
    assert isinstance(refused, Refused)
    assert (refused.cause, refused.broker, refused.hosting) == (
        RefusalCause.WRONG_BROKER,
        "b",
        moved.hosting,
    )


def test_who_is_still_at_the_old_home_is_told_where_the_subscription_went() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    other = Requester(world, "b", "other")
    come(other, "b", answer.hosting, seen)
    world.run(s=2)
    (ended,) = client.of_kind(SubscriptionEnded)
    assert ended.cause is RefusalCause.WRONG_BROKER
    assert (
        ended.hosting == HostingReference(answer.hosting.incarnation_key, 1, "b")
        if answer.hosting
        else False
    )


def test_a_subscription_can_move_back() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    moved = come(client, "b", answer.hosting, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=3)
    world.crash("b")
    seen = ann.publish("e2")
    back = come(client, "a", moved.hosting, seen - 1)
    assert back.hosting.epoch == 2
    world.run(s=2)
    assert payloads(client)[-1] == "e2"
    world.start("b")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["a"]


def test_another_subscription_of_the_same_name_is_not_shared() -> None:
    world, _, client, answer = stage()
    other = Requester(world, "b", "other")
    assert isinstance(other.subscribe("TRUE", "desk", durable=True), Subscribed)
    other.leave()
    refused = come(client, "b", answer.hosting, 1)
    assert isinstance(refused, Refused)
    assert "another subscription" in refused.reason
    world.run(s=2)
    assert hosting_brokers(world, "a", "b") == ["a", "b"]


def test_a_home_is_remembered_over_a_crash_and_said_again() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.hosting, seen)
    world.run(s=1)
    world.crash("b")
    world.start("b")
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_subscription_that_is_ended_where_it_moved_is_ended_where_it_was() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.hosting, seen)
    client.call(Unsubscribe(client.number(), "desk"))
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == []
    records = world.nodes["p"].disk.records.values()
    assert not [each for each in records if isinstance(each, LogHoldRecord)]


def test_an_old_form_with_another_filter_is_made_anew() -> None:
    # a has not heard that the client moved and changed its filter elsewhere
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    assert answer.hosting is not None
    newer = HostingReference(answer.hosting.incarnation_key, 3, "b")
    ann.publish("e2", kind=2)
    ann.publish("e3", kind=1)
    taken = come(client, "a", newer, seen, "kind = 1")
    assert taken.hosting == HostingReference(answer.hosting.incarnation_key, 4, "a")
    world.run(s=2)
    assert payloads(client)[-1] == "e3"
    assert payloads(client).count("e2") == 1  # it came before, by the old filter


def failover_request(
    client: Requester,
    hosting: HostingReference | None,
    after: int,
    acked: int,
    *earlier: PastFilter,
) -> Subscribe:
    """Let a client come to b that has acknowledged less than it has seen; return what it asks there."""
    client.connect("b")
    client.notices.clear()
    start = StartPoint(StartKind.POSITION, ((P, after),))
    return Subscribe(
        client.number(),
        "desk",
        "kind = 2",
        True,
        start,
        credit=1_000,
        hosting=hosting,
        acked=((P, acked),),
        past_filters=earlier,
    )


def fail_over(
    client: Requester,
    hosting: HostingReference | None,
    after: int,
    acked: int,
    *earlier: PastFilter,
) -> Any:
    """Let a client go on at b; return the answer."""
    return client.call(failover_request(client, hosting, after, acked, *earlier), s=5)


def come_without_a_position(
    client: Requester, broker: BrokerId, hosting: HostingReference | None
) -> Any:
    """Let a client come back that has forgotten what it has seen; return the answer."""
    client.connect(broker)
    client.notices.clear()
    call = Subscribe(client.number(), "desk", "kind = 2", True, credit=1_000, hosting=hosting)
    return client.call(call, s=5)


def test_what_was_seen_and_not_acknowledged_comes_again_after_a_failover() -> None:
    # a client that dies after it fled finds what it has not acknowledged, as at its old home
    world, ann, client, answer = stage()
    acked = ann.publish("e1", kind=2)
    seen = ann.publish("e2", kind=2)
    world.run(s=1)
    world.crash("a")
    moved = fail_over(client, answer.hosting, seen, acked)
    world.run(s=2)
    assert payloads(client) == []
    assert come_without_a_position(client, "b", moved.hosting).position == ((P, acked),)
    world.run(s=2)
    assert payloads(client) == ["e2"]


def test_a_crash_right_after_a_failover_brings_nothing_again_that_was_seen() -> None:
    # the new home has where it keeps the log from on disk, and no strand yet: its pubend is out of reach
    world, ann, client, answer = stage()
    acked = ann.publish("e1", kind=2)
    seen = ann.publish("e2", kind=2)
    world.run(s=1)
    world.crash("a")
    world.crash("p")
    client.request(failover_request(client, answer.hosting, seen, acked))
    world.wait(lambda: world.record("b", "desk") is not None)
    world.crash("b")
    world.start("b")
    assert answer.hosting is not None
    moved = fail_over(client, answer.hosting.next_epoch(), seen, acked)
    assert isinstance(moved, Subscribed)
    world.start("p")
    world.run(s=5)
    ann.connect("p")
    ann.open()
    ann.publish("e3", kind=2)
    world.run(s=2)
    assert payloads(client) == ["e3"]


def test_earlier_filters_fail_over_with_a_client() -> None:
    # R47 holds over a flight: up to where a filter was followed by another it governs
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    switched = ann.publish("e3", kind=1)
    ann.publish("e4", kind=1)
    ann.publish("e5", kind=2)
    world.run(s=1)
    world.crash("a")
    moved = fail_over(client, answer.hosting, seen, seen, PastFilter("kind = 1", ((P, switched),)))
    assert [each.filter for each in moved.past_filters] == ["kind = 1"]
    world.run(s=2)
    assert payloads(client) == ["e3", "e5"]


def test_earlier_filters_survive_a_crash_of_the_new_home() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    switched = ann.publish("e2", kind=1)
    ann.publish("e3", kind=1)
    world.run(s=1)
    world.crash("a")
    moved = fail_over(client, answer.hosting, seen, seen, PastFilter("kind = 1", ((P, switched),)))
    world.crash("b")
    world.start("b")
    world.run(s=1)
    come_without_a_position(client, "b", moved.hosting)
    ann.publish("e4", kind=2)
    world.run(s=2)
    assert payloads(client) == ["e2", "e4"]


def test_a_crash_that_takes_a_return_back_does_not_end_the_subscription() -> None:
    # all have heard that it lives at a again; a forgot that, and is told
    world, _, _, answer = stage()
    assert answer.hosting is not None
    world["a"].components.hosting.received("p", Superseded(answer.hosting.incarnation_key, 2, "a"))
    assert hosting_brokers(world, "a") == ["a"]
    assert world.subscription("a", "desk").epoch == 2


def test_an_abandoned_failover_does_not_win_over_the_home_that_went_on() -> None:
    # the client asked at b, did not wait, went back to a, and changed its filter there
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    world.run(s=1)
    world.cut("a", "b")
    assert answer.hosting is not None
    come(client, "b", answer.hosting, seen)
    back = come(client, "a", answer.hosting.next_epoch(), seen)
    assert back.hosting == HostingReference(answer.hosting.incarnation_key, 2, "a")
    client.call(SetFilter(client.number(), "desk", "kind = 2"), s=2)
    world.heal("a", "b")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["a"]
    ann.publish("e2", kind=2)
    world.run(s=1)
    assert payloads(client)[-1] == "e2"


# --- back at a home that has not heard of the move ----------------------------------------------------


def moved_to_b() -> tuple[BrokerHarness, Requester, HostingReference]:
    """Return the line a - p - b with a client that lives at b now; a is cut off and does not know."""
    world = BrokerHarness("a-p-b", retention_s=0)
    world.lose(of(Superseded, target="a"))
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    world.cut("a", "p")
    moved = come_with(client, "b", answer.hosting, {})
    return world, client, moved.hosting


def come_with(
    client: Requester,
    broker: BrokerId,
    hosting: HostingReference | None,
    seen: Ticks,
    acked: Ticks | None = None,
) -> Any:
    """Let a client come to a broker with places on pubends; return the answer."""
    client.connect(broker)
    client.notices.clear()
    start = StartPoint(StartKind.POSITION, tuple(seen.items()))
    kept = tuple((seen if acked is None else acked).items())
    call = Subscribe(
        client.number(), "desk", "TRUE", True, start, credit=1_000, hosting=hosting, acked=kept
    )
    return client.call(call, s=5)


def test_a_place_on_a_pubend_that_an_old_home_has_not_heard_of_is_not_forgotten() -> None:
    world, client, home = moved_to_b()
    ann = world.publisher("p")
    seen = ann.publish("e1")
    world.run(s=1)
    assert payloads(client) == ["e1"]
    ann.publish("e2")
    client.leave()
    come_with(client, "a", home, {ann.pubend: seen})
    world.heal("a", "p")
    world.run(s=5)
    assert payloads(client) == ["e2"]


def test_an_old_home_that_begins_where_its_client_is_keeps_what_is_not_acknowledged() -> None:
    world, client, home = moved_to_b()
    ann = world.publisher("p")
    acked, seen = ann.publish("e1"), ann.publish("e2")
    world.run(s=1)
    client.leave()
    lost = world.lose(of(Attach, Read, source="a"))
    world.heal("a", "p")
    world.run(s=1)
    assert world.started_after("a", "desk", ann.pubend) is None
    back = come_with(client, "a", home, {ann.pubend: seen}, {ann.pubend: acked})
    lost.end()
    world.run(s=5)
    assert payloads(client) == []
    client.leave()
    come_without_a_position(client, "a", back.hosting)
    world.run(s=2)
    assert payloads(client) == ["e2"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_old_home_that_came_to_a_pubend_later_than_its_client_goes_back_for_it(
    crashes: bool,
) -> None:
    # p forgot in a crash what a wants, so a begins where its news comes again; if a crashes when it is asked, its
    # client was not answered, so it brings its place once more
    world, client, home = moved_to_b()
    world.restart("p")
    world.run(s=1)
    ann = world.publisher("p")
    seen = ann.publish("e1")
    world.run(s=1)
    assert payloads(client) == ["e1"]
    client.leave()
    ann.publish("e2")
    world.heal("a", "p")
    world.run(s=5)
    begun = world.started_after("a", "desk", ann.pubend)
    assert begun is not None
    assert begun >= ann.ticks["e2"]
    ann.publish("e3")
    if crashes:
        world.stop_disk("a")
        answer = come_with(client, "a", home, {ann.pubend: seen})
        home = home if answer is None else answer.hosting
        world.restart("a")
    come_with(client, "a", home, {ann.pubend: seen})
    world.run(s=5)
    assert payloads(client) == ["e2", "e3"]


def test_an_old_home_hears_of_a_move_however_long_it_was_down_and_however_far_it_is() -> None:
    # MV-14: who lies between forgets a move after a while, and the new home is not its neighbour
    world = BrokerHarness("p-a-m-n-o-b", delta=1, retention_s=0, tombstone_ttl_s=20)
    ann = world.publisher("p")
    world.run(s=1)
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.hosting, seen)
    world.run(s=70)
    world.start("a")
    world.run(s=10)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_move_whose_home_tells_it_no_more_is_forgotten() -> None:
    world = BrokerHarness("p-a-b", delta=1, tombstone_ttl_s=20)
    client = Requester(world, "b", "late")
    world.run(s=1)
    world["a"].components.hosting.received("p", Superseded("old/1/1", 7, "gone"))
    world.run(s=15)
    token = HostingReference("old/1/1", 3, "old")
    refused = come(client, "b", token, 0)
    assert isinstance(refused, Refused)
    assert refused.broker == "gone"
    world.run(s=10)
    assert isinstance(come(client, "b", token, 0), Subscribed)
