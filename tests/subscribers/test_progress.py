"""Clients without matching events are notified periodically of the progress of their streams."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, Progress, StartKind, StartPoint
from tests.broker.harness import BrokerHarness, P, Q
from tests.scenarios.brokers import Publisher, Subscriber


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return the line p - n with a pubend P at p."""
    world = BrokerHarness("p-n", **{"progress_ms": 100, **parameters})
    return world, world.publisher("p")


def progress_ticks(client: Subscriber, pubend: PubendId = P) -> list[Tick]:
    """Return the ticks of all progress notices that the client received on a stream."""
    positions = [dict(each.position) for each in client.of_kind(Progress)]
    return [each[pubend] for each in positions if pubend in each]


def test_a_client_without_matching_events_receives_progress() -> None:
    world, ann = stage()
    client = world.subscriber("n", "x", "a = 99")
    world.run(s=1)
    tick = ann.publish("e1", a=1)
    world.run(s=3)
    assert client.events == []
    assert progress_ticks(client)[-1] > tick
    assert progress_ticks(client) == sorted(set(progress_ticks(client)))


def test_a_client_that_resumes_at_its_progress_gets_no_gap_when_the_log_is_released() -> None:
    world, ann = stage(retention_s=1)
    client = world.subscriber("n", "x", "a = 99")
    world.run(s=1)
    start = client.starts[P]
    last = ann.publish("e1", a=1)
    world.run(s=5)
    assert world.released("p", P) > last
    position = progress_ticks(client)[-1]
    client.leave()
    world.run(s=60)  # its filter is not served any more
    for name, after in (("old", start), ("new", position)):
        start_point = StartPoint(StartKind.POSITION, ((P, after),))
        found = world.subscriber("n", name, "a = 99", start=start_point)
        world.run(s=5)
        assert bool(found.gaps) is (name == "old")


def test_progress_is_never_above_a_buffered_event() -> None:
    world, ann = stage()
    client = world.subscriber("n", "x", "a = 1", credit=1)
    world.run(s=1)
    first = ann.publish("e1", a=1)
    second = ann.publish("e2", a=1)
    world.run(s=3)
    assert client.events == ["e1"]
    assert first <= progress_ticks(client)[-1] < second
    client.give_credit(5)
    world.run(s=3)
    assert client.events == ["e1", "e2"]
    assert progress_ticks(client)[-1] > second


def test_no_progress_is_sent_for_a_stream_with_deliveries() -> None:
    world, ann = stage()
    client = world.subscriber("n", "x", "a = 1")
    world.run(s=1)
    before = len(client.of_kind(Progress))
    for number in range(30):
        ann.publish(f"e{number}", a=1)
        world.run(ms=50)
    assert len(client.of_kind(Progress)) <= before + 1


def test_in_total_order_progress_is_sent_for_a_quiet_stream_beside_a_busy_one() -> None:
    world, ann = stage()
    world.publisher("p", str(Q))
    client = world.subscriber("n", "x", "a = 1", order=Order.TOTAL)
    world.run(s=1)
    for number in range(30):
        ann.publish(f"e{number}", a=1)
        world.run(ms=50)
    assert len(client.events) == 30
    assert progress_ticks(client, Q)[-1] > ann.ticks["e20"]


def test_progress_is_sent_to_a_durable_client_and_not_to_a_disconnected_one() -> None:
    world, ann = stage()
    client = world.subscriber("n", "x", "a = 99", durable=True)
    world.run(s=1)
    ann.publish("e1", a=1)
    world.run(s=2)
    count = len(progress_ticks(client))
    assert count
    client.leave()
    world.run(s=5)
    assert len(progress_ticks(client)) == count
    client.come_back()
    world.run(s=2)
    assert len(progress_ticks(client)) > count


def test_progress_is_not_sent_more_often_than_the_parameter_allows() -> None:
    world, ann = stage(progress_ms=1_000)
    client = world.subscriber("n", "x", "a = 99")
    ann.publish("e1", a=1)
    world.run(s=10)
    assert 7 <= len(client.of_kind(Progress)) <= 10
