"""Merging: the result covers, keeps its budget, and widens no more than necessary."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless import Filter
from gapless.content import spans
from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.like import Pattern
from gapless.content.matching import COMPILED, kernel
from gapless.content.merging import hull, merge
from gapless.content.scales import INTERVALS_MAX
from gapless.content.values import Value
from gapless.content.valueset import (
    ANY,
    MISSING,
    NOTHING,
    PRESENT,
    ValueSet,
    numbers,
    one_of,
    texts_like,
)
from gapless.content.widening import Merger
from gapless.core.errors import UsageError

VALUES: tuple[Value | None, ...] = (
    *(None, float("nan"), True, False),
    *(-1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4),
    *("", "x", "xa", "xy", "y", "zxzy"),
)
"""Around the literals below: at least one value on each side of every cut."""

EVENTS = [{"a": a, "b": b} for a, b in itertools.product(VALUES, repeat=2)]

CONDITIONS = (
    *("{} = 1", "{} = 2", "{} > 1", "{} >= 2", "{} < 3", "{} <> 2", "{} IN (0, 1, 3)"),
    *("{} BETWEEN 1 AND 2", "{} BETWEEN 0 AND 3", "{} = 'x'", "{} <> 'y'", "{} >= 'xa'"),
    *("{} IN ('x', 'y', 2)", "{} LIKE 'x%'", "{} LIKE '%y'", "{} NOT LIKE '%y'", "{} LIKE '_'"),
    *("{} = TRUE", "{} <> TRUE", "{} IS NULL", "{} IS NOT NULL"),
)
DERIVED = ("a + b > 3", "a + b < 2", "a < b", "a >= b")

SINGLE = tuple(condition.format(name) for condition in CONDITIONS for name in "ab") + DERIVED


def conjunctions(*texts: str) -> list[Conjunction]:
    return [conjunction for text in texts for conjunction in Filter(text).conjunctions]


def matching(parts: tuple[Conjunction, ...] | list[Conjunction]) -> set[int]:
    return {
        number for number, event in enumerate(EVENTS) if any(part.matches(event) for part in parts)
    }


conditions = st.lists(st.sampled_from(SINGLE), min_size=1, max_size=3, unique=True)
pools = st.lists(conditions, min_size=1, max_size=12).map(
    lambda lists: conjunctions(*(" AND ".join(each) for each in lists))
)


# --- guarantees ---------------------------------------------------------------------------------


@given(pool=pools, budget=st.integers(1, 12))
def test_every_event_that_matches_a_part_matches_the_merged_set(
    pool: list[Conjunction], budget: int
) -> None:
    assert matching(pool) <= matching(merge(pool, budget))


@given(pool=pools, budget=st.integers(1, 12))
def test_every_part_is_covered_and_the_budget_is_kept(pool: list[Conjunction], budget: int) -> None:
    merged = merge(pool, budget)
    assert len(merged) <= budget
    for part in pool:
        assert any(wide.covers(part) for wide in merged)


@given(pool=pools, budget=st.integers(1, 12), seed=st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_matter(
    pool: list[Conjunction], budget: int, seed: random.Random
) -> None:
    merged = merge(pool, budget)
    shuffled = [*pool, *pool[:2]]
    seed.shuffle(shuffled)
    assert merge(shuffled, budget) == merged


@given(pool=pools, budget=st.integers(1, 12))
def test_merging_again_with_the_same_budget_changes_nothing(
    pool: list[Conjunction], budget: int
) -> None:
    merged = merge(pool, budget)
    assert merge(merged, budget) == merged


@given(pool=pools)
def test_within_the_budget_only_covered_conjunctions_are_omitted(pool: list[Conjunction]) -> None:
    merged = merge(pool, len(pool) or 1)
    assert set(merged) <= set(pool)
    assert matching(pool) == matching(merged)
    for left, right in itertools.permutations(merged, 2):
        assert not left.covers(right)


def test_an_empty_set_merges_to_an_empty_set() -> None:
    assert merge([], 1) == ()


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        merge([EVERYTHING], 0)


@pytest.mark.skipif(COMPILED is None, reason="there is only one engine to compare")
def test_both_engines_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = quotes(random.Random(3), 150)
    results = []
    for name in ("compiled", "fallback"):
        monkeypatch.setattr(kernel, "KERNEL", name)
        results.append(merge(pool, 20))
    assert results[0] == results[1]


# --- unions without widening --------------------------------------------------------------------


def test_conjunctions_that_differ_in_one_subject_unite_without_widening() -> None:
    pool = conjunctions(*(f"a = {value} AND b > 1" for value in (0, 1, 2, 3)))
    assert merge(pool, 3) == tuple(conjunctions("a IN (0, 1, 2, 3) AND b > 1"))


def test_ranges_that_touch_unite_to_one() -> None:
    pool = conjunctions(*(f"a >= {n} AND a < {n + 1} AND b = 'x'" for n in range(50)))
    assert merge(pool, 49) == tuple(conjunctions("a >= 0 AND a < 50 AND b = 'x'"))


@given(
    values=st.sets(st.integers(0, 4), min_size=2, max_size=5),
    words=st.sets(st.sampled_from(("x", "xa", "xy", "y")), min_size=1, max_size=4),
)
def test_a_full_grid_unites_without_widening(values: set[int], words: set[str]) -> None:
    pool = conjunctions(*(f"a = {n} AND b = '{word}'" for n in values for word in words))
    merged = merge(pool, 1)
    assert matching(merged) == matching(pool)


def test_united_sets_stay_small_enough_for_an_access_path() -> None:
    pool = conjunctions(*(f"a = {2 * n}" for n in range(10 * INTERVALS_MAX)))
    merged = merge(pool, 10)
    assert len(merged) == 10
    assert all(len(part.constraints[0][1].numbers) == 2 * INTERVALS_MAX for part in merged)
    assert not any(part.matches({"a": 2 * n + 1}) for part in merged for n in range(200))


# --- the cheapest widening ----------------------------------------------------------------------


def test_near_conjunctions_are_merged_before_distant_ones() -> None:
    pool = conjunctions(
        "a BETWEEN 1 AND 5 AND b BETWEEN 1 AND 5",
        "a BETWEEN 2 AND 6 AND b BETWEEN 2 AND 6",
        "a BETWEEN 70 AND 75 AND b BETWEEN 30 AND 35",
    )
    assert merge(pool, 2) == tuple(
        conjunctions(
            "a BETWEEN 1 AND 6 AND b BETWEEN 1 AND 6",
            "a BETWEEN 70 AND 75 AND b BETWEEN 30 AND 35",
        )
    )


def test_conjunctions_of_one_symbol_are_merged_before_those_of_two() -> None:
    pool = conjunctions(
        "symbol = 'IBM' AND price BETWEEN 10 AND 20 AND volume > 5",
        "symbol = 'IBM' AND price BETWEEN 30 AND 40 AND volume > 6",
        "symbol = 'SAP' AND price BETWEEN 10 AND 21 AND volume > 5.5",
    )
    merged = merge(pool, 2)
    assert str(merged[1]) == str(pool[2])
    assert "'SAP'" not in str(merged[0])


def test_a_subject_of_only_one_conjunction_is_dropped() -> None:
    pool = conjunctions("a = 1 AND b > 5", "a = 1 AND c > 5")
    assert merge(pool, 1) == tuple(conjunctions("a = 1"))


def test_other_conjunctions_that_a_merged_one_covers_are_omitted() -> None:
    pool = conjunctions("a = 1 AND b > 5", "a = 1 AND c > 5", "a = 1 AND d > 5", "e = 7")
    assert merge(pool, 2) == tuple(conjunctions("a = 1", "e = 7"))


def test_conjunctions_without_a_common_subject_merge_to_everything() -> None:
    assert merge(conjunctions("a = 1", "b = 2", "c = 3"), 1) == (EVERYTHING,)


def test_a_common_derived_term_is_kept() -> None:
    pool = conjunctions("a + b > 3 AND a > 1", "a + b > 2 AND a > 2", "a + b < 1 AND b = 7")
    merged = merge(pool, 2)
    assert matching(pool) <= matching(merged)
    assert any("a + b" in str(part) for part in merged)


# --- many conjunctions --------------------------------------------------------------------------


def quotes(rng: random.Random, count: int) -> list[Conjunction]:
    texts = []
    for _ in range(count):
        low, least = rng.randrange(100), rng.randrange(1_000)
        texts.append(
            f"symbol = 'S{int(rng.paretovariate(1))}' AND price BETWEEN {low} AND {low + 9} "
            f"AND volume BETWEEN {least} AND {least + 99}"
        )
    return conjunctions(*texts)


@pytest.mark.parametrize("budget", [1, 7, 50, 299])
def test_many_conjunctions_keep_a_small_budget(budget: int) -> None:
    pool = quotes(random.Random(1), 600)
    merged = merge(pool, budget)
    assert 1 <= len(merged) <= budget
    assert all(any(wide.covers(part) for wide in merged) for part in pool)


def test_the_number_of_compared_pairs_grows_linearly() -> None:
    for count in (200, 800):
        merger = Merger(quotes(random.Random(2), count))
        merger.run(5)
        assert len(merger._looked) < 30 * count


# --- hulls --------------------------------------------------------------------------------------

SETS = [
    *(NOTHING, MISSING, PRESENT, ANY),
    *(one_of([1]), one_of([1, 2, "x"]), one_of([True, "xy", 4])),
    *(numbers(((0, 0), (2, 1))), numbers(((1, 1), (3, 0)))),
    *(texts_like(Pattern.parse(text), wanted=True) for text in ("x%", "%y", "x%y", "_")),
    *(texts_like(Pattern.parse(text), wanted=False) for text in ("%y", "%x%")),
]


@given(left=st.sampled_from(SETS), right=st.sampled_from(SETS))
def test_a_hull_contains_both_sets(left: ValueSet, right: ValueSet) -> None:
    both = hull(left, right)
    assert left.is_subset(both)
    assert right.is_subset(both)
    for value in VALUES:
        held = left.contains(value) or right.contains(value)
        assert both.contains(value) >= held
        if not left.patterns and not right.patterns:
            assert both.contains(value) == held, "the union fits, so nothing is widened"


def test_a_hull_keeps_the_patterns_that_both_sets_have() -> None:
    ends = texts_like(Pattern.parse("%y"), wanted=True)
    first = ends.intersection(texts_like(Pattern.parse("x%"), wanted=True))
    second = ends.intersection(texts_like(Pattern.parse("z%"), wanted=True))
    both = hull(first, second)
    assert both.contains("xy")
    assert both.contains("zy")
    assert not both.contains("xz")


points_of = st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)
words_of = st.sets(st.text("abc", max_size=6), max_size=40)


@given(points_of, words_of, points_of, words_of)
def test_a_hull_has_few_intervals_however_many_its_parts_have(
    left: set[int], left_words: set[str], right: set[int], right_words: set[str]
) -> None:
    first, second = one_of([*left, *left_words]), one_of([*right, *right_words, True])
    both = hull(first, second)
    assert len(both.numbers) + len(both.texts) + 2 * bool(both.bools) <= 2 * INTERVALS_MAX
    assert all(both.contains(number) for number in left | right)
    assert all(both.contains(word) for word in left_words | right_words)


def test_a_hull_joins_the_nearest_intervals() -> None:
    wide_apart = [1_000 * n for n in range(INTERVALS_MAX)]
    both = hull(one_of([*wide_apart]), one_of([7_001, 3_002]))
    expected = [*wide_apart]
    assert spans.points(both.numbers) is None
    assert len(both.numbers) == 2 * INTERVALS_MAX
    assert both.contains(3_001)
    assert both.contains(7_000.5)
    assert not any(both.contains(value + 500) for value in expected)


def test_a_hull_joins_the_nearest_texts() -> None:
    letters = [chr(ord("a") + n) for n in range(INTERVALS_MAX)]
    both = hull(one_of([*letters]), one_of(["caa"]))
    assert both.contains("ca")
    assert not both.contains("cb")
    assert not both.contains("bb")
