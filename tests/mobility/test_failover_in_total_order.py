"""Failover in total order: the merge does not wait for a retired PHB, nothing is late (R26, R51)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import BrokerId
from gapless.messages.clients import Gap, Order
from gapless.messages.mobility import Superseded
from gapless.messages.overlay import Announce
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.pubend_requests import ReadReply
from gapless.subscribers.cursor_state import Started
from tests.broker.harness import BrokerHarness, Q
from tests.mobility.library import opened, publish, uninformed
from tests.scenarios.brokers import of
from tests.scenarios.fork import retire


def test_skipped_events_are_a_gap_at_a_broker_that_does_not_know_the_retirement() -> None:
    world = BrokerHarness("p-a-n", "a-q-b", retention_s=3600)
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    program = opened(world, "n", "one", order=Order.TOTAL)
    world.run(s=3)
    publish(ann, "a1")
    publish(bob, "b1")
    world.run(s=2)
    assert program.take() == ["a1", "b1"]
    for here in "pan":
        for there in "qb":
            world.cut(here, there)
    world.run(s=5)
    b2 = publish(bob, "b2")
    retire(world, "q")
    world.run(s=5)
    a2 = publish(ann, "a2")
    world.run(s=3)
    assert program.take() == ["a2"]
    assert b2 < a2
    # the client fails over to the other side of the partition
    program.lose()
    world.crash("n")
    program.go("b")
    world.run(s=30)
    early = program.take()
    assert not world["b"].components.retirements.has("q")
    for here in "pa":
        for there in "qb":
            world.heal(here, there)
    world.run(s=30)
    publish(ann, "a3")
    publish(bob, "b3")
    world.run(s=5)
    found = early + program.take()
    assert "b2" not in found, "b2 is below a2, which was delivered before"
    assert [each for each in found if not each.startswith("gap")] == ["a3", "b3"]
    assert any(each.pubend == Q for each in program.of_kind(Gap))


def test_a_program_that_names_no_order_keeps_total_order_at_another_broker() -> None:
    # MV-13: the reply did not contain the order, so the program presented publisher order
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    world.run(s=1)
    opened(world, "a", "one", order=Order.TOTAL).lose()
    program = opened(world, "a", "two", order=None)
    publish(ann, "e1")
    assert program.take() == ["e1"]
    assert program.inbox.order is Order.TOTAL
    world.crash("a")
    program.go("b")
    publish(ann, "e2")
    world.run(s=3)
    assert program.take() == ["e2"]
    assert program.subscribes[-1].order is Order.TOTAL


def test_the_merge_does_not_wait_for_a_presented_position_on_an_abandoned_pubend() -> None:
    world = BrokerHarness("p-a-n", "a-q", "a-m", retention_s=3600)
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    world.run(s=3)
    assert world["m"].components.locations.broker_of(Q) == "q"
    # m restarts, cut off, and a subscription starts there; then m crashes and its client fails over
    # to n
    for peer in "apnq":
        world.cut("m", peer)
    world.restart("m")
    world.run(s=3)
    program = opened(world, "m", "one", order=Order.TOTAL)
    world.run(s=3)
    program.lose()
    world.crash("m")
    program.go("n")
    world.run(s=5)
    publish(ann, "a1")
    publish(bob, "b1")
    world.run(s=3)
    assert program.take() == ["a1", "b1"]
    # q crashes and is retired; all brokers crash, n does not return
    world.crash("q")
    world.run(s=3)
    retire(world, "q")
    world.run(s=3)
    for name in "pan":
        world.crash(name)
    program.lose()
    world.run(s=3)
    for peer in "apnq":
        world.heal("m", peer)
    for name in "pam":
        world.start(name)
    world.run(s=10)
    ann.connect()
    ann.open()
    world.run(s=3)
    assert world["m"].components.retirements.has("q")
    assert world["m"].components.announcements.get(Q) is None
    program.go("m")
    world.run(s=5)
    publish(ann, "a2")
    world.run(s=120)
    assert program.take() == ["a2"]


def test_a_hosting_broker_that_has_sent_one_gap_sends_the_next_one_too() -> None:
    world = BrokerHarness("p-a-n", "a-q", "a-m", retention_s=3600)
    world.lose(of(Superseded, target="n"))
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    program = opened(world, "n", "one", order=Order.TOTAL)
    world.run(s=3)
    publish(ann, "a1")
    publish(bob, "b1")
    world.run(s=2)
    taken = program.take()

    def retire_and_continue(label: str) -> None:
        for here in "pam":
            world.cut(here, "q")
        if label == "2":
            world.cut("n", "q")
        world.run(s=5)
        publish(bob, "b" + label)
        retire(world, "q")
        world.run(s=5)
        publish(ann, "a" + label)
        world.run(s=3)

    def heal_links() -> None:
        for here in "pam":
            world.heal(here, "q")
        if "b3" not in taken:
            world.heal("n", "q")
        world.run(s=20)

    retire_and_continue("2")
    heal_links()
    taken += program.take()
    program.acknowledge()
    # the same again at m; the former hosting broker n is cut off and does not learn of it
    program.lose()
    program.go("m")
    world.run(s=3)
    publish(ann, "a3")
    publish(bob, "b3")
    world.run(s=3)
    taken += program.take()
    for other in "pamq":
        world.cut("n", other)
    world.run(s=3)
    retire_and_continue("4")
    taken += program.take()
    program.lose()
    heal_links()
    for other in "pamq":
        world.heal("n", other)
    world.run(s=10)
    program.go("n")
    world.run(s=10)
    publish(ann, "a5")
    publish(bob, "b5")
    world.run(s=5)
    taken += program.take()
    assert "b4" not in taken
    assert [each[:1] for each in taken].count("g") == 2


@pytest.mark.parametrize("reads", [True, False])
def test_the_merge_does_not_wait_for_a_start_verification_when_the_phb_is_retired(
    reads: bool,
) -> None:
    world = uninformed("a-p-b", "p-q", retention_s=3600)
    ann = world.publisher("p")
    unknown = world.lose(of(TableDelta, TableFull, source="a"))
    program = opened(world, "a", "one", order=Order.TOTAL)
    program.lose()
    program.go("b")
    world.run(s=1)
    world.lose(of(Announce, target="b"))
    late = world.lose(of(Announce, target="a"))
    bob = world.publisher("q", "Q")
    publish(bob, "q1")
    unknown.end()
    late.end()
    world.cut("a", "p")
    world.run(s=3)
    world.heal("a", "p")
    world.run(s=5)
    publish(bob, "q2")
    cursor = world.cursor("a", "desk", Q)
    assert isinstance(cursor.start, Started)
    assert cursor.start_unconfirmed

    def is_lost(_: BrokerId, receiver: BrokerId, message: Any) -> bool:
        is_reply = isinstance(message, ReadReply) and receiver == "a"
        return is_reply and (not reads or bool(message.others or message.known))

    answers = world.lose(is_lost)
    program.lose()
    program.request_at("a")
    world.run(s=10)
    world.crash("q")
    answers.end()
    world.run(s=3)
    retire(world, "q", at="p")
    world.run(s=5)
    publish(ann, "e1")
    world.run(s=60)
    assert program.take() == ["e1"]
