"""Operations on knowledge ranges, compared with the states of their ticks."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.content.values import Value
from gapless.core.ticks import RangeSet
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.packed.encode import content_bytes
from gapless.stream import ranges as knowledge
from gapless.stream.ranges import KnowledgeConflictError, TickState
from tests.stream.model import (
    PUBEND,
    TICKS,
    knowledge_range,
    random_range,
    silence,
    states,
    true_range,
)

ticks = st.sampled_from(TICKS)
known_ranges = st.builds(lambda seed: random_range(Random(seed)), st.integers(0, 10**6))
range_sets = st.lists(st.tuples(ticks, st.integers(0, 5)), max_size=4).map(
    lambda drawn: RangeSet((low, low + length) for low, length in drawn)
)


@given(part=known_ranges, low=ticks, high=ticks)
def test_a_cut_keeps_the_states_of_its_ticks(part: KnowledgeRange, low: int, high: int) -> None:
    if max(low, part.low) > min(high, part.high):
        with pytest.raises(AssertionError, match="no part"):
            knowledge.cut(part, low, high)
        return
    expected = [(tick, state) for tick, state in states([part]) if low <= tick <= high]
    assert list(states([knowledge.cut(part, low, high)])) == expected


@given(part=known_ranges, tick=ticks)
def test_a_split_range_can_be_joined_again(part: KnowledgeRange, tick: int) -> None:
    if part.low < tick <= part.high:
        left, right = knowledge.split(part, tick)
        assert (left.high, right.low) == (tick - 1, tick)
        assert knowledge.join(left, right) == part


@given(part=known_ranges, ranges=range_sets)
def test_within_and_without_partition_the_ticks_of_a_range(
    part: KnowledgeRange, ranges: RangeSet
) -> None:
    inside = list(states(knowledge.within(part, ranges)))
    outside = list(states(knowledge.without(part, ranges)))
    assert inside == [item for item in states([part]) if item[0] in ranges]
    assert outside == [item for item in states([part]) if item[0] not in ranges]


@given(part=known_ranges)
def test_a_range_returns_the_state_of_a_tick(part: KnowledgeRange) -> None:
    expected = dict(states([part]))
    for tick in TICKS:
        assert knowledge.state_of(part, tick) == expected.get(tick, TickState.Q)


@given(data=st.sets(ticks), ends=st.sets(ticks), lost=st.sets(ticks), most=st.integers(0, 6))
def test_joined_ranges_have_the_same_states_in_as_few_ranges_as_allowed(
    data: set[int], ends: set[int], lost: set[int], most: int
) -> None:
    chain = [part for part in ranges_between(ends, data) if part.low not in lost]
    result = knowledge.joined(chain, most)
    assert list(states(result)) == list(states(chain))
    contents = [part.publications for part in chain]
    for part in result:
        assert len(part.publications) <= most or part.publications in contents
    for left, right in itertools.pairwise(result):
        total = len(left.publications) + len(right.publications)
        assert not knowledge.joinable(left, right) or (right.publications and total > most)


def ranges_between(ends: set[int], data: set[int]) -> list[KnowledgeRange]:
    """Return the whole oracle, cut after these ticks and where epoch or control version changes."""
    cuts = sorted({*ends, TICKS[-1]})
    found: list[KnowledgeRange] = []
    low = TICKS[0]
    while low <= TICKS[-1]:
        part = true_range(low, next(end for end in cuts if end >= low), data)
        found.append(part)
        low = part.high + 1
    return found


def test_many_ranges_are_joined_up_to_the_allowed_size() -> None:
    lone = [knowledge_range(tick, tick + 1, tick) for tick in range(1, 21, 2)]
    frames = knowledge.joined(lone, 4)
    assert [len(frame.publications) for frame in frames] == [4, 4, 2]
    assert knowledge.joined([], 4) == []


def test_silence_is_joined_to_a_range_of_the_allowed_size() -> None:
    assert knowledge.joined([knowledge_range(1, 3, 1, 2), silence(4, 9)], 1) == [
        knowledge_range(1, 9, 1, 2)
    ]


@pytest.mark.parametrize(
    "right", [silence(6, 9), silence(4, 9), silence(5, 9, 2), silence(5, 9, 1, 1)]
)
def test_ranges_that_are_not_adjacent_or_have_different_stamps_are_never_joined(
    right: KnowledgeRange,
) -> None:
    left = silence(1, 4)
    assert not knowledge.joinable(left, right)
    assert len(knowledge.joined([left, right], 100)) == 2
    with pytest.raises(AssertionError, match="cannot be joined"):
        knowledge.join(left, right)


def test_a_filter_that_passes_everything_returns_the_range_itself() -> None:
    part = knowledge_range(1, 9, 3, 5)
    assert knowledge.filtered(part, lambda _: True) is part
    assert knowledge.filtered(part, lambda one: one.tick > 4) == knowledge_range(1, 9, 5)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (silence(5, 4), "no range"),
        (silence(-1, 4), "no range"),
        (knowledge_range(3, 9, 2), "at 2 is out of order or below 3"),
        (knowledge_range(3, 9, 6, 5), "at 5 is out of order"),
        (knowledge_range(3, 9, 6, 6), "at 6 is out of order"),
        (knowledge_range(3, 9, 5, 10), "at 10 is above 9"),
    ],
)
def test_a_malformed_range_has_an_invalid_reason(part: KnowledgeRange, problem: str) -> None:
    assert problem in str(knowledge.invalid_reason(part))


def test_a_valid_range_has_no_invalid_reason() -> None:
    assert knowledge.invalid_reason(knowledge_range(3, 9, 3, 5, 9)) is None
    assert knowledge.invalid_reason(silence(0, 0)) is None


def test_a_copy_of_a_publication_is_the_same_even_if_it_holds_nan() -> None:
    def copy() -> Publication:
        return Publication(5, "exchange", 5, {"price": float("nan")}, b"x")

    known, other = (KnowledgeRange(1, 9, 1, 0, (copy(),)) for _ in range(2))
    assert knowledge.overlaid(PUBEND, known, other) == (known, [])


@pytest.mark.parametrize(
    "other",
    [
        Publication(5, "exchange", 6, {}, bytes(0)),
        Publication(5, "another", 5, {}, bytes(0)),
        Publication(5, "exchange", 5, {}, b"changed"),
    ],
)
def test_another_publication_at_a_known_tick_is_a_conflict(other: Publication) -> None:
    with pytest.raises(KnowledgeConflictError, match="holds two publications"):
        knowledge.overlaid(PUBEND, knowledge_range(1, 9, 5), KnowledgeRange(5, 7, 1, 0, (other,)))


def test_the_content_size_grows_with_payloads_names_and_texts() -> None:
    def size(publisher: str, attributes: dict[str, Value], payload: bytes) -> int:
        one = Publication(1, publisher, 1, attributes, payload)
        return content_bytes(KnowledgeRange(1, 1, 1, 0, (one,)))

    assert content_bytes(silence(1, 9)) == 0
    least = size("", {}, b"")
    assert least < 10
    long = "x" * 1_000
    for grown in (
        size(long, {}, b""),
        size("", {long: 1.5}, b""),
        size("", {"symbol": long}, b""),
        size("", {}, long.encode()),
    ):
        assert 1_000 <= grown - least < 1_030
