"""Advertisements only widen: on disk, in a regime of its own, and only then used (A22, R31)."""

from __future__ import annotations

import pytest

from gapless.content.filter import Filter
from gapless.core.parameters import Parameters
from gapless.messages.records import PubendRecord
from gapless.pubend.pubend import PublishRefusedError
from tests.pubend.small_disk import Bench


def with_member() -> Bench:
    """Return a pubend that advertises less than 10, and a member in its first regime."""
    bench = Bench(Parameters(), advertisement="a < 10")
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    assert [each.announcement_version for each in bench.opened] == [1]
    return bench


def widen(bench: Bench, text: str) -> list[int]:
    """Ask for a wider advertisement; the version that is announced comes when it is."""
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
    assert bench.opened[-1].announcement_version == 2  # at once, though nothing is published
    answers = bench.publish(session, 1, 50)
    bench.sync()
    assert len(answers) == 1


def test_what_the_wider_one_adds_lies_in_a_stream_epoch_of_the_new_version() -> None:
    # R31: also within stream_epoch_interval_ms of the regime before
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


def test_a_crash_between_the_record_and_the_stream_epoch_does_not_let_events_into_the_old_one() -> (
    None
):
    bench = with_member()
    widen(bench, "a < 100")
    write = bench.writes.pop(0)
    for change in write.changes:
        bench._apply(change)  # it has reached the disk, and nobody was told
    bench.start()
    session = bench.open()
    assert bench.pubend.stream_epochs[-1].announcement_version == 1
    answers = bench.publish(session, 1, 50)
    bench.sync()
    stream_epoch = bench.pubend.vector(bench.pubend.stream_epoch_of(answers[0][0]))
    assert stream_epoch is not None
    assert stream_epoch.announcement_version == 2


def test_a_wider_advertisement_and_other_changes_of_the_record_do_not_undo_each_other() -> None:
    bench = with_member()
    bench.run(ms=3_000, sync=False)  # the ceiling is being raised
    announced = [widen(bench, "a < 100"), widen(bench, "a < 1000")]
    bench.run(ms=3_000, sync=False)
    bench.sync()
    before = stored(bench)
    bench.run(ms=3_000)
    after = stored(bench)
    assert announced == [[2], [3]]
    assert before.ceiling < after.ceiling
    assert after.announcement_version == 3
    assert after.properties.advertisement == "a < 1000"
    assert bench.pubend.record.ceiling == after.ceiling
    assert bench.pubend.record.properties == after.properties


def test_a_pubend_never_narrows() -> None:
    bench = with_member()
    with pytest.raises(AssertionError, match="only widens"):
        widen(bench, "a < 5")
