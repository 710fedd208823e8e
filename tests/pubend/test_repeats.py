"""Sequences below the publisher's window are looked up in the log (R27, R28, A21)."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import LogRow, PublisherRecord
from gapless.messages.streams import Publication
from gapless.pubend import repeats
from gapless.pubend.pubend import PublishRefusedError
from gapless.pubend.repeats import LookupResult
from tests.pubend.small_disk import Bench

TINY = Parameters(publisher_window=2)
"""A window of two sequences; the log is retained for an hour."""


def bench_with(*sequences: int, parameters: Parameters = TINY) -> tuple[Bench, list[Tick]]:
    """Return a pubend whose log has these sequences, a row each, and their ticks."""
    bench = Bench(parameters)
    session = bench.open()
    ticks = []
    for sequence in sequences:
        answers = bench.publish(session, sequence, sequence)
        bench.sync()
        ticks.append(answers[0][0])
        bench.run(ms=3)
    return bench, ticks


def settle(bench: Bench) -> None:
    """Let the disk complete all writes and reads."""
    bench.sync()
    while bench.fetches:
        bench.answer_fetches()
        bench.sync()


def logged(bench: Bench) -> list[int]:
    """Return the sequences in the log."""
    return [each.sequence for row in bench.rows for each in row.publications]


# --- found ----------------------------------------------------------------------------------------


def test_a_sequence_beyond_the_window_is_answered_with_its_tick_from_the_log() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = bench.publish(session, 2, 2)
    assert answers == []
    settle(bench)
    assert answers == [(ticks[1],)]
    assert logged(bench) == [1, 2, 3, 4, 5]
    assert bench.context.coverage_marks["look-up in the log"] == 1


def test_a_batch_that_is_partly_below_in_and_above_the_window_is_completed() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = bench.publish(session, 2, 2, 3, 4, 5, 6, 7)
    settle(bench)
    assert answers[0][:4] == tuple(ticks[1:])
    assert len(answers[0]) == 6
    assert logged(bench) == [1, 2, 3, 4, 5, 6, 7]


def test_a_batch_that_is_half_in_the_window_is_answered_from_the_log() -> None:
    bench = Bench(TINY)
    session = bench.open()
    first = bench.publish(session, 1, 1, 2, 3)
    bench.sync()
    bench.publish(session, 4, 4)  # now the window is 3 and 4, and 3 is in a row with 1 and 2
    bench.sync()
    again = bench.publish(session, 1, 1, 2, 3)
    settle(bench)
    assert again == first
    assert logged(bench) == [1, 2, 3, 4]


def test_all_batches_of_a_client_that_reconnects_are_answered_by_one_scan() -> None:
    bench, ticks = bench_with(*range(1, 41))
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in range(11, 43)]
    settle(bench)
    assert [each[0][0] for each in answers[:30]] == ticks[10:]
    assert logged(bench) == list(range(1, 43))
    assert bench.context.coverage_marks["look-up in the log"] == 1


def test_more_sequences_than_one_scan_looks_for_are_looked_up_by_further_scans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "LOOKUP_SEQUENCES_MAX", 4)
    bench, ticks = bench_with(*range(1, 21))
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in range(1, 11)]
    large = bench.publish(session, 11, *range(11, 21))  # more than one scan looks for
    settle(bench)
    assert [each[0][0] for each in answers] == ticks[:10]
    assert large == [tuple(ticks[10:])]
    assert bench.context.coverage_marks["look-up in the log"] == 4


def test_the_log_is_read_in_chunks() -> None:
    bench, ticks = bench_with(
        *range(1, 21), parameters=Parameters(publisher_window=2, read_chunk_bytes=100)
    )
    session = bench.open()
    answers = bench.publish(session, 15, 15)
    bench.sync()
    for _ in range(8):
        bench.answer_fetches(1)
        assert answers == []
    settle(bench)
    assert answers == [(ticks[14],)]


def test_a_repeat_is_answered_when_its_first_copy_is_on_disk() -> None:
    # R27: it stays unanswered until its first copy is synced
    bench, _ = bench_with()
    session = bench.open()
    first = [bench.publish(session, sequence, sequence) for sequence in range(1, 5)]
    again = bench.publish(session, 1, 1)
    assert bench.fetches == []
    settle(bench)
    assert again == first[0]


def test_an_event_published_before_a_crash_is_found_after_it() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    bench.start()
    answers = bench.publish(bench.open(), 1, 1)
    settle(bench)
    assert answers == [(ticks[0],)]


def test_publications_of_other_publishers_are_ignored() -> None:
    bench, ticks = bench_with(1, 2, 3)
    other = bench.open("bob")
    for sequence in (1, 2, 3, 4, 5, 6):
        bench.publish(other, sequence, sequence)
        bench.sync()
    session = bench.open()
    bench.publish(session, 4, 4)
    bench.publish(session, 5, 5)
    settle(bench)
    answers = bench.publish(session, 1, 1, 2)
    settle(bench)
    assert answers == [(ticks[0], ticks[1])]


# --- not found ------------------------------------------------------------------------------------


def test_a_sequence_skipped_below_the_window_is_refused_after_the_lookup() -> None:
    # A21 (a): 3 was skipped; it must not look published
    bench, _ = bench_with(1, 2, 4, 5, 6, 7)
    session = bench.open()
    answers = bench.publish(session, 2, 2, 3, 4)
    settle(bench)
    assert answers == []
    (refusal,) = bench.refusals
    assert refusal == (
        "sequence 3 was skipped, or its event is released from the log; continue after 7"
    )


def test_a_released_sequence_is_refused_after_the_lookup() -> None:
    bench, ticks = bench_with(
        1, 2, 3, 4, 5, parameters=Parameters(publisher_window=2, retention_s=1)
    )
    bench.run(ms=2_000)
    assert bench.rows == []
    assert bench.pubend.record.released >= ticks[-1]
    session = bench.open()
    old = bench.publish(session, 1, 1)
    remembered = bench.publish(session, 5, 5)
    settle(bench)
    assert old == []
    assert "is released from the log" in bench.refusals[0]
    assert remembered == [(ticks[4],)]


def test_ticks_released_during_a_lookup_are_not_read() -> None:
    bench, ticks = bench_with(
        *range(1, 11),
        parameters=Parameters(publisher_window=2, retention_s=1, read_chunk_bytes=100),
    )
    session = bench.open()
    answers = bench.publish(session, 7, 7)
    bench.sync()
    bench.answer_fetches(1)
    bench.run(ms=2_000)
    bench.answer_fetches(1)
    assert bench.fetches == []  # no ticks are left to read
    assert answers == []
    assert "is released from the log" in bench.refusals[0]
    assert bench.pubend.record.released >= ticks[-1]


def test_a_lookup_that_reaches_a_corrupt_row_is_refused_as_corrupt() -> None:
    # P8: a missing sequence proves nothing when a row cannot be read
    bench, ticks = bench_with(1, 2, 3, 4, 5, 6)
    bench.corrupt.add(ticks[2])
    session = bench.open()
    for sequence in (1, 4):
        assert bench.publish(session, sequence, sequence) == []
    fresh = bench.publish(session, 7, 7)
    settle(bench)
    assert len(bench.refusals) == 3
    assert all("corrupt" in refusal for refusal in bench.refusals)
    assert bench.pubend.corruption == f"row {ticks[2]} is corrupt"
    assert fresh == []  # a new event would follow a row that cannot be read


def test_sequences_from_before_a_publisher_was_forgotten_are_ignored() -> None:
    # its sequences started again: the current 2 was skipped, though the log has an earlier 2
    bench, _ = bench_with(1, 2, 3, parameters=Parameters(publisher_window=2, publisher_ttl_s=10))
    bench.run(ms=12_000)
    session = bench.open()
    assert session.last_sequence == 0
    ticks = {}
    for sequence in (1, 3, 4, 5):
        answer = bench.publish(session, sequence, sequence)
        bench.sync()
        ticks[sequence] = answer[0][0]
    first, second = bench.publish(session, 1, 1), bench.publish(session, 2, 2)
    settle(bench)
    assert first == [(ticks[1],)]
    assert second == []
    assert len(bench.refusals) == 1


def test_earlier_sequences_are_ignored_if_all_current_ones_are_in_the_window() -> None:
    bench, _ = bench_with(1, 2, 3, parameters=Parameters(publisher_window=2, publisher_ttl_s=10))
    bench.run(ms=12_000)
    session = bench.open()
    bench.publish(session, 3, 3)
    bench.publish(session, 4, 4)
    answers = bench.publish(session, 2, 2)
    settle(bench)
    assert answers == []
    assert len(bench.refusals) == 1


def test_sequences_in_the_window_are_not_counted_again_from_a_shared_row() -> None:
    # 3 and 4 are in the window; found in the log too, they would look like sequences that started
    # again
    events = tuple(Publication(9 + each, "ann", each, {}, b"") for each in (1, 2, 3, 4))
    found = LookupResult(range(1, 3), {})
    found.take("ann", [LogRow(PubendId("P"), 10, 13, 0, 0, 0, 0, events)], 11)
    found.note_sequence(3)
    found.note_sequence(4)
    assert found.ticks == {1: 10, 2: 11}


# --- the order of one publisher -------------------------------------------------------------------


def test_later_batches_wait_for_the_lookup_of_an_earlier_one() -> None:
    # A21: the batch 3 to 8 is half old; 9 must not overtake its new half
    bench, _ = bench_with(1, 2, 3, 4, 5, 6)
    session = bench.open()
    half = bench.publish(session, 3, 3, 4, 5, 6, 7, 8)
    later = bench.publish(session, 9, 9)
    bench.sync()
    assert later == []
    settle(bench)
    assert logged(bench) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert half[0][-1] < later[0][0]
    assert bench.refusals == []


def test_other_publishers_do_not_wait() -> None:
    bench, _ = bench_with(1, 2, 3, 4)
    other = bench.open("bob")
    session = bench.open()
    old = bench.publish(session, 1, 1)
    answers = bench.publish(other, 1, 1)
    bench.sync()
    assert len(answers) == 1
    assert old == []


def test_a_waiting_batch_is_refused_for_its_own_reason_and_the_next_one_continues() -> None:
    bench = Bench(TINY, advertisement="a < 100")
    session = bench.open()
    for sequence in range(1, 5):
        bench.publish(session, sequence, sequence)
    bench.publish(session, 1, 1)
    outside = bench.publish(session, 5, 500)
    inside = bench.publish(session, 6, 6)
    settle(bench)
    assert outside == []
    assert "advertisement" in bench.refusals[0]
    assert len(inside) == 1
    assert logged(bench) == [1, 2, 3, 4, 6]


def test_a_new_session_refuses_waiting_batches_of_the_older_one_and_starts_another_lookup() -> None:
    # R28
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    old = bench.open()
    before = [bench.publish(old, 1, 1), bench.publish(old, 6, 6)]
    bench.sync()
    new = bench.open()
    assert len(bench.refusals) == 2
    assert all("a newer session" in refusal for refusal in bench.refusals)
    again = [bench.publish(new, 1, 1), bench.publish(new, 6, 6)]
    settle(bench)
    assert before == [[], []]
    assert again[0] == [(ticks[0],)]
    assert len(again[1]) == 1
    assert logged(bench) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(PublishRefusedError, match="a newer session"):
        bench.publish(old, 7, 7)


def test_an_older_session_is_refused_at_once_during_a_lookup() -> None:
    bench, _ = bench_with(1, 2, 3, 4, 5)
    old, new = bench.open(), bench.open()
    bench.publish(new, 1, 1)
    with pytest.raises(PublishRefusedError, match="a newer session"):
        bench.publish(old, 6, 6)


def test_more_waiting_batches_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LOOKUP_PENDING_BATCHES_MAX", 3)
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in (1, 2, 3)]
    with pytest.raises(PublishRefusedError, match="3 batches of publisher 'ann' wait"):
        bench.publish(session, 4, 4)
    settle(bench)
    assert [each[0][0] for each in answers] == ticks[:3]
    bench.publish(session, 4, 4)


def test_a_publisher_that_is_forgotten_during_its_lookup_is_refused() -> None:
    bench, _ = bench_with(1, 2, 3, 4, parameters=Parameters(publisher_window=2, publisher_ttl_s=10))
    session: PublisherRecord = bench.open()
    bench.publish(session, 1, 1)
    bench.sync()
    bench.clock += microseconds(s=20)
    bench.context.clock = bench.clock
    bench.pubend.unused.review()
    settle(bench)
    assert bench.refusals == ["publisher 'ann' is not open here; open it again"]
