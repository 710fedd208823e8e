"""Cached encodings are reused for receivers that get all events of a batch."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.limits import ENCODING_CACHE_BYTES_MAX
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.packed.encode import cached_encoding, content_bytes, encode_publications, encoded_bytes

encode = msgspec.msgpack.encode


def batch(first: int, count: int, payload: bytes = b"...") -> tuple[Publication, ...]:
    """Return publications of consecutive ticks."""
    return tuple(
        Publication(tick, "desk", tick, {"price": tick / 2}, payload)
        for tick in range(first, first + count)
    )


@pytest.mark.parametrize("counts", [(2,), (15, 3), (500, 500), (16, 40_000, 30_000)])
def test_encodings_of_consecutive_batches_are_concatenated(counts: tuple[int, ...]) -> None:
    batches = [batch(100_000 * number, count) for number, count in enumerate(counts)]
    for each in batches:
        assert encode_publications(each) == encode(each)
    run = tuple(publication for each in batches for publication in each)
    assert cached_encoding(run) == encode(run)


def test_events_before_and_after_whole_batches_are_encoded() -> None:
    one, other = batch(1, 20), batch(50, 20)
    encode_publications(one)
    encode_publications(other)
    for run in (
        (*one, *other[:7]),
        (*one, *batch(90, 3)),
        (*one, *other[1:]),
        (*one[7:], *other),
        (*batch(-9, 3), *one, *other[:1]),
    ):
        assert cached_encoding(run) == encode(run)
        assert encoded_bytes(run) == sum(len(encode(each)) for each in run)


def test_a_run_that_omits_an_event_has_no_cached_encoding() -> None:
    packed = batch(1, 20)
    encode_publications(packed)
    for run in (packed[1:], packed[:-1], (*packed[:5], *packed[6:]), (*packed[:19], *batch(30, 1))):
        assert cached_encoding(run) is None
    assert cached_encoding(batch(1, 20)) is None  # equal events, but not the same objects
    assert cached_encoding(()) is None


def test_a_run_that_omits_an_event_and_continues_has_no_cached_encoding() -> None:
    one, other = batch(1, 20), batch(50, 20)
    encode_publications(one)
    encode_publications(other)
    assert cached_encoding((*one[:9], *one[10:], *other)) is None


@given(st.data())
def test_the_encoding_of_any_run_equals_a_fresh_encoding(data: st.DataObject) -> None:
    run: list[Publication] = []
    for number in range(data.draw(st.integers(1, 4))):
        publications = batch(100 * number, data.draw(st.integers(1, 20)))
        if data.draw(st.booleans()):
            encode_publications(publications)
        omitted = data.draw(st.sets(st.integers(0, 19), max_size=2))
        run += [each for index, each in enumerate(publications) if index not in omitted]
    sent = cached_encoding(tuple(run))
    assert sent is None or sent == encode(run)
    assert encoded_bytes(tuple(run)) == sum(len(encode(each)) for each in run)


def test_a_run_with_another_event_inside_is_encoded() -> None:
    packed = batch(1, 20)
    encode_publications(packed)
    run = (*packed[:7], *batch(40, 1, b"another"), *packed[8:])
    assert cached_encoding(run) is None


def test_only_the_last_batches_are_cached() -> None:
    old = batch(1, 2)
    encode_publications(old)
    assert cached_encoding(old) is not None
    large = bytes(ENCODING_CACHE_BYTES_MAX // 4)
    for number in range(1, 4):
        encode_publications(batch(10 * number, 2, large))
    assert cached_encoding(old) is None


def test_a_cached_encoding_has_the_measured_size() -> None:
    publications = batch(1, 20)
    encode_publications(publications)
    assert content_bytes(KnowledgeRange(1, 20, 1, 0, publications)) == encoded_bytes(batch(1, 20))
