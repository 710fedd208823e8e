"""Released silence is no gap: a gap ends with the last released event.

The released range advances with the clock, also without events. A client that has received every
event gets no gap because of that; a client that missed an event gets a gap up to that event.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.records import PubendRecord
from gapless.messages.streams import KnowledgeRange
from tests.broker.harness import BrokerHarness, P
from tests.pubend.small_disk import STOCKS, Bench
from tests.scenarios.brokers import Publisher, Subscriber
from tests.stream.small_streams import Line, event, knowledge_range

FAR = 2**62


def released(**parameters: Any) -> tuple[BrokerHarness, Publisher, list[Tick]]:
    """Return a world in which three events of P are released, and much silence behind them."""
    world = BrokerHarness("p-n", **{"retention_s": 5, **parameters})
    ann = world.publisher("p")
    ticks = [ann.publish(label) for label in ("e1", "e2", "e3")]
    world.run(s=60)
    assert world.released("p", P) > ticks[-1]
    return world, ann, ticks


def resumed(world: BrokerHarness, tick: Tick, name: str = "x") -> Subscriber:
    """Return a subscriber that continues after a tick of P."""
    made = world.subscriber("n", name, "TRUE", start=StartPoint(StartKind.POSITION, ((P, tick),)))
    world.run(s=5)
    return made


def stored(world: BrokerHarness) -> PubendRecord:
    record = world.nodes["p"].disk.records["pubend", str(P)]
    assert isinstance(record, PubendRecord)
    return record


def test_a_client_that_received_the_last_event_gets_no_gap_for_released_silence() -> None:
    world, ann, ticks = released()
    x = resumed(world, ticks[-1])
    ann.publish("e4")
    world.run(s=1)
    assert x.gaps == []
    assert x.events == ["e4"]


def test_a_client_that_missed_released_events_gets_a_gap_up_to_the_last_of_them() -> None:
    world, ann, ticks = released()
    x = resumed(world, ticks[0])
    ann.publish("e4")
    world.run(s=1)
    (gap,) = x.gaps
    assert (gap.low, gap.high) == (ticks[0] + 1, ticks[-1])
    assert x.events == ["e4"]


def test_a_pubend_without_events_has_no_released_event() -> None:
    world = BrokerHarness("p-n", retention_s=5)
    ann = world.publisher("p")
    released_before = stored(world).released
    world.run(s=60)
    assert stored(world).released > released_before
    x = resumed(world, released_before)
    ann.publish("e1")
    world.run(s=1)
    assert x.gaps == []
    assert x.events == ["e1"]


@pytest.mark.parametrize("ttl_s", [7, 604_800])
def test_the_last_released_event_survives_a_restart_and_the_end_of_its_publishers(
    ttl_s: int,
) -> None:
    world, _, ticks = released(publisher_ttl_s=ttl_s)
    world.restart("p")
    world.run(s=30)
    assert stored(world).last_released_event == ticks[-1]
    late, seen = resumed(world, ticks[1], "late"), resumed(world, ticks[-1], "seen")
    assert [(gap.low, gap.high) for gap in late.gaps] == [(ticks[1] + 1, ticks[-1])]
    assert seen.gaps == []


def test_an_event_released_after_its_publisher_was_forgotten_is_a_released_event() -> None:
    # the publisher's record has its last tick; when it is deleted, the pubend's record must have it
    bench = Bench(Parameters(retention_s=30, publisher_ttl_s=8))
    answer = bench.publish(bench.open(), 1, 1)
    bench.run(ms=15_000)
    ((tick,),) = answer
    assert bench.pubend.session_of("ann") is None, "the publisher is forgotten"
    assert bench.pubend.record.released < tick
    bench.start()  # from disk only
    bench.run(ms=40_000)
    record = bench.pubend.record
    assert record.released > tick
    assert record.last_released_event >= tick


def test_an_event_above_the_released_tick_is_not_released() -> None:
    bench = Bench(Parameters(retention_s=5))
    session = bench.open()
    first = bench.publish(session, 1, 1)
    bench.run(ms=4_000)
    second = bench.publish(session, 2, 2)
    bench.run(ms=3_000)
    record = bench.pubend.record
    assert first[0][0] <= record.last_released_event <= record.released < second[0][0]


# --- what is read from memory ---------------------------------------------------------------------


class CachingBench(Bench):
    """A pubend whose router still caches the stream."""

    def cached(self, pubend: Any, low: Tick, high: Tick) -> list[KnowledgeRange]:
        assert pubend == STOCKS
        return [each for each in self.sent if low <= each.low and each.high <= high]


def test_ticks_in_the_cache_of_the_router_are_not_read_from_disk() -> None:
    bench = CachingBench(Parameters())
    answer = bench.publish(bench.open(), 1, 1, 2, 3)
    bench.sync()
    found: list[tuple[list[KnowledgeRange], Tick]] = []
    bench.pubend.ranges_between(bench.sent[0].low, FAR, lambda *each: found.append(each))
    bench.collect()
    assert bench.fetches == []
    ((ranges, done),) = found
    assert done == ranges[-1].high
    ticks = [each.tick for known in ranges for each in known.publications]
    assert ticks == [*answer[0]]


def test_ticks_outside_the_cache_of_the_router_are_read_from_disk() -> None:
    bench = Bench(Parameters())
    bench.publish(bench.open(), 1, 1)
    bench.sync()
    found: list[tuple[list[KnowledgeRange], Tick]] = []
    bench.pubend.ranges_between(0, FAR, lambda *each: found.append(each))
    bench.collect()
    assert (len(bench.fetches), found) == (1, [])
    bench.answer_fetches()
    assert len(found) == 1


def test_a_router_returns_cached_ticks_up_to_the_first_unknown_one() -> None:
    line = Line("p")
    for known in (
        knowledge_range(1, 4, event(3, 1)),
        knowledge_range(5, 9, event(7, 1)),
        knowledge_range(12, 15),
    ):
        line.publish(known)
    router = line.nodes["p"].router
    assert router.cached(STOCKS, 2, FAR) == [knowledge_range(2, 9, event(3, 1), event(7, 1))]
    assert router.cached(STOCKS, 4, 6) == [knowledge_range(4, 6)]
    assert router.cached(STOCKS, 10, FAR) == []
    assert router.cached(STOCKS, 99, FAR) == []


def test_a_router_returns_at_most_about_one_frame() -> None:
    line = Line("p", Parameters(frame_events_max=2))
    for tick in range(1, 7):
        line.publish(knowledge_range(tick, tick, event(tick, 1), stream_epoch=tick))
    found = line.nodes["p"].router.cached(STOCKS, 1, FAR)
    assert [each.low for each in found] == [1, 2]
