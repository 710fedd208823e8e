"""The size of a log: exact while running, known after a crash, never too low (R58)."""

from __future__ import annotations

import pytest

from gapless.core.ids import ShbId
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import PublisherRecord
from gapless.messages.streams import KnowledgeRange
from gapless.pubend.log_size import PARTS, LogSize, row_bytes
from gapless.pubend.pubend import PublishRefusedError
from tests.pubend.small_disk import Bench

SMALL = Parameters(retention_s=0, log_bytes_max=20_000)


def counted(bench: Bench) -> int:
    """Return the sum of the bytes of all rows."""
    return sum(
        row_bytes(KnowledgeRange(row.first, row.last, row.stream_epoch, 0, row.publications))
        for row in bench.rows
    )


def fill(bench: Bench, session: PublisherRecord, first: int = 1) -> tuple[int, list[Tick]]:
    """Publish until the log is full; return the next sequence and the ticks."""
    ticks: list[Tick] = []
    for sequence in range(first, first + 1_000):
        try:
            answer = bench.publish(session, sequence, sequence)
        except PublishRefusedError:
            return sequence, ticks
        bench.sync()
        ticks.append(answer[0][0])
        bench.run(ms=1)
    raise AssertionError("the log never was full")


def with_member(parameters: Parameters = SMALL) -> Bench:
    bench = Bench(parameters)
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    return bench


def test_marks_are_few_and_the_size_is_exact_until_a_release() -> None:
    size = LogSize(64_000)
    for tick in range(1, 10_001):
        size.add(tick, 1 + tick % 7)
        size.release(tick - 15_000)
    assert size.bytes == size.total == sum(1 + tick % 7 for tick in range(1, 10_001))
    assert len(size.marks) <= 2 * PARTS + 2


def test_released_bytes_are_subtracted_mark_by_mark_and_completely_at_the_end() -> None:
    size = LogSize(6_400)
    for tick in range(1, 101):
        size.add(tick, 10)
    for up_to in range(1, 101):
        size.release(up_to)
        held = 10 * (100 - up_to)
        assert held <= size.bytes <= held + 6_400 // PARTS
    assert size.bytes == 0


def test_the_size_after_a_crash_is_never_below_the_bytes_of_the_log() -> None:
    size = LogSize(6_400)
    for tick in range(1, 51):
        size.add(tick, 10)
    marks = size.marks
    for tick in range(51, 101):
        size.add(tick, 10)
    again = LogSize(6_400, marks, (100, size.total), released=20)
    assert 800 <= again.bytes <= 800 + 6_400 // PARTS
    again.release(
        70
    )  # the marks from 51 on are lost: the size is too high until all rows are released
    assert 300 <= again.bytes <= 500
    again.release(100)
    assert again.bytes == 0


def test_a_record_without_sizes_counts_as_an_empty_log() -> None:
    assert LogSize(100, (), (99, 0), released=5).bytes == 0


def test_a_full_log_refuses_events_and_names_the_limit_and_the_remedy() -> None:
    # R58, the default policy
    bench = with_member()
    session = bench.open()
    sequence, _ = fill(bench, session)
    with pytest.raises(
        PublishRefusedError, match=r"log of stocks .*log_bytes_max = 20,000.*kept for s@s; publish"
    ):
        bench.publish(session, sequence, 1)
    assert counted(bench) >= 20_000
    assert bench.context.coverage_marks["log full"] >= 2


def test_a_full_log_answers_repeated_sequences() -> None:
    bench = with_member()
    session = bench.open()
    sequence, ticks = fill(bench, session)
    again = bench.publish(session, sequence - 1, 1)
    bench.sync()
    assert again == [(ticks[-1],)]


def test_a_full_log_accepts_events_again_after_an_acknowledgement() -> None:
    bench = with_member()
    session = bench.open()
    sequence, ticks = fill(bench, session)
    bench.report("s", ticks[len(ticks) // 2])
    bench.run(ms=1_000)
    answers = bench.publish(session, sequence, 1)
    bench.sync()
    assert answers


def test_a_full_log_is_known_to_be_full_after_a_restart() -> None:
    bench = with_member()
    sequence, _ = fill(bench, bench.open())
    bench.start()
    session = bench.open()
    with pytest.raises(PublishRefusedError, match="log_bytes_max"):
        bench.publish(session, sequence, 1)
    assert bench.pubend._size.bytes == counted(bench)


def test_the_size_is_exact_after_a_crash_between_two_writes_of_the_pubend_record() -> None:
    bench = with_member()
    session = bench.open()
    for sequence in range(1, 40):
        bench.publish(session, sequence, sequence)
        bench.sync()
    bench.start()
    assert bench.pubend._size.bytes == counted(bench)


def test_the_size_is_kept_when_all_publishers_are_forgotten() -> None:
    bench = with_member(Parameters(retention_s=0, log_bytes_max=20_000, publisher_ttl_s=5))
    fill(bench, bench.open())
    bench.run(ms=7_000)
    assert not [each for each in bench.records.values() if isinstance(each, PublisherRecord)]
    bench.start()
    assert bench.pubend._size.bytes == counted(bench) >= 20_000


def test_a_full_log_sends_ack_expected_with_pressure_to_lagging_members() -> None:
    # R58: an SHB below the tick releases the log for its lagging subscriptions
    bench = with_member()
    fill(bench, bench.open())
    bench.run(ms=1_000)
    sent = [each for each in bench.expected if each[2]]
    assert len(sent) == 1
    tick = sent[0][1]
    bench.report("s", tick)  # it releases the log up to there
    bench.run(ms=1_000)
    assert 0 < counted(bench) <= 20_000 * 7 // 8
    bench.run(ms=10_000)
    assert len([each for each in bench.expected if each[2]]) == 1


def test_a_log_hold_that_retains_a_full_log_causes_pressure() -> None:
    bench = Bench(SMALL)
    log_hold = LogHoldId(ShbId("t", "t"), "x")
    bench.pubend.members.hold_log(log_hold, 0, bench.now)
    session = bench.open()
    sequence, _ = fill(bench, session)
    bench.run(ms=1_000)
    assert [each[2] for each in bench.expected] == [True]
    with pytest.raises(PublishRefusedError, match="kept for t@t"):
        bench.publish(session, sequence, 1)


def test_a_log_that_only_the_retention_time_keeps_is_released_before_it_is_full() -> None:
    bench = Bench(Parameters(retention_s=3_600, log_bytes_max=20_000))
    session = bench.open()
    for sequence in range(1, 501):
        answers = bench.publish(session, sequence, sequence)
        bench.sync()
        assert answers
        assert counted(bench) < 20_000
    assert bench.pubend.record.released
    assert counted(bench) >= 20_000 * 5 // 8  # no more than necessary


def test_a_full_log_whose_release_waits_for_the_disk_refuses() -> None:
    bench = Bench(Parameters(retention_s=3_600, log_bytes_max=20_000))
    session = bench.open()
    with pytest.raises(PublishRefusedError, match="it is being released"):  # noqa: PT012
        for sequence in range(1, 1_001):
            bench.publish(session, sequence, sequence)
    bench.run(ms=600)
    answers = bench.publish(session, sequence, 1)
    bench.sync()
    assert answers
