"""Filters and forced moves: the last confirmed filter applies, wherever the client continues."""

from __future__ import annotations

import pytest

from gapless.messages.clients import FilterSet, PastFilter, SetFilter, Subscribe
from gapless.messages.operating import SetDurableFilter
from gapless.messages.overlay import Announce
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import Attach, Attached
from tests.broker.harness import BrokerHarness, P, Requester
from tests.mobility.library import OLDEST, after, opened, publish, uninformed
from tests.mobility.test_hosting import fail_over, failover_request, payloads, stage
from tests.scenarios.brokers import of


def test_a_filter_change_before_the_target_has_cursors_keeps_the_position() -> None:
    # MV-13, R47: after the crash only the start point of the record had the position; the change
    # lost it, and e2
    world, ann, client, answer = stage()
    seen = publish(ann, "e1", kind=2)
    world.crash("a")
    ann.publish("e2", kind=2)
    world.crash("p")
    client.request(failover_request(client, answer.hosting, seen, seen))
    world.wait(lambda: world.record("b", "desk") is not None)
    world.crash("b")
    world.start("b")
    operator = world.client("b", "operator")
    operator.call(SetDurableFilter(operator.number(), "desk", "kind > 0"), s=20)
    world.start("p")
    world.run(s=5)
    assert answer.hosting is not None
    fail_over(client, answer.hosting.next_epoch(), seen, seen)
    world.run(s=5)
    assert payloads(client) == ["e2"]


def test_a_pending_start_at_the_earliest_survives_a_filter_change_and_a_crash() -> None:
    # R46, R47: nothing had started, so the record lost EARLIEST and the subscription started at the
    # latest
    world = BrokerHarness("p-a", retention_s=3600)
    ann = world.publisher("p")
    publish(ann, "e1", kind=1)
    lost = world.lose(of(Attach, Read, source="a"))
    program = opened(world, "a", "one", "kind > 0", start=OLDEST)
    assert program.inbox.pending
    program.set_filter("kind = 1", s=15)
    world.crash("a")
    lost.end()
    world.start("a")
    program.go("a")
    world.run(s=10)
    assert program.take() == ["e1"]


def test_a_filter_applies_up_to_the_position_confirmed_to_its_client() -> None:
    # R47, MV-13: a had ended the segment by a change whose answer was lost; it delivered x2 instead
    # of e2
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    client = Requester(world, "a", "desk")
    answer = client.subscribe("kind = 1", durable=True)
    seen = publish(ann, "e1", kind=1)
    place = ((P, seen),)
    client.request(SetFilter(99, "desk", "kind = 2"))  # the answer is lost
    world.run(s=1)
    client.leave()
    world.cut("a", "p")
    ann.publish("e2", kind=1)
    ann.publish("x2", kind=2)
    client.connect("b")
    number, start = client.number(), after({P: seen})
    call = Subscribe(number, "desk", "kind = 1", True, start, hosting=answer.hosting, acked=place)
    moved = client.call(call, s=5)
    world.run(s=1)
    changed = client.call(SetFilter(client.number(), "desk", "kind = 2"), s=15)
    assert dict(changed.position)[P] >= ann.ticks["x2"]
    world.crash("b")
    client.connect("a")
    client.notices.clear()
    call = Subscribe(
        client.number(),
        "desk",
        "kind = 2",
        True,
        start,
        credit=100,
        hosting=moved.hosting,
        acked=place,
        past_filters=(PastFilter("kind = 1", changed.position),),
    )
    client.call(call, s=5)
    world.heal("a", "p")
    world.run(s=5)
    assert payloads(client) == ["e2"]


def test_a_failed_failover_does_not_undo_a_filter_set_by_an_operator() -> None:
    # MV-13: the hosting broker took the attempt for a move, and the client's old filter for a newer
    # one
    world = BrokerHarness("a-p-b", retention_s=0)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    assert program.take() == ["e1"]
    program.acknowledge()
    program.lose()
    world.crash("b")
    program.request_in_vain_elsewhere()
    operator = world.client("a", "operator")
    change = SetDurableFilter(operator.number(), "desk", "kind = 2")
    assert isinstance(operator.call(change, s=15), FilterSet)
    program.go("a")
    world.run(s=1)
    assert program.inbox.text == "kind = 2"


def test_a_client_without_a_position_keeps_its_filter_when_it_returns() -> None:
    # MV-13: the source compared filters only where there were positions, and continued with its own
    world = uninformed("a-p-b", retention_s=0)
    program = opened(world, "a", "one", "kind = 1")
    world.cut("a", "p")
    program.lose()
    program.go("b")
    assert isinstance(program.set_filter("kind = 2"), FilterSet)
    program.lose()
    program.go("a")
    world.heal("a", "p")
    world.run(s=2)
    ann = world.publisher("p")
    world.run(s=2)
    publish(ann, "e1", kind=1)
    publish(ann, "e2", kind=2)
    assert program.inbox.text == "kind = 2"
    assert program.take() == ["e2"]


def test_a_crash_while_an_outdated_subscription_is_replaced_loses_no_event() -> None:
    # MV-13, I13: one write deleted the old record and the next stored the new one; e1 was lost
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    assert program.take() == ["e1"], "e1 is not acknowledged"
    world.cut("a", "p")
    program.lose()
    program.go("b")
    program.set_filter("kind > 0")
    world.run(s=1)
    world.crash("b")
    world.stop_disk("a")
    program.request_at("a")
    disk = world.nodes["a"].disk
    assert disk.unsynced
    del disk.unsynced[1:]  # only the first of its writes is on disk
    disk.sync()
    world.crash("a")
    world.start("a")
    world.heal("a", "p")
    world.run(s=1)
    successor = opened(world, "a", "two", "kind > 0")
    world.run(s=3)
    assert successor.take() == ["e1"]


def test_a_repeated_filter_change_is_answered() -> None:
    # R47: only the first request had the timer of filter_change_timeout_s; the second waited for
    # ever
    world = BrokerHarness("p-m-a", retention_s=3600, delta=1, filter_change_timeout_s=5)
    ann = world.publisher("p", advertisement="kind = 1")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    program.take()
    program.acknowledge()
    assert isinstance(program.set_filter("kind = 2"), FilterSet)
    world.run(s=1)
    world.crash("p")
    world.crash("a")
    world.start("a")
    world.run(s=1)
    program.go("a")
    assert not world.subend("a", P).has_base
    program.request(SetFilter(99, "desk", "kind = 1"))
    world.run(s=1)
    program.lose()
    program.go("a")
    assert isinstance(program.set_filter("kind = 1", s=60), FilterSet)


def test_an_unanswered_return_counts_as_a_move() -> None:
    # MV-14, MV-16: a and c had the same epoch, so a continued with its filter from before c
    world = uninformed("a-p-c", "p-b", retention_s=0)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    program.take()
    program.acknowledge()
    program.lose()
    program.request_at("b")
    world.crash("b")
    world.run(s=1)
    world.cut("a", "p")
    program.is_deaf = True
    program.request_at("a")
    world.run(ms=20)
    program.lose()
    program.is_deaf = False
    assert program.inbox.hosting is not None
    assert (world.subscription("a", "desk").epoch, program.inbox.hosting.epoch) == (2, 1)
    program.go("c")
    assert program.inbox.is_answered
    assert program.inbox.hosting.broker == "c"
    program.set_filter("kind = 2")
    publish(ann, "e2", kind=2)
    assert program.take() == ["e2"]
    world.crash("c")
    program.go("a")
    world.heal("a", "p")
    world.run(s=3)
    ann.publish("e3", kind=2)
    ann.publish("e4", kind=1)
    world.run(s=3)
    assert program.inbox.text == "kind = 2"
    assert program.take() == ["e3"]


def test_a_failover_while_a_filter_change_waits_for_the_disk_loses_no_event() -> None:
    # R46, P2: events came before the start was confirmed, so the client failed over without a
    # position and lost e3
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    assert program.take() == ["e1"]
    program.acknowledge()
    program.lose()
    publish(ann, "e2", kind=1)
    world.stop_disk("a")
    operator = world.client("a", "operator")
    operator.request(SetDurableFilter(operator.number(), "desk", "kind > 0"))
    world.run(s=1)
    ann.publish("e3", kind=1)
    successor = opened(world, "a", "two", "kind > 0")
    world.run(ms=100)
    taken = successor.take()
    world.crash("a")
    successor.go("b")
    world.run(s=5)
    publish(ann, "e4", kind=1)
    assert taken + successor.take() == ["e2", "e3", "e4"]


def test_a_filter_change_at_the_target_does_not_lose_a_start_at_the_source() -> None:
    # MV-16, R46: the replaced subscription keeps a start that only the source knows
    world = uninformed("p-a-b", retention_s=3600)
    world.hold(of(Announce, source="a", target="b"))
    program = opened(world, "a", "one", "number < 3")
    world.run(s=2)
    program.request(SetFilter(program.numbers.next(), "desk", "number > 1"))
    program.lose()
    world.run(s=2)
    program.go("b")
    assert isinstance(program.set_filter("number > 1"), FilterSet)
    ann = world.publisher("p")
    publish(ann, "e1", number=2)
    world.run(s=2)
    program.lose()
    program.go("a")
    world.run(s=2)
    assert program.take() == ["e1"]


@pytest.mark.parametrize("changes", [False, True])
def test_a_replaced_subscription_keeps_its_start_guarantee_for_a_pubend_created_later(
    changes: bool,
) -> None:
    # MV-16, R46: the client learned nothing of the pubend at the other broker
    world = uninformed("p-a-b", retention_s=3600)
    world.hold(of(Announce, source="a", target="b"))
    program = opened(world, "a", "one", "number > 0")
    world.run(s=2)
    lost = world.lose(of(Attached, ReadReply, source="p", target="a"))
    ann = world.publisher("p")
    publish(ann, "e1", number=2)
    program.lose()
    program.go("b")
    if changes:
        assert isinstance(program.set_filter("number > 1"), FilterSet)
    world.run(s=2)
    program.lose()
    program.go("a")
    lost.end()
    world.run(s=10)
    assert program.take() == ["e1"]
