"""Which stream epochs a pubend keeps, and what receivers of forgotten ones do (R31, R44)."""

from __future__ import annotations

import pytest

from gapless.core.ids import ShbId, VectorEntry, VirtualTime
from gapless.core.limits import (
    STREAM_EPOCH_ENTRIES_MAX,
    STREAM_EPOCH_REQUESTS_MAX,
    STREAM_EPOCHS_MIN,
)
from gapless.core.parameters import Parameters
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import StreamEpoch, StreamEpochRequest
from gapless.pubend.epochs import surplus
from tests.broker.harness import BrokerHarness
from tests.pubend.small_disk import STOCKS, Bench
from tests.scenarios.brokers import of


def stored(bench: Bench) -> list[StreamEpochRecord]:
    return [each for each in bench.records.values() if isinstance(each, StreamEpochRecord)]


def changed(bench: Bench, times: int) -> None:
    """Change the vector, each time with an event in its own stream epoch."""
    session = bench.open()
    bench.report("s")
    for counter in range(1, times + 1):
        bench.claim("s", counter)
        bench.run(ms=40)
        bench.publish(session, counter, counter)
        bench.run(ms=1)
    bench.run(ms=bench.parameters.ack_ms)


def test_with_a_long_retention_the_stream_epochs_on_disk_stay_within_their_limit() -> None:
    bench = Bench(Parameters(retention_s=604_800, stream_epochs_max=8))
    changed(bench, 50)
    assert bench.pubend.record.released == 0
    assert len(bench.opened) >= 50
    assert [each.number for each in stored(bench)] == [each.number for each in bench.opened[-8:]]
    bench.start()
    assert len(bench.pubend.stream_epochs) == 8


def test_stream_epochs_that_ended_long_ago_are_forgotten_although_the_log_is_kept() -> None:
    bench = Bench(Parameters(retention_s=604_800, inactive_after_s=7))
    changed(bench, 10)
    assert len(stored(bench)) == len(bench.opened)
    bench.run(ms=16_000)  # the silent member becomes inactive meanwhile
    assert len(stored(bench)) == 1
    assert stored(bench)[0].number == bench.pubend.stream_epoch


def test_ticks_of_forgotten_stream_epochs_are_read_with_their_events_in_stream_epoch_0() -> None:
    bench = Bench(Parameters(retention_s=604_800, stream_epochs_max=2))
    changed(bench, 6)
    bench.start()
    found = []
    bench.pubend.ranges_between(1, bench.pubend.top, lambda ranges, _: found.extend(ranges))
    bench.collect()
    bench.answer_fetches()
    oldest = bench.pubend.stream_epochs[0]
    assert [each.attributes["a"] for part in found for each in part.publications] == [*range(1, 7)]
    assert {part.stream_epoch for part in found if part.low < oldest.start} == {0}
    assert all(part.high < oldest.start for part in found if not part.stream_epoch)


def test_large_vectors_reduce_the_stream_epochs_that_are_kept() -> None:
    def epochs(count: int, hosts: int) -> list[StreamEpochRecord]:
        entries = tuple(
            (ShbId(f"s{host}", "c"), VectorEntry(VirtualTime(1, 1))) for host in range(hosts)
        )
        return [StreamEpochRecord(STOCKS, each, each, 1, entries) for each in range(1, count + 1)]

    fitting = STREAM_EPOCH_ENTRIES_MAX // 64
    assert surplus(epochs(100, 1), 0, 256) == 0
    assert surplus(epochs(100, 64), 0, 256) == 100 - fitting
    assert surplus(epochs(100, 2_000), 0, 256) == 100 - STREAM_EPOCHS_MIN


@pytest.mark.parametrize("kept", [1, 2])
def test_an_shb_far_behind_the_kept_stream_epochs_receives_every_event_once(kept: int) -> None:
    world = BrokerHarness("p-a-n", "a-m", stream_epochs_max=kept, retention_s=3_600)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    world.cut("a", "n")
    for number in range(6):
        world.subscriber("m", f"y{number}", f"kind = {number}")
        world.run(ms=200)
        ann.publish(f"e{number}", kind=1)
        ann.publish(f"other{number}", kind=2)
    world.run(ms=300)
    world.heal("a", "n")
    world.run(s=5)
    assert x.events == [f"e{number}" for number in range(6)]
    assert x.gaps == []


def test_a_range_whose_stream_epoch_no_broker_keeps_is_read_from_the_log() -> None:
    world = BrokerHarness("p-n", retention_s=3_600)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    world.hold(of(StreamEpoch, source="p", target="n"))
    requests = world.hold(of(StreamEpochRequest, source="n", target="p"))
    world.subscriber("n", "y", "kind = 2")  # opens a stream epoch
    world.run(ms=100)
    ann.publish("e", kind=1)
    world.run(s=2)
    assert len(requests.messages) > STREAM_EPOCH_REQUESTS_MAX
    assert world["n"].coverage_marks["stream epoch is lost"] >= 1
    assert x.events == ["e"]
    ann.publish("f", kind=1)
    world.run(s=2)
    assert x.events == ["e", "f"]
