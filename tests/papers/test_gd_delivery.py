"""GD on delivery (2.3), the propagation of A, F and C ticks (3.1) and recovery (3.2, 4.2).

GD: Bhola, Strom, Bagchi, Zhao, Auerbach: Exactly-once delivery in a content-based publish-subscribe
system, 2002. Here with whole brokers; ``test_gd_knowledge`` has the lattice. Where a rule of the paper
is removed, a test shows how its promise breaks.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from gapless.core.ids import PubendId, VirtualTime
from gapless.core.ticks import Tick, TickRange
from gapless.messages.streams import (
    AckExpected,
    Attached,
    KnowledgeRange,
    Member,
    Nack,
    StreamData,
    StreamSilence,
)
from gapless.routing import reports
from gapless.routing.reports import Groups, ReportAggregator
from gapless.stream.curiosity import OutstandingNacks, RequestedTicks
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.subend import Subend
from gapless.subscribers.subend_nacks import SubendNacks
from gapless_lab.sim.planted_bugs import patched
from tests.cases import scaled
from tests.scenarios.brokers import Subscriber, World, of

P = PubendId("P")


# --- 2.3 the promise to a subscriber --------------------------------------------------------------


def lossy_run(seed: int) -> tuple[Subscriber, list[str]]:
    """Lose a quarter of all messages; return a subscriber and the events it must receive."""
    world = World("p-a-c", "a-d")
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "price > 50")
    world.subscriber("d", "y", "price <= 90")
    world.run(s=2)
    dice = Random(seed)
    lost = world.lose(lambda _source, _target, _message: dice.random() < 0.25)
    prices = [dice.randrange(100) for _ in range(40)]
    for number, price in enumerate(prices):
        ann.send_event(f"e{number}", price=price)
        world.run(ms=dice.randrange(1, 60))
    lost.end()
    world.run(s=5)
    return x, [f"e{number}" for number, price in enumerate(prices) if price > 50]


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_events_match_are_delivered_in_order_and_none_is_missing(
    seed: int,
) -> None:
    """2.3: safety (a), (b), and liveness."""
    x, wanted = lossy_run(seed)
    ticks = [publication.tick for _, publication in x.publications]
    assert ticks == sorted(set(ticks))
    assert x.events == wanted


def test_without_the_doubt_horizon_a_message_is_delivered_after_a_later_one() -> None:
    """2.3: "This guarantees that we never deliver a message out of its correct order"."""

    def deliver_at_once(subend: Subend, knowledge: KnowledgeRange) -> None:
        subend._listener.deliver(subend.pubend, knowledge.publications)
        receive(
            subend,
            KnowledgeRange(
                knowledge.low, knowledge.high, knowledge.stream_epoch, knowledge.control_version
            ),
        )

    receive = Subend.receive
    with patched(Subend, "receive", deliver_at_once):
        x, _ = lossy_run(1)
    ticks = [publication.tick for _, publication in x.publications]
    assert ticks != sorted(ticks)


def test_without_curiosity_a_lost_message_is_never_delivered() -> None:
    """2.3: liveness needs curiosity; the stream stops at its first gap."""
    with patched(SubendNacks, "send_due", lambda _nacks: None):
        x, wanted = lossy_run(1)
    assert x.events == wanted[: len(x.events)]
    assert len(x.events) < len(wanted)


# --- 3.1 A ticks ----------------------------------------------------------------------------------


class Acknowledgements:
    """Two SHBs behind one router; x acknowledges events, y does not for a while."""

    def __init__(self) -> None:
        world = World("p-a-c", "a-d", ack_groups=1)
        ann = world.publisher("p")
        world.subscriber("c", "x", "TRUE")
        y = self.y = world.subscriber("d", "y", "TRUE", durable=True)
        world.run(s=1)
        tick = ann.publish("e1")
        world.run(s=3)
        self.kept = world.released("p", P) < tick
        y.leave()
        y.come_back()
        world.run(s=1)
        y.acknowledge(P, tick)
        world.run(s=3)
        self.kept_after = world.released("p", P) < tick


def test_a_tick_is_acknowledged_upstream_when_all_downstream_have_acknowledged_it() -> None:
    """3.1: "When the tick value in all ostreams turns into A, the istream is also turned into A"."""
    scenario = Acknowledgements()
    assert scenario.kept
    assert scenario.y.events == ["e1", "e1"], "unacknowledged events come again"
    assert not scenario.kept_after


def test_if_one_acknowledgement_were_enough_the_other_host_would_lose_the_message() -> None:
    """3.1, without the consolidation of A ticks."""

    def greatest(reports: list[tuple[Tick, Member]], _groups_max: int) -> Groups:
        return [(max(tick for tick, _ in reports), tuple(member for _, member in reports))]

    with patched(reports, "grouped", greatest):
        scenario = Acknowledgements()
    assert not scenario.kept
    assert scenario.y.events == ["e1"]
    assert scenario.y.gaps


# --- 3.1 F ticks ----------------------------------------------------------------------------------


def log_is_released_after_a_message_for_one_of_two() -> bool:
    """Publish a message for x at c only; return whether its log is released without y at d."""
    world = World("p-a-c", "a-d")
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "price > 10")
    y = world.subscriber("d", "y", "price > 100")
    world.run(s=1)
    tick = ann.publish("e1", price=50)
    world.run(s=3)
    assert x.events == ["e1"]
    assert y.events == []
    assert world.sent_over(StreamData, "a", "d") == []
    assert world.horizon("d", P) > tick, "d received silence"
    return world.released("p", P) >= tick


def test_a_filtered_tick_is_acknowledged_without_being_sent() -> None:
    """3.1: "D ticks that have been filtered … can be immediately acked"."""
    assert log_is_released_after_a_message_for_one_of_two()


def test_if_only_messages_were_acknowledged_a_host_without_any_would_retain_the_log_for_ever() -> (
    None
):
    """3.1, without "Whenever a knowledge tick in any stream is F, its curiosity is changed to A"."""

    def note_messages(subend: Subend, knowledge: KnowledgeRange, time: VirtualTime | None) -> None:
        for publication in knowledge.publications:
            last[id(subend)] = publication.tick
        pass_over(subend, knowledge, time)

    def up_to_the_last_message(reporting: AckReporter, subend: Subend) -> Tick:
        return min(floor(reporting, subend), last.get(id(subend), 0))

    last: dict[int, Tick] = {}
    pass_over, floor = Subend.pass_over, AckReporter.ack_floor
    with (
        patched(Subend, "pass_over", note_messages),
        patched(AckReporter, "ack_floor", up_to_the_last_message),
    ):
        assert not log_is_released_after_a_message_for_one_of_two()


# --- 3.1, 4.2 C ticks -----------------------------------------------------------------------------


class TwoReceivers:
    """Two SHBs behind one router lose stream data: before the router, or after it and only to c.

    The nacks of d may be late.
    """

    def __init__(self, *, before_the_router: bool, late: bool = False) -> None:
        world = self.world = World("p-a-c", "a-d")
        ann = world.publisher("p")
        hosts = [world.subscriber(name, name, "TRUE") for name in ("c", "d")]
        world.run(s=1)
        source, target = ("p", "a") if before_the_router else ("a", "c")
        lost = world.lose(of(StreamData, StreamSilence, source=source, target=target))
        # d learns of the gap before the loss ends if its feed is confirmed (Attached)
        nacks = world.hold(of(Nack, source="d", target="a") if late else of())
        for number in range(20):
            ann.publish(f"e{number}")
            world.run(ms=40)
        lost.end()
        world.run(s=1)
        self.resent_to_d = self.resent("d")
        nacks.release()
        world.run(s=3)
        for host in hosts:
            assert host.events == [*ann.ticks]

    def nacked(self, source: str, target: str) -> int:
        """Return the nack range sent over a link: how many ticks, cumulative (GD 4.2)."""
        nacks = self.world.sent_over(Nack, source, target)
        return sum(high - low + 1 for nack in nacks for low, high in nack.ranges)

    def resent(self, target: str) -> list[bytes]:
        """Return the messages that the router retransmitted to an SHB."""
        return [
            publication.payload
            for frame in self.world.sent_over(StreamData, "a", target)
            if not frame.first
            for publication in frame.knowledge.publications
        ]


def test_nacks_of_two_receivers_for_the_same_ticks_are_forwarded_once() -> None:
    """4.2, figure 7: "the nack range sent by b2 is about half that of s1 and s2 combined"."""
    scenario = TwoReceivers(before_the_router=True)
    below = scenario.nacked("c", "a") + scenario.nacked("d", "a")
    above = scenario.nacked("a", "p")
    assert below > 0
    assert 0.4 * below <= above <= 0.6 * below


def test_without_consolidation_the_pubend_gets_the_nacks_of_every_receiver() -> None:
    """3.1: "a nack is propagated upstream only if some C tick was not already C"."""

    def request_always(
        _outstanding: OutstandingNacks, ranges: Iterable[TickRange], _now: int
    ) -> list[TickRange]:
        return [*ranges]

    with patched(OutstandingNacks, "take_due", request_always):
        scenario = TwoReceivers(before_the_router=True)
    below = scenario.nacked("c", "a") + scenario.nacked("d", "a")
    assert scenario.nacked("a", "p") > 0.9 * below


def test_a_nack_is_answered_from_a_cache_and_only_to_curious_receivers() -> None:
    """3.1: "These ticks can be satisfied locally"; others are not sent them."""
    scenario = TwoReceivers(before_the_router=False)
    assert scenario.nacked("a", "p") == 0
    assert len(set(scenario.resent("c"))) == 20
    assert scenario.resent("d") == []


def test_retransmissions_are_sent_only_to_curious_receivers() -> None:
    """3.1: retransmitted messages "are only sent down on paths that have expressed curiosity"."""
    scenario = TwoReceivers(before_the_router=True, late=True)
    assert len(set(scenario.resent("c"))) == 20
    assert scenario.resent_to_d == []


def test_without_curiosity_streams_retransmissions_are_sent_to_all_receivers() -> None:
    """3.1, without the C ticks of each ostream."""

    def whole(_requested: RequestedTicks, low: Tick, high: Tick) -> list[TickRange]:
        return [TickRange(low, high)]

    with (
        patched(RequestedTicks, "has_any", lambda _requested, _low, _high: True),
        patched(RequestedTicks, "take", whole),
    ):
        scenario = TwoReceivers(before_the_router=True, late=True)
    assert len(set(scenario.resent_to_d)) == 20


# --- 3.2, 4.2 a pubend that crashes ---------------------------------------------------------------


def last_message_lost_before_a_crash() -> tuple[World, Subscriber]:
    """Lose the last message before a crash; no later message reveals that."""
    world = World("p-a-n", aet_ms=3_000, dct_ms=60_000)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann.publish("first")
    world.run(s=1)
    answers = of(StreamData, source="a", target="n")
    unrequested = of(StreamSilence, Attached, source="a", target="n")
    world.lose(
        lambda source, target, message: (
            unrequested(source, target, message)
            or (answers(source, target, message) and message.first)
        )
    )
    ann.publish("last")
    world.run(ms=50)
    world.restart("p")
    world.run(s=10)
    return world, x


def test_a_recovered_pubend_sends_ack_expected_to_lagging_members() -> None:
    """4.2, figure 8: p1 "first sends an AckExpected message", and the subends nack."""
    world, x = last_message_lost_before_a_crash()
    assert world.sent_over(AckExpected, "p", "a")
    assert world.sent_over(AckExpected, "a", "n")
    assert world.sent_over(Nack, "n", "a")
    assert x.events == ["first", "last"]


def test_without_ack_expected_the_loss_of_the_last_message_is_not_detected() -> None:
    """3.2: subend-driven liveness alone does not find the loss of the latest message."""

    def expect_nothing(
        _reports: ReportAggregator, _pubend: PubendId, _tick: Tick, *, pressure: bool
    ) -> None:
        del pressure

    with patched(ReportAggregator, "request_acks", expect_nothing):
        _, x = last_message_lost_before_a_crash()
    assert x.events == ["first"]
