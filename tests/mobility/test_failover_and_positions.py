"""Seeks, places and forced moves: a stream goes on where its client is, and only what it said is done."""

from __future__ import annotations

import pytest

from gapless.messages.clients import (
    FilterSet,
    Order,
    Refused,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
)
from gapless.messages.operating import SeekDurable, SetDurableFilter
from gapless.messages.overlay import Announce
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import Attached
from tests.broker.harness import BrokerHarness, P, Q
from tests.mobility.library import OLDEST, Program, after, opened, publish, uninformed
from tests.scenarios.brokers import Publisher, of


def test_a_seek_does_not_acknowledge_what_was_handed_out_before_it() -> None:
    # R50, P2: the place sought to counted as done, so silence behind it acknowledged e1 and e2
    world = BrokerHarness("p-a", retention_s=0)
    ann = world.publisher("p")
    world.run(s=1)
    program = opened(world, "a", "one")
    publish(ann, "e1", "e2")
    assert program.take() == ["e1", "e2"]
    assert isinstance(program.seek(after(program.inbox.prefetch.handed())), Subscribed)
    world.run(s=60)
    program.lose()
    successor = opened(world, "a", "two")
    world.run(s=2)
    assert successor.take() == ["e1", "e2"]


def test_a_seek_before_a_failover_does_not_acknowledge() -> None:
    # MV-13, R50: the place sought to went along as acknowledged, and the next process got neither event
    world = BrokerHarness("p-a-b", delta=1, retention_s=0)
    ann = world.publisher("p")
    world.run(s=1)
    program = opened(world, "a", "one")
    publish(ann, "e1", "e2")
    assert program.take() == ["e1", "e2"]
    program.seek(after(program.inbox.prefetch.handed()))
    world.crash("a")
    program.go("b")
    world.run(s=2)
    program.lose()
    successor = opened(world, "b", "two")
    world.run(s=2)
    assert successor.take() == ["e1", "e2"]


def test_a_seek_on_one_stream_acknowledges_nothing_of_another() -> None:
    # R50: a seek names all streams; P, which stayed where it was, was acknowledged by the silence behind it
    world = BrokerHarness("p-a", retention_s=0)
    ann = world.publisher("p")
    bob = world.publisher("p", "Q")
    world.run(s=1)
    program = opened(world, "a", "one")
    ann.publish("e1")
    ann.publish("e2")
    last = publish(bob, "q1")
    assert program.take() == ["e1", "e2", "q1"]
    assert program.inbox._resume.acked == ()
    program.seek(after({Q: last - 1}))
    world.run(s=1)
    assert program.take() == ["q1"]
    world.run(s=70)
    assert program.inbox._resume.acked == (), "nobody has acknowledged anything"
    assert world.released("p", P) < ann.ticks["e1"]


def test_a_seek_that_is_asked_for_right_behind_a_failover_is_done() -> None:
    # MV-13: the library asks again right behind Subscribe; no strand was there yet to be moved, so none was
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    world.run(s=1)
    program = opened(world, "a", "one")
    publish(ann, "e1")
    assert program.take() == ["e1"]
    world.crash("a")
    program.request_at("b")
    program.seek(OLDEST)
    world.run(s=5)
    assert program.take() == ["e1"]


def test_a_seek_of_an_operator_elsewhere_does_not_end_a_client_that_comes_home() -> None:
    # MV-13: the old home had counted fewer seeks, which the client took for a seek it had not heard of
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    assert program.take() == ["e1"]
    program.acknowledge(s=2)
    world.cut("a", "p")
    program.lose()
    program.go("b")
    program.lose()
    operator = world.client("b", "operator")
    back = after({P: ann.ticks["e1"] - 1})
    operator.call(SeekDurable(operator.number(), "desk", back), s=5)
    successor = opened(world, "b", "two")
    world.run(s=1)
    assert successor.take() == ["e1"]
    successor.acknowledge(s=0)
    publish(ann, "e2")
    assert successor.take() == ["e2"]
    successor.lose()
    successor.go("a")
    world.heal("a", "p")
    world.run(s=5)
    assert successor.inbox.error is None


def test_an_old_home_goes_back_to_where_an_operator_had_moved_its_client_elsewhere() -> None:
    # MV-13, P2: it was ended for the seek; without that it would go on from what the old home has as done
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1", "e2", "e3", "e4")
    program.take()
    program.acknowledge(s=2)
    world.cut("a", "p")
    program.lose()
    program.go("b")
    program.lose()
    operator = world.client("b", "operator")
    back = after({P: ann.ticks["e1"] - 1})
    operator.call(SeekDurable(operator.number(), "desk", back), s=5)
    world.run(s=2)
    successor = opened(world, "b", "two", prefetch=1)
    world.run(s=1)
    assert successor.take() == ["e1"]
    successor.lose()
    successor.go("a")
    world.heal("a", "p")
    world.run(s=5)
    taken = []
    for _ in range(6):
        taken += successor.take()
        world.run(ms=300)
    assert successor.inbox.error is None
    assert taken == ["e2", "e3", "e4"]


def test_a_client_that_fails_over_after_a_seek_to_the_oldest_loses_nothing() -> None:
    # R46, MV-13: the home did not say where the stream rests, so the client began anew elsewhere without e2
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    assert program.take() == ["e1"]
    program.acknowledge()
    program.lose()
    publish(ann, "e2")
    world.lose(of(Read, source="a"))
    operator = world.client("a", "operator")
    operator.call(SeekDurable(operator.number(), "desk", OLDEST), s=5)
    successor = opened(world, "a", "two")
    world.crash("a")
    successor.go("b")
    world.run(s=5)
    publish(ann, "e3")
    assert "e2" in successor.take()


def test_what_came_while_a_seek_was_not_on_disk_does_not_come_again() -> None:
    # R46, P3: events came of a stream whose start was not told; the next connection brought them again
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1", "e2")
    program.take()
    program.acknowledge(s=2)
    program.lose()
    world.run(s=1)
    world.stop_disk("a")
    operator = world.client("a", "operator")
    operator.request(SeekDurable(operator.number(), "desk", after({P: ann.ticks["e1"] - 1})))
    world.run(ms=100)
    successor = opened(world, "a", "two")
    world.run(s=1)
    taken = successor.take()
    world.resume_disk("a")
    world.run(s=1)
    taken += successor.take()
    successor.lose()
    successor.go("a")
    world.run(s=2)
    assert taken + successor.take() == ["e1", "e2"]


def test_an_attempt_to_fail_over_loses_no_stream_that_began_meanwhile() -> None:
    # R46, MV-13: the home made the subscription anew for the attempt's sake and began Q behind q1
    world = BrokerHarness("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "kind = 1")
    publish(ann, "e1", kind=1)
    assert program.take() == ["e1"]
    assert isinstance(program.set_filter("kind > 0"), FilterSet)
    world.run(s=1)
    program.acknowledge(s=0)
    ann.publish("e2", kind=1)
    world.run(ms=5)
    program.take()
    program.acknowledge(s=0)
    program.lose()
    program.request_in_vain_elsewhere()
    bob = world.publisher("p", "Q")
    bob.publish("q1", kind=1)
    world.run(ms=20)
    program.go("a")
    world.run(s=3)
    assert program.take() == ["q1"]


def test_a_stream_that_waits_begins_where_it_was_asked_for_after_a_lost_connection() -> None:
    # R46: once one stream had begun, the position asked for was forgotten for those that waited; q2 was lost
    world = BrokerHarness("p-a", "a-q", delta=1, retention_s=3600)
    ann = world.publisher("p")
    bob = world.publisher("q", "Q")
    asked = after({P: ann.publish("p1") - 1, Q: bob.publish("q1")})
    publish(bob, "q2")
    world.crash("q")
    program = opened(world, "a", "one", durable=False, start=asked)
    world.run(s=1)
    assert program.take() == ["p1"]
    program.lose()
    program.go("a")
    world.start("q")
    world.run(s=10)
    assert program.take() == ["q2"]


def test_a_stream_that_waits_for_the_oldest_begins_with_it_after_a_failover() -> None:
    # R46, MV-13: once another stream had a place the client showed places alone, and q1 was lost
    world = BrokerHarness("p-a-b", "a-q", delta=1, retention_s=3600)
    ann = world.publisher("p")
    bob = world.publisher("q", "Q")
    ann.publish("p1")
    publish(bob, "q1")
    world.crash("q")
    program = opened(world, "a", "one", start=OLDEST)
    world.run(s=1)
    assert program.take() == ["p1"]
    assert program.inbox.pending
    world.crash("a")
    program.go("b")
    world.start("q")
    world.run(s=10)
    assert program.take() == ["q1"]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("changes", [False, True])
def test_a_stream_that_waits_for_the_oldest_begins_with_it_after_lost_connections(
    durable: bool, changes: bool
) -> None:
    # R46: what is not durable begins anew with every connection
    world = BrokerHarness("p-a", "a-q", retention_s=3600)
    ann = world.publisher("p")
    bob = world.publisher("q", "Q")
    ann.publish("p1", number=2)
    publish(bob, "q1", number=2)
    world.crash("q")
    program = opened(world, "a", "one", "number > 0", durable=durable, start=OLDEST)
    world.run(s=1)
    assert program.take() == ["p1"]
    if changes:
        assert isinstance(program.set_filter("number > 1"), FilterSet)
    for _ in range(2):
        program.lose()
        program.go("a")
    world.start("q")
    world.run(s=10)
    assert program.take() == ["q1"]
    assert program.inbox.pending == {}


def test_a_pubend_that_nobody_had_told_of_begins_with_the_oldest_after_a_failover() -> None:
    # R46, MV-13: the oldest was asked for, of whatever there is
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", start=OLDEST)
    publish(ann, "e1")
    program.take()
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.go("b")
    world.run(s=3)
    assert program.take() == ["q1"]


@pytest.mark.parametrize("how", ["it is answered", "the answer is lost", "by an operator"])
def test_a_new_filter_does_not_begin_with_the_oldest_of_what_comes_later(how: str) -> None:
    # R47: at the old home it would begin with the latest too
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", start=OLDEST)
    publish(ann, "e1", number=1)
    program.take()
    if how == "by an operator":
        program.lose()
        operator = world.client("a", "operator")
        operator.call(SetDurableFilter(operator.number(), "desk", "number > 0"), s=5)
        program.go("a")
    else:
        program.is_deaf = how == "the answer is lost"
        program.set_filter("number > 0")
        program.is_deaf = False
    for _ in range(2):
        program.lose()
        program.go("a")
    shown = program.subscribes[-1]
    assert (shown.filter, shown.start.kind) == ("number > 0", StartKind.POSITION)
    assert shown.start.unnamed is StartKind.LATEST


@pytest.mark.parametrize("fails_over", [False, True])
def test_the_beginning_of_a_durable_subscription_is_that_of_who_made_it(fails_over: bool) -> None:
    # R46: the second program asks for the oldest, which counts only for one that is new
    world = BrokerHarness("p-a-b", "a-q", delta=1, retention_s=3600)
    ann = world.publisher("p")
    bob = world.publisher("q", "Q")
    publish(bob, "old", number=1)
    world.crash("q")
    opened(world, "a", "one", "number > 0").lose()
    program = opened(world, "a", "two", "number > 0", start=OLDEST)
    publish(ann, "p1", number=1)
    if fails_over:
        world.crash("a")
        program.go("b")
    else:
        assert isinstance(program.set_filter("number >= 1", s=60), FilterSet)
        program.lose()
        program.go("a")
    world.start("q")
    world.run(s=10)
    bob.connect()
    bob.open()
    publish(bob, "new", number=1)
    world.run(s=2)
    assert program.take() == ["p1", "new"]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_a_stream_that_only_a_new_filter_meets_begins_with_the_latest(
    lost: bool, answered: bool
) -> None:
    # R47: also where the subscription begins anew with the connection
    world = BrokerHarness("p-a-q", retention_s=3600)
    ann = world.publisher("p", "P", "number < 10")
    bob = world.publisher("q", "Q", "number > 10")
    publish(bob, "old", number=11)
    program = opened(world, "a", "one", "number = 1", durable=False, start=OLDEST)
    publish(ann, "p1", number=1)
    cut = world.lose(of(Attached, ReadReply, source="q", target="a"))
    program.is_deaf = not answered
    program.set_filter("number > 0", s=2)
    program.is_deaf = False
    if lost or not answered:
        program.lose()
        program.go("a")
    cut.end()
    world.run(s=10)
    publish(bob, "new", number=12)
    assert program.take() == ["p1", "new"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_stream_that_was_heard_of_later_and_waits_for_the_oldest_keeps_it(durable: bool) -> None:
    # R46, MV-13: the client was told of it with the filter change alone
    world = uninformed("p-a-q", "a-b", retention_s=3600)
    ann = world.publisher("p", "P")
    cut = world.lose(of(Attached, ReadReply, source="q", target="a"))
    program = opened(world, "a", "one", "number > 0", durable=durable, start=OLDEST)
    world.run(s=2)
    bob = world.publisher("q", "Q")
    publish(bob, "q1", number=5)
    publish(ann, "p1", number=5)
    assert isinstance(program.set_filter("number > 1", s=60), FilterSet)
    program.lose()
    cut.end()
    program.go("b")
    world.run(s=10)
    assert sorted(program.take()) == ["p1", "q1"]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("how", ["oldest", "time", "oldest, changed"])
def test_in_total_order_a_stream_begins_above_what_was_merged_elsewhere(
    durable: bool, how: str
) -> None:
    # R51, MV-13: q1 is older than p1, and was not there when that was handed out
    world = uninformed("p-a-q", "a-b", retention_s=3600)
    ann = world.publisher("p", "P")
    news = world.hold(of(Announce, source="q", target="a"))
    first = ann.publish("first", number=0)
    start = StartPoint(StartKind.TIME, clock=first - 5) if how == "time" else OLDEST
    wanted, order = "number > 0", Order.TOTAL
    program = opened(world, "a", "one", wanted, durable=durable, start=start, order=order)
    world.run(s=1)
    bob = world.publisher("q", "Q")
    publish(bob, "q1", number=5)
    publish(ann, "p1", number=5)
    assert program.take() == ["p1"]
    cut = world.lose(of(Attached, ReadReply, source="q", target="a"))
    news.release()
    world.run(ms=500)
    if how == "oldest, changed":
        assert isinstance(program.set_filter("number > 1", s=60), FilterSet)
    program.lose()
    cut.end()
    program.go("b")
    world.run(s=5)
    publish(ann, "p2", number=5)
    world.run(s=3)
    assert program.take() == ["p2"]


def test_in_total_order_a_stream_that_begins_without_its_client_begins_above_what_was_merged() -> (
    None
):
    # R51: how far its client had come was not on disk when its host crashed
    world = BrokerHarness("p-a-q", retention_s=3600)
    ann = world.publisher("p", "P")
    news = world.hold(of(Announce, source="q", target="a"))
    start = StartPoint(StartKind.TIME, clock=ann.publish("first", number=0) - 5)
    program = opened(world, "a", "one", "number > 0", start=start, order=Order.TOTAL)
    world.run(s=1)
    bob = world.publisher("q", "Q")
    publish(bob, "q1", number=5)
    publish(ann, "p1", number=5)
    assert program.take() == ["p1"]
    world.crash("a")
    program.inbox.link_down()
    news.end()
    world.start("a")
    world.run(s=5)
    program.go("a")
    world.run(s=5)
    publish(ann, "p2", number=5)
    world.run(s=3)
    assert program.take() == ["p2"]


def test_a_beginning_that_names_places_twice_is_refused() -> None:
    world = BrokerHarness("p-a")
    client = world.client("a", "c")
    start = StartPoint(StartKind.POSITION, ((P, 1),), unnamed=StartKind.POSITION)
    answer = client.call(Subscribe(client.number(), "desk", "TRUE", True, start, credit=9))
    assert isinstance(answer, Refused)
    assert "names no position" in answer.reason


def test_what_was_acknowledged_before_seeking_back_stays_so_over_a_failover() -> None:
    # R50, P3: the next process gets e1 and e2 again
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1", "e2")
    program.take()
    program.acknowledge()
    back = ann.ticks["e1"] - 1
    program.seek(after({P: back}))
    world.run(s=1)
    assert program.take() == ["e1", "e2"]
    program.seek(after({P: back}))
    world.crash("a")
    program.inbox.prefetch.queue.clear()  # nothing has come since it sought back
    program.inbox.prefetch.received[P] = back
    program.go("b")
    world.run(s=2)
    program.take()
    program.acknowledge(s=2)
    program.lose()
    successor = opened(world, "b", "two")
    world.run(s=2)
    assert successor.take() == []


def sought_back(ann: Publisher, program: Program) -> None:
    """Have a program acknowledge two events and seek back before them; nothing has come since."""
    publish(ann, "e1", "e2")
    program.take()
    program.acknowledge()
    back = ann.ticks["e1"] - 1
    program.seek(after({P: back}))
    program.inbox.prefetch.queue.clear()
    program.inbox.prefetch.received[P] = back


def test_what_was_acknowledged_before_seeking_back_stays_so_over_a_crash_of_the_new_home() -> None:
    # MV-13: the record of the new home is on disk, and no strand has begun on what it says
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    sought_back(ann, program)
    world.crash("a")
    world.stop_disk("b")
    program.request_at("b")
    disk = world.nodes["b"].disk
    del disk.unsynced[1:]
    disk.sync()
    world.restart("b")
    successor = opened(world, "b", "two")
    world.run(s=5)
    assert successor.take() == []


def test_what_was_acknowledged_elsewhere_before_seeking_back_stays_so_at_the_old_home() -> None:
    # MV-13, P3: the old home has heard of no acknowledgement
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    world.run(s=1)
    world.cut("a", "p")
    program.lose()
    program.go("b")
    sought_back(ann, program)
    program.lose()
    program.go("a")
    world.heal("a", "p")
    world.run(s=5)
    assert program.of_kind(Subscribed)[-2].position == ((P, ann.ticks["e1"] - 1),), "then it sought"
    assert program.take() == ["e1", "e2"]
    program.acknowledge(s=2)
    program.lose()
    successor = opened(world, "a", "two")
    world.run(s=2)
    assert successor.take() == []


def test_who_was_sought_back_and_fails_over_gets_again_what_it_sought_by_the_filter_of_then() -> (
    None
):
    # R47, MV-13: what is acknowledged is not where it goes on
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one", "number < 3")
    publish(ann, "e1", number=1)
    assert isinstance(program.set_filter("number > 3"), FilterSet)
    publish(ann, "e5", number=5)
    assert program.take() == ["e1", "e5"]
    back = ann.ticks["e1"] - 1
    program.seek(after({P: back}))
    program.acknowledge(s=0)
    program.inbox.acknowledge({P: ann.ticks["e5"]})
    world.crash("a")
    program.inbox.prefetch.queue.clear()
    program.inbox.prefetch.received[P] = back
    program.go("b")
    world.run(s=3)
    assert program.of_kind(Subscribed)[-2].position == ((P, back),), "then it sought"
    assert program.take() == ["e1", "e5"]


def test_a_pubend_that_was_opened_while_the_home_was_dead_is_seen_from_its_beginning() -> None:
    # R46, MV-13: q1 is lost; had the home come back instead, q1 would have come
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    publish(ann, "e1")
    program.take()
    world.crash("a")
    bob = world.publisher("p", "Q")
    publish(bob, "q1")
    program.go("b")
    world.run(s=3)
    assert program.take() == ["q1"]
