"""Advertisements only widen: the wider one is stored, gets a stream epoch, is used (A22, R31)."""

from __future__ import annotations

import pytest

from gapless.content.filter import Filter
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.records import PubendRecord
from gapless.pubend.pubend import PublishRefusedError
from tests.pubend.small_disk import Bench


def with_member() -> Bench:
    """Return a pubend that advertises less than 10, and a member in its first stream epoch."""
    bench = Bench(Parameters(), advertisement="a < 10")
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    assert [each.announcement_version for each in bench.opened] == [1]
    return bench


def widen(bench: Bench, text: str) -> list[int]:
    """Widen the advertisement; the returned list receives the announced version."""
    announced: list[int] = []
    bench.pubend.widen(
        Filter(text), lambda: announced.append(bench.pubend.record.announcement_version)
    )
    bench.collect()
    return announced


def stored(bench: Bench) -> PubendRecord:
    (record,) = [each for each in bench.records.values() if isinstance(each, PubendRecord)]
    return record


def test_a_wider_advertisement_is_on_disk_before_it_is_announced_or_used() -> None:
    bench = with_member()
    session = bench.open()
    announced = widen(bench, "a < 100")
    with pytest.raises(PublishRefusedError, match="a < 10"):
        bench.publish(session, 1, 50)
    assert announced == []
    assert bench.pubend.record.announcement_version == 1
    bench.sync()
    assert announced == [2]
    assert stored(bench).properties.advertisement == "a < 100"
    assert stored(bench).announcement_version == 2
    assert bench.opened[-1].announcement_version == 2  # at once, though no event is published
    answers = bench.publish(session, 1, 50)
    bench.sync()
    assert len(answers) == 1


def test_events_of_a_wider_advertisement_are_in_a_stream_epoch_of_the_new_version() -> None:
    # R31: also within stream_epoch_interval_ms of the former stream epoch
    bench = with_member()
    session = bench.open()
    bench.claim("s", 2)
    bench.sync()
    widen(bench, "a < 100")
    bench.sync()
    answers = bench.publish(session, 1, 50)
    bench.sync()
    stream_epoch = bench.pubend.vector(bench.pubend.stream_epoch_of(answers[0][0]))
    assert stream_epoch is not None
    assert stream_epoch.announcement_version == 2
    assert (
        len(stream_epoch.entries) == 1
    )  # a member stays one, though no table knows the version yet
    assert stream_epoch == bench.opened[-1]
    assert bench.rows[-1].stream_epoch == stream_epoch.number


def test_after_a_crash_between_record_and_stream_epoch_events_are_not_in_the_old_epoch() -> None:
    bench = with_member()
    widen(bench, "a < 100")
    write = bench.writes.pop(0)
    for change in write.changes:
        bench._apply(change)  # it has reached the disk, and no broker was notified
    bench.start()
    session = bench.open()
    assert bench.pubend.stream_epochs[-1].announcement_version == 1
    answers = bench.publish(session, 1, 50)
    bench.sync()
    stream_epoch = bench.pubend.vector(bench.pubend.stream_epoch_of(answers[0][0]))
    assert stream_epoch is not None
    assert stream_epoch.announcement_version == 2


def test_a_widening_and_other_changes_of_the_record_do_not_undo_each_other() -> None:
    bench = with_member()
    bench.pubend.advance(bench.clock + microseconds(s=60))  # its tick ceiling is being raised
    announced = [widen(bench, "a < 100"), widen(bench, "a < 1000")]
    bench.run(ms=3_000, sync=False)
    bench.sync()
    before = stored(bench)
    bench.pubend.advance(bench.clock + microseconds(s=120))
    bench.run(ms=3_000)
    after = stored(bench)
    assert announced == [[2], [3]]
    assert before.ceiling < after.ceiling
    assert after.announcement_version == 3
    assert after.properties.advertisement == "a < 1000"
    assert bench.pubend.record.ceiling == after.ceiling
    assert bench.pubend.record.properties == after.properties


def test_an_advertisement_never_narrows() -> None:
    bench = with_member()
    with pytest.raises(AssertionError, match="only widens"):
        widen(bench, "a < 5")
