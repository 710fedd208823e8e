"""Sets of intervals against sets of points, on a small dense domain."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.content import spans
from gapless.content.spans import ALL_NUMBERS, ALL_TEXTS, EMPTY, NUMBER_MAX, NUMBER_MIN, Cut, Spans

HALVES = [value / 2 for value in range(-1, 10)]
"""Points on and between the whole numbers that the cuts below use."""

CUTS: list[Cut] = [
    NUMBER_MIN,
    *((value, side) for value in range(5) for side in (0, 1)),
    NUMBER_MAX,
]

lines = st.sets(st.sampled_from(CUTS)).map(lambda cuts: tuple(sorted(cuts)[: len(cuts) // 2 * 2]))


def members(line: Spans) -> set[float]:
    return {value for value in HALVES if spans.contains(line, value)}


@given(lines, lines)
def test_union_and_intersection_are_those_of_the_points(left: Spans, right: Spans) -> None:
    assert members(spans.union(left, right)) == members(left) | members(right)
    assert members(spans.intersection(left, right)) == members(left) & members(right)


@given(lines)
def test_the_complement_holds_all_other_points(line: Spans) -> None:
    inverse = spans.complement(line, ALL_NUMBERS)
    assert members(inverse) == set(HALVES) - members(line)
    assert spans.complement(inverse, ALL_NUMBERS) == line


@given(lines, lines)
def test_subset_and_intersects_are_those_of_the_points(left: Spans, right: Spans) -> None:
    # The domain has a point in every interval that the cuts can make, so this is exact.
    assert spans.is_subset(left, right) == (members(left) <= members(right))
    assert spans.intersects(left, right) == bool(members(left) & members(right))


@given(st.lists(lines, min_size=1, max_size=5))
def test_union_and_intersection_of_many_sets_equal_those_of_pairs(sets: list[Spans]) -> None:
    union, intersection = EMPTY, ALL_NUMBERS
    for one in sets:
        union = spans.union(union, one)
        intersection = spans.intersection(intersection, one)
    assert spans.union_of(sets) == union
    assert spans.intersection_of([ALL_NUMBERS, *sets]) == intersection


@given(lines, lines)
def test_equal_sets_have_equal_cuts(left: Spans, right: Spans) -> None:
    assert (left == right) == (members(left) == members(right))


def test_adjacent_sets_are_joined_without_a_cut() -> None:
    below, above = (NUMBER_MIN, (5, 0)), ((5, 0), NUMBER_MAX)
    assert spans.union(below, above) == ALL_NUMBERS
    assert spans.intersection(below, above) == EMPTY
    assert spans.union((NUMBER_MIN, (5, 0)), ((5, 1), NUMBER_MAX)) == spans.complement(
        spans.point(5), ALL_NUMBERS
    )


def test_numbers_range_from_minus_to_plus_infinity() -> None:
    for value in (float("-inf"), -1e308, 0, 2**63 - 1, float("inf")):
        assert spans.contains(ALL_NUMBERS, value)
    assert spans.contains(((5, 1), NUMBER_MAX), float("inf"))


def test_ints_and_floats_are_compared_exactly() -> None:
    line = spans.point(2**53 + 1)
    assert spans.contains(line, 2**53 + 1)
    assert not spans.contains(line, float(2**53))
    assert spans.contains(((2.0**53, 1), NUMBER_MAX), 2**53 + 1)


def test_single_points_are_recognised() -> None:
    assert spans.points(spans.union(spans.point(2), spans.point(1))) == (1, 2)
    assert spans.points(EMPTY) == ()
    assert spans.points(((1, 0), (2, 1))) is None
    assert spans.points(((1, 1), (2, 0))) is None


# --- texts --------------------------------------------------------------------------------------

LAST = "\U0010ffff"
ALPHABET = ["a", "b", "\ud7ff", "\ud800", "\udfff", "\ue000", LAST]
WORDS = ["".join(word) for size in range(4) for word in itertools.product(ALPHABET, repeat=size)]


@pytest.mark.parametrize(
    "beginning", ["", "a", "ab", "a" + LAST, LAST, LAST + LAST, "a\ud7ff", "\ud7ff" + LAST]
)
def test_a_prefix_is_one_interval(beginning: str) -> None:
    interval = spans.prefix(beginning)
    assert len(interval) == 2
    for word in WORDS:
        assert spans.contains(interval, word) == word.startswith(beginning)


def test_the_interval_of_a_prefix_that_ends_before_the_surrogates_excludes_them() -> None:
    assert spans.prefix("a\ud7ff") == (("a\ud7ff", 0), ("a\ud800", 0))


@pytest.mark.parametrize(("low", "high"), [("aa", "ab"), ("a", "a"), ("ab", "b"), ("", "b")])
def test_all_texts_of_an_interval_share_its_stem(low: str, high: str) -> None:
    for sides in itertools.product((0, 1), (0, 1)):
        interval = ((low, sides[0]), (high, sides[1]))
        stem = spans.stem(interval)
        for word in WORDS:
            if spans.contains(interval, word):
                assert word.startswith(stem)


def test_the_stem_of_a_prefix_is_the_prefix() -> None:
    assert spans.stem(spans.prefix("abc")) == "abc"
    assert spans.stem((("abc", 0), ("abd", 1))) == "ab"
    assert spans.stem((("abc", 1), spans.TEXT_MAX)) == ""


def test_all_texts_are_below_the_end_of_texts() -> None:
    for word in [*WORDS, "", LAST * 9]:
        assert spans.contains(ALL_TEXTS, word)
    (top, _) = spans.TEXT_MAX
    assert repr(top) == "TOP"
    assert top > "z"
    assert not top < "z"
    assert top >= top
    assert not top > top
    assert spans.complement(spans.point(""), ALL_TEXTS) == (("", 1), spans.TEXT_MAX)
