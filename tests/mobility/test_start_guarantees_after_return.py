"""What a client is owed at its old home of pubends on which that has begun without it (R46, MV-13)."""

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
    """A client of a that is at b, of which p knew when q1 came; a has begun on Q at q2, without it."""

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
        """Let the client leave b and go on at a."""
        self.program.lose()
        self.program.go("a")
        self.world.run(s=5)


def test_a_home_begins_where_another_one_was_known_also_if_it_has_begun_later() -> None:
    back = Return()
    back.go_back()
    publish(back.bob, "q3")
    assert back.program.take() == ["q1", "q2", "q3"]
    record = back.world.record("a", "desk")
    assert record is not None
    assert dict(record.started_after)[Q] < back.q1
    assert record.former_host_guarantees == ()


def test_that_is_kept_for_it_should_its_client_forget_what_it_has_seen() -> None:
    # the hold and the earlier beginning are on disk
    back = Return()
    back.go_back()
    assert back.program.take() == ["q1", "q2"]
    back.world.restart("a")
    back.world.run(s=3)
    successor = opened(back.world, "a", "two")
    back.world.run(s=5)
    assert successor.take() == ["q1", "q2"]


def test_nothing_of_it_comes_before_the_pubend_has_said_where_it_begins() -> None:
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
def test_a_crash_of_the_home_before_the_pubend_has_answered_changes_nothing(answered: bool) -> None:
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


def test_who_fails_over_again_before_the_pubend_has_answered_is_owed_it_elsewhere() -> None:
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


def test_what_the_log_has_lost_of_it_is_a_gap() -> None:
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


def test_in_total_order_it_begins_above_what_was_merged_elsewhere() -> None:
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


def test_a_place_that_its_client_has_there_is_not_taken_back() -> None:
    # b has heard of Q, and its client has q1 from there
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


def test_where_the_home_was_known_first_it_goes_on_as_it_was() -> None:
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


def test_an_operator_who_moves_it_meanwhile_has_the_last_word() -> None:
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


def test_an_old_form_that_is_made_anew_hands_over_where_it_had_begun_without_its_client() -> None:
    # the filter is another one since, and of b nothing was known when q1 came
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
