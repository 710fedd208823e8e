"""Canonical texts of value sets and conjunctions, and that they parse to equal ones."""

from __future__ import annotations

import itertools

import pytest

from gapless.content.filter import Filter
from gapless.content.text import set_text
from gapless.content.valueset import NOTHING, ValueSet, one_of


@pytest.mark.parametrize(
    "text",
    [
        # numbers
        "a = 5",
        "a = -5",
        "a = 0.5",
        "a = 1E+22",
        "a = 1E-07",
        "a = -9223372036854775808",
        "a <> 5",
        "a IN (1, 2)",
        "a NOT IN (1, 2)",
        "a > 5",
        "a >= 5",
        "a < 5",
        "a <= 5",
        "a BETWEEN 1 AND 5",
        "a NOT BETWEEN 1 AND 5",
        "a >= 1 AND a < 5",
        "a > 1 AND a <= 5",
        "a > 1 AND a < 5",
        "a > 5 AND a <> 7",
        "a BETWEEN 1 AND 9 AND a NOT IN (2, 3.5)",
        "(a <= 0 OR a > 0)",
        "(a < 1 OR a >= 5)",
        "(a IN (1, 2) OR a > 5)",
        "(a = 0 OR a > 1 AND a < 2 OR a BETWEEN 3 AND 4)",
        # texts
        "a = 'x'",
        "a = ''",
        "a = 'it''s'",
        "a <> 'x'",
        "a IN ('x', 'y')",
        "a NOT IN ('x', 'y')",
        "a > 'x'",
        "a <= 'x'",
        "a BETWEEN 'a' AND 'c'",
        "a >= 'a' AND a < 'c'",
        "a NOT BETWEEN 'b' AND 'd'",
        "(a < 'b' OR a >= 'd')",
        # patterns
        "a LIKE '%'",
        "a LIKE 'ab%'",
        "a NOT LIKE 'ab%'",
        "a LIKE '%ab'",
        "a NOT LIKE '%ab'",
        "a LIKE 'a_c%'",
        "a LIKE '10\\%%' ESCAPE '\\'",
        "a LIKE '%\\_x' ESCAPE '\\'",
        "a LIKE '%\\\\' ESCAPE '\\'",
        "a LIKE '%it''s'",
        "a LIKE '%x' AND a LIKE '%y%'",
        "a > 'q' AND a NOT LIKE '%x'",
        "a NOT BETWEEN 'b' AND 'd' AND a LIKE '%x'",
        # bools, null, mixtures
        "a = TRUE",
        "a = FALSE",
        "a IN (FALSE, TRUE)",
        "a IS NULL",
        "a IS NOT NULL",
        "a IN (1, 'x', TRUE)",
        "(a = 1 OR a IS NULL)",
        "(a = 'x' OR a > 5 OR a IS NULL)",
        "(a <= 0 OR a > 0 OR a LIKE '%')",
        # names
        'a.b = 1 AND "odd name" = 2',
        '"AND" = 1',
        '"say ""hi""" = 1',
        "größe > 1",
        # conjunctions and filters
        "price > 90 AND symbol = 'IBM'",
        "a = 1 AND b = 2 OR c = 3",
        "TRUE",
        "FALSE",
        # terms
        "a * b > 1000",
        "a * b BETWEEN 1 AND 2",
        "a - (b - c) > 0",
        "-a + b <> 0",
        "a * -2 <= -3",
        "-a * b - -c > 0",
        "- -a > 1",
        "-(a - b) > 1",
        "a + 1.0 > 0",
        "a / b % c IN (1, 2)",
        "(a + b <= 0 OR a + b > 0)",
        "a > 1 AND a + b > 3",
        '"x y" + 1 > 0',
        # comparisons
        "a < b",
        "a <= b",
        "a = b",
        "a <> b",
        "a >= b",
        "a > b",
        "(a < b OR a > b)",
        "a <= b AND a >= b",
        "a + 1 < b * 2",
        "a > 5 AND a < b",
    ],
)
def test_a_canonical_text_is_its_own_canonical_text(text: str) -> None:
    assert str(Filter(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a=5.0", "a = 5"),
        ("a = 0x1d", "a = 29"),
        ("a >= 'b' AND a < 'c'", "a LIKE 'b%'"),
        ("a >= ''", "a LIKE '%'"),
        ("a <= ''", "a = ''"),
        ("a <> ''", "a > ''"),
        ("a LIKE 'abc'", "a = 'abc'"),
        ("a LIKE '%%_'", "a LIKE '_%'"),
        ("b > a", "a < b"),
        ("+a > 1", "a + 0 > 1"),
        ("a > 1 and B = 'x' or not c is null", "B = 'x' AND a > 1 OR c IS NOT NULL"),
        ("a + b > 3 AND a + b < 5", "a + b > 3 AND a + b < 5"),
        ("a LIKE 'ab%' AND a LIKE '%x'", "a LIKE 'ab%' AND a LIKE '%x'"),
        ("a LIKE 'ab%x' AND a LIKE 'ab%'", "a LIKE 'ab%x'"),
        ("a LIKE 'ab%x' AND a > 'abc'", "a > 'abc' AND a < 'ac' AND a LIKE 'ab%x'"),
    ],
)
def test_other_texts_of_a_filter_become_the_canonical_one(text: str, canonical: str) -> None:
    assert str(Filter(text)) == canonical
    assert Filter(canonical) == Filter(text)


OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


@pytest.mark.parametrize("joint", [" OR ", " AND "])
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(OPERATORS, 2)))
def test_every_mixture_of_comparisons_parses_to_an_equal_filter(
    first: str, second: str, joint: str
) -> None:
    for third in OPERATORS:
        made = Filter(f"(a {first} b{joint}a {second} b) OR a {third} b AND a <= b")
        assert Filter(str(made)) == made


def test_the_empty_set_is_written_as_false() -> None:
    assert set_text("a", NOTHING) == "FALSE"


def test_equal_numbers_are_written_alike() -> None:
    assert set_text("a", one_of([2.0, 1])) == "a IN (1, 2)"
    assert set_text("a", ValueSet(numbers=((5.0, 0), (5.0, 1)))) == "a = 5"


def test_constraints_that_a_term_implies_are_omitted() -> None:
    made = Filter("a IS NOT NULL AND a < b AND b IS NOT NULL")
    assert str(made) == "a < b"
    assert made == Filter("a < b")
    assert str(Filter("a + b > 1 AND (a <= 0 OR a > 0)")) == "a + b > 1"
    assert str(Filter("a + b > 1 AND a = b")) == "a + b > 1 AND a = b"


def test_the_sign_of_a_zero_is_not_written() -> None:
    for plain, signed in (("a + 0.0 > 1", "a + -0.0 > 1"), ("a * 0.0 = b", "a * (0.0 * -1) = b")):
        assert Filter(plain) == Filter(signed)
        assert str(Filter(plain)) == str(Filter(signed))
        assert hash(Filter(plain)) == hash(Filter(signed))


@pytest.mark.parametrize(
    "text",
    [
        "- " * 60 + "a > 1",
        "- " * 61 + "a > 1",
        "a - (" * 97 + "-b" + ")" * 97 + " > 1",
        "a - (" * 97 + "2 - 7 + b" + ")" * 97 + " > 1 OR FALSE",
        "NOT (" + "-(a - " * 49 + "b" + ")" * 49 + " <> 1)",
        "-(" + "a - (" * 96 + "b" + ")" * 97 + " BETWEEN 1 AND 2",
    ],
)
def test_the_most_deeply_nested_values_parse_to_equal_filters(text: str) -> None:
    made = Filter(text)
    assert Filter(str(made)) == made
    either = made | ~made  # in parentheses
    assert Filter(str(either)) == either


BEFORE = "\ud7ff"
"""The last character before the surrogates, which no text has alone."""


@pytest.mark.parametrize(
    "text",
    [
        f"a LIKE '{BEFORE}%'",
        f"a NOT LIKE 'x{BEFORE}%'",
        f"a >= 'm' AND (a < 'x{BEFORE}' OR a LIKE 'x{BEFORE}%')",
        f"a > 'x{BEFORE}' AND a NOT LIKE 'x{BEFORE}%'",
        f"a > 'x{BEFORE}' AND a NOT LIKE 'x{BEFORE}%' AND a < 'x{BEFORE}'",
        f"a < 'z' AND a NOT LIKE 'x{BEFORE}%' AND a NOT IN ('b', 'y')",
        f"(a <= 'b' OR a LIKE '{BEFORE}%') AND b = 1",
        f"a NOT LIKE 'x{BEFORE}%' AND a NOT BETWEEN 'x{BEFORE}' AND 'y'",
        f"a > 'x{BEFORE}b' AND (a < 'x{BEFORE}' OR a LIKE 'x{BEFORE}%' OR a IS NULL)",
        f"a LIKE 'x{BEFORE}%' OR a LIKE '%x_'",
        f"a < 'b' OR a LIKE '{BEFORE}%' OR a LIKE '_'",
        f"a LIKE '{BEFORE}{BEFORE}\U0010ffff%'",
    ],
)
def test_a_filter_with_a_text_before_the_surrogates_can_be_encoded_and_parsed(text: str) -> None:
    made = Filter(text)
    str(made).encode()
    assert Filter(str(made)) == made
    assert Filter(str(~made)) == ~made
