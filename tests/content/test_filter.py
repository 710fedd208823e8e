"""Filters: construction, equality by meaning, operators, pickling, covering."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from gapless.content.conjunction import EVERYTHING
from gapless.content.filter import Filter
from gapless.content.matching import MatchIndex
from gapless.content.values import Attributes
from gapless.core.errors import (
    AttributeValueError,
    FilterError,
    FilterSyntaxError,
    FilterTypeError,
    GaplessError,
    UsageError,
)

EVENT: Attributes = {"symbol": "IBM", "price": 92.5, "size": 100, "urgent": True, "note": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "symbol = 'IBM'",
        "symbol IN ('IBM', 'SAP') AND price > 90",
        "price BETWEEN 92.5 AND 93",
        "price >= 92.5 AND price < 93",
        "price > 92 AND price <= 92.5",
        "price > 92 AND price < 93",
        "urgent",
        "urgent AND note IS NULL",
        "other IS NULL",
        "price * size > 9000",
        "price < size",
        "symbol LIKE 'I_M'",
        "symbol LIKE '%M' AND symbol <> 'M'",
        "size = 100.0",
        "size NOT IN (1, 2)",
        "symbol = 'SAP' OR size = 100",
        "NOT (symbol = 'SAP')",
        "symbol < 'J'",
    ],
)
def test_an_event_that_satisfies_the_condition_matches(text: str) -> None:
    made = Filter(text)
    assert made.matches(EVENT)
    assert made.matches(EVENT)  # also with the compiled function
    assert not Filter(f"NOT ({text or 'TRUE'})").matches(EVENT)


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "symbol = 'SAP'",
        "symbol = 5",
        "price < 90",
        "price BETWEEN 1 AND 92.4",
        "size > 99 AND size < 100",
        "note = 5",
        "note <> 5",
        "NOT note = 5",
        "urgent = 1",
        "urgent > 0",
        "price * note > 1",
        "symbol = 'SAP' OR size = 99",
        "NOT urgent",
    ],
)
def test_an_event_that_does_not_satisfy_the_condition_does_not_match(text: str) -> None:
    assert not Filter(text).matches(EVENT)


def test_subclasses_of_numbers_are_compared() -> None:
    class Price(float):
        pass

    for text in ("BETWEEN 1 AND 5", "> 1", "< 5", "> 1 AND price < 5", ">= 1 AND price < 5"):
        assert Filter(f"price {text}").matches({"price": Price(3)})
        assert not Filter(f"price {text}").matches({"price": Price(9 if "5" in text else 0)})
    assert not Filter("price BETWEEN 1 AND 5").matches({"price": float("nan")})
    assert not Filter("price BETWEEN 0 AND 5").matches({"price": True})


@pytest.mark.parametrize("value", [[5], {"a": 1}, b"5", object(), 5j])
def test_an_invalid_attribute_value_is_an_error(value: object) -> None:
    with pytest.raises(AttributeValueError, match="use a bool, an int, a float or a str"):
        Filter("price > 5").matches({"price": value})  # type: ignore[dict-item]


# --- equality by meaning ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("", "TRUE"),
        ("a = 1 OR a = 2", "a IN (2, 1)"),
        ("a < 5 OR a > 5", "a <> 5"),
        ("a = 1 AND b = 2", "b = 2 AND a = 1"),
        ("NOT (a = 1 AND b = 2)", "a <> 1 OR b <> 2"),
        ("a IS NULL OR a IS NOT NULL", ""),
        ("a > 1 AND a < 1", "FALSE"),
        ("a BETWEEN 1 AND 5", "a >= 1 AND a <= 5.0"),
        ("90 < price", "price > 90"),
        ("a LIKE 'x%'", "a >= 'x' AND a < 'y'"),
        ("a AND a", "a = TRUE"),
        ("x < y", "y > x"),
    ],
)
def test_filters_with_one_normal_form_are_equal(left: str, right: str) -> None:
    assert Filter(left) == Filter(right)
    assert hash(Filter(left)) == hash(Filter(right))
    assert str(Filter(left)) == str(Filter(right))


def test_filters_with_different_normal_forms_differ() -> None:
    texts = ["", "FALSE", "a", "a = 1", "a = '1'", "a > 1", "a >= 1", "b = 1", "a + 1 > 0"]
    assert len({Filter(text) for text in texts}) == len(texts)
    assert Filter("a + 1 > 0") != Filter("a + 1.0 > 0")
    assert (Filter("a") == "a") is False
    assert (Filter("a") != "a") is True


# --- attributes and text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "FALSE", "a = 'it''s' OR \"b\"\"c\" = 1", "a LIKE '%\\_' ESCAPE '\\'", "x + 1 > y"]
)
def test_str_and_repr_evaluate_to_an_equal_filter(text: str) -> None:
    made = Filter(text)
    assert Filter(str(made)) == made
    assert eval(repr(made), {"Filter": Filter}) == made  # noqa: S307


def test_repr_shows_the_canonical_text() -> None:
    assert repr(Filter("price>90")) == "Filter('price > 90')"


def test_a_filter_knows_the_attributes_it_depends_on() -> None:
    assert Filter("a = 1 AND b < c OR d + e > 0").attributes == {"a", "b", "c", "d", "e"}
    assert Filter("").attributes == frozenset()
    assert Filter("a > 1 OR a > 1 AND b = 2").attributes == {"a"}


def test_a_filter_cannot_be_changed() -> None:
    made = Filter("a = 1")
    with pytest.raises(AttributeError):
        made.conjunctions = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        made.note = "x"  # type: ignore[attr-defined]


def test_a_filter_can_be_made_of_conjunctions() -> None:
    made = Filter("a = 1 OR b = 2 AND c = 3")
    assert Filter.of(made.conjunctions) == made
    assert Filter.of(reversed(made.conjunctions)) == made
    assert Filter.of([]) == Filter("FALSE")
    assert Filter.of([EVERYTHING]) == Filter("")
    one, two = Filter("a = 1").conjunctions + Filter("a = 2").conjunctions
    assert Filter.of([one, two]) == Filter("a IN (1, 2)")


@pytest.mark.parametrize("text", [None, 5, b"a = 1", ["a = 1"], Filter("a")])
def test_a_filter_is_made_only_from_text(text: object) -> None:
    with pytest.raises(FilterTypeError, match=f"not from a {type(text).__name__}") as caught:
        Filter(text)  # type: ignore[arg-type]
    assert isinstance(caught.value, TypeError)


def test_errors_of_filters_are_value_errors_and_usage_errors() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter("a = ")
    for kind in (FilterError, ValueError, UsageError, GaplessError):
        assert isinstance(caught.value, kind)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), again.position) == (str(caught.value), 4)


# --- operators ----------------------------------------------------------------------------------


def test_filters_are_combined_by_and_or_and_not() -> None:
    dear, ibm = Filter("price > 90"), Filter("symbol = 'IBM'")
    assert dear & ibm == Filter("price > 90 AND symbol = 'IBM'")
    assert dear | ibm == Filter("price > 90 OR symbol = 'IBM'")
    assert ~dear == Filter("price <= 90")
    assert ~(dear & ibm) == Filter("NOT (price > 90 AND symbol = 'IBM')")
    assert ~(dear | ~ibm) == Filter("price <= 90 AND symbol = 'IBM'")
    assert ~~dear == dear
    assert dear & Filter("") == dear
    assert dear | Filter("FALSE") == dear


def test_not_negates_the_written_condition_and_not_the_normal_form() -> None:
    never = Filter("a IS NULL AND a > 5")
    assert never == Filter("FALSE")
    assert ~never == Filter("a IS NOT NULL OR a <= 5")  # for a = 3 the condition is false
    assert ~Filter("FALSE") == Filter("")
    assert ~(never | Filter("b")) == Filter("a IS NOT NULL AND NOT b")


def test_a_filter_of_conjunctions_is_negated_like_its_text() -> None:
    made = Filter.of(Filter("a = 1 AND b > 2").conjunctions)
    assert ~made == Filter("NOT (a = 1 AND b > 2)")
    assert ~Filter.of([]) == Filter("")


def test_long_chains_of_operators_stay_flat() -> None:
    anything, everything = Filter("id = 0"), Filter("id <> 0")
    for value in range(1, 500):
        anything |= Filter(f"id = {value}")
        everything &= Filter(f"id <> {value}")
    assert len(anything.conjunctions) == 1
    assert ~anything == everything
    assert ~everything == anything


@pytest.mark.parametrize(
    "use", [bool, lambda made: made and made, lambda made: made or made, lambda made: not made]
)
def test_a_filter_is_neither_true_nor_false(use: Callable[[Filter], object]) -> None:
    with pytest.raises(FilterTypeError, match="join filters with") as caught:
        use(Filter("a"))
    assert isinstance(caught.value, TypeError)


def test_a_filter_is_combined_only_with_filters() -> None:
    with pytest.raises(TypeError):
        Filter("a") & "b"  # type: ignore[operator]
    with pytest.raises(TypeError):
        Filter("a") | None  # type: ignore[operator]


# --- copies -------------------------------------------------------------------------------------

WRITTEN = Filter("a IS NULL AND a > 5 OR b LIKE '%x' AND c > d")
BUILT = (Filter("a IS NULL") & Filter("a > 5")) | Filter("b LIKE '%x' AND c > d")
TAKEN = Filter.of(WRITTEN.conjunctions)


@pytest.mark.parametrize("made", [WRITTEN, BUILT, TAKEN], ids=["text", "operators", "conjunctions"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_filter_and_its_negation_are_unchanged(made: Filter, protocol: int) -> None:
    made.matches({})  # the compiled function is not pickled
    again = pickle.loads(pickle.dumps(made, protocol))  # noqa: S301
    assert again == made
    assert str(again) == str(made)
    assert ~again == ~made


def test_the_deepest_tree_of_operators_can_be_pickled() -> None:
    made = Filter("a = 1")
    for depth in range(50):
        made = (made & Filter("b = 1")) if depth % 2 else (made | Filter("c = 1"))
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert (again, ~again) == (made, ~made)


def test_copying_a_filter_returns_the_same_object() -> None:
    assert copy.copy(WRITTEN) is WRITTEN
    assert copy.deepcopy(WRITTEN) is WRITTEN


# --- covering and intersection ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("", "a = 1"),
        ("a = 1", "FALSE"),
        ("", ""),
        ("a > 1", "a > 2"),
        ("a > 1", "a > 2 AND b = 1"),
        ("a IN (1, 2)", "a = 1"),
        ("a > 0 OR b > 0", "a > 5 AND c = 1 OR b = 7"),
        ("a IS NOT NULL", "a > 1"),
        ("a IS NOT NULL", "a = b"),
        ("a LIKE 'x%'", "a LIKE 'xy%'"),
        ("a LIKE '%x%'", "a LIKE '%axb%'"),
        ("a LIKE '%x'", "a = 'ax'"),
        ("a <> 'y'", "a LIKE '%x'"),
        ("a NOT LIKE '%y'", "a LIKE '%x'"),
        ("a NOT LIKE '%y%'", "a NOT LIKE '%y%' AND a <> 'z'"),
        ("a LIKE 'a_c%'", "a BETWEEN 'abc' AND 'abcz'"),
        ("a + b > 1", "a + b > 2 AND a > 5"),
        ("a <= b", "a < b"),
        ("a <> b", "a < b AND c = 1"),
    ],
)
def test_a_wider_filter_covers_a_narrower_one(wide: str, narrow: str) -> None:
    assert Filter(wide).covers(Filter(narrow))
    assert Filter(wide).covers(Filter(wide))
    if Filter(wide) != Filter(narrow):
        assert not Filter(narrow).covers(Filter(wide))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a = 1", "a = 2"),
        ("a > 5", "a < 5"),
        ("a > 5", "a IS NULL"),
        ("a = 1", "a = '1'"),
        ("a = 1 OR b = 1", "a = 2 AND b = 2"),
        ("a LIKE 'x%'", "a LIKE 'y%'"),
        ("a LIKE '%x'", "a LIKE '%y'"),
        ("a LIKE '_x%'", "a LIKE 'ay%'"),
        ("a LIKE '%x'", "a NOT LIKE '%x'"),
        ("a LIKE '%ax'", "a NOT LIKE '%x'"),
        ("a + b > 1", "a + b < 0"),
        ("a + b > 1", "a = 'x'"),
        ("a < b", "a > b"),
        ("FALSE", ""),
    ],
)
def test_filters_that_exclude_each_other_do_not_intersect(left: str, right: str) -> None:
    assert not Filter(left).intersects(Filter(right))
    assert not Filter(right).intersects(Filter(left))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a = 1", "b = 2"),
        ("a > 1", "a < 5"),
        ("a LIKE '%x'", "a LIKE 'y%'"),
        ("a LIKE '%x'", "a > 'q'"),
        ("a NOT LIKE '%x'", "a LIKE '%y'"),
        ("", "a IS NULL"),
        ("a <= b", "a >= b"),
    ],
)
def test_filters_that_an_event_can_satisfy_together_intersect(left: str, right: str) -> None:
    assert Filter(left).intersects(Filter(right))
    assert Filter(right).intersects(Filter(left))


@pytest.mark.parametrize("other", ["a = 1", None, EVERYTHING])
def test_only_filters_are_compared_with_filters(other: object) -> None:
    for method in ("covers", "intersects"):
        with pytest.raises(TypeError, match=rf"{method}\(\) takes a Filter, not a "):
            getattr(Filter("a = 1"), method)(other)


# --- invalid values -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400, b"x", [1], {}, object()])
@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "a > 1",
        "a >= 1",
        "a < 1",
        "a BETWEEN 1 AND 2",
        "a = 'x'",
        "a > 'x'",
        "a IN (1, 2, 'x')",
        "a LIKE '%x_'",
        "a IS NULL",
        "a IS NOT NULL",
        "a",
        "a / 2 > 1",
        "a < b",
        "a = 1 AND c = 1",
        "c = 1 AND a > 1",
        "b > 1 OR a = 1",
        "b = 2 OR c = 3 OR a = 'x' AND d = 1",
    ],
)
def test_a_filter_refuses_the_values_that_an_index_refuses(text: str, value: object) -> None:
    made = Filter(text)
    index = MatchIndex()
    index.add("key", made)
    for rest in ({}, {"b": 2, "c": 3}, {"b": 0, "c": 1}):
        event: Any = {"a": value, **rest}
        with pytest.raises(AttributeValueError):
            made.matches(event)
        with pytest.raises(AttributeValueError):
            index.match(event)
        unnamed: Any = {"z": value, **rest}
        assert made.matches(unnamed) == bool(index.match(unnamed))


@pytest.mark.parametrize("kernel", ["fallback", None])
@pytest.mark.parametrize(
    "text",
    [
        "a LIKE 'x\ud7ff%'",
        "a NOT LIKE 'x\ud7ff%'",
        "a LIKE 'x\ud7ff%b'",
        "a >= 'x\ud7ff' AND a NOT LIKE 'x\ud7ff%'",
    ],
)
def test_a_prefix_that_ends_before_the_surrogates_matches_exactly(
    text: str, kernel: str | None
) -> None:
    made = Filter(text)
    pattern = re.compile("x\ud7ff.*b" if text.endswith("%b'") else "x\ud7ff.*")
    index = MatchIndex(kernel=kernel)
    index.add("key", made)
    for end in ("", "\ud7ff", "\ud7ffb", "\ud800", "\udfff", "\ud800b", "\ue000", "y"):
        value = "x" + end
        begins = pattern.fullmatch(value) is not None
        expected = (
            value > "x\ud7ff" and not begins if ">=" in text else begins is ("NOT" not in text)
        )
        assert made.matches({"a": value}) is expected
        assert bool(index.match({"a": value})) is expected
