"""Start guarantees for pubends that the hosting broker started without its client (R46, MV-13)."""

from __future__ import annotations

import pytest

from gapless.messages.clients import Gap, Order
from gapless.messages.overlay import Announce
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.pubend_requests import ReadReply
from gapless.subscribers.cursor_state import Started
from tests.broker.harness import Q
from tests.mobility.library import opened, publish, uninformed
from tests.scenarios.brokers import Publisher, of


class Return:
    """A client is at b, which p knew when q1 was published; a started Q at q2 without the client."""

    def __init__(self, *, order: Order = Order.PUBLISHER, retention_s: int = 3600) -> None:
        world = self.world = uninformed("a-p-b", "p-c", retention_s=retention_s)
        self.ann = world.publisher("p")
        unknown = world.lose(of(TableDelta, TableFull, source="a", target="p"))
        self.program = opened(world, "a", "one", order=order)
        self.program.lose()
        self.program.go("b")
        world.run(s=1)
        self.deaf = world.lose(of(Announce, source="p", target="b"))
        late = world.lose(of(Announce, source="p", target="a"))
        self.bob = world.publisher("p", "Q")
        self.q1 = publish(self.bob, "q1")
        unknown.end()
        late.end()
        world.cut("a", "p")
        world.run(s=3)
        world.heal("a", "p")
        world.run(s=5)
        self.q2 = publish(self.bob, "q2")
        cursor = world.cursor("a", "desk", Q)
        assert isinstance(cursor.start, Started)
        assert self.q1 <= cursor.start.after < self.q2
        assert cursor.start_unconfirmed

    def go_back(self) -> None:
        """Move the client from b to a."""
        self.program.lose()
        self.program.go("a")
        self.world.run(s=5)


def test_a_start_moves_back_to_where_another_hosting_broker_was_known() -> None:
    back = Return()
    back.go_back()
    publish(back.bob, "q3")
    assert back.program.take() == ["q1", "q2", "q3"]
    record = back.world.record("a", "desk")
    assert record is not None
    assert dict(record.started_after)[Q] < back.q1
    assert record.former_host_guarantees == ()


def test_an_earlier_start_is_durable_for_a_client_that_lost_its_position() -> None:
    # the log hold and the earlier start are on disk
    back = Return()
    back.go_back()
    assert back.program.take() == ["q1", "q2"]
    back.world.restart("a")
    back.world.run(s=3)
    successor = opened(back.world, "a", "two")
    back.world.run(s=5)
    assert successor.take() == ["q1", "q2"]


def test_no_event_is_delivered_before_the_start_is_verified() -> None:
    back = Return()
    answers = back.world.hold(of(ReadReply, source="p", target="a"))
    back.program.lose()
    back.program.request_at("a")
    back.world.run(s=20)
    assert back.program.inbox.is_answered
    assert str(Q) in back.program.inbox.pending
    assert back.program.take() == []
    answers.end()
    back.world.run(s=10)
    assert back.program.take() == ["q1", "q2"]


@pytest.mark.parametrize("answered", [False, True])
def test_a_crash_during_the_start_verification_does_not_lose_the_guarantee(answered: bool) -> None:
    back = Return()
    world, program = back.world, back.program
    answers = world.lose(of(ReadReply, source="p", target="a"))
    program.lose()
    if not answered:
        world.stop_disk("a")
    program.request_at("a")
    world.run(s=20)
    assert program.inbox.is_answered == answered
    world.restart("a")
    answers.end()
    world.run(s=5)
    program.lose()
    program.go("a")
    world.run(s=5)
    assert program.take() == ["q1", "q2"]


def test_a_failover_during_the_start_verification_keeps_the_guarantee() -> None:
    back = Return()
    world, program = back.world, back.program
    world.lose(of(ReadReply, source="p", target="a"))
    program.lose()
    program.request_at("a")
    world.run(s=20)
    assert program.inbox.is_answered
    assert Q not in program.inbox.prefetch.received
    world.crash("a")
    program.go("c")
    world.run(s=5)
    assert program.take() == ["q1", "q2"]


def test_released_events_of_a_start_guarantee_are_a_gap() -> None:
    back = Return(retention_s=0)
    world = back.world
    world.run(s=4_000)
    assert world.released("p", Q) >= back.q1
    back.go_back()
    publish(back.bob, "q3")
    (gap,) = back.program.of_kind(Gap)
    assert gap.pubend == Q
    assert gap.low <= back.q1 <= gap.high < back.q2
    assert back.program.take() == [f"gap {gap.low}-{gap.high}", "q2", "q3"]


def test_in_total_order_a_guaranteed_start_is_above_the_ticks_merged_at_another_broker() -> None:
    back = Return(order=Order.TOTAL)
    publish(back.ann, "e1")
    assert back.program.take() == ["e1"]
    q3 = publish(back.bob, "q3")
    back.go_back()
    publish(back.ann, "e2")
    publish(back.bob, "q4")
    back.world.run(s=5)
    found = back.program.take()
    assert found == ["q3", "e2", "q4"]
    assert back.world.started_after("a", "desk", Q) is not None
    assert q3 > back.q2


def test_a_position_of_the_client_is_not_moved_back_by_a_start_guarantee() -> None:
    # b knows Q, and its client received q1 there
    back = Return()
    back.deaf.end()
    back.world.cut("p", "b")
    back.world.run(s=3)
    back.world.heal("p", "b")
    back.world.run(s=5)
    assert back.program.take() == ["q1", "q2"]
    back.go_back()
    publish(back.bob, "q3")
    assert back.program.take() == ["q3"]


def test_the_start_does_not_change_if_this_hosting_broker_was_known_first() -> None:
    world = uninformed("a-p-b", retention_s=3600)
    program = opened(world, "a", "one")
    world.run(s=1)
    program.lose()
    program.go("b")
    world.run(s=1)
    world.lose(of(Announce, source="p", target="b"))
    bob: Publisher = world.publisher("p", "Q")
    publish(bob, "q1")
    base = world.started_after("a", "desk", Q)
    program.lose()
    program.go("a")
    world.run(s=5)
    assert program.take() == ["q1"]
    assert world.started_after("a", "desk", Q) == base


def test_an_operator_seek_overrides_a_pending_start_verification() -> None:
    back = Return()
    world, program = back.world, back.program
    answers = world.hold(of(ReadReply, source="p", target="a"))
    program.lose()
    program.request_at("a")
    world.run(s=20)
    program.lose()
    world.cursor("a", "desk", Q).move_to(back.q2)
    answers.end()
    world.run(s=5)
    assert world.cursor("a", "desk", Q).start.acked == back.q2
    program.go("a")
    world.run(s=5)
    assert program.take() == []


def test_a_replaced_subscription_keeps_a_start_that_its_client_does_not_know() -> None:
    # the filter has changed since, and p knew nothing of b when q1 was published
    world = uninformed("a-p-b", retention_s=3600)
    program = opened(world, "a", "one", "number > 0")
    world.run(s=1)
    program.lose()
    world.lose(of(Announce, source="p", target="b"))
    world.lose(of(TableDelta, TableFull, source="b", target="p"))
    bob = world.publisher("p", "Q")
    publish(bob, "q1", number=2)
    program.go("b")
    program.set_filter("number > 1")
    world.run(s=1)
    program.lose()
    program.go("a")
    world.run(s=5)
    assert program.take() == ["q1"]
