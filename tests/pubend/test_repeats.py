"""Sequences that are too old to be remembered are looked up in the log (R27, R28, A21)."""

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
"""Two sequences are remembered; the log is kept for an hour."""


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
    """Let the disk do all that it is asked to."""
    bench.sync()
    while bench.fetches:
        bench.answer_fetches()
        bench.sync()


def logged(bench: Bench) -> list[int]:
    """Return the sequences in the log."""
    return [each.sequence for row in bench.rows for each in row.publications]


# --- what is found --------------------------------------------------------------------------------


def test_a_sequence_beyond_the_window_is_answered_with_its_tick_from_the_log() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = bench.publish(session, 2, 2)
    assert answers == []
    settle(bench)
    assert answers == [(ticks[1],)]
    assert logged(bench) == [1, 2, 3, 4, 5]
    assert bench.context.coverage_marks["look-up in the log"] == 1


def test_a_batch_that_is_partly_old_partly_remembered_and_partly_new_is_completed() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = bench.publish(session, 2, 2, 3, 4, 5, 6, 7)
    settle(bench)
    assert answers[0][:4] == tuple(ticks[1:])
    assert len(answers[0]) == 6
    assert logged(bench) == [1, 2, 3, 4, 5, 6, 7]


def test_a_batch_that_is_half_remembered_is_no_sign_of_an_earlier_stay() -> None:
    bench = Bench(TINY)
    session = bench.open()
    first = bench.publish(session, 1, 1, 2, 3)
    bench.sync()
    bench.publish(session, 4, 4)  # now 3 and 4 are remembered, and 3 lies in a row with 1 and 2
    bench.sync()
    again = bench.publish(session, 1, 1, 2, 3)
    settle(bench)
    assert again == first
    assert logged(bench) == [1, 2, 3, 4]


def test_all_batches_of_a_client_that_reconnects_are_answered_by_one_reading() -> None:
    bench, ticks = bench_with(*range(1, 41))
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in range(11, 43)]
    settle(bench)
    assert [each[0][0] for each in answers[:30]] == ticks[10:]
    assert logged(bench) == list(range(1, 43))
    assert bench.context.coverage_marks["look-up in the log"] == 1


def test_what_one_reading_does_not_look_for_is_looked_up_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "LOOKUP_SEQUENCES_MAX", 4)
    bench, ticks = bench_with(*range(1, 21))
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in range(1, 11)]
    large = bench.publish(session, 11, *range(11, 21))  # more than one reading keeps
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


def test_a_repetition_whose_first_copy_waits_for_the_disk_is_found_when_that_is_there() -> None:
    # section 16: it stays unanswered until its first copy is synced
    bench, _ = bench_with()
    session = bench.open()
    first = [bench.publish(session, sequence, sequence) for sequence in range(1, 5)]
    again = bench.publish(session, 1, 1)
    assert bench.fetches == []
    settle(bench)
    assert again == first[0]


def test_what_was_published_before_a_crash_is_found_after_it() -> None:
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    bench.start()
    answers = bench.publish(bench.open(), 1, 1)
    settle(bench)
    assert answers == [(ticks[0],)]


def test_publications_of_others_are_not_taken_for_ones_own() -> None:
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


# --- what is not found ----------------------------------------------------------------------------


def test_what_was_passed_over_long_ago_is_refused_after_the_look_up() -> None:
    # A21 (a): 3 was given up; it must not look published
    bench, _ = bench_with(1, 2, 4, 5, 6, 7)
    session = bench.open()
    answers = bench.publish(session, 2, 2, 3, 4)
    settle(bench)
    assert answers == []
    (refusal,) = bench.refusals
    assert refusal == (
        "sequence 3 was passed over, or published so long ago that the log no longer has it; "
        "go on after 7"
    )


def test_what_is_released_is_refused_after_the_look_up() -> None:
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
    assert "the log no longer has it" in bench.refusals[0]
    assert remembered == [(ticks[4],)]


def test_a_log_that_is_released_during_a_look_up_is_not_read_below_that() -> None:
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
    assert bench.fetches == []  # nothing is left to read
    assert answers == []
    assert "the log no longer has it" in bench.refusals[0]
    assert bench.pubend.record.released >= ticks[-1]


def test_a_look_up_that_meets_a_corrupt_row_is_refused_as_that() -> None:
    # P8: not found is no proof when a row cannot be read
    bench, ticks = bench_with(1, 2, 3, 4, 5, 6)
    bench.corrupt.add(ticks[2])
    session = bench.open()
    for sequence in (1, 4):
        assert bench.publish(session, sequence, sequence) == []
    fresh = bench.publish(session, 7, 7)
    settle(bench)
    assert len(bench.refusals) == 3
    assert all("damaged" in refusal for refusal in bench.refusals)
    assert bench.pubend.corruption == f"row {ticks[2]} is damaged"
    assert fresh == []  # what is new would lie behind what nobody can read


def test_an_earlier_stay_of_a_forgotten_publisher_does_not_count() -> None:
    # its numbers began anew: 2 of now was passed over, though there is a 2 of then
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


def test_an_earlier_stay_does_not_count_where_all_of_the_present_one_is_remembered() -> None:
    bench, _ = bench_with(1, 2, 3, parameters=Parameters(publisher_window=2, publisher_ttl_s=10))
    bench.run(ms=12_000)
    session = bench.open()
    bench.publish(session, 3, 3)
    bench.publish(session, 4, 4)
    answers = bench.publish(session, 2, 2)
    settle(bench)
    assert answers == []
    assert len(bench.refusals) == 1


def test_what_is_remembered_is_not_met_a_second_time_in_the_row_that_it_shares_with_the_rest() -> (
    None
):
    # 3 and 4 are remembered; read from the log too, they would look like another stay
    events = tuple(Publication(9 + each, "ann", each, {}, b"") for each in (1, 2, 3, 4))
    found = LookupResult(range(1, 3), {})
    found.take("ann", [LogRow(PubendId("P"), 10, 13, 0, 0, 0, events)], 11)
    found.note_sequence(3)
    found.note_sequence(4)
    assert found.ticks == {1: 10, 2: 11}


# --- the order of one publisher -------------------------------------------------------------------


def test_later_batches_wait_so_that_nothing_of_an_earlier_one_is_passed_over() -> None:
    # A21: the batch 3 to 8 is half old; 9 may not overtake its fresh half
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


def test_one_that_waits_is_refused_for_what_it_is_and_the_next_goes_on() -> None:
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


def test_a_new_session_refuses_what_waits_for_the_older_one_and_looks_anew() -> None:
    # R28
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    old = bench.open()
    before = [bench.publish(old, 1, 1), bench.publish(old, 6, 6)]
    bench.sync()
    new = bench.open()
    assert len(bench.refusals) == 2
    assert all("opened again" in refusal for refusal in bench.refusals)
    again = [bench.publish(new, 1, 1), bench.publish(new, 6, 6)]
    settle(bench)
    assert before == [[], []]
    assert again[0] == [(ticks[0],)]
    assert len(again[1]) == 1
    assert logged(bench) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(PublishRefusedError, match="opened again"):
        bench.publish(old, 7, 7)


def test_an_older_session_is_refused_at_once_also_during_a_look_up() -> None:
    bench, _ = bench_with(1, 2, 3, 4, 5)
    old, new = bench.open(), bench.open()
    bench.publish(new, 1, 1)
    with pytest.raises(PublishRefusedError, match="opened again"):
        bench.publish(old, 6, 6)


def test_not_more_than_so_many_batches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LOOKUP_PENDING_BATCHES_MAX", 3)
    bench, ticks = bench_with(1, 2, 3, 4, 5)
    session = bench.open()
    answers = [bench.publish(session, sequence, sequence) for sequence in (1, 2, 3)]
    with pytest.raises(PublishRefusedError, match="3 batches of publisher 'ann' wait"):
        bench.publish(session, 4, 4)
    settle(bench)
    assert [each[0][0] for each in answers] == ticks[:3]
    bench.publish(session, 4, 4)


def test_a_publisher_that_is_forgotten_during_its_look_up_is_refused() -> None:
    bench, _ = bench_with(1, 2, 3, 4, parameters=Parameters(publisher_window=2, publisher_ttl_s=10))
    session: PublisherRecord = bench.open()
    bench.publish(session, 1, 1)
    bench.sync()
    bench.clock += microseconds(s=20)
    bench.context.clock = bench.clock
    bench.pubend._review_publishers()
    settle(bench)
    assert bench.refusals == ["publisher 'ann' is not open here; open it to go on"]
