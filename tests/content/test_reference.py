"""The reference evaluator against truth tables that were written by hand."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from tests.content import generate
from tests.content.reference import (
    INT_MAX,
    INT_MIN,
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    Constant,
    Flag,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    Sign,
    Truth,
    Value,
    evaluate,
    like,
    names,
    predicates,
    value_of,
)
from tests.content.shrink import smaller
from tests.content.surface import _decimal, _integer, plain_text, to_text

T, F, U = Constant(value=True), Constant(value=False), Compare("=", Attribute("absent"), Literal(1))
A, B = Attribute("a"), Attribute("b")


def number(operator: str, left: Value, right: Value) -> Value | None:
    return value_of(Arithmetic(operator, A, B), {"a": left, "b": right})


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, True, True),
        (T, F, False, True),
        (T, U, None, True),
        (F, T, False, True),
        (F, F, False, False),
        (F, U, False, None),
        (U, T, None, True),
        (U, F, False, None),
        (U, U, None, None),
    ],
)
def test_and_and_or_follow_the_three_valued_tables(
    left: Constant | Compare, right: Constant | Compare, both: Truth, either: Truth
) -> None:
    assert evaluate(And(left, right), {}) is both
    assert evaluate(Or(left, right), {}) is either


def test_not_swaps_true_and_false_and_keeps_unknown() -> None:
    assert evaluate(Not(T), {}) is False
    assert evaluate(Not(F), {}) is True
    assert evaluate(Not(U), {}) is None


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (1, 1, "="),
        (1, 1.0, "="),
        (0, -0.0, "="),
        (1, 1.5, "<"),
        (2**53, 2**53 + 1, "<"),
        (2**53 + 1, float(2**53), ">"),
        (2**53, float(2**53), "="),
        (INT_MAX, 2.0**63, "<"),
        (INT_MIN, -(2.0**63), "="),
        (INT_MAX, math.inf, "<"),
        (-math.inf, INT_MIN, "<"),
        (math.inf, math.inf, "="),
        ("", "", "="),
        ("", "a", "<"),
        ("a", "a\x00", "<"),
        ("a\x00", "ab", "<"),
        ("B", "a", "<"),
        ("\uffff", "\U0001f600", "<"),
        ("abc", "ab", ">"),
    ],
)
def test_numbers_are_ordered_by_exact_value_and_strings_by_code_point(
    left: Value, right: Value, order: str
) -> None:
    holds = {"=": {"=", "<=", ">="}, "<": {"<", "<=", "<>"}, ">": {">", ">=", "<>"}}[order]
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        truth = evaluate(Compare(operator, A, B), {"a": left, "b": right})
        assert truth is (operator in holds), operator


def test_booleans_have_equality_and_no_order() -> None:
    event = {"a": True, "b": False}
    assert evaluate(Compare("=", A, B), event) is False
    assert evaluate(Compare("<>", A, B), event) is True
    assert evaluate(Compare("=", A, Literal(value=True)), event) is True
    for operator in ("<", "<=", ">", ">="):
        assert evaluate(Compare(operator, A, B), event) is None
        assert evaluate(Compare(operator, A, A), event) is None


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_comparisons_of_unlike_types_missing_values_or_nan_are_unknown(operator: str) -> None:
    samples: tuple[Value | None, ...] = (None, math.nan, 1, "1", True)
    for (left_index, left), (right_index, right) in product(enumerate(samples), repeat=2):
        if left_index != right_index or left_index < 2:
            assert evaluate(Compare(operator, A, B), {"a": left, "b": right}) is None


def test_one_is_not_true_and_zero_is_not_false() -> None:
    assert evaluate(Compare("=", A, Literal(value=True)), {"a": 1}) is None
    assert evaluate(Compare("<>", A, Literal(value=False)), {"a": 0}) is None
    assert evaluate(Flag("a"), {"a": 1}) is None


def test_a_bare_identifier_means_equals_true() -> None:
    assert evaluate(Flag("a"), {"a": True}) is True
    assert evaluate(Flag("a"), {"a": False}) is False
    assert evaluate(Flag("a"), {"a": "TRUE"}) is None
    assert evaluate(Flag("a"), {}) is None


def test_is_null_is_never_unknown_and_nan_is_a_value() -> None:
    for negated in (False, True):
        test = IsNull(negated, "a")
        assert evaluate(test, {}) is not negated
        assert evaluate(test, {"a": None}) is not negated
        for value in (0, "", False, math.nan, math.inf):
            assert evaluate(test, {"a": value}) is negated


def test_in_is_unknown_where_no_literal_is_equal_and_one_is_of_another_type() -> None:
    mixed = In(negated=False, name="a", values=(1, "x", 2.5))
    assert evaluate(mixed, {"a": 1.0}) is True
    assert evaluate(mixed, {"a": "x"}) is True
    assert evaluate(mixed, {"a": 2}) is None
    assert evaluate(mixed, {"a": True}) is None
    assert evaluate(mixed, {}) is None
    alike = In(negated=False, name="a", values=(1, 2))
    assert evaluate(alike, {"a": 3}) is False
    assert evaluate(alike, {"a": math.nan}) is None
    without = In(negated=True, name="a", values=(1, 2))
    assert evaluate(without, {"a": 3}) is True
    assert evaluate(without, {"a": 2}) is False
    assert evaluate(without, {"a": "3"}) is None
    assert evaluate(In(negated=True, name="a", values=(1, "x")), {"a": 3}) is None


def test_between_is_two_comparisons_and_may_be_false_with_one_end_unknown() -> None:
    test = Between(negated=False, operand=A, low=Literal(1), high=Literal("x"))
    assert evaluate(test, {"a": 0}) is False
    assert evaluate(test, {"a": 1}) is None
    assert evaluate(test, {"a": "y"}) is False
    assert evaluate(test, {"a": "x"}) is None
    backwards = Between(negated=False, operand=A, low=Literal(2), high=Literal(1))
    assert evaluate(backwards, {"a": 1.5}) is False
    outside = Between(negated=True, operand=A, low=Literal(1), high=Literal(2))
    assert [evaluate(outside, {"a": value}) for value in (0, 1, 1.5, 2, 2.5)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert evaluate(outside, {"a": "1"}) is None


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("+", 1, 2, 3),
        ("+", INT_MAX, 1, None),
        ("+", INT_MAX, 1.0, 2.0**63),
        ("+", 2**53 + 1, 0.0, float(2**53)),
        ("-", INT_MIN, 1, None),
        ("-", INT_MIN, INT_MIN, 0),
        ("*", 2**32, 2**31, None),
        ("*", 2**32, -(2**31), INT_MIN),
        ("*", 1e308, 10, None),
        ("*", math.inf, 0, None),
        ("+", math.inf, 1, None),
        ("+", math.nan, 1, None),
        ("/", 5, 2, 2.5),
        ("/", 4, 2, 2.0),
        ("/", INT_MAX, 1, 2.0**63),
        ("/", INT_MAX, INT_MAX - 1, 1.0),
        ("/", 5, 0, None),
        ("/", 5, -0.0, None),
        ("/", 0, 0, None),
        ("/", 1, math.inf, 0.0),
        ("/", math.inf, 2, None),
        ("%", 7, 3, 1),
        ("%", -7, 3, -1),
        ("%", 7, -3, 1),
        ("%", -7, -3, -1),
        ("%", -7.5, 2, -1.5),
        ("%", 7.5, -2, 1.5),
        ("%", INT_MIN, -1, 0),
        ("%", 7, 0, None),
        ("%", 7.0, 0, None),
        ("%", 7, math.inf, 7.0),
        ("%", math.inf, 7, None),
        ("%", 7, math.nan, None),
        ("+", "a", "b", None),
        ("*", True, 2, None),
        ("-", "3", 1, None),
    ],
)
def test_arithmetic_gives_a_finite_number_that_fits_or_nothing(
    operator: str, left: Value, right: Value, expected: Value | None
) -> None:
    result = number(operator, left, right)
    assert result == expected
    assert type(result) is type(expected)


def test_division_always_gives_a_float() -> None:
    assert isinstance(number("/", 4, 2), float)


def test_signs_follow_the_rules_of_arithmetic() -> None:
    assert value_of(Sign("-", A), {"a": 5}) == -5
    assert value_of(Sign("+", A), {"a": 5}) == 5
    assert value_of(Sign("-", A), {"a": INT_MIN}) is None
    for value in ("5", True, None, math.inf, math.nan):
        assert value_of(Sign("-", A), {"a": value}) is None
        assert value_of(Sign("+", A), {"a": value}) is None


def test_arithmetic_without_a_result_makes_its_comparison_unknown() -> None:
    ratio = Arithmetic("/", Literal(1), A)
    for operator in ("=", "<>", "<", ">="):
        assert evaluate(Compare(operator, ratio, Literal(1)), {"a": 0}) is None
    assert evaluate(Compare("<", Literal(3), Literal(5)), {}) is True


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "others"),
    [
        ("", None, [""], ["a", " "]),
        ("%", None, ["", "a", "abc", "a\nb"], []),
        ("_", None, ["a", "%", "\U0001f600", "\n"], ["", "ab"]),
        ("__", None, ["ab", "é\U0001f600"], ["a", "abc"]),
        ("a%", None, ["a", "ab", "a%"], ["", "ba", "A"]),
        ("%a", None, ["a", "ba", "aa"], ["ab"]),
        ("%a%", None, ["a", "bab", "aa"], ["", "b"]),
        ("a%b", None, ["ab", "aab", "aabb", "axb"], ["a", "b", "ba", "abc"]),
        ("%a%a%", None, ["aa", "aba", "baab"], ["a", "ab"]),
        ("a_%", None, ["ab", "abc"], ["a"]),
        ("%_", None, ["a", "ab"], [""]),
        ("!%", "!", ["%"], ["", "!", "a"]),
        ("a!_%", "!", ["a_", "a_b"], ["ab"]),
        ("!!%", "!", ["!", "!a"], ["", "a"]),
        ("\\_", "\\", ["_"], ["\\_", "a"]),
        ("\\_", None, ["\\a", "\\_"], ["_"]),
        ("aaa%", "a", ["a%"], ["a", "aaa"]),
        ("a.c", None, ["a.c"], ["abc"]),
    ],
)
def test_like_matches_whole_strings_with_runs_single_characters_and_escapes(
    pattern: str, escape: str | None, matching: list[str], others: list[str]
) -> None:
    for subject in matching:
        assert like(subject, pattern, escape), subject
    for subject in others:
        assert not like(subject, pattern, escape), subject


def test_like_is_unknown_for_anything_but_a_string() -> None:
    for negated in (False, True):
        test = Like(negated, "a", "%")
        assert evaluate(test, {"a": "x"}) is not negated
        for value in (1, 1.5, True, None, math.nan):
            assert evaluate(test, {"a": value}) is None


def test_an_escape_before_an_ordinary_character_is_refused() -> None:
    for pattern in ("!a", "a!"):
        with pytest.raises(ValueError, match="escape"):
            like("a", pattern, "!")


def test_the_three_truths_are_exclusive_under_negation_for_random_conditions() -> None:
    rng = random.Random(1)
    seen = {True: 0, False: 0, None: 0}
    for _ in range(400):
        colours = generate.palette(rng)
        tree = generate.condition(rng, colours)
        for _ in range(10):
            event = generate.event(rng, colours)
            truth = evaluate(tree, event)
            seen[truth] += 1
            opposite = evaluate(Not(tree), event)
            assert opposite is (None if truth is None else not truth)
    assert min(seen.values()) > 400, f"the generator leans too far to one side: {seen}"


def test_every_written_form_of_a_number_has_its_value() -> None:
    rng = random.Random(2)
    for value in (0.0, 0.1, 0.5, 1.0, 1.5, 2.0**53, 2.0**63, 1e308, 5e-324, 123.456):
        for _ in range(50):
            assert float(_decimal(value, rng)) == value
    for size in (0, 1, 7, 8, 29, 2**53 + 1, INT_MAX):
        for _ in range(50):
            text = _integer(size, rng).rstrip("Ll").lower()
            octal = text.startswith("0") and text.isdigit()
            assert int(text, 8 if octal else 0) == size


def test_a_text_depends_on_its_seed_only_and_seeds_give_many_texts() -> None:
    rng = random.Random(3)
    colours = generate.palette(rng)
    tree = And(generate.condition(rng, colours), generate.condition(rng, colours))
    assert to_text(tree, random.Random(4)) == to_text(tree, random.Random(4))
    assert len({to_text(tree, random.Random(seed)) for seed in range(50)}) > 40


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (Arithmetic("-", A, Arithmetic("-", B, Literal(1))), "a - (b - 1)"),
        (Arithmetic("-", Arithmetic("-", A, B), Literal(1)), "a - b - 1"),
        (Arithmetic("*", Arithmetic("+", A, B), Literal(-1)), "(a + b) * - 1"),
        (Sign("-", Arithmetic("*", A, B)), "- (a * b)"),
        (Arithmetic("/", Sign("-", A), Literal(0.5)), "- a / 0.5"),
        (Literal(-0.0), "- 0.0"),
        (Attribute("x.y"), "x.y"),
        (Attribute("odd name"), '"odd name"'),
        (Attribute("not"), '"not"'),
    ],
)
def test_parentheses_are_written_where_the_tree_needs_them(operand: Operand, text: str) -> None:
    assert plain_text(Compare("=", operand, Literal(0))) == f"{text} = 0"


def test_conditions_are_written_with_the_precedence_of_the_language() -> None:
    a, b, c = Flag("a"), Flag("b"), Flag("c")
    assert plain_text(Or(And(a, b), Not(c))) == "a AND b OR NOT c"
    assert plain_text(And(Or(a, b), Not(And(b, c)))) == "(a OR b) AND NOT (b AND c)"
    assert plain_text(Like(negated=True, name="a", pattern="it's", escape="!")) == (
        "a NOT LIKE 'it''s' ESCAPE '!'"
    )
    assert plain_text(In(negated=False, name="a", values=(1, "x", True))) == "a IN (1, 'x', TRUE)"


def test_a_failing_condition_is_reduced_to_the_part_that_fails() -> None:
    culprit = Like(negated=False, name="b", pattern="%")
    tree = Or(And(Flag("a"), Not(Or(culprit, Flag("c")))), IsNull(negated=False, name="a"))
    assert smaller(tree, lambda part: culprit in tuple(predicates(part))) == culprit
    assert names(tree) == ("a", "b", "c")
