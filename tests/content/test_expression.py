"""Terms: arithmetic and comparisons, their unknown values, their texts."""

from __future__ import annotations

import itertools

import pytest

from gapless.content.condition import AttributeCondition
from gapless.content.expression import (
    ALIKE,
    EQUAL,
    GREATER,
    KEYWORDS,
    LESS,
    UNEQUAL,
    Arithmetic,
    Attribute,
    Comparison,
    Constant,
    Negative,
    Term,
    attribute_text,
    is_plain_name,
    literal_text,
)
from gapless.content.parser import parse
from gapless.content.values import Value
from gapless.content.valueset import ANY_NUMBER, PRESENT

A, B = Attribute("a"), Attribute("b")
LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("+", 1, 2, 3),
        ("+", 1, 0.5, 1.5),
        ("-", 1, 2, -1),
        ("*", 3, 4, 12),
        ("/", 5, 2, 2.5),
        ("/", 6, 3, 2.0),
        ("%", 7, 3, 1),
        ("%", -7, 3, -1),
        ("%", 7, -3, 1),
        ("%", -7, -3, -1),
        ("%", 7.5, 2, 1.5),
        ("%", -7.5, 2, -1.5),
        ("%", LEAST, -1, 0),
        ("%", LEAST, 10, -8),
        # no result
        ("/", 1, 0, None),
        ("/", 1, 0.0, None),
        ("%", 1, 0, None),
        ("%", 1.5, 0.0, None),
        ("+", MOST, 1, None),
        ("-", LEAST, 1, None),
        ("*", 2**40, 2**40, None),
        ("+", MOST, 1.0, 2.0**63),
        ("*", 1e200, 1e200, None),
        ("+", float("inf"), 1, None),
        ("-", float("inf"), float("inf"), None),
        ("%", float("inf"), 2, None),
        ("+", float("nan"), 1, None),
        # no numbers
        ("+", None, 1, None),
        ("+", 1, None, None),
        ("+", "a", "b", None),
        ("*", "a", 2, None),
        ("%", "%d", 2, None),
        ("+", True, 1, None),
        ("+", 1, False, None),
    ],
)
def test_arithmetic_has_a_number_or_no_result(
    operator: str, left: Value | None, right: Value | None, expected: Value | None
) -> None:
    found = Arithmetic(operator, A, B).value({"a": left, "b": right})
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, -5), (-2.5, 2.5), (LEAST, None), (MOST, -MOST), (None, None), ("5", None), (True, None)],
)
def test_negation_stays_within_64_bits(value: Value | None, expected: Value | None) -> None:
    assert Negative(A).value({"a": value}) == expected


@pytest.mark.parametrize(
    ("family", "outcomes"),
    [
        ([1, 1.5, MOST], {LESS, EQUAL, GREATER}),
        (["", "a", "b"], {LESS, EQUAL, GREATER}),
        ([False, True], {ALIKE, UNEQUAL}),
    ],
)
def test_comparisons_of_like_values_have_a_result(family: list[Value], outcomes: set[int]) -> None:
    term = Comparison(A, B)
    found = set()
    for (first, left), (second, right) in itertools.product(enumerate(family), repeat=2):
        outcome = term.value({"a": left, "b": right})
        assert (outcome in (EQUAL, ALIKE)) == (first == second)
        assert outcome != LESS or first < second
        assert outcome != GREATER or first > second
        found.add(outcome)
    assert found == outcomes


@pytest.mark.parametrize(
    ("left", "right"), [(None, 1), (1, None), (None, None), (float("nan"), 1), (1, "1"), (True, 1)]
)
def test_comparisons_of_unlike_or_missing_values_have_no_result(
    left: Value | None, right: Value | None
) -> None:
    assert Comparison(A, B).value({"a": left, "b": right}) is None


def test_big_ints_and_floats_are_compared_exactly() -> None:
    term = Comparison(A, B)
    assert term.value({"a": 2**53 + 1, "b": float(2**53)}) == GREATER
    assert term.value({"a": 2**53, "b": float(2**53)}) == EQUAL


def test_terms_state_the_requirements_of_their_attributes() -> None:
    assert A.requires() == {"a": PRESENT}
    assert Constant(1).requires() == {}
    assert Negative(A).requires() == {"a": ANY_NUMBER}
    assert Arithmetic("+", A, B).requires() == {"a": ANY_NUMBER, "b": ANY_NUMBER}
    assert Comparison(A, B).requires() == {"a": PRESENT, "b": PRESENT}
    assert Comparison(A, Negative(B)).requires() == {"a": ANY_NUMBER, "b": ANY_NUMBER}


def test_a_term_has_a_value_only_if_its_requirements_are_met() -> None:
    terms: list[Term] = [
        Negative(A),
        Arithmetic("+", A, B),
        Comparison(A, B),
        Comparison(A, Negative(B)),
    ]
    values: list[Value | None] = [None, True, 1, 1.5, "x"]
    for term, left, right in itertools.product(terms, values, values):
        event = {"a": left, "b": right}
        if term.value(event) is not None:
            assert all(allowed.contains(event[name]) for name, allowed in term.requires().items())


def test_constants_of_different_types_are_different_terms() -> None:
    constants = [Constant(1), Constant(1.0), Constant(True), Constant("1")]
    assert len(set(constants)) == 4
    assert Constant(1) == Constant(1)
    assert Constant(1) != 1
    assert Arithmetic("+", A, Constant(1)) != Arithmetic("+", A, Constant(1.0))


# --- texts --------------------------------------------------------------------------------------

LEAVES: list[Term] = [A, Attribute("odd name"), Constant(2), Constant(-2), Constant(0.5)]


def _terms(depth: int) -> list[Term]:
    if depth == 0:
        return LEAVES
    smaller = _terms(depth - 1)
    some = smaller[:: max(1, len(smaller) // 12)]
    made: list[Term] = [
        Negative(one)
        for one in some
        if not isinstance(one, Constant)
        # three signs are one before a term is made
        and not (isinstance(one, Negative) and isinstance(one.operand, Negative))
    ]
    for operator, left, right in itertools.product("+-*/%", some, some):
        if not (isinstance(left, Constant) and isinstance(right, Constant)):
            made.append(Arithmetic(operator, left, right))
    return made


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_text_of_a_term_parses_to_an_equal_term(depth: int) -> None:
    for term in _terms(depth):
        condition = parse(f"{term} > 7")
        assert isinstance(condition, AttributeCondition)
        assert condition.subject == term


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (-5, "-5"),
        (0.5, "0.5"),
        (1e22, "1E+22"),
        (1e-7, "1E-07"),
        (5.0, "5.0"),
        (LEAST, "-9223372036854775808"),
        (True, "TRUE"),
        (False, "FALSE"),
        ("", "''"),
        ("it's", "'it''s'"),
        ("None", "'None'"),
    ],
)
def test_literals_are_written_as_the_language_reads_them(value: Value, text: str) -> None:
    assert literal_text(value) == text


@pytest.mark.parametrize("name", ["a", "a.b", "größe", "$a", "_", "a1", "in.x", "हिन्दी"])
def test_plain_names_are_written_without_quotes(name: str) -> None:
    assert is_plain_name(name)
    assert attribute_text(name) == name
    assert parse(f"{name} = 1") == parse(f'"{name}" = 1')


@pytest.mark.parametrize(
    "name",
    ["", "a b", "1a", "a.", ".a", "a..b", "a.1", "a-b", 'say "hi"', "'", "\n", *sorted(KEYWORDS)],
)
def test_other_names_are_written_in_quotes(name: str) -> None:
    text = attribute_text(name)
    assert text.startswith('"')
    condition = parse(f"{text} = 1")
    assert isinstance(condition, AttributeCondition)
    assert condition.subject == name
