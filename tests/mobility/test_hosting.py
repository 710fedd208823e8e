"""Forced moves: a durable subscription continues at the target, and the source releases it."""

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
    """Return the line p - a - b with a pubend at p, and a client whose subscription a hosts."""
    world = BrokerHarness("p-a-b", delta=1, retention_s=0)
    ann = world.publisher("p")
    world.run(s=1)
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    return world, ann, client, answer


def resume_at(
    client: Requester,
    broker: BrokerId,
    hosting: HostingReference | None,
    after: int,
    wanted: str = "TRUE",
) -> Any:
    """Connect a client to a broker with its hosting reference and position; return the answer."""
    client.connect(broker)
    start = StartPoint(StartKind.POSITION, ((P, after),))
    call = Subscribe(client.number(), "desk", wanted, True, start, credit=1_000, hosting=hosting)
    return client.call(call, s=5)


def payloads(client: Requester) -> list[str]:
    """Return the labels of the events that a client received."""
    return [
        publication.payload.decode()
        for notice in client.of_kind(Delivery)
        for _, publication in notice.events
    ]


def hosting_brokers(world: BrokerHarness, *brokers: BrokerId) -> list[BrokerId]:
    """Return those of the brokers that host the subscription."""
    return [name for name in brokers if "desk" in world[name].components.registry.subscriptions]


def test_a_client_whose_broker_is_down_continues_at_another_from_its_position() -> None:
    # MV-13: no loss, no duplicates; events published meanwhile come from the log
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    ann.publish("e2")
    moved = resume_at(client, "b", answer.hosting, seen)
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


def test_the_source_releases_a_moved_subscription_when_it_restarts() -> None:
    # MV-14: a learns of the move when it restarts, and its log is not retained for nothing
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    resume_at(client, "b", answer.hosting, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]
    assert world["a"].coverage_marks["subscription moved away"] == 1


def test_the_source_retains_the_log_until_the_target_does() -> None:
    # run 20: the target announces itself only when the log is held for it
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
    assert hosting_brokers(world, "a", "b") == ["a", "b"], "no broker has learned of the move"
    lost.end()
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_hosting_reference_from_before_a_move_is_refused_with_the_target() -> None:
    # MV-16
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    client.leave()
    moved = resume_at(client, "b", answer.hosting, seen)
    world.run(s=2)
    late = Requester(world, "a", "late")
    refused = resume_at(late, "a", answer.hosting, seen)
    assert isinstance(refused, Refused)
    assert (refused.cause, refused.broker, refused.hosting) == (
        RefusalCause.WRONG_BROKER,
        "b",
        moved.hosting,
    )


def test_a_client_at_the_source_is_notified_of_the_target() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    other = Requester(world, "b", "other")
    resume_at(other, "b", answer.hosting, seen)
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
    moved = resume_at(client, "b", answer.hosting, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=3)
    world.crash("b")
    seen = ann.publish("e2")
    back = resume_at(client, "a", moved.hosting, seen - 1)
    assert back.hosting.epoch == 2
    world.run(s=2)
    assert payloads(client)[-1] == "e2"
    world.start("b")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["a"]


def test_another_subscription_of_the_same_name_is_not_shared() -> None:
    # MV-16: the second one was created while its program could not find the first
    world, _, client, answer = stage()
    world.crash("a")
    world.run(s=2)
    other = Requester(world, "b", "other")
    assert isinstance(other.subscribe("TRUE", "desk", durable=True), Subscribed)
    other.leave()
    world.start("a")
    world.run(s=2)
    refused = resume_at(client, "b", answer.hosting, 1)
    assert isinstance(refused, Refused)
    assert "another subscription" in refused.reason
    world.run(s=2)
    assert hosting_brokers(world, "a", "b") == ["a", "b"]


def test_a_hosting_change_survives_a_crash_and_is_announced_again() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    resume_at(client, "b", answer.hosting, seen)
    world.run(s=1)
    world.crash("b")
    world.start("b")
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_subscription_that_is_ended_at_the_target_is_ended_at_the_source() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    resume_at(client, "b", answer.hosting, seen)
    client.call(Unsubscribe(client.number(), "desk"))
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == []
    records = world.nodes["p"].disk.records.values()
    assert not [each for each in records if isinstance(each, LogHoldRecord)]


def test_an_outdated_subscription_with_another_filter_is_replaced() -> None:
    # a has not learned that the client moved and changed its filter at another broker
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    assert answer.hosting is not None
    newer = HostingReference(answer.hosting.incarnation_key, 3, "b")
    ann.publish("e2", kind=2)
    ann.publish("e3", kind=1)
    taken = resume_at(client, "a", newer, seen, "kind = 1")
    assert taken.hosting == HostingReference(answer.hosting.incarnation_key, 4, "a")
    world.run(s=2)
    assert payloads(client)[-1] == "e3"
    assert payloads(client).count("e2") == 1  # delivered before, by the old filter


def failover_request(
    client: Requester,
    hosting: HostingReference | None,
    after: int,
    acked: int,
    *earlier: PastFilter,
) -> Subscribe:
    """Connect a client to b that has acknowledged less than it has received; return its request."""
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
    """Let a client continue at b; return the answer."""
    return client.call(failover_request(client, hosting, after, acked, *earlier), s=5)


def resume_without_a_position(
    client: Requester, broker: BrokerId, hosting: HostingReference | None
) -> Any:
    """Connect a client that has lost its position; return the answer."""
    client.connect(broker)
    client.notices.clear()
    call = Subscribe(client.number(), "desk", "kind = 2", True, credit=1_000, hosting=hosting)
    return client.call(call, s=5)


def test_unacknowledged_events_are_delivered_again_after_a_failover() -> None:
    # a client that dies after a failover gets its unacknowledged events, as at the source
    world, ann, client, answer = stage()
    acked = ann.publish("e1", kind=2)
    seen = ann.publish("e2", kind=2)
    world.run(s=1)
    world.crash("a")
    moved = fail_over(client, answer.hosting, seen, acked)
    world.run(s=2)
    assert payloads(client) == []
    assert resume_without_a_position(client, "b", moved.hosting).position == ((P, acked),)
    world.run(s=2)
    assert payloads(client) == ["e2"]


def test_a_crash_right_after_a_failover_causes_no_duplicates() -> None:
    # the target has the acknowledged tick on disk, but no cursor yet: its pubend is unreachable
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


def test_past_filters_apply_after_a_failover() -> None:
    # R47 after a failover: a filter applies up to the position at which another followed
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


def test_past_filters_survive_a_crash_of_the_target() -> None:
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
    resume_without_a_position(client, "b", moved.hosting)
    ann.publish("e4", kind=2)
    world.run(s=2)
    assert payloads(client) == ["e2", "e4"]


def test_a_crash_that_undoes_a_return_does_not_end_the_subscription() -> None:
    # all other brokers know that a hosts it again; a lost that in the crash and is notified
    world, _, _, answer = stage()
    assert answer.hosting is not None
    world["a"].components.hosting.received("p", Superseded(answer.hosting.incarnation_key, 2, "a"))
    assert hosting_brokers(world, "a") == ["a"]
    assert world.subscription("a", "desk").epoch == 2


def test_an_abandoned_failover_does_not_replace_the_subscription_at_its_hosting_broker() -> None:
    # the client sent a request to b, did not wait, returned to a, and changed its filter there
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    world.run(s=1)
    world.cut("a", "b")
    assert answer.hosting is not None
    resume_at(client, "b", answer.hosting, seen)
    back = resume_at(client, "a", answer.hosting.next_epoch(), seen)
    assert back.hosting == HostingReference(answer.hosting.incarnation_key, 2, "a")
    client.call(SetFilter(client.number(), "desk", "kind = 2"), s=2)
    world.heal("a", "b")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["a"]
    ann.publish("e2", kind=2)
    world.run(s=1)
    assert payloads(client)[-1] == "e2"


# --- back at a source that has not learned of the move --------------------------------------------


def moved_to_b() -> tuple[BrokerHarness, Requester, HostingReference]:
    """Return the line a - p - b with a client hosted by b; a is cut off and does not know."""
    world = BrokerHarness("a-p-b", retention_s=0)
    world.lose(of(Superseded, target="a"))
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    world.cut("a", "p")
    moved = resume_with(client, "b", answer.hosting, {})
    return world, client, moved.hosting


def resume_with(
    client: Requester,
    broker: BrokerId,
    hosting: HostingReference | None,
    seen: Ticks,
    acked: Ticks | None = None,
) -> Any:
    """Connect a client to a broker with positions on pubends; return the answer."""
    client.connect(broker)
    client.notices.clear()
    start = StartPoint(StartKind.POSITION, tuple(seen.items()))
    kept = tuple((seen if acked is None else acked).items())
    call = Subscribe(
        client.number(), "desk", "TRUE", True, start, credit=1_000, hosting=hosting, acked=kept
    )
    return client.call(call, s=5)


def test_a_presented_position_on_a_pubend_unknown_to_the_source_is_used() -> None:
    world, client, hosting = moved_to_b()
    ann = world.publisher("p")
    seen = ann.publish("e1")
    world.run(s=1)
    assert payloads(client) == ["e1"]
    ann.publish("e2")
    client.leave()
    resume_with(client, "a", hosting, {ann.pubend: seen})
    world.heal("a", "p")
    world.run(s=5)
    assert payloads(client) == ["e2"]


def test_a_source_that_starts_at_its_clients_position_retains_unacknowledged_events() -> None:
    world, client, hosting = moved_to_b()
    ann = world.publisher("p")
    acked, seen = ann.publish("e1"), ann.publish("e2")
    world.run(s=1)
    client.leave()
    lost = world.lose(of(Attach, Read, source="a"))
    world.heal("a", "p")
    world.run(s=1)
    assert world.started_after("a", "desk", ann.pubend) is None
    back = resume_with(client, "a", hosting, {ann.pubend: seen}, {ann.pubend: acked})
    lost.end()
    world.run(s=5)
    assert payloads(client) == []
    client.leave()
    resume_without_a_position(client, "a", back.hosting)
    world.run(s=2)
    assert payloads(client) == ["e2"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_source_that_started_later_than_its_client_moves_the_start_back(
    crashes: bool,
) -> None:
    # p lost the filters of a in a crash, so a starts where its table arrives again; if a crashes
    # before it answers, the client presents its position once more
    world, client, hosting = moved_to_b()
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
    started_after = world.started_after("a", "desk", ann.pubend)
    assert started_after is not None
    assert started_after >= ann.ticks["e2"]
    ann.publish("e3")
    if crashes:
        world.stop_disk("a")
        answer = resume_with(client, "a", hosting, {ann.pubend: seen})
        hosting = hosting if answer is None else answer.hosting
        world.restart("a")
    resume_with(client, "a", hosting, {ann.pubend: seen})
    world.run(s=5)
    assert payloads(client) == ["e2", "e3"]


def test_a_source_learns_of_a_move_after_a_long_downtime_and_over_many_hops() -> None:
    # MV-14: the brokers between forget a move after tombstone_ttl_s, and the target is not a
    # neighbour
    world = BrokerHarness("p-a-m-n-o-b", delta=1, retention_s=0, tombstone_ttl_s=20)
    ann = world.publisher("p")
    world.run(s=1)
    client = Requester(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    resume_at(client, "b", answer.hosting, seen)
    world.run(s=70)
    world.start("a")
    world.run(s=10)
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_move_that_is_no_longer_announced_is_forgotten() -> None:
    world = BrokerHarness("p-a-b", delta=1, tombstone_ttl_s=20)
    client = Requester(world, "b", "late")
    world.run(s=1)
    world["a"].components.hosting.received("p", Superseded("old/1/1", 7, "gone"))
    world.run(s=15)
    token = HostingReference("old/1/1", 3, "old")
    refused = resume_at(client, "b", token, 0)
    assert isinstance(refused, Refused)
    assert refused.broker == "gone"
    world.run(s=10)
    assert isinstance(resume_at(client, "b", token, 0), Subscribed)
