"""A stream as an interval map: joining, memory, and conflicts."""

from __future__ import annotations

import pytest

from gapless.core.limits import JOIN_PUBLICATIONS_MAX
from gapless.core.ticks import TickRange
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.stream.istream import IStream, MemoryAccount
from gapless.stream.ranges import KnowledgeConflictError, TickState
from tests.stream.model import PUBEND, knowledge_range, publication, silence


def stream_of(*ranges: KnowledgeRange) -> IStream:
    stream = IStream(PUBEND)
    for one in ranges:
        stream.accumulate(one)
    return stream


def test_a_new_stream_knows_nothing() -> None:
    stream = stream_of()
    assert (len(stream), stream.bytes, stream.top) == (0, 0, 0)
    assert stream.state(1) is TickState.Q
    assert stream.known(1, 9) == []
    assert stream.gaps(1, 9) == [TickRange(1, 9)]
    assert stream.run(1) == []
    assert stream.known_through(5) == 4


def test_an_idle_stream_stays_one_knowledge_range() -> None:
    stream = stream_of(*(silence(low, low + 9) for low in range(1, 10_001, 10)))
    assert list(stream) == [silence(1, 10_000)]


def test_silences_in_reverse_order_are_joined_to_one_range() -> None:
    stream = stream_of(*(silence(low, low + 9) for low in range(991, 0, -10)))
    assert list(stream) == [silence(1, 1_000)]


def test_silence_extends_a_large_range_without_copying_its_publications() -> None:
    large = knowledge_range(10, 200, *range(10, 200))
    stream = stream_of(large, silence(201, 300), silence(1, 9))
    (only,) = stream
    assert (only.low, only.high) == (1, 300)
    assert only.publications is large.publications


def test_single_publications_are_joined_to_ranges_of_a_bounded_size() -> None:
    stream = stream_of(*(knowledge_range(tick, tick, tick) for tick in range(1, 1_001)))
    assert len(stream) == -(-1_000 // JOIN_PUBLICATIONS_MAX)
    assert max(len(one.publications) for one in stream) == JOIN_PUBLICATIONS_MAX
    assert stream.known_through(1) == 1_000


def test_large_ranges_are_not_joined() -> None:
    frames = [
        knowledge_range(low, low + 99, *range(low, low + 100)) for low in range(1, 1_001, 100)
    ]
    stream = stream_of(*frames)
    assert [*map(id, stream)] == [*map(id, frames)]


def test_ranges_of_different_control_versions_are_not_joined() -> None:
    stream = stream_of(silence(1, 5, 1, 7), silence(6, 9, 1, 8))
    assert [one.control_version for one in stream] == [7, 8]
    assert stream.known_through(1) == 9


def test_a_range_that_fills_a_gap_is_joined_with_both_neighbours() -> None:
    stream = stream_of(silence(1, 3), knowledge_range(7, 9, 8))
    assert stream.accumulate(knowledge_range(4, 6, 5)) == [knowledge_range(4, 6, 5)]
    assert list(stream) == [knowledge_range(1, 9, 5, 8)]


def test_only_the_unknown_parts_of_a_range_are_new() -> None:
    stream = stream_of(silence(3, 4), silence(7, 8))
    assert stream.accumulate(knowledge_range(1, 10, 1, 6, 10)) == [
        knowledge_range(1, 2, 1),
        knowledge_range(5, 6, 6),
        knowledge_range(9, 10, 10),
    ]
    assert list(stream) == [knowledge_range(1, 10, 1, 6, 10)]


def test_a_publication_over_silence_is_new_as_a_range_of_its_tick() -> None:
    stream = stream_of(knowledge_range(1, 9, 5))
    assert stream.accumulate(knowledge_range(2, 8, 3, 5, 7)) == [
        knowledge_range(3, 3, 3),
        knowledge_range(7, 7, 7),
    ]
    assert list(stream) == [knowledge_range(1, 9, 3, 5, 7)]


def test_a_known_range_changes_nothing() -> None:
    stream = stream_of(knowledge_range(1, 9, 5))
    (before,) = stream
    assert stream.accumulate(knowledge_range(1, 9, 5)) == []
    assert stream.accumulate(silence(2, 8)) == []
    (after,) = stream
    assert after is before


def test_two_publications_at_one_tick_stop_the_broker_and_name_pubend_and_tick() -> None:
    stream = stream_of(knowledge_range(1, 9, 5))
    impostor = Publication(5, "somebody else", 1, {}, b"")
    with pytest.raises(
        KnowledgeConflictError, match=r"pubend stocks, tick 5: .* exchange/5 and somebody"
    ):
        stream.accumulate(KnowledgeRange(4, 6, 1, 0, (impostor,)))
    assert list(stream) == [knowledge_range(1, 9, 5)]


def test_a_tick_in_two_stream_epochs_stops_the_broker() -> None:
    stream = stream_of(silence(1, 9, 1))
    with pytest.raises(
        KnowledgeConflictError, match=r"tick 6: in two stream epochs .* 1/0 and 2/0"
    ):
        stream.accumulate(silence(6, 12, 2))


def test_a_tick_under_two_control_versions_stops_the_broker() -> None:
    stream = stream_of(silence(4, 9, 1, 3))
    with pytest.raises(KnowledgeConflictError) as caught:
        stream.accumulate(silence(1, 4, 1, 4))
    assert (caught.value.pubend, caught.value.tick) == (PUBEND, 4)


def test_a_range_that_ends_before_its_start_is_refused() -> None:
    with pytest.raises(AssertionError, match="no range"):
        stream_of(silence(5, 4))


def test_known_ranges_are_cut_to_the_requested_range() -> None:
    stream = stream_of(knowledge_range(1, 9, 2, 5, 8), knowledge_range(12, 20, 15))
    assert stream.known(3, 13) == [knowledge_range(3, 9, 5, 8), silence(12, 13)]
    assert stream.known(4, 6) == [knowledge_range(4, 6, 5)]
    assert stream.known(10, 11) == []
    assert stream.known(6, 5) == []
    assert stream.gaps(6, 5) == []


def test_forgetting_cuts_ranges_and_keeps_the_top() -> None:
    stream = stream_of(knowledge_range(1, 9, 2, 5, 8))
    stream.forget(4, 6)
    assert list(stream) == [knowledge_range(1, 3, 2), knowledge_range(7, 9, 8)]
    stream.forget(4, 6)
    stream.forget_up_to(0)
    stream.forget(3, 2)
    assert len(stream) == 2
    stream.forget_all()
    assert (len(stream), stream.bytes, stream.top) == (0, 0, 9)


def test_a_feeder_raises_the_top_of_an_empty_stream() -> None:
    stream = stream_of()
    stream.raise_top(33)
    stream.raise_top(20)
    stream.accumulate(silence(5, 9))
    assert stream.top == 33


def test_streams_that_share_an_account_are_counted_together() -> None:
    account = MemoryAccount()
    one, other = IStream(PUBEND, account), IStream(PUBEND, account)
    one.accumulate(knowledge_range(1, 9, 5))
    other.accumulate(silence(1, 9))
    assert account.bytes == one.bytes + other.bytes > 0
    one.forget_all()
    assert account.bytes == other.bytes


def test_a_content_size_given_by_the_caller_is_used() -> None:
    measured, sent = stream_of(knowledge_range(1, 9, 5)), IStream(PUBEND)
    sent.accumulate(knowledge_range(1, 9, 5), 10_000)
    assert 10_000 < sent.bytes < 11_000
    assert measured.bytes < 1_000
    sent.accumulate(knowledge_range(20, 30, 25), 10_000)
    sent.accumulate(knowledge_range(12, 18, 15), 10_000)
    assert 30_000 < sent.bytes < 32_000
    sent.forget_all()
    assert sent.bytes == 0


def test_a_long_text_in_an_attribute_counts_towards_the_size() -> None:
    stream = IStream(PUBEND)
    stream.accumulate(KnowledgeRange(1, 9, 1, 0, (publication(5, "x" * 100_000),)))
    assert stream.bytes > 100_000
