"""Publishers: each event once and in order, acknowledged only if it is in the log (R27, R28)."""

from __future__ import annotations

import pytest

from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import PubendRecord, PublisherRecord
from gapless.pubend.pubend import PublishRefusedError, last_logged
from tests.pubend.small_disk import STOCKS, Bench


def logged(bench: Bench) -> list[int]:
    """Return the sequences in the log."""
    return [each.sequence for row in bench.rows for each in row.publications]


def stored(bench: Bench) -> list[PublisherRecord]:
    return [each for each in bench.records.values() if isinstance(each, PublisherRecord)]


def ceiling(bench: Bench) -> Tick:
    (record,) = [each for each in bench.records.values() if isinstance(each, PubendRecord)]
    return record.ceiling


def test_a_repeated_sequence_is_answered_with_its_first_tick_and_logged_once() -> None:
    # R27: idempotent by publisher and sequence
    bench = Bench()
    session = bench.open()
    first = bench.publish(session, 1, 1, 2)
    again = bench.publish(session, 1, 1, 2)
    assert again == []  # its first copy is not on disk yet, so neither is answered
    bench.sync()
    assert again == first
    assert logged(bench) == [1, 2]
    half = bench.publish(session, 2, 2, 3)
    bench.sync()
    assert half[0][0] == first[0][1]
    assert logged(bench) == [1, 2, 3]


def test_a_repeated_sequence_is_known_again_after_a_crash() -> None:
    bench = Bench()
    answers = bench.publish(bench.open(), 1, 1)
    bench.sync()
    bench.start()
    session = bench.open()
    assert session.last_sequence == 1
    again = bench.publish(session, 1, 1)
    bench.sync()
    assert again == answers


def test_a_publisher_continues_after_a_refused_batch() -> None:
    # 5 and 6 are outside the advertisement; the client skips them and sends 7
    bench = Bench(advertisement="a < 100")
    session = bench.open()
    bench.publish(session, 1, 1, 2, 3, 4)
    with pytest.raises(PublishRefusedError, match="advertisement"):
        bench.publish(session, 5, 5, 600)
    answers = bench.publish(session, 7, 7)
    bench.sync()
    assert len(answers[0]) == 1
    assert logged(bench) == [1, 2, 3, 4, 7]


def test_a_skipped_sequence_is_refused_and_never_acknowledged() -> None:
    # A21 (a): the client sends 9 before its unanswered 8; 8 must not look published
    bench = Bench()
    session = bench.open()
    bench.publish(session, 7, 7)
    bench.publish(session, 9, 9)
    bench.sync()
    with pytest.raises(PublishRefusedError, match=r"sequence 8 was skipped.*continue after 9"):
        bench.publish(session, 8, 8)
    assert logged(bench) == [7, 9]


def test_a_batch_with_a_skipped_sequence_is_refused_whole() -> None:
    bench = Bench()
    session = bench.open()
    bench.publish(session, 7, 7)
    bench.publish(session, 9, 9)
    bench.sync()
    with pytest.raises(PublishRefusedError, match="sequence 8"):
        bench.publish(session, 7, 7, 8, 9, 10)
    assert logged(bench) == [7, 9]
    assert bench.open().last_sequence == 9


def test_a_skipped_sequence_stays_refused_after_a_crash_and_beyond_the_window() -> None:
    bench = Bench(Parameters(retention_s=0, publisher_window=2))
    session = bench.open()
    bench.publish(session, 7, 7)
    bench.publish(session, 9, 9)
    bench.sync()
    bench.start()
    session = bench.open()
    with pytest.raises(PublishRefusedError, match="sequence 8 was skipped:"):
        bench.publish(session, 8, 8)
    for sequence in (10, 11):
        bench.publish(session, sequence, sequence)
    bench.sync()
    bench.start()
    session = bench.open()
    answers = bench.publish(session, 8, 8)
    bench.sync()
    bench.answer_fetches()
    assert answers == []
    (refusal,) = bench.refusals
    assert "sequence 8 was skipped, or its event is released" in refusal
    assert logged(bench) == [7, 9, 10, 11]


def test_sequences_below_the_first_are_refused() -> None:
    bench = Bench()
    session = bench.open()
    with pytest.raises(PublishRefusedError, match="sequence 0"):
        bench.publish(session, 0, 1, 2)


def test_an_older_session_of_a_publisher_is_fenced() -> None:
    bench = Bench()
    old, new = bench.open(), bench.open()
    with pytest.raises(PublishRefusedError, match="a newer session"):
        bench.publish(old, 1, 1)
    bench.publish(new, 1, 1)


def test_a_batch_outside_the_advertisement_is_refused_whole() -> None:
    # A22
    bench = Bench(advertisement="a > 10")
    session = bench.open()
    with pytest.raises(PublishRefusedError, match="a > 10"):
        bench.publish(session, 1, 11, 9)
    answers = bench.publish(session, 1, 11)
    bench.sync()
    assert len(answers[0]) == 1


# --- unused publishers ----------------------------------------------------------------------------


def test_the_last_logged_tick_is_in_the_record_of_its_publisher() -> None:
    bench = Bench(Parameters(retention_s=0, publisher_window=2))
    for publisher in ("ann", "bob", "cid"):
        session = bench.open(publisher)
        bench.publish(session, 1, 1, 2, 3)
        bench.sync()
        assert last_logged(stored(bench)) == bench.rows[-1].last
    bench.open("dan")
    assert last_logged(stored(bench)) == bench.rows[-1].last
    assert last_logged([]) == 0


def test_an_unused_publisher_is_deleted_on_disk() -> None:
    bench = Bench(Parameters(retention_s=0, publisher_ttl_s=10))
    old, busy = bench.open("old"), bench.open("busy")
    bench.publish(old, 1, 1)
    for sequence in range(1, 13):
        bench.publish(busy, sequence, sequence)
        bench.run(ms=1_000)
    assert [each.publisher for each in stored(bench)] == ["busy"]
    with pytest.raises(PublishRefusedError, match="not open"):
        bench.publish(old, 2, 2)


def test_a_forgotten_publisher_leaves_a_tick_ceiling_above_its_last_tick() -> None:
    # R29: after a restart the stream continues above all logged ticks
    bench = Bench(Parameters(retention_s=3_600, publisher_ttl_s=10, silence_ms=900))
    session = bench.open()
    bench.run(ms=2_000)
    bench.clock += microseconds(ms=900)  # above the tick ceiling
    bench.context.clock = bench.clock
    answers = bench.publish(session, 1, 1)
    bench.sync()
    (tick,) = answers[0]
    assert tick == last_logged(stored(bench))
    bench.clock += microseconds(s=20)
    bench.context.clock = bench.clock
    bench.pubend.unused.review()
    bench.sync()
    assert stored(bench) == []
    assert ceiling(bench) >= tick
    bench.clock -= microseconds(s=3_600)
    bench.start()
    again = bench.publish(bench.open(), 1, 1)
    bench.sync()
    assert again[0][0] > tick


def test_a_session_from_before_a_publisher_was_forgotten_stays_fenced() -> None:
    bench = Bench(Parameters(retention_s=0, publisher_ttl_s=10))
    old = bench.open()
    bench.run(ms=12_000)
    assert stored(bench) == []
    new = bench.open()
    assert new.session > old.session
    with pytest.raises(PublishRefusedError, match="a newer session"):
        bench.publish(old, 1, 1)
    assert {each.pubend for each in stored(bench)} == {STOCKS}
