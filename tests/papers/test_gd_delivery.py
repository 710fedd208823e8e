"""What GD says of delivery (2.3), of how A, F and C ticks travel (3.1) and of recovery (3.2, 4.2).

GD: Bhola, Strom, Bagchi, Zhao, Auerbach: Exactly-once delivery in a content-based publish-subscribe
system, 2002. Here with whole brokers; ``test_gd_knowledge`` has the lattice. Where a rule of the paper
is taken out, a test says how its promise breaks.
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
    """A quarter of all messages is lost for a while; return a subscriber and what it is owed."""
    world = World("p-a-c", "a-d")
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "price > 50")
    world.subscriber("d", "y", "price <= 90")
    world.run(s=2)
    dice = Random(seed)
    lost = world.lose(lambda _source, _target, _message: dice.random() < 0.25)
    prices = [dice.randrange(100) for _ in range(40)]
    for number, price in enumerate(prices):
        ann.say(f"e{number}", price=price)
        world.run(ms=dice.randrange(1, 60))
    lost.end()
    world.run(s=5)
    return x, [f"e{number}" for number, price in enumerate(prices) if price > 50]


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_what_is_delivered_is_wanted_and_later_than_all_before_and_nothing_is_missing(
    seed: int,
) -> None:
    """2.3: safety (a), (b), and liveness."""
    x, wanted = lossy_run(seed)
    ticks = [publication.tick for _, publication in x.publications]
    assert ticks == sorted(set(ticks))
    assert x.events == wanted


def test_without_the_doubt_horizon_a_message_comes_after_a_later_one() -> None:
    """2.3: "This guarantees that we never deliver a message out of its correct order"."""

    def hand_over_at_once(subend: Subend, piece: KnowledgeRange) -> None:
        subend._listener.deliver(subend.pubend, piece.publications)
        receive(
            subend, KnowledgeRange(piece.low, piece.high, piece.stream_epoch, piece.control_version)
        )

    receive = Subend.receive
    with patched(Subend, "receive", hand_over_at_once):
        x, _ = lossy_run(1)
    ticks = [publication.tick for _, publication in x.publications]
    assert ticks != sorted(ticks)


def test_without_curiosity_a_message_that_was_lost_is_never_delivered() -> None:
    """2.3: liveness needs curiosity; the stream stands at its first gap."""
    with patched(SubendNacks, "ask", lambda _nacks: None):
        x, wanted = lossy_run(1)
    assert x.events == wanted[: len(x.events)]
    assert len(x.events) < len(wanted)


# --- 3.1 A ticks ----------------------------------------------------------------------------------


class Acknowledgements:
    """Two hosts behind one router; x takes what comes, y does not acknowledge for a while."""

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
    story = Acknowledgements()
    assert story.kept
    assert story.y.events == ["e1", "e1"], "what was not acknowledged comes again"
    assert not story.kept_after


def test_if_one_acknowledgement_were_enough_the_other_would_lose_the_message() -> None:
    """3.1, without the consolidation of A ticks."""

    def greatest(reports: list[tuple[Tick, Member]], _groups_max: int) -> Groups:
        return [(max(tick for tick, _ in reports), tuple(member for _, member in reports))]

    with patched(reports, "grouped", greatest):
        story = Acknowledgements()
    assert not story.kept
    assert story.y.events == ["e1"]
    assert story.y.gaps


# --- 3.1 F ticks ----------------------------------------------------------------------------------


def log_is_released_after_a_message_for_one_of_two() -> bool:
    """A message is for x at c alone; say whether its log is released, though y at d never gets it."""
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
    assert world.horizon("d", P) > tick, "silence came"
    return world.released("p", P) >= tick


def test_a_tick_that_was_filtered_out_is_acknowledged_without_ever_going_there() -> None:
    """3.1: "D ticks that have been filtered … can be immediately acked"."""
    assert log_is_released_after_a_message_for_one_of_two()


def test_if_only_messages_were_acknowledged_who_gets_none_would_keep_the_log_for_ever() -> None:
    """3.1, without "Whenever a knowledge tick in any stream is F, its curiosity is changed to A"."""

    def note_messages(subend: Subend, piece: KnowledgeRange, time: VirtualTime | None) -> None:
        for publication in piece.publications:
            last[id(subend)] = publication.tick
        pass_over(subend, piece, time)

    def up_to_the_last_message(reporting: AckReporter, subend: Subend) -> Tick:
        return min(floor(reporting, subend), last.get(id(subend), 0))

    last: dict[int, Tick] = {}
    pass_over, floor = Subend._pass_over, AckReporter._ack_floor
    with (
        patched(Subend, "_pass_over", note_messages),
        patched(AckReporter, "_ack_floor", up_to_the_last_message),
    ):
        assert not log_is_released_after_a_message_for_one_of_two()


# --- 3.1, 4.2 C ticks -----------------------------------------------------------------------------


class TwoCurious:
    """Two hosts behind one router lose frames: before the router, or behind it and only to c.

    The nacks of d may be late.
    """

    def __init__(self, *, before_the_router: bool, late: bool = False) -> None:
        world = self.world = World("p-a-c", "a-d")
        ann = world.publisher("p")
        hosts = [world.subscriber(name, name, "TRUE") for name in ("c", "d")]
        world.run(s=1)
        source, target = ("p", "a") if before_the_router else ("a", "c")
        lost = world.lose(of(StreamData, StreamSilence, source=source, target=target))
        for number in range(20):
            ann.publish(f"e{number}")
            world.run(ms=40)
        nacks = world.hold(of(Nack, source="d", target="a") if late else of())
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
        """Return the messages that the router sent to a host again."""
        return [
            publication.payload
            for frame in self.world.sent_over(StreamData, "a", target)
            if not frame.first
            for publication in frame.knowledge.publications
        ]


def test_nacks_of_two_receivers_for_the_same_ticks_travel_up_once() -> None:
    """4.2, figure 7: "the nack range sent by b2 is about half that of s1 and s2 combined"."""
    story = TwoCurious(before_the_router=True)
    below = story.nacked("c", "a") + story.nacked("d", "a")
    above = story.nacked("a", "p")
    assert below > 0
    assert 0.4 * below <= above <= 0.6 * below


def test_without_consolidation_the_pubend_is_asked_by_every_receiver() -> None:
    """3.1: "a nack is propagated upstream only if some C tick was not already C"."""

    def ask_always(
        _asked: OutstandingNacks, ranges: Iterable[TickRange], _now: int
    ) -> list[TickRange]:
        return [*ranges]

    with patched(OutstandingNacks, "ask", ask_always):
        story = TwoCurious(before_the_router=True)
    below = story.nacked("c", "a") + story.nacked("d", "a")
    assert story.nacked("a", "p") > 0.9 * below


def test_what_a_broker_has_satisfies_a_nack_and_only_the_curious_get_it() -> None:
    """3.1: "These ticks can be satisfied locally"; others are not sent them."""
    story = TwoCurious(before_the_router=False)
    assert story.nacked("a", "p") == 0
    assert len(set(story.resent("c"))) == 20
    assert story.resent("d") == []


def test_what_comes_again_goes_only_to_those_who_are_curious() -> None:
    """3.1: retransmitted messages "are only sent down on paths that have expressed curiosity"."""
    story = TwoCurious(before_the_router=True, late=True)
    assert len(set(story.resent("c"))) == 20
    assert story.resent_to_d == []


def test_without_curiosity_streams_what_is_sent_again_goes_to_everybody() -> None:
    """3.1, without the C ticks of each ostream."""

    def whole(_curious: RequestedTicks, low: Tick, high: Tick) -> list[TickRange]:
        return [TickRange(low, high)]

    with (
        patched(RequestedTicks, "wants", lambda _curious, _low, _high: True),
        patched(RequestedTicks, "take", whole),
    ):
        story = TwoCurious(before_the_router=True, late=True)
    assert len(set(story.resent_to_d)) == 20


# --- 3.2, 4.2 a pubend that crashes ---------------------------------------------------------------


def last_message_lost_before_a_crash() -> tuple[World, Subscriber]:
    """The last message before a crash is lost, and nothing that is sent by itself shows that."""
    world = World("p-a-n", aet_ms=3_000, dct_ms=60_000)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann.publish("first")
    world.run(s=1)
    answers = of(StreamData, source="a", target="n")
    unasked = of(StreamSilence, Attached, source="a", target="n")
    world.lose(
        lambda source, target, message: (
            unasked(source, target, message) or (answers(source, target, message) and message.first)
        )
    )
    ann.publish("last")
    world.run(ms=50)
    world.restart("p")
    world.run(s=10)
    return world, x


def test_a_pubend_that_recovers_asks_who_has_not_acknowledged() -> None:
    """4.2, figure 8: p1 "first sends an AckExpected message", and the subends nack."""
    world, x = last_message_lost_before_a_crash()
    assert world.sent_over(AckExpected, "p", "a")
    assert world.sent_over(AckExpected, "a", "n")
    assert world.sent_over(Nack, "n", "a")
    assert x.events == ["first", "last"]


def test_without_ack_expected_nobody_learns_of_the_last_message() -> None:
    """3.2: subend-driven liveness alone does not find the loss of the latest message."""

    def expect_nothing(
        _reports: ReportAggregator, _pubend: PubendId, _tick: Tick, *, pressure: bool
    ) -> None:
        del pressure

    with patched(ReportAggregator, "request_acks", expect_nothing):
        _, x = last_message_lost_before_a_crash()
    assert x.events == ["first"]
