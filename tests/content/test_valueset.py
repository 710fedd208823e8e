"""Value sets against their members, over every kind of value."""

from __future__ import annotations

import itertools

import pytest

from gapless.content import spans
from gapless.content.like import Pattern
from gapless.content.spans import ALL_NUMBERS, ALL_TEXTS
from gapless.content.values import Value
from gapless.content.valueset import (
    ALL_BOOLS,
    ANY,
    ANY_NUMBER,
    ANY_TEXT,
    FALSE_ONLY,
    MISSING,
    NOTHING,
    PRESENT,
    TRUE_ONLY,
    ValueSet,
    intersection_of,
    numbers,
    one_of,
    texts,
    texts_like,
    union_of,
)
from gapless.core.errors import AttributeValueError

VALUES: list[Value | None] = [
    None,
    False,
    True,
    float("-inf"),
    -1,
    0,
    0.5,
    1,
    2,
    5.0,
    float("inf"),
    float("nan"),
    "",
    "a",
    "ab",
    "abc",
    "b",
    "ba",
    "xb",
]


def liking(pattern: str, *, wanted: bool = True) -> ValueSet:
    return texts_like(Pattern.parse(pattern), wanted)


SETS = [
    NOTHING,
    MISSING,
    PRESENT,
    ANY,
    ANY_NUMBER,
    ANY_TEXT,
    ALL_BOOLS,
    TRUE_ONLY,
    FALSE_ONLY,
    one_of([1]),
    one_of([1, 2.0]),
    one_of([0, "a", True]),
    numbers(((0, 1), (2, 1))),
    numbers(spans.complement(spans.point(1), ALL_NUMBERS)),
    texts((("a", 0), ("b", 1))),
    texts(spans.complement(spans.point("a"), ALL_TEXTS)),
    liking("a%"),
    liking("%b"),
    liking("%b", wanted=False),
    liking("a%", wanted=False),
    liking("_b%"),
    liking("a_c"),
    liking("%b%", wanted=False).intersection(texts((("a", 0), spans.TEXT_MAX))),
]


def members(one: ValueSet) -> set[int]:
    return {place for place, value in enumerate(VALUES) if one.contains(value)}


@pytest.mark.parametrize("left", SETS)
def test_intersection_union_and_subset_are_those_of_the_values(left: ValueSet) -> None:
    for right in SETS:
        assert members(left.intersection(right)) == members(left) & members(right)
        union = left.union(right)
        assert union is None or members(union) == members(left) | members(right)
        assert (union is not None) or left.patterns or right.patterns
        if left.is_subset(right):
            assert members(left) <= members(right)
        if members(left) & members(right):
            assert left.intersects(right)


def test_without_patterns_subset_and_intersects_are_exact() -> None:
    plain = [one for one in SETS if not one.patterns]
    for left, right in itertools.product(plain, plain):
        assert left.is_subset(right) == (left.intersection(right) == left)
        assert left.intersects(right) == (not left.intersection(right).is_empty)


def test_union_and_intersection_of_several_sets_equal_those_of_pairs() -> None:
    for three in itertools.combinations(SETS, 3):
        first, second, third = three
        joined = intersection_of(three)
        assert members(joined) == members(first) & members(second) & members(third)
        assert joined == first.intersection(second).intersection(third)
        parts = union_of(three)
        assert set().union(*map(members, parts)) == set().union(*map(members, three))
        assert len([one for one in parts if not one.patterns]) <= 1


@pytest.mark.parametrize(
    ("one", "value", "expected"),
    [
        (one_of([1]), True, False),
        (one_of([True]), 1, False),
        (one_of([0]), -0.0, True),
        (one_of([2**53 + 1]), float(2**53), False),
        (ANY_NUMBER, float("nan"), False),
        (ANY_NUMBER, float("inf"), True),
        (PRESENT, float("nan"), True),
        (PRESENT, None, False),
        (MISSING, None, True),
        (ANY_TEXT, "", True),
        (TRUE_ONLY, True, True),
        (TRUE_ONLY, False, False),
    ],
)
def test_a_value_belongs_to_its_family(one: ValueSet, value: Value | None, expected: bool) -> None:
    assert one.contains(value) is expected


def test_an_invalid_value_is_refused() -> None:
    with pytest.raises(AttributeValueError):
        ANY_NUMBER.contains([])  # type: ignore[arg-type]


def test_only_any_is_everything_and_only_nothing_is_empty() -> None:
    assert [one for one in SETS if one.is_everything] == [ANY]
    assert [one for one in SETS if one.is_empty] == [NOTHING]
    assert MISSING.union(PRESENT) == ANY


# --- patterns -----------------------------------------------------------------------------------


def test_patterns_that_are_intervals_become_intervals() -> None:
    assert liking("abc") == one_of(["abc"])
    assert liking("ab%") == texts(spans.prefix("ab"))
    assert liking("%") == ANY_TEXT
    assert liking("%", wanted=False) == NOTHING
    assert not liking("ab%", wanted=False).patterns


def test_patterns_over_single_points_are_applied() -> None:
    assert liking("%b").intersection(one_of(["ab", "ba", "xb"])) == one_of(["ab", "xb"])
    assert liking("%b").intersection(one_of([1, 2])) == NOTHING
    assert liking("%b", wanted=False).intersection(one_of(["ab", "ba"])) == one_of(["ba"])


def test_a_pattern_with_a_literal_prefix_bounds_the_texts() -> None:
    assert liking("ab%c").texts == spans.prefix("ab")
    assert not liking("ab%c").intersects(texts(spans.prefix("b")))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (liking("%ab"), liking("%b")),
        (liking("%b"), ANY_TEXT),
        (liking("%b"), PRESENT),
        (liking("%b"), texts(spans.complement(spans.point("a"), ALL_TEXTS))),
        (liking("%b"), liking("%a", wanted=False)),
        (liking("%b", wanted=False), liking("%ab", wanted=False)),
        (one_of(["ab", "xb"]), liking("%b")),
        (one_of(["ba"]), liking("%b", wanted=False)),
        (NOTHING, liking("%b")),
        (one_of([1]).intersection(ANY_NUMBER), PRESENT),
        (texts(spans.prefix("abc")), liking("a_c%")),
        (texts(spans.prefix("abc")), liking("_x%", wanted=False)),
        (liking("%b").intersection(liking("a%c")), liking("%c")),
    ],
)
def test_coverings_with_patterns_are_found(narrow: ValueSet, wide: ValueSet) -> None:
    assert narrow.is_subset(wide)
    assert not wide.is_subset(narrow)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (liking("%a"), liking("%b")),
        (liking("_a%"), liking("bb%")),
        (liking("%ab"), liking("%b", wanted=False)),
        (liking("___"), liking("____")),
        (liking("%b"), one_of(["a", "ba"])),
        (liking("%b"), ANY_NUMBER),
        (texts(spans.prefix("abc")), liking("_x%")),
    ],
)
def test_disjoint_patterns_are_found(left: ValueSet, right: ValueSet) -> None:
    assert not left.intersects(right)
    assert not right.intersects(left)


def test_very_many_patterns_are_only_compared_for_equality() -> None:
    many = intersection_of([liking(f"%{number}%") for number in range(40)])
    fewer = intersection_of([liking(f"%{number}%") for number in range(0, 40, 2)])
    other = intersection_of([liking(f"%x{number}%", wanted=False) for number in range(40)])
    assert many.is_subset(fewer)
    assert many.is_subset(many)
    assert not fewer.is_subset(many)
    assert not many.is_subset(other)
    assert many.intersects(other)


def test_a_union_with_patterns_is_exact_or_none() -> None:
    assert liking("%b").union(liking("%ab")) == liking("%b")
    assert liking("%ab").union(liking("%b")) == liking("%b")
    assert liking("%b").union(liking("%a")) is None
    assert liking("%b").union(one_of([1])) is None
    assert union_of([liking("%ab"), one_of(["xb"]), liking("%b")]) == [liking("%b")]
    assert union_of([liking("%ab"), ANY_TEXT]) == [ANY_TEXT]
    assert len(union_of([liking("%b"), one_of([1]), liking("%a"), one_of([2])])) == 3


def test_sets_can_be_compared_and_hashed() -> None:
    assert len(set(SETS)) == len(SETS)
    assert one_of([1, 2]) == one_of([2.0, 1.0])
    assert hash(one_of([1, 2])) == hash(one_of([2.0, 1.0]))
