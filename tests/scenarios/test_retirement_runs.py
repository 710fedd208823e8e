"""Retirement: no merge waits for a retired broker, and what holds if it returns after all (R26)."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    Gap,
    Order,
    PositionTuple,
    Progress,
    Seek,
    Stalled,
    StartKind,
    StartPoint,
    Subscribe,
)
from gapless.messages.overlay import Retire
from gapless.messages.pubend_requests import LeavePubend
from gapless.messages.records import RetirementRecord
from tests.broker.harness import BrokerHarness, P, Q
from tests.scenarios.brokers import Subscriber, shb
from tests.scenarios.fork import Fork, acknowledge, at, retire


def positions(x: Subscriber) -> list[tuple[Tick, PubendId]]:
    """Return the positions of the events that a client received, in order."""
    return [(each.tick, pubend) for pubend, each in x.publications]


def fail_over(x: Subscriber, broker: str, start: StartPoint, acked: PositionTuple) -> None:
    """Let a client continue at another broker."""
    hosting = x.hosting.next_epoch()
    x.connect(broker)
    number, credit = x.number(), 1_000
    x.request(
        Subscribe(number, "x", "TRUE", True, start, x.order, credit, hosting=hosting, acked=acked)
    )


# --- no merge waits -------------------------------------------------------------------------------


def test_total_order_does_not_wait_for_a_retired_broker() -> None:
    # R26, R51
    fork = Fork()
    fork.lose_q()
    fork.ann.publish("a2")
    fork.world.run(s=60)
    assert fork.x.events == ["a1", "b1", "a2"]
    (stalled,) = fork.x.of_kind(Stalled)
    assert (stalled.pubend, stalled.excluded) == (Q, True)


def test_an_excluded_stream_ignores_events_that_are_still_in_transit() -> None:
    # a late event may be below the position of the other streams
    fork = Fork()
    fork.lose_q()
    cursor = fork.world.cursor("n", "x", Q)
    merge_exclusion = cursor.merge_exclusion
    assert (merge_exclusion.is_excluded, merge_exclusion.is_in_effect, cursor.is_live) == (
        True,
        True,
        False,
    )
    assert not cursor.catch_up.is_reading


def test_a_subscription_that_has_caught_up_is_not_slow_because_of_an_excluded_stream() -> None:
    fork = Fork(durable=False, slow_consumer_timeout_s=20)
    fork.lose_q()
    world = fork.world
    world["n"].components.registry.slow_consumers.fell_behind(world.subscription("n", "x"))
    world.run(s=60)
    fork.ann.publish("a2")
    world.run(s=5)
    assert fork.x.events == ["a1", "b1", "a2"]


def test_total_order_waits_for_a_broker_that_is_down_but_not_retired() -> None:
    fork = Fork()
    fork.world.crash("q")
    fork.world.run(s=3)
    fork.ann.publish("a2")
    fork.world.run(s=60)
    assert fork.x.events == ["a1", "b1"]


def test_total_order_does_not_wait_if_all_brokers_restart_before_the_feed_is_lost() -> None:
    # n learns of the retirement while it is fed; then no broker announces Q any more
    fork = Fork()
    world = fork.world
    world.crash("q")
    world["n"].components.retirements.retire(shb("q"))
    world.happen("n", None)
    world.run(ms=300)
    assert world["n"].components.subends.guaranteed[Q].feeder is not None
    for name in "pamn":
        world.crash(name)
    for name in "pamn":
        world.start(name)
    world.run(s=10)
    fork.ann.connect()
    fork.ann.open()
    fork.x.come_back()
    world.run(s=5)
    fork.ann.publish("a2")
    world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]
    assert world["n"].components.locations.broker_of(Q) is None, "the name is free"


def test_a_subscription_made_after_a_retirement_does_not_wait() -> None:
    fork = Fork(retention_s=3_600)
    fork.lose_q()
    position = ((P, fork.ann.ticks["a1"]), (Q, fork.bob.ticks["b1"]))
    start = StartPoint(StartKind.POSITION, position)
    world = fork.world
    y = world.subscriber("m", "y", "TRUE", order=Order.TOTAL, start=start)
    earliest = StartPoint(StartKind.EARLIEST)
    z = world.subscriber("m", "z", "TRUE", order=Order.TOTAL, durable=True, start=earliest)
    world.run(s=10)
    fork.ann.publish("a2")
    world.run(s=10)
    assert (y.events, z.events) == (["a2"], ["a1", "a2"])


def test_the_request_to_leave_a_retired_broker_is_not_repeated_for_ever() -> None:
    # R26, R43
    world = BrokerHarness("p-a-n", "a-q")
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=3)
    world.crash("q")
    world.run(s=3)
    retire(world, "q")
    x.end()
    world.run(s=120)
    since = world.now
    world.run(s=100)
    assert world.sent_over(LeavePubend, "n", "a", since) == []


def test_a_pending_request_to_leave_ends_when_the_broker_is_retired() -> None:
    world = BrokerHarness("p-a-n", "a-q")
    world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=3)
    world.crash("q")
    x.end()
    world.run(s=120)
    assert world.sent_over(LeavePubend, "n", "a")
    retire(world, "q")
    world.run(s=10)
    since = world.now
    world.run(s=100)
    assert world.sent_over(LeavePubend, "n", "a", since) == []
    assert ("join", "Q") not in world.nodes["n"].disk.records


# --- the pubends of a broker that returned --------------------------------------------------------


def test_in_publisher_order_a_retired_broker_that_returns_delivers_the_rest_once_and_in_order() -> (
    None
):
    fork = Fork(order=Order.PUBLISHER, retention_s=0)
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.ann.publish("a2")
    fork.world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]
    fork.world.heal("a", "q")
    fork.world.run(s=10)
    fork.bob.publish("b3")
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "a2", "b2", "b3"]
    assert fork.x.gaps == []


def test_in_publisher_order_a_restart_of_the_shb_in_between_loses_nothing() -> None:
    fork = Fork(order=Order.PUBLISHER, retention_s=0)
    fork.bob.publish("b2")
    fork.lose_q()
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.x.come_back()
    fork.world.run(s=30)
    fork.world.start("q")
    fork.world.run(s=10)
    fork.bob.connect()
    fork.bob.open()
    fork.bob.publish("b3")
    fork.world.run(s=10)
    events = [each for each in fork.x.events if each.startswith("b")]
    assert events in (["b1", "b2", "b3"], ["b1", "b2", "b2", "b3"]), "b2 was not acknowledged"
    assert fork.x.gaps == []


def test_in_total_order_late_events_are_a_gap_and_the_merge_continues() -> None:
    # R51: a pubend that appears later starts above the merge position
    fork = Fork()
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=10)
    fork.bob.publish("b3")
    fork.world.heal("a", "q")
    fork.world.run(s=30)
    fork.ann.publish("a3")
    fork.bob.publish("b4")
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "a2", "b3", "a3", "b4"]
    assert positions(fork.x) == sorted(positions(fork.x))
    (gap,) = fork.x.gaps
    assert gap.pubend == Q
    assert gap.low <= fork.bob.ticks["b2"] <= gap.high == a2
    assert [each.excluded for each in fork.x.of_kind(Stalled)] == [True, False]


def test_in_total_order_no_event_is_lost_if_nothing_was_merged_meanwhile() -> None:
    fork = Fork()
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=10)
    fork.world.heal("a", "q")
    fork.world.run(s=30)
    fork.ann.publish("a2")
    fork.world.run(s=10)
    assert (fork.x.events, fork.x.gaps) == (["a1", "b1", "b2", "a2"], [])


def test_total_order_waits_again_for_a_broker_that_had_returned() -> None:
    fork = Fork()
    fork.cut_q_off()
    fork.ann.publish("a2")
    fork.world.run(s=5)
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.world.cut("a", "q")
    fork.world.run(s=5)
    fork.ann.publish("a3")
    fork.world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    assert fork.x.events == ["a1", "b1", "a2", "a3"]


def test_in_total_order_a_restart_of_the_shb_while_the_phb_is_retired_keeps_the_exclusion() -> None:
    fork = Fork()
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    assert fork.x.events == ["a1", "b1", "a2"]
    fork.x.acknowledge(P, a2)
    fork.world.run(s=2)
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.bob.publish("b3")
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.x.come_back()
    fork.world.run(s=20)
    fork.ann.publish("a3")
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "a2", "b3", "a3"]
    (gap,) = fork.x.gaps
    assert (gap.pubend, gap.high) == (Q, a2)
    assert gap.low <= fork.bob.ticks["b2"]


def test_a_client_that_was_disconnected_all_the_time_misses_nothing() -> None:
    # nothing was merged without the stream; unacknowledged events come again, of all streams
    fork = Fork()
    fork.bob.publish("b2")
    fork.ann.publish("a2")
    fork.world.run(s=2)
    fork.x.leave()
    fork.world.run(s=2)
    fork.cut_q_off()
    fork.bob.publish("b3")
    fork.ann.publish("a3")
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.x.come_back()
    fork.world.run(s=20)
    assert fork.x.events == ["a1", "b1", "b2", "a2", "b2", "a2", "b3", "a3"]
    assert fork.x.gaps == []


def test_unacknowledged_events_below_a_gap_are_delivered_again() -> None:
    fork = Fork()
    b2 = fork.bob.publish("b2")
    fork.world.run(s=2)
    fork.cut_q_off()
    fork.bob.publish("b3")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    fork.x.acknowledge(P, a2)
    fork.world.run(s=2)
    fork.x.leave()
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.x.come_back()
    fork.world.run(s=20)
    assert fork.x.events == ["a1", "b1", "b2", "a2", "b2"]
    (gap,) = fork.x.gaps
    assert b2 < gap.low <= fork.bob.ticks["b3"] <= gap.high == a2


def test_a_client_that_resumes_while_the_phb_is_retired_gets_gaps_for_all_missed_events() -> None:
    # it receives a2 again without b2, which it has not acknowledged: so b2 is too late
    fork = Fork()
    b2 = fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=2)
    fork.x.leave()
    fork.world.run(s=2)
    fork.cut_q_off()
    fork.x.come_back()
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "b2", "a2", "a2"]
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.bob.publish("b3")
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "b2", "a2", "a2", "b3"]
    (gap,) = fork.x.gaps
    assert gap.low <= b2 <= gap.high == a2


def test_a_seek_back_over_the_gap_delivers_its_events() -> None:
    fork = Fork(retention_s=3_600)
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    fork.x.acknowledge(P, a2)
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    assert len(fork.x.gaps) == 1
    back = StartPoint(StartKind.POSITION, ((P, fork.ann.ticks["a1"]), (Q, fork.bob.ticks["b1"])))
    fork.x.request(Seek(fork.x.number(), "x", back))
    fork.world.run(s=10)
    assert fork.x.events == ["a1", "b1", "a2", "b2", "a2"]
    assert len(fork.x.gaps) == 1


def test_a_gap_that_was_lost_with_the_shb_is_sent_again() -> None:
    fork = Fork()
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    fork.x.acknowledge(P, a2)
    fork.world.run(s=2)
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    assert [each.high for each in fork.x.gaps] == [a2]
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.x.come_back()
    fork.world.run(s=20)
    assert [each.high for each in fork.x.gaps] == [a2, a2]
    assert fork.x.events == ["a1", "b1", "a2"]
    fork.x.acknowledge(Q, a2)
    fork.world.run(s=2)
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.x.come_back()
    fork.world.run(s=20)
    assert len(fork.x.gaps) == 2


def test_the_merge_does_not_continue_before_the_exclusion_is_on_disk() -> None:
    # otherwise after a crash n would not know that events of q are too late
    fork = Fork()
    world = fork.world
    world.crash("q")
    world.run(s=3)
    fork.ann.publish("a2")
    world.run(s=3)
    world.stop_disk("n")
    retire(world, "q")
    world.run(s=10)
    assert fork.x.events == ["a1", "b1"]
    world.crash("n")
    world.start("n")
    world.run(s=5)
    fork.x.come_back()
    world.run(s=20)
    assert fork.x.events == ["a1", "b1", "a2"], "a sends the retirement again"


def test_a_client_that_failed_over_meanwhile_gets_the_gap_at_its_new_broker() -> None:
    fork = Fork(durable=False)
    fork.cut_q_off()
    fork.bob.publish("b2")
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    assert fork.x.events == ["a1", "b1", "a2"]
    fork.world.heal("a", "q")
    fork.x.leave()
    fork.world.run(s=20)
    position = ((P, a2), (Q, fork.bob.ticks["b1"]))
    fork.x.come_back(StartPoint(StartKind.POSITION, position), broker="m")
    fork.world.run(s=20)
    fork.bob.publish("b3")
    fork.world.run(s=5)
    assert fork.x.events == ["a1", "b1", "a2", "b3"]
    assert fork.x.gaps == [Gap("x", Q, fork.bob.ticks["b1"] + 1, a2)]


def test_a_client_is_notified_again_of_an_exclusion_when_its_shb_has_restarted() -> None:
    # otherwise the client would advance its position on that stream and hide the lost events
    fork = Fork()
    fork.cut_q_off()
    stood_at = fork.world.cursor("n", "x", Q).position
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=5)
    fork.world.restart("n")
    fork.world.run(s=5)
    fork.x.come_back(at(a2, stood_at))
    fork.world.run(s=20)
    assert [each.excluded for each in fork.x.of_kind(Stalled)] == [True, True]


def test_an_exclusion_is_sent_before_the_events_beyond_it() -> None:
    # the connection may be lost in between
    fork = Fork(durable=False)
    fork.world.crash("q")
    fork.world.run(s=3)
    fork.ann.publish("a2")
    fork.world.run(s=5)
    assert fork.x.events == ["a1", "b1"]
    seen = len(fork.x.notices)
    retire(fork.world, "q")
    fork.world.run(s=5)
    kinds = [type(each) for each in fork.x.notices[seen:]]
    assert kinds.index(Stalled) < kinds.index(Delivery)


def test_a_position_just_below_the_last_event_of_another_stream_causes_no_gap() -> None:
    # in total order a client has passed Q up to the tick before, as Q follows P there
    fork = Fork(durable=False, retention_s=3_600)
    fork.world.run(s=1)
    a2 = fork.ann.publish("a2")
    fork.world.run(s=3)
    fork.cut_q_off()
    fork.world.heal("a", "q")
    fork.world.run(s=20)
    fork.x.leave()
    fork.world.run(s=1)
    fork.x.come_back(at(a2, a2 - 1), broker="m")
    fork.world.run(s=10)
    assert fork.x.gaps == []


def test_a_crash_after_a_gap_does_not_cause_another_one() -> None:
    fork = Fork(retention_s=3_600)
    world = fork.world
    fork.cut_q_off()
    fork.ann.publish("a2")
    world.run(s=5)
    world.stop_disk("n")
    world.heal("a", "q")
    world.run(s=5)
    fork.bob.publish("b2")
    world.run(s=1)
    a3 = fork.ann.publish("a3")
    world.run(s=3)
    assert len(fork.x.gaps) == 1
    world.crash("n")
    world.start("n")
    world.run(s=10)
    fork.x.come_back(at(a3, a3 - 1))
    world.run(s=10)
    assert (fork.x.events, len(fork.x.gaps)) == (["a1", "b1", "a2", "b2", "a3"], 1)


def test_late_events_stay_late_after_a_second_retirement() -> None:
    # its client has forgotten the gap, and has acknowledged later events of the other stream
    for is_disconnected in (False, True):
        fork = Fork(retention_s=3_600)
        world = fork.world
        fork.cut_q_off()
        fork.bob.publish("b2")
        world.run(s=1)
        a2 = fork.ann.publish("a2")
        world.run(s=5)
        fork.x.acknowledge(P, a2)
        world.run(s=2)
        world.heal("a", "q")
        world.run(s=20)
        if is_disconnected:
            fork.x.leave()
        fork.cut_q_off()
        fork.x.leave()
        world.run(s=3)
        world.heal("a", "q")
        world.run(s=20)
        fork.x.come_back()
        world.run(s=20)
        assert fork.x.events == ["a1", "b1", "a2"]
        assert [each.high for each in fork.x.gaps] == [a2, a2]


def test_the_merge_does_not_go_back_if_the_shb_crashes_after_a_seek_on_an_excluded_stream() -> None:
    fork = Fork(retention_s=3_600)
    world, a1 = fork.world, fork.ann.ticks["a1"]
    fork.bob.publish("b2")
    world.run(s=1)
    a2 = fork.ann.publish("a2")
    world.run(s=1)
    fork.cut_q_off()
    world.stop_disk("n")
    seen = len(fork.x.events)
    fork.x.request(Seek(fork.x.number(), "x", at(a1, a1)))
    world.run(s=10)
    assert fork.x.events[seen:] == [], "the merge exclusion is not on disk"
    world.resume_disk("n")
    world.run(s=3)
    assert fork.x.events[seen:] == ["a2"]
    world.restart("n")
    world.heal("a", "q")
    world.run(s=20)
    fork.x.come_back(at(a2, a1))
    world.run(s=20)
    assert (fork.x.events[seen:], [each.high for each in fork.x.gaps]) == (["a2"], [a2])


def test_progress_of_a_quiet_stream_does_not_make_another_one_late() -> None:
    # no event of P was delivered meanwhile, so none of Q is too late, also if the client resumes
    fork = Fork(progress_ms=1_000)
    world = fork.world
    world.cut("a", "q")
    world.run(s=3)
    fork.bob.publish("b2")
    world.run(s=10)
    retire(world, "q")
    world.run(s=3)
    places = dict(place for each in fork.x.of_kind(Progress) for place in each.position)
    assert places[P] > fork.bob.ticks["b2"] > places[Q]
    fork.x.leave()
    world.run(s=2)
    fork.x.come_back(at(places[P], places[Q], merged=fork.bob.ticks["b1"]))
    world.run(s=3)
    world.heal("a", "q")
    world.run(s=20)
    fork.ann.publish("a2")
    world.run(s=5)
    assert (fork.x.events, fork.x.gaps) == (["a1", "b1", "b2", "a2"], [])


def test_unacknowledged_events_are_not_late_after_a_failover_without_a_position() -> None:
    # q was retired and had returned before; later events come from its log as always
    fork = Fork(retention_s=3_600)
    world, x = fork.world, fork.x
    acked = ((P, fork.ann.ticks["a1"]), (Q, fork.bob.ticks["b1"]))
    fork.cut_q_off()
    world.heal("a", "q")
    world.run(s=20)
    fork.bob.publish("b2")
    world.run(s=1)
    a2 = fork.ann.publish("a2")
    world.run(s=2)
    world.crash("n")
    world.run(s=3)
    fail_over(x, "m", at(a2, a2 - 1), acked)
    world.run(s=5)
    x.leave()
    world.run(s=2)
    x.come_back(broker="m")
    world.run(s=10)
    assert (x.events, x.gaps) == (["a1", "b1", "b2", "a2", "b2", "a2"], [])


def test_a_pubend_that_could_not_be_left_is_joined_again_when_its_broker_returns() -> None:
    fork = Fork(durable=False, order=Order.PUBLISHER)
    fork.cut_q_off()
    fork.x.end()
    fork.world.run(s=120)
    assert ("join", "Q") not in fork.world.nodes["n"].disk.records
    fork.world.heal("a", "q")
    fork.world.run(s=10)
    y = fork.world.subscriber("n", "y", "TRUE", durable=True)
    fork.world.run(s=10)
    fork.bob.publish("b2")
    fork.world.run(s=10)
    assert y.events == ["b2"]


# --- an SHB that returned -------------------------------------------------------------------------


def test_an_shb_that_was_retired_by_mistake_is_served_when_it_returns() -> None:
    # R26
    world = BrokerHarness("p-a-n", retention_s=0)
    ann = world.publisher("p")
    world.cut("a", "n")
    world.run(s=3)
    retire(world, "n")
    world.heal("a", "n")
    world.run(s=5)
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=60)
    ann.publish("e1")
    world.run(s=60)
    assert x.events == ["e1"]


def test_released_events_of_a_returned_shb_are_a_gap_and_the_rest_is_delivered_once() -> None:
    # R55
    world = BrokerHarness("p-a-n", "a-b", retention_s=0)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    y = world.subscriber("b", "y", "TRUE", durable=True)
    world.run(s=3)
    ann.publish("e1")
    world.run(s=1)
    acknowledge(x, P=ann)
    world.run(s=1)
    world.cut("a", "n")
    world.run(s=3)
    ann.publish("e2")
    world.run(s=1)
    retire(world, "n")
    acknowledge(y, P=ann)
    world.run(s=30)
    assert world.released("p", P) >= ann.ticks["e2"]
    world.restart("a")  # routers have the events in their caches
    world.run(s=5)
    e3 = ann.publish("e3")
    world.run(s=1)
    world.heal("a", "n")
    world.run(s=30)
    ann.publish("e4")
    world.run(s=10)
    assert x.events == ["e1", "e3", "e4"]
    (gap,) = x.gaps
    assert gap.low <= ann.ticks["e2"] <= gap.high < e3
    assert world.member("p", P, "n") is not None


def test_a_restarted_broker_that_gets_an_old_retirement_again_knows_of_the_return() -> None:
    # b was cut off and knows only the retirement; p has lost everything that is not on disk
    world = BrokerHarness("p-a-n", "p-b", retention_s=0)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=3)
    world.cut("a", "n")
    world.run(s=3)
    retire(world, "n")
    world.run(s=3)
    world.cut("p", "b")
    world.heal("a", "n")
    world.run(s=20)
    assert world.member("p", P, "n") is not None
    gaps = x.gaps  # of ticks released while it was retired
    x.leave()
    world.run(s=1)
    world.cut("p", "a")
    world.restart("p")
    world.heal("p", "b")
    world.run(s=5)
    ann.connect()
    ann.open()
    ann.publish("e1")
    world.run(s=20)
    assert world.member("p", P, "n") is not None
    assert "n" not in {each.broker for each in world["b"].components.retirements.all()}, (
        "b learned it from p"
    )
    world.heal("p", "a")
    world.run(s=20)
    x.come_back()
    world.run(s=10)
    assert (x.events, x.gaps) == (["e1"], gaps)


def test_a_reachable_broker_contradicts_its_retirement_at_once() -> None:
    # the operator calls a broker that has no session with it
    world = BrokerHarness("p-a-n", "a-b", "b-c", delta=0)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=3)
    world["a"].components.retirements.retire(shb("n"))
    world.happen("a", None)
    world.run(s=2)
    assert not any(
        world[name].components.retirements.has("n") for name in ("p", "a", "b", "c", "n")
    )
    assert world.sent_over(Retire, "n", "a")
    assert isinstance(
        world.nodes["p"].disk.records[RetirementRecord.key_of(shb("n"))], RetirementRecord
    )
    world.run(s=10)
    ann.publish("e1")
    world.run(s=5)
    assert (x.events, x.gaps) == (["e1"], [])


def test_a_broker_that_returned_and_crashes_can_be_retired_again() -> None:
    fork = Fork()
    fork.cut_q_off()
    fork.world.heal("a", "q")
    fork.world.run(s=10)
    fork.lose_q()
    fork.ann.publish("a2")
    fork.world.run(s=30)
    assert fork.x.events == ["a1", "b1", "a2"]
