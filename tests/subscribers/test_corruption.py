"""Streams with a corrupt log stand still, clients learn the reason, other streams continue (P8)."""

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
    """Corrupt the row of an event of which no broker has a copy in memory; return the fault."""
    world.nodes["p"].disk.corrupt.add(tick)
    world.crash("p")
    world.restart("p")
    world.run(s=2)
    return f"row {tick} is corrupt"


def corrupt_log(*chains: str, **parameters: Any) -> tuple[BrokerHarness, Publisher, str]:
    """Return a world in whose log of P the second of three events cannot be read."""
    world, ann = stage(*(chains or ("p-n",)), **parameters)
    ticks = [ann.publish(label) for label in ("e1", "e2", "e3")]
    fault = corrupt_row(world, ticks[1])
    ann.connect()
    ann.open()
    return world, ann, fault


def stalls(client: Subscriber) -> list[tuple[PubendId, str]]:
    """Return the notices of stalled streams that a client received."""
    return [(each.pubend, each.reason) for each in client.of_kind(Stalled)]


def test_a_reader_gets_the_events_before_the_corruption_and_one_notice_with_the_reason() -> None:
    world, _, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=60)
    assert x.events == ["e1"]
    assert x.gaps == []
    assert stalls(x) == [(P, fault)]


def test_other_streams_of_the_subscription_continue() -> None:
    world, _, fault = corrupt_log()
    bob = world.publisher("n", "Q")
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    bob.publish("q1")
    world.run(s=1)
    assert x.events == ["e1", "q1"]
    assert stalls(x) == [(P, fault)]


def test_in_total_order_all_streams_wait_and_the_corrupt_one_is_named() -> None:
    world, _, fault = corrupt_log()
    bob = world.publisher("n", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL, start=EARLIEST)
    world.run(s=5)
    bob.publish("q1")
    world.run(s=5)
    assert x.events == ["e1"]
    assert stalls(x) == [(P, fault)]


def test_a_live_stream_that_lost_data_of_corrupt_ticks_stalls_and_the_client_is_notified() -> None:
    # also behind a router: the fault is forwarded to every broker that requested these ticks
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
    assert here.events == ["e1", "e2"]  # it received e2 before
    assert stalls(far) == [(P, why)]
    assert stalls(here) == []
    assert world.sent_over(Unreadable, "m", "n")


def test_every_new_connection_is_notified_again() -> None:
    world, _, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", durable=True, start=EARLIEST)
    world.run(s=10)
    x.leave()
    world.run(s=10)
    assert stalls(x) == [(P, fault)]
    x.come_back()
    world.run(s=10)
    assert stalls(x) == [(P, fault)] * 2


def test_the_answer_names_a_pubend_on_which_the_subscription_cannot_start() -> None:
    world, ann, _ = corrupt_log()
    fault = corrupt_row(world, ann.ticks["e1"])
    requester = Requester(world, "n", "x")
    before = StartPoint(StartKind.POSITION, ((P, ann.ticks["e1"] - 1),))
    answer = requester.subscribe(start=before, s=30)
    assert isinstance(answer, Subscribed)
    assert [(each.pubend, each.reason) for each in answer.pending] == [(P, fault)]
    assert position(answer) == {}


def test_a_client_that_seeks_past_the_corruption_is_notified_that_the_stream_continues() -> None:
    world, ann, fault = corrupt_log()
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    behind = StartPoint(StartKind.POSITION, ((P, ann.ticks["e2"]),))
    assert isinstance(x.call(Seek(x.number(), "x", behind), s=5), Subscribed)
    world.run(s=5)
    assert x.events == ["e1", "e3"]
    assert stalls(x) == [(P, fault), (P, "")]


def test_a_pubend_accepts_events_again_when_the_corrupt_row_is_released() -> None:
    world, ann, fault = corrupt_log(retention_s=20)
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=60)
    assert world["p"].components.pubends.corruptions == {
        P: fault
    }  # retained for the cursor that waits for it
    number = ann.send_event("e4")
    world.run(s=1)
    assert ann.refused(number)
    x.end()
    world.run(s=120)
    assert world["p"].components.pubends.corruptions == {}
    assert world["p"].coverage_marks["corrupt log row released"] == 1
    ann.publish("e5")


def test_a_corrupt_row_stays_corrupt_when_the_rows_below_it_are_released() -> None:
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


def test_a_publish_call_to_a_corrupt_log_is_refused_with_a_remedy() -> None:
    world, ann, fault = corrupt_log()
    bob = world.publisher("p", "Q")
    ann.publish("e4")  # the corruption is not detected yet
    x = world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    number = ann.send_event("e5")
    world.run(s=1)
    refusal = reason(ann.answer(number))
    assert fault in refusal
    for command in ("gapless log verify", "gapless log export", "another pubend"):
        assert command in refusal
    bob.publish("q1")
    world.run(s=1)
    assert x.events == ["e1", "q1"]


def test_a_repeat_of_an_event_logged_before_the_corruption_is_acknowledged() -> None:
    world, ann, _ = corrupt_log()
    tick = ann.publish("e4")
    world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    assert world.pubend("p", P).corruption is not None
    number = ann.send_event("e4", sequence=4)
    world.run(s=1)
    assert ann.answer(number).ticks == (tick,)


def test_operators_see_why_a_subscription_is_stalled() -> None:
    world, _, fault = corrupt_log()
    world.subscriber("n", "x", "TRUE", start=EARLIEST)
    world.run(s=5)
    shown = Requester(world, "n", "operator").call(GetSubscription(1, "x"))
    (cursor,) = shown.entry.cursors
    assert cursor.pending_reason == fault
    assert Q not in world["p"].components.pubends.corruptions
    assert world["p"].components.pubends.corruptions == {P: fault}
