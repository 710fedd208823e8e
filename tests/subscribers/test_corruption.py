"""Streams whose log is damaged: they wait, who waits is told why, and the others go on (P8)."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Order,
    Seek,
    Stalled,
    StartKind,
    StartPoint,
    Subscribed,
)
from gapless.messages.operating import GetSubscription
from gapless.messages.streams import StreamData, Unreadable
from tests.broker.harness import BrokerHarness, P, Q, Requester, position, reason
from tests.pubend.small_disk import Bench
from tests.scenarios.brokers import Publisher, Subscriber, of

EARLIEST = StartPoint(StartKind.EARLIEST)
FAR = 2**62


def stage(*chains: str, **parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p."""
    world = BrokerHarness(*chains, **{"retention_s": 3_600, **parameters})
    return world, world.publisher("p")


def corrupt_row(world: BrokerHarness, tick: Tick) -> str:
    """Damage the row of an event, of which no broker has a copy in memory; return the fault."""
    world.nodes["p"].disk.corrupt.add(tick)
    world.crash("p")
    world.restart("p")
    world.run(s=2)
    return f"row {tick} is damaged"


def corrupt_log(*chains: str, **parameters: Any) -> tuple[BrokerHarness, Publisher, str]:
    """Return a world in whose log of P the second of three events cannot be read."""
    world, ann = stage(*(chains or ("p-n",)), **parameters)
    ticks = [ann.publish(label) for label in ("e1", "e2", "e3")]
    fault = corrupt_row(world, ticks[1])
    ann.connect()
    ann.open()
    return world, ann, fault


def stalls(client: Subscriber) -> list[tuple[PubendId, str]]:
    """Return what a client was told of streams that stand still."""
    return [(each.pubend, each.reason) for each in client.of_kind(Stalled)]


def test_who_reads_the_log_gets_what_is_before_the_corruption_and_is_told_once_why_it_waits() -> (
    None
):
    world, _, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=60)
    assert x.events == ["e1"]
    assert x.gaps == []
    assert stalls(x) == [(P, fault)]


def test_other_streams_of_the_subscription_go_on() -> None:
    world, _, fault = corrupt_log()
    bob = world.publisher("n", "Q")
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    bob.publish("q1")
    world.run(s=1)
    assert x.events == ["e1", "q1"]
    assert stalls(x) == [(P, fault)]


def test_in_total_order_all_wait_and_the_corrupt_stream_is_named() -> None:
    world, _, fault = corrupt_log()
    bob = world.publisher("n", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL, start=EARLIEST)
    world.run(s=5)
    bob.publish("q1")
    world.run(s=5)
    assert x.events == ["e1"]
    assert stalls(x) == [(P, fault)]


def test_a_live_stream_that_lost_a_frame_of_corrupt_ticks_stands_still_and_says_so() -> None:
    # also behind a router on the way: the news goes down to whoever asked for these ticks
    world, ann = stage("p-m-n")
    here, far = (world.subscriber(broker, f"at {broker}", "TRUE") for broker in ("p", "n"))
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    fault = world.lose(of(StreamData, source="p", target="m"))
    tick = ann.publish("e2")
    world.run(ms=5)
    fault.end()
    why = corrupt_row(world, tick)
    world.run(s=30)
    assert far.events == ["e1"]
    assert here.events == ["e1", "e2"]  # it had it before
    assert stalls(far) == [(P, why)]
    assert stalls(here) == []
    assert world.sent_over(Unreadable, "m", "n")


def test_every_connection_is_told_anew() -> None:
    world, _, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", durable=True, start=EARLIEST)
    world.run(s=10)
    x.leave()
    world.run(s=10)
    assert stalls(x) == [(P, fault)]
    x.come_back()
    world.run(s=10)
    assert stalls(x) == [(P, fault)] * 2


def test_a_subscription_that_cannot_begin_says_so_in_its_answer() -> None:
    world, ann, _ = corrupt_log()
    fault = corrupt_row(world, ann.ticks["e1"])
    requester = Requester(world, "n", "x")
    before = StartPoint(StartKind.POSITION, ((P, ann.ticks["e1"] - 1),))
    answer = requester.subscribe(start=before, s=30)
    assert isinstance(answer, Subscribed)
    assert [(each.pubend, each.reason) for each in answer.pending] == [(P, fault)]
    assert position(answer) == {}


def test_who_seeks_to_behind_the_corruption_is_told_that_it_goes_on() -> None:
    world, ann, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    behind = StartPoint(StartKind.POSITION, ((P, ann.ticks["e2"]),))
    assert isinstance(x.call(Seek(x.number(), "x", behind), s=5), Subscribed)
    world.run(s=5)
    assert x.events == ["e1", "e3"]
    assert stalls(x) == [(P, fault), (P, "")]


def test_when_the_corrupt_row_is_released_the_pubend_is_as_good_as_any() -> None:
    world, ann, fault = corrupt_log(retention_s=20)
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=60)
    assert world["p"].components.pubends.corruptions == {
        P: fault
    }  # it is kept for who waits for it
    number = ann.say("e4")
    world.run(s=1)
    assert ann.refused(number)
    x.end()
    world.run(s=120)
    assert world["p"].components.pubends.corruptions == {}
    assert world["p"].coverage_marks["corrupt log row released"] == 1
    ann.publish("e5")


def test_a_row_that_is_still_there_stays_corrupt_when_what_is_below_it_is_released() -> None:
    bench = Bench(Parameters(retention_s=5))
    session = bench.open()
    ticks = []
    for number in range(1, 4):
        answer = bench.publish(session, number, number)
        bench.run(ms=2_000)
        ticks += answer
    corrupt = ticks[1][0]
    bench.corrupt.add(corrupt)
    bench.pubend.ranges_between(0, FAR, lambda *_: None)
    bench.collect()
    bench.answer_fetches()
    fault = bench.pubend.corruption
    assert fault is not None
    bench.run(ms=500)
    bench.answer_fetches()
    assert ticks[0][0] <= bench.releases[-1] < corrupt
    assert bench.pubend.corruption == fault
    bench.run(ms=3_000)
    bench.answer_fetches()
    assert bench.releases[-1] >= corrupt
    assert bench.pubend.corruption is None


def test_what_is_published_to_a_corrupt_log_is_refused_and_says_what_to_do() -> None:
    world, ann, fault = corrupt_log()
    bob = world.publisher("p", "Q")
    ann.publish("e4")  # nobody has met the damage yet
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    number = ann.say("e5")
    world.run(s=1)
    refusal = reason(ann.answer(number))
    assert fault in refusal
    for command in ("gapless log verify", "gapless log export", "another pubend"):
        assert command in refusal
    bob.publish("q1")
    world.run(s=1)
    assert x.events == ["e1", "q1"]


def test_an_event_that_was_logged_before_is_acknowledged_again_all_the_same() -> None:
    world, ann, _ = corrupt_log()
    tick = ann.publish("e4")
    world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    assert world.pubend("p", P).corruption is not None
    number = ann.say("e4", sequence=4)
    world.run(s=1)
    assert ann.answer(number).ticks == (tick,)


def test_operators_see_why_a_subscription_stands_still() -> None:
    world, _, fault = corrupt_log()
    world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    shown = Requester(world, "n", "operator").call(GetSubscription(1, "x"))
    (cursor,) = shown.entry.cursors
    assert cursor.pending_reason == fault
    assert Q not in world["p"].components.pubends.corruptions
    assert world["p"].components.pubends.corruptions == {P: fault}
