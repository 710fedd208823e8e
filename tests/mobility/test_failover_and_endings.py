"""Ends and forced moves: the former client is notified, and an end takes effect at every broker."""

from __future__ import annotations

import pytest

from gapless.messages.clients import Subscribe, Unsubscribe
from gapless.messages.mobility import Superseded
from gapless.messages.operating import BrokerRetired, RemoveDurable, RetireBroker, SeekDurable
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import Attach
from tests.broker.harness import BrokerHarness, P
from tests.mobility.library import Program, after, opened, publish, uninformed
from tests.mobility.test_hosting import hosting_brokers, stage
from tests.scenarios.brokers import of


def open_a_silent_pubend(world: BrokerHarness) -> None:
    """Create a pubend that a knows and that does not answer a, so that answers of a wait."""
    world.lose(of(Attach, Read, source="a"))
    world.publisher("p", "Q")
    world.run(s=1)


def test_a_client_without_an_answer_is_notified_that_the_subscription_has_moved() -> None:
    # MV-14: a client without an answer ignored SubscriptionEnded and waited for ever
    world = BrokerHarness("a-p-b", retention_s=0)
    late = world.hold(of(Superseded, target="a"))
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    program.take()
    program.lose()
    program.go("b")
    world.run(s=2)
    open_a_silent_pubend(world)
    assert world.subscription("a", "desk").cursors.keys() != {P}
    successor = Program(world, "a", "two")
    world.run(ms=50)
    assert not successor.inbox.is_answered
    late.release()
    world.run(s=60)
    assert successor.redirected_to == "b"


def test_a_client_without_an_answer_is_notified_that_it_was_fenced() -> None:
    # MV-16, R46: the same at one broker; the first process was never answered
    world = BrokerHarness("p-a", retention_s=0)
    world.publisher("p")
    world.run(s=1)
    open_a_silent_pubend(world)
    program = Program(world, "a", "one")
    world.run(ms=50)
    assert not program.inbox.is_answered
    opened(world, "a", "two")
    world.run(s=60)
    assert program.inbox.is_over


def test_a_client_without_an_answer_is_notified_of_an_operator_seek() -> None:
    # R46: the operator's seek ended the client session, and its call was never answered
    world = BrokerHarness("p-a", retention_s=0)
    world.publisher("p")
    program = opened(world, "a", "one")
    program.lose()
    open_a_silent_pubend(world)
    successor = Program(world, "a", "two")
    world.run(ms=50)
    assert not successor.inbox.is_answered
    operator = world.client("a", "operator")
    operator.call(SeekDurable(operator.number(), "desk", after({P: 5}), True), s=5)
    world.run(s=60)
    assert successor.knows()


def test_two_processes_do_not_take_a_subscription_from_each_other_for_ever() -> None:
    # MV-14: each process followed the other's move with a greater epoch, two moves a second
    world = BrokerHarness("a-p-b", retention_s=3600)
    late = world.hold(of(Superseded, target="a"))
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    program.take()
    world.cut("a", "p")
    program.lose()
    program.go("b")
    world.run(s=2)
    world.heal("a", "p")
    successor = opened(world, "a", "two")
    late.release()
    world.run(s=60)
    assert program.inbox.is_over, "the last process has the subscription"
    assert successor.inbox.is_answered
    moves = [world[name].coverage_marks["subscription moved here"] for name in ("a", "b")]
    assert sum(moves) <= 3


def test_a_subscription_that_an_operator_removes_at_the_target_is_removed_at_the_source() -> None:
    # MV-14: only the end by a client was sent to the overlay; the source kept the subscription and
    # logs
    world, ann, client, answer = stage()
    seen = publish(ann, "e1")
    world.crash("a")
    client.connect("b")
    start = after({P: seen})
    call = Subscribe(client.number(), "desk", "TRUE", True, start, credit=9, hosting=answer.hosting)
    client.call(call, s=5)
    operator = world.client("b", "operator")
    operator.call(RemoveDurable(operator.number(), "desk", True), s=5)
    world.start("a")
    world.run(s=20)
    assert hosting_brokers(world, "a", "b") == []


def test_a_subscription_that_is_ended_during_a_failover_is_ended_at_its_hosting_broker() -> None:
    # MV-14: the library sends the end on whatever connection it has
    world, _, client, answer = stage()
    world.crash("a")
    client.connect("b")
    client.call(Unsubscribe(client.number(), "desk", answer.hosting), s=5)
    world.start("a")
    world.run(s=20)
    assert hosting_brokers(world, "a", "b") == []


def test_an_end_at_the_former_hosting_broker_ends_the_subscription_at_the_current_one() -> None:
    # MV-14: a has not learned of the move; the client returns to a to end the subscription
    world = uninformed("p-a-b", retention_s=3600)
    ann = world.publisher("p")
    world.run(s=1)
    program = opened(world, "a", "one")
    publish(ann, "e1")
    world.crash("a")
    program.go("b")
    world.start("a")
    world.run(s=5)
    assert hosting_brokers(world, "a", "b") == ["a", "b"]
    program.lose()
    program.connect("a")
    program.call(Unsubscribe(program.number(), "desk", program.inbox.hosting), s=5)
    world.run(s=20)
    assert hosting_brokers(world, "a", "b") == []


def test_the_end_of_a_subscription_does_not_end_another_of_its_name() -> None:
    # MV-14: the incarnation keys differ
    world, _, client, answer = stage()
    world.crash("a")
    other = opened(world, "b", "two")  # it is created although a does not answer
    client.connect("b")
    client.call(Unsubscribe(client.number(), "desk", answer.hosting), s=5)
    world.start("a")
    world.run(s=20)
    assert hosting_brokers(world, "a", "b") == ["b"]
    assert not other.inbox.is_over


@pytest.mark.parametrize("started", [False, True])
def test_the_source_releases_a_subscription_that_waits_at_the_target_only_for_a_retired_broker(
    started: bool,
) -> None:
    # R26: it retained all other logs until the subscription expired; if the retirement was a
    # mistake, nothing is lost
    world = BrokerHarness("a-p-b", "p-q", retention_s=0)
    program = opened(world, "a", "one")
    world.run(s=1)
    if not started:
        world.lose(of(ReadReply, target="a"))
    bob = world.publisher("q", "Q")
    publish(bob, "q1")
    assert program.take() == ["q1"] * started
    program.acknowledge()
    world.cut("a", "p")
    publish(bob, "q2")
    world.crash("q")
    world.crash("a")
    world.heal("a", "p")
    program.go("b")
    operator = world.client("p", "operator")
    retired = operator.call(RetireBroker(operator.number(), "q", "q"), s=5)
    assert isinstance(retired, BrokerRetired)
    world.run(s=5)
    world.start("a")
    world.run(s=60)
    assert "desk" not in world["a"].components.registry.subscriptions
    world.start("q")
    world.run(s=30)
    assert program.take() == ["q1", "q2"][started:]
