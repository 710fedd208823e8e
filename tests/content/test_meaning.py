"""The normal form agrees with the definition.

A case is one selector and one event. `GAPLESS_CASES` is the number of cases.
"""

from __future__ import annotations

import math
import random
from itertools import product
from typing import TYPE_CHECKING, TypeGuard

import pytest
from hypothesis import given

from gapless import Filter, FilterLimitError
from tests.cases import CASES, scaled
from tests.content import generate
from tests.content.builder import NotExpressibleError, build
from tests.content.domain import unique
from tests.content.pools import ANYTHING, pool
from tests.content.reference import (
    COMPARISONS,
    INT_MAX,
    Arithmetic,
    Attribute,
    Compare,
    Like,
    Literal,
    evaluate,
    like,
    value_of,
)
from tests.content.shrink import smaller
from tests.content.surface import plain_text, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.content.generate import Event
    from tests.content.reference import Condition, Value

PARTS = 4
EVENTS_A_SELECTOR = 40
SELECTORS = max(25, CASES // EVENTS_A_SELECTOR)
# Refused for their size: so few that the rest is representative.
MOST_REFUSED = 0.05


def seeds(count: int, start: int) -> range:
    return range(start, start + count)


def selector(seed: int) -> tuple[random.Random, generate.Palette, Condition]:
    """Return the palette and condition of a seed; the generator continues with text and events."""
    rng = random.Random(seed)
    colours = generate.palette(rng)
    return rng, colours, generate.condition(rng, colours)


def disagrees(tree: Condition, event: Event) -> bool:
    try:
        return Filter(plain_text(tree)).matches(event) is not (evaluate(tree, event) is True)
    except FilterLimitError:
        return False


def report(seed: int, text: str, tree: Condition, event: Event) -> str:
    """Return all that is needed to repeat a failing case, and the least part of it that fails."""
    least = smaller(tree, lambda part: disagrees(part, event)) if disagrees(tree, event) else tree
    return (
        f"seed {seed}\n  selector: {text!r}\n  event: {event!r}\n"
        f"  by definition: {evaluate(tree, event)}\n"
        f"  least part that differs: {plain_text(least)!r} ({evaluate(least, event)})"
    )


def filters(count: int, start: int) -> Iterator[tuple[int, Condition, Filter, list[Event]]]:
    """Yield selectors with their filter and events; fail if too many are refused for their size."""
    refused = 0
    for seed in seeds(count, start):
        rng, colours, tree = selector(seed)
        text = to_text(tree, rng)
        try:
            parsed = Filter(text)
        except FilterLimitError:
            refused += 1
            continue
        yield seed, tree, parsed, [generate.event(rng, colours) for _ in range(EVENTS_A_SELECTOR)]
    assert refused <= count * MOST_REFUSED, f"{refused} of {count} selectors were refused"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_normal_form_matches_exactly_where_the_definition_is_true(part: int) -> None:
    count = SELECTORS // PARTS
    matched = tried = 0
    for seed, tree, parsed, events in filters(count, start=part * 10_000_000):
        for event in events:
            expected = evaluate(tree, event) is True
            matched += expected
            tried += 1
            if parsed.matches(event) is not expected:
                pytest.fail(report(seed, to_text(tree, random.Random(seed)), tree, event))
    assert 0.1 < matched / tried < 0.9, f"{matched} of {tried} cases match: nothing is tested"


@given(generate.cases())
def test_a_shrinking_search_finds_no_difference_to_the_definition(
    case: tuple[Condition, list[Event]],
) -> None:
    tree, events = case
    try:
        parsed = Filter(plain_text(tree))
    except FilterLimitError:
        return
    for event in events:
        assert parsed.matches(event) is (evaluate(tree, event) is True)


# Cases that are rarely drawn are tried exhaustively.

EDGES = unique(
    [
        *generate.UNKNOWN_BROKERS,
        *generate.SMALL_NUMBERS.literals,
        *generate.LARGE_NUMBERS.literals,
        *generate.STRINGS.literals,
        *(-3, 7, -7, -7.5, 2.5, 10, 3037000500, 2**62, 5e-324, INT_MAX - 1, 2**61 + 1),
    ]
)
A, B, C = Attribute("a"), Attribute("b"), Attribute("c")


@pytest.mark.parametrize("operator", COMPARISONS)
def test_every_comparison_of_two_edge_values_follows_the_definition(operator: str) -> None:
    ordering = operator not in {"=", "<>"}
    for right in EDGES:
        trees = [Compare(operator, A, B), Compare(operator, B, A)]
        if is_literal(right) and not (ordering and isinstance(right, bool)):
            trees += [Compare(operator, A, Literal(right)), Compare(operator, Literal(right), A)]
        for tree in trees:
            parsed = Filter(plain_text(tree))
            for left in EDGES:
                event: Event = {"a": left, "b": right}
                expected = evaluate(tree, event) is True
                assert parsed.matches(event) is expected, (plain_text(tree), event)


def is_literal(value: Value | None) -> TypeGuard[Value]:
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%"])
def test_every_calculation_with_two_edge_values_follows_the_definition(operator: str) -> None:
    calculation = Arithmetic(operator, A, B)
    conditions = [Compare(sign, calculation, C) for sign in ("=", "<>", "<", ">=")]
    parsed = [(tree, Filter(plain_text(tree))) for tree in conditions]
    for left, right in product(EDGES, repeat=2):
        result = value_of(calculation, {"a": left, "b": right})
        for third in (1,) if result is None else generate.neighbours(result):
            event: Event = {"a": left, "b": right, "c": third}
            for tree, filter_ in parsed:
                expected = evaluate(tree, event) is True
                assert filter_.matches(event) is expected, (plain_text(tree), event)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%"])
def test_every_calculation_with_an_edge_literal_follows_the_definition(operator: str) -> None:
    numbers = [value for value in EDGES if generate.is_number(value) and math.isfinite(value)]
    for constant in numbers:
        calculations = [
            Arithmetic(operator, A, Literal(constant)),
            Arithmetic(operator, Literal(constant), A),
        ]
        for calculation, sample in product(calculations, numbers[:: 1 + len(numbers) // 12]):
            result = value_of(calculation, {"a": sample})
            if result is None:
                continue
            for sign in ("=", "<", ">="):
                tree = Compare(sign, calculation, Literal(result))
                filter_ = Filter(plain_text(tree))
                for value in EDGES:
                    expected = evaluate(tree, {"a": value}) is True
                    found = filter_.matches({"a": value})
                    assert found is expected, (plain_text(tree), value)


def test_every_short_pattern_matches_every_short_word_as_defined() -> None:
    words = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]
    words += ["%", "_", "a%", "\U0001f600", "a\U0001f600", "aaaabaaab", "\n", "a\nb"]
    patterns = ["".join(parts) for size in range(5) for parts in product("a%_b", repeat=size)]
    for pattern in patterns:
        filter_ = Filter(plain_text(Like(negated=False, name="a", pattern=pattern)))
        opposite = Filter(plain_text(Like(negated=True, name="a", pattern=pattern)))
        for word in words:
            expected = like(word, pattern)
            assert filter_.matches({"a": word}) is expected, (pattern, word)
            assert opposite.matches({"a": word}) is not expected, (pattern, word)


def test_the_canonical_text_parses_to_an_equal_filter_of_the_same_meaning() -> None:
    for seed, tree, parsed, events in filters(SELECTORS // 4, start=50_000_000):
        canonical = str(parsed)
        again = Filter(canonical)
        assert again == parsed, f"seed {seed}: {plain_text(tree)!r} as {canonical!r}"
        assert hash(again) == hash(parsed)
        assert str(again) == canonical, f"seed {seed}: the text of {canonical!r} changes again"
        for event in events:
            if again.matches(event) is not (evaluate(tree, event) is True):
                pytest.fail(f"canonical {canonical!r}\n" + report(seed, canonical, tree, event))


def test_all_texts_of_one_condition_give_equal_filters() -> None:
    for seed, tree, parsed, _ in filters(SELECTORS // 4, start=60_000_000):
        for spelling in range(3):
            text = to_text(tree, random.Random(spelling))
            other = Filter(text)
            assert other == parsed, f"seed {seed}: {plain_text(tree)!r} and {text!r}"
            assert hash(other) == hash(parsed)
            assert str(other) == str(parsed)


def test_equal_filters_match_the_same_events_and_have_equal_hashes() -> None:
    equal_pairs = 0
    for seed in range(scaled(8)):
        candidates = pool(random.Random(seed), 60, ANYTHING)
        groups: dict[Filter, list[int]] = {}
        for candidate in candidates.candidates:
            groups.setdefault(candidate.filter, []).append(candidate.matching)
        for first in candidates.candidates:
            for second in candidates.candidates:
                if first is second or first.filter != second.filter:
                    continue
                equal_pairs += 1
                assert hash(first.filter) == hash(second.filter), (first.text, second.text)
                assert first.matching == second.matching, (seed, first.text, second.text)
                assert len(groups[first.filter]) > 1
    assert equal_pairs > 20, "too few filters are equal to tell anything"


def test_the_builder_gives_the_same_filter_as_the_text() -> None:
    built_count = skipped = 0
    for seed, tree, parsed, events in filters(SELECTORS // 2, start=70_000_000):
        try:
            built = build(tree)
        except NotExpressibleError:
            skipped += 1
            continue
        built_count += 1
        assert isinstance(built, Filter)
        assert built == parsed, f"seed {seed}: {plain_text(tree)!r}, built {built}"
        assert hash(built) == hash(parsed)
        assert str(built) == str(parsed)
        for event in events[:5]:
            assert built.matches(event) is (evaluate(tree, event) is True), (seed, event)
    assert built_count > skipped, "most conditions can be built"
