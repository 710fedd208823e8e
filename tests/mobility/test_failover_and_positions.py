"""Seeks, positions and forced moves: the client's position holds; only clients acknowledge."""

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


def test_a_seek_does_not_acknowledge_events_handed_out_before_it() -> None:
    # R50, P2: the target of the seek counted as acknowledged, so silence after it acknowledged e1
    # and e2
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
    # MV-13, R50: the target of the seek was presented as acknowledged, and the next process got
    # neither event
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
    # R50: a seek names all streams; the silence after P, which did not move, acknowledged P
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
    assert program.inbox._resume.acked == (), "nothing was acknowledged"
    assert world.released("p", P) < ann.ticks["e1"]


def test_a_seek_right_after_a_failover_takes_effect() -> None:
    # MV-13: the library repeats the seek right after Subscribe; no cursor existed yet, so none
    # moved
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


def test_an_operator_seek_at_another_broker_does_not_end_a_client_that_returns() -> None:
    # MV-13: the source had counted fewer seeks, which the client took for a seek unknown to it
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


def test_a_former_hosting_broker_resumes_at_the_target_of_an_operator_seek_at_another_broker() -> (
    None
):
    # MV-13, P2: the seek ended it; otherwise it would continue from the acknowledged tick of the
    # source
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


def test_a_client_that_fails_over_after_a_seek_to_the_earliest_loses_no_event() -> None:
    # R46, MV-13: the hosting broker did not send the position, so the client started elsewhere
    # without e2
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


def test_events_delivered_while_a_seek_was_not_on_disk_are_not_delivered_again() -> None:
    # R46, P3: events came before the start was confirmed; the next connection brought them again
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


def test_a_failed_failover_loses_no_event_of_a_stream_that_started_meanwhile() -> None:
    # R46, MV-13: the attempt made the hosting broker replace the subscription, and it started Q
    # after q1
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


def test_a_pending_stream_keeps_its_start_position_after_a_lost_connection() -> None:
    # R46: once one stream had started, the position was forgotten for the pending ones; q2 was lost
    world = BrokerHarness("p-a", "a-q", delta=1, retention_s=3600)
    ann = world.publisher("p")
    bob = world.publisher("q", "Q")
    start = after({P: ann.publish("p1") - 1, Q: bob.publish("q1")})
    publish(bob, "q2")
    world.crash("q")
    program = opened(world, "a", "one", durable=False, start=start)
    world.run(s=1)
    assert program.take() == ["p1"]
    program.lose()
    program.go("a")
    world.start("q")
    world.run(s=10)
    assert program.take() == ["q2"]


def test_a_stream_pending_at_the_earliest_starts_there_after_a_failover() -> None:
    # R46, MV-13: once another stream had a position the client presented positions only, and q1 was
    # lost
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
def test_a_stream_pending_at_the_earliest_starts_there_after_lost_connections(
    durable: bool, changes: bool
) -> None:
    # R46: a nondurable subscription starts again with every connection
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


def test_a_pubend_first_announced_after_a_failover_starts_at_the_earliest() -> None:
    # R46, MV-13: the start at EARLIEST applies to every pubend
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
def test_a_new_filter_does_not_start_at_the_earliest_of_pubends_created_later(how: str) -> None:
    # R47: without the failover it would start at the latest too
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
def test_the_start_point_of_a_durable_subscription_is_that_of_its_creation(
    fails_over: bool,
) -> None:
    # R46: the second program requests EARLIEST, which applies only to a new subscription
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
def test_a_stream_that_only_a_new_filter_matches_starts_at_the_latest(
    lost: bool, answered: bool
) -> None:
    # R47: also if the subscription starts again with the connection
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
def test_a_stream_announced_later_and_pending_at_the_earliest_keeps_its_start(
    durable: bool,
) -> None:
    # R46, MV-13: the client learned of the stream only by the filter change
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
def test_in_total_order_a_stream_starts_above_the_ticks_merged_at_another_broker(
    durable: bool, how: str
) -> None:
    # R51, MV-13: q1 is older than p1, and was not known when p1 was delivered
    world = uninformed("p-a-q", "a-b", retention_s=3600)
    ann = world.publisher("p", "P")
    announcements = world.hold(of(Announce, source="q", target="a"))
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
    announcements.release()
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


def test_in_total_order_a_stream_that_starts_without_its_client_starts_above_the_merged_ticks() -> (
    None
):
    # R51: the progress of its client was not on disk when the SHB crashed
    world = BrokerHarness("p-a-q", retention_s=3600)
    ann = world.publisher("p", "P")
    announcements = world.hold(of(Announce, source="q", target="a"))
    start = StartPoint(StartKind.TIME, clock=ann.publish("first", number=0) - 5)
    program = opened(world, "a", "one", "number > 0", start=start, order=Order.TOTAL)
    world.run(s=1)
    bob = world.publisher("q", "Q")
    publish(bob, "q1", number=5)
    publish(ann, "p1", number=5)
    assert program.take() == ["p1"]
    world.crash("a")
    program.inbox.link_down()
    announcements.end()
    world.start("a")
    world.run(s=5)
    program.go("a")
    world.run(s=5)
    publish(ann, "p2", number=5)
    world.run(s=3)
    assert program.take() == ["p2"]


def test_a_start_point_with_two_positions_on_one_pubend_is_refused() -> None:
    world = BrokerHarness("p-a")
    client = world.client("a", "c")
    start = StartPoint(StartKind.POSITION, ((P, 1),), unnamed=StartKind.POSITION)
    answer = client.call(Subscribe(client.number(), "desk", "TRUE", True, start, credit=9))
    assert isinstance(answer, Refused)
    assert "names no position" in answer.reason


def test_acknowledgements_before_a_seek_back_survive_a_failover() -> None:
    # R50, P3: otherwise the next process gets e1 and e2 again
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
    program.inbox.prefetch.queue.clear()  # nothing has arrived since the seek
    program.inbox.prefetch.received[P] = back
    program.go("b")
    world.run(s=2)
    program.take()
    program.acknowledge(s=2)
    program.lose()
    successor = opened(world, "b", "two")
    world.run(s=2)
    assert successor.take() == []


def acknowledge_and_seek_back(ann: Publisher, program: Program) -> None:
    """Let a program acknowledge two events and seek back before them, before anything arrives."""
    publish(ann, "e1", "e2")
    program.take()
    program.acknowledge()
    back = ann.ticks["e1"] - 1
    program.seek(after({P: back}))
    program.inbox.prefetch.queue.clear()
    program.inbox.prefetch.received[P] = back


def test_acknowledgements_before_a_seek_back_survive_a_crash_of_the_target() -> None:
    # MV-13: the record of the target is on disk, and no cursor has started from it
    world = BrokerHarness("p-a-b", delta=1, retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    acknowledge_and_seek_back(ann, program)
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


def test_acknowledgements_at_the_target_before_a_seek_back_hold_at_the_source() -> None:
    # MV-13, P3: the source has received no acknowledgement
    world = uninformed("a-p-b", retention_s=3600)
    ann = world.publisher("p")
    program = opened(world, "a", "one")
    world.run(s=1)
    world.cut("a", "p")
    program.lose()
    program.go("b")
    acknowledge_and_seek_back(ann, program)
    program.lose()
    program.go("a")
    world.heal("a", "p")
    world.run(s=5)
    assert program.of_kind(Subscribed)[-2].position == ((P, ann.ticks["e1"] - 1),), (
        "the seek followed"
    )
    assert program.take() == ["e1", "e2"]
    program.acknowledge(s=2)
    program.lose()
    successor = opened(world, "a", "two")
    world.run(s=2)
    assert successor.take() == []


def test_after_a_seek_back_and_a_failover_events_match_the_filter_of_their_tick() -> None:
    # R47, MV-13: the acknowledged tick is not the position
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
    assert program.of_kind(Subscribed)[-2].position == ((P, back),), "the seek followed"
    assert program.take() == ["e1", "e5"]


def test_a_pubend_created_while_the_hosting_broker_was_down_is_delivered_from_its_first_event() -> (
    None
):
    # R46, MV-13: q1 was lost; if the hosting broker had returned, q1 would have been delivered
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
