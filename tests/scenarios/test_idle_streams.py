"""Streams on which nothing happens cost next to nothing, and lose nothing by it (R29, R30, R35, R52)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec import structs

from gapless.core.effects import Effect, Write
from gapless.core.ids import BrokerId
from gapless.messages.streams import AckReport, Attach, Attached, Nack, StreamData, StreamSilence
from tests.broker.harness import BrokerHarness
from tests.scenarios.brokers import Node, Publisher, Subscriber

COUNT = 20
StreamMessages = (StreamData, StreamSilence)
QUIET_S = 60
INTERVALS = QUIET_S // 10


class Quiet(BrokerHarness):
    """p - a - n with many pubends at p, at the default intervals; writes are counted."""

    def __init__(self, count: int = COUNT) -> None:
        self.writes: Counter[BrokerId] = Counter()
        super().__init__("p-a-n", retention_s=600, idle_silence_max_ms=10_000)
        self.publishers: list[Publisher] = [
            self.publisher("p", f"idle-{number}") for number in range(count)
        ]

    def _carry_out(self, node: Node, broker: Any, effect: Effect) -> None:
        if isinstance(effect, Write):
            self.writes[node.name] += 1
        super()._carry_out(node, broker, effect)

    def settle(self) -> None:
        """Wait until all intervals have reached their greatest."""
        self.run(s=60)

    def be_quiet(self) -> int:
        """Let a minute pass in which nothing happens; return when it began."""
        self.writes.clear()
        since = self.now
        self.run(s=QUIET_S)
        return since


@pytest.fixture
def world() -> Quiet:
    return Quiet()


def subscribed(world: Quiet) -> list[Subscriber]:
    live = world.subscriber("n", "live", "number >= 0")
    durable = world.subscriber("n", "durable", "number >= 0", durable=True)
    world.settle()
    return [live, durable]


def test_idle_streams_send_and_write_little(world: Quiet) -> None:
    subscribed(world)
    since = world.be_quiet()
    assert world.writes["p"] <= 1.5 * QUIET_S, "one tick ceiling for all pubends"
    silences = world.sent_over(StreamSilence, "p", "a", since)
    stated = Counter(pubend for each in silences for pubend, *_ in each.ranges)
    assert len(stated) == COUNT
    assert max(stated.values()) <= 2 * INTERVALS
    assert len(silences) <= COUNT * INTERVALS, "many pubends are in one message"
    for kind, source, target in ((Attach, "n", "a"), (Attached, "a", "n"), (Attach, "a", "p")):
        assert len(world.sent_over(kind, source, target, since)) <= 2 * INTERVALS * COUNT
    reports = world.sent_over(AckReport, "a", "p", since)
    reported = Counter(pubend for each in reports for pubend, _ in each.acknowledged)
    assert max(reported.values()) <= 3 * INTERVALS


def test_idle_streams_stay_fed_and_their_members_stay_listed(world: Quiet) -> None:
    subscribed(world)
    since = world.be_quiet()
    for name in ("a", "n"):
        assert "feeder was silent" not in world[name].coverage_marks
        assert "attachment expired" not in world[name].coverage_marks
    assert world.sent_over(Nack, "n", "a", since) == []
    for publisher in world.publishers:
        row = world.pubend("p", publisher.pubend).members.row(world["n"].context.identity.shb)
        assert row is not None
        assert not row.inactive
        late = world.pubend("p", publisher.pubend).top - world.horizon("n", publisher.pubend)
        assert late <= 1_000_000


def test_an_event_on_an_idle_stream_arrives_at_once(world: Quiet) -> None:
    subscribers = subscribed(world)
    world.be_quiet()
    world.publishers[3].publish("e1", number=1)
    world.run(ms=50)
    assert [each.events for each in subscribers] == [["e1"], ["e1"]]


def test_an_event_that_was_lost_on_an_idle_stream_is_found_soon(world: Quiet) -> None:
    # silence begins anew after an event, so the gap shows
    live, durable = subscribed(world)
    world.be_quiet()
    lost = world.lose(lambda _source, target, each: target == "n" and isinstance(each, StreamData))
    world.publishers[3].publish("e1", number=1)
    world.run(ms=50)
    lost.end()
    world.run(s=1)
    assert (live.events, durable.events) == (["e1"], ["e1"])


def test_a_new_subscription_and_a_new_filter_do_not_wait_for_silence(world: Quiet) -> None:
    subscribed(world)
    world.be_quiet()
    new = world.subscriber("n", "new", "kind = 'N'")
    world.run(ms=200)
    world.publishers[0].publish("e1", kind="N")
    world.publishers[7].publish("e2", kind="N")
    world.run(ms=100)
    assert sorted(new.events) == ["e1", "e2"]


def test_after_a_crash_idle_streams_continue_above_what_was_silent(world: Quiet) -> None:
    # R29, with the ceiling of the broker
    live, durable = subscribed(world)
    world.be_quiet()
    world.restart("p", clock_back_s=30)
    world.run(s=5)
    publisher = world.publishers[5]
    publisher.connect()
    publisher.open()
    publisher.publish("e1", number=1)
    world.run(s=2)
    assert (live.events, durable.events) == (["e1"], ["e1"])


def test_the_writes_of_idle_streams_do_not_grow_with_their_number() -> None:
    few, many = Quiet(2), Quiet(40)
    found = []
    for world in (few, many):
        world.settle()
        world.be_quiet()
        found.append(world.writes["p"])
    assert found[1] <= QUIET_S + 5


def test_brokers_with_different_idle_intervals_feed_each_other() -> None:
    # a router with a short interval must not end the attachment of a receiver with a long one

    class Mixed(Quiet):
        def start(self, name: BrokerId) -> None:
            usual = self.parameters
            if name == "a":
                self.parameters = structs.replace(usual, idle_silence_max_ms=1_000)
            super().start(name)
            self.parameters = usual

    world = Mixed()
    subscribed(world)
    world.be_quiet()
    assert "attachment expired" not in world["a"].coverage_marks
    assert "feeder was silent" not in world["a"].coverage_marks


def test_a_feeder_whose_ranges_do_not_arrive_is_left_soon_although_the_stream_was_idle() -> None:
    cells = {"a": ["a1", "a2"]}
    world = BrokerHarness("p-a-n", cells=cells, retention_s=600, idle_silence_max_ms=10_000)
    publisher = world.publisher("p")
    subscriber = world.subscriber("n", "live", "number >= 0")
    world.run(s=60)
    feeder = world["n"].components.router.feeder(publisher.pubend)
    world.lose(lambda source, _, each: source == feeder and isinstance(each, StreamMessages))
    publisher.publish("e1", number=1)
    world.run(s=17)
    assert subscriber.events == ["e1"]


def test_a_feeder_is_kept_if_what_was_lost_arrives_again() -> None:
    cells = {"a": ["a1", "a2"]}
    world = BrokerHarness("p-a-n", cells=cells, retention_s=600, idle_silence_max_ms=10_000)
    publisher = world.publisher("p")
    subscriber = world.subscriber("n", "live", "number >= 0")
    world.run(s=60)
    feeder = world["n"].components.router.feeder(publisher.pubend)
    lost = world.lose(lambda source, _, each: source == feeder and isinstance(each, StreamMessages))
    publisher.publish("e1", number=1)
    world.wait(lambda: any(isinstance(each, Nack) for *_, each in world.sent), s=12)
    lost.end()
    world.run(s=60)
    assert subscriber.events == ["e1"]
    assert world["n"].components.router.feeder(publisher.pubend) == feeder
    assert "feeder was silent" not in world["n"].coverage_marks
