"""The normal form: negation in three-valued logic, multiplying out, simplifying, limits."""

from __future__ import annotations

import itertools
import random

import pytest

from gapless.content import normal as normal_form
from gapless.content.conjunction import Conjunction
from gapless.content.like import Pattern
from gapless.content.normal import disjoined, normalise
from gapless.content.parser import parse
from gapless.content.text import conjunction_text
from gapless.content.values import Value
from gapless.content.valueset import one_of
from gapless.core import limits
from gapless.core.errors import FilterLimitError


def normal(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text))


def written(text: str) -> list[str]:
    return [str(conjunction) for conjunction in normal(text)]


def truth(text: str, **attributes: Value | None) -> bool | None:
    """Return whether a condition is true, false (its negation is true), or neither."""
    if any(one.matches(attributes) for one in normal(text)):
        return True
    return False if any(one.matches(attributes) for one in normal(f"NOT ({text})")) else None


# --- three-valued logic -------------------------------------------------------------------------

TRUE, FALSE, UNKNOWN = "t = 1", "t = 2", "missing = 1"
LETTERS = {TRUE: True, FALSE: False, UNKNOWN: None}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LETTERS, LETTERS)))
def test_and_and_or_follow_their_truth_tables(left: str, right: str) -> None:
    first, second = LETTERS[left], LETTERS[right]
    both: bool | None = None
    if first is False or second is False:
        both = False
    elif first and second:
        both = True
    either: bool | None = None
    if first or second:
        either = True
    elif first is False and second is False:
        either = False
    assert truth(f"({left}) AND ({right})", t=1) is both
    assert truth(f"({left}) OR ({right})", t=1) is either


@pytest.mark.parametrize(("condition", "value"), [(TRUE, False), (FALSE, True), (UNKNOWN, None)])
def test_not_leaves_unknown_as_it_is(condition: str, value: bool | None) -> None:
    assert truth(f"NOT {condition}", t=1) is value


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        # a missing attribute
        ("a = 1", None, None),
        ("a <> 1", None, None),
        ("a LIKE '%'", None, None),
        ("a IN (1, 2)", None, None),
        ("a BETWEEN 1 AND 2", None, None),
        ("a", None, None),
        ("a + 1 > 0", None, None),
        ("a IS NULL", None, True),
        ("a IS NOT NULL", None, False),
        # unlike types
        ("a = 1", "1", None),
        ("a <> 1", "1", None),
        ("a = 'x'", 1, None),
        ("a = TRUE", 1, None),
        ("a = 1", True, None),
        ("a > 0", True, None),
        ("a", "TRUE", None),
        ("a LIKE '1%'", 1, None),
        ("a + 1 > 0", "1", None),
        ("-a < 0", True, None),
        # texts and numbers
        ("a < 'b'", "a", True),
        ("a < 'b'", "B", True),
        ("a < 'b'", "b", False),
        ("a < ''", "a", False),
        ("a = 9007199254740993", 9007199254740992.0, False),
        ("a > 9007199254740992.0", 9007199254740993, True),
        ("a = 1", 1.0, True),
        ("a = 1.5", 1, False),
        # NaN and the infinities
        ("a = a", float("nan"), None),
        ("a <> 1", float("nan"), None),
        ("a IS NULL", float("nan"), False),
        ("a > 1", float("inf"), True),
        ("a < 1", float("-inf"), True),
        ("a + 1 > 0", float("inf"), None),
        # arithmetic
        ("1 / a > 0", 0, None),
        ("a % 0 = 0", 5, None),
        ("a + 1 > 0", 2**63 - 1, None),
        ("a + 1.0 > 0", 2**63 - 1, True),
        ("a / 2 = 2.5", 5, True),
        ("a % 3 = -1", -7, True),
        ("a % -3 = 1", 7, True),
        # chains of comparisons
        ("a IN (1, 'x')", 2, None),
        ("a IN (1, 'x')", "x", True),
        ("a IN (1, 'x')", True, None),
        ("a IN (1, 2)", 3, False),
        ("a BETWEEN 1 AND 'x'", 0, False),
        ("a BETWEEN 1 AND 'x'", 2, None),
        ("a BETWEEN 5 AND 1", 3, False),
    ],
)
def test_a_condition_is_true_false_or_unknown(
    text: str, value: Value | None, expected: bool | None
) -> None:
    assert truth(text, a=value) is expected


@pytest.mark.parametrize(
    ("text", "left", "right", "expected"),
    [
        ("a < b", 1, 2, True),
        ("a < b", 1, 2.5, True),
        ("a < b", "x", "y", True),
        ("a < b", 1, "y", None),
        ("a < b", None, 1, None),
        ("a = b", True, True, True),
        ("a = b", True, False, False),
        ("a <> b", True, False, True),
        ("a <= b", True, True, None),
        ("a < b", False, True, None),
        ("a = b", True, 1, None),
        ("a <> b", float("nan"), 1, None),
        ("a + 1 = b", 1, 2.0, True),
        ("a + 1 = b", 1, "2", None),
        ("a BETWEEN b AND b + 2", 3, 2, True),
    ],
)
def test_two_attributes_are_compared_by_the_same_rules(
    text: str, left: Value | None, right: Value | None, expected: bool | None
) -> None:
    assert truth(text, a=left, b=right) is expected


# --- examples -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["TRUE"]),
        ("TRUE", ["TRUE"]),
        ("FALSE", []),
        ("NOT FALSE", ["TRUE"]),
        ("a > 1 AND FALSE", []),
        ("a > 1 OR TRUE", ["TRUE"]),
        ("1/0 = 1 OR a = 1", ["a = 1"]),
        ("NOT (1/0 = 1 AND a = 1)", ["a <> 1"]),
        ("a > 5 AND a < 3", []),
        ("a = 1 AND a = 'x'", []),
        ("a IS NULL AND a = 1", []),
        ("a IS NULL AND a + 1 > 0", []),
        ("a NOT IN (1, 'x')", []),
        ("NOT (a = 1 AND b = 2)", ["a <> 1", "b <> 2"]),
        ("NOT (a = 1 OR b = 2)", ["a <> 1 AND b <> 2"]),
        ("NOT (a BETWEEN 1 AND 5)", ["a NOT BETWEEN 1 AND 5"]),
        ("NOT (a BETWEEN b AND c)", ["a < b", "a > c"]),
        ("NOT a < b", ["a >= b"]),
        ("NOT a = b", ["a <> b"]),
        ("NOT (NOT (a > b))", ["a > b"]),
        (
            "(a = 1 OR b = 2) AND (c = 3 OR d = 4)",
            ["a = 1 AND c = 3", "a = 1 AND d = 4", "b = 2 AND c = 3", "b = 2 AND d = 4"],
        ),
        ("a > 1 AND (a < 5 OR b = 2)", ["a > 1 AND a < 5", "a > 1 AND b = 2"]),
        ("a LIKE '%x' OR a LIKE '%y'", ["a LIKE '%x'", "a LIKE '%y'"]),
    ],
)
def test_conditions_multiply_out(text: str, expected: list[str]) -> None:
    assert written(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # equal and covered ones are removed
        ("a = 1 OR a = 1", ["a = 1"]),
        ("a > 1 OR a > 5", ["a > 1"]),
        ("a > 1 OR a > 1 AND b = 2", ["a > 1"]),
        ("a > 1 OR a > 5 AND b = 2", ["a > 1"]),
        ("(a OR b) AND (a OR b)", ["a = TRUE", "b = TRUE"]),
        ("a LIKE '%' OR a LIKE '%x'", ["a LIKE '%'"]),
        ("a LIKE '%x%' OR a LIKE '%ax%'", ["a LIKE '%x%'"]),
        ("a LIKE '%x' OR a = 'ax'", ["a LIKE '%x'"]),
        ("a + b > 1 OR a + b > 1 AND c = 1", ["a + b > 1"]),
        # those that differ in one subject are united
        ("a = 1 OR a = 2", ["a IN (1, 2)"]),
        ("a < 5 OR a > 5", ["a <> 5"]),
        ("a < 5 OR a >= 5", ["(a <= 0 OR a > 0)"]),
        ("a IS NULL OR a IS NOT NULL", ["TRUE"]),
        ("a = TRUE OR a = FALSE", ["a IN (FALSE, TRUE)"]),
        ("a = 1 OR a = 'x' OR a = TRUE", ["a IN (1, 'x', TRUE)"]),
        ("a = 1 AND c = 3 OR a = 2 AND c = 3", ["a IN (1, 2) AND c = 3"]),
        ("a < b OR a = b", ["(a = b OR a < b)"]),
        ("a < b OR a > b OR a = b", ["(a = b OR a < b OR a > b)"]),
        ("a <= b OR a > b", ["(a < b OR a >= b)"]),
        ("a + b > 1 OR a + b < 0", ["a + b NOT BETWEEN 0 AND 1"]),
        ("a + b > 1 AND c = 1 OR a + b > 1 AND c = 2", ["c IN (1, 2) AND a + b > 1"]),
        ("a + b > 1 AND a > 5 OR a + b > 1 AND a <= 5", ["a + b > 1"]),
        ("a > b OR NOT a > b", ["(a < b OR a >= b)"]),
        # and that may allow more
        (
            "a = 1 AND b = 1 OR a = 2 AND b = 1 OR a = 1 AND b = 2 OR a = 2 AND b = 2",
            ["a IN (1, 2) AND b IN (1, 2)"],
        ),
        (
            "a = 1 AND b = 1 OR a <> 1 AND b = 1 OR b = 2 AND a LIKE 'x%'",
            ["(a <= 0 OR a > 0) AND b = 1", "a LIKE 'x%' AND b = 2"],
        ),
        ("a IS NULL AND b = 1 OR a IS NOT NULL AND b = 1 OR b = 1 AND c = 2", ["b = 1"]),
    ],
)
def test_the_normal_form_is_simplified(text: str, expected: list[str]) -> None:
    assert written(text) == expected
    assert written(" OR ".join(expected)) == expected


def test_the_same_condition_of_a_term_with_itself_is_a_condition_of_its_attribute() -> None:
    assert normal("a = a") == normal("a <= 0 OR a > 0 OR a LIKE '%' OR a IN (TRUE, FALSE)")
    assert normal("a <= a") == normal("a <= 0 OR a > 0 OR a LIKE '%'")
    assert normal("a < a") == ()
    assert normal("NOT a <> a") == normal("a = a")
    assert written("a * b = a * b") == ["(a * b <= 0 OR a * b > 0)"]


def test_the_requirements_of_a_term_are_among_the_constraints() -> None:
    (one,) = normal("price * size > 1000")
    assert [name for name, _ in one.constraints] == ["price", "size"]
    assert not one.intersects(normal("price = 'high'")[0])
    (comparison,) = normal("bid < ask")
    assert not comparison.intersects(normal("ask IS NULL")[0])
    (mixed,) = normal("bid + 1 < ask")
    assert not mixed.intersects(normal("ask = 'high'")[0])


def test_terms_with_an_int_and_a_float_are_not_confused() -> None:
    assert len(normal("a + 1 > 0 OR a + 1.0 > 0")) == 2
    assert truth("a + 1 > 0 OR a + 1.0 > 0", a=2**63 - 1) is True


def test_the_order_in_which_a_filter_is_written_does_not_matter() -> None:
    parts = [
        "a = 1 AND b > 2",
        "a = 2 AND b > 2",
        "c LIKE '%x'",
        "c LIKE '%ax'",
        "a = 3 AND d IS NULL",
        "a + b < 7",
        "b > 9",
    ]
    expected = normal(" OR ".join(parts))
    generator = random.Random(5)
    for _ in range(50):
        generator.shuffle(parts)
        assert normal(" OR ".join(parts)) == expected


def test_given_conjunctions_are_normalized() -> None:
    left, right = normal("a = 1 OR b = 2"), normal("a = 1 OR c = 3")
    assert disjoined([*left, *right]) == normal("a = 1 OR b = 2 OR c = 3")
    assert disjoined(left) == left
    assert disjoined([]) == ()


@pytest.mark.parametrize("connective", ["OR", "AND"])
def test_the_normal_form_does_not_depend_on_parentheses(connective: str) -> None:
    parts = ["c = ''", "c LIKE '_'", "c LIKE 'a'", "NOT (c LIKE '%x' AND d = 1)"]
    first, second, third, fourth = parts
    join = f" {connective} "
    flat = normal(join.join(parts))
    assert flat == normal(f"({first}{join}{second}){join}({third}{join}{fourth})")
    assert flat == normal(f"{first}{join}({second}{join}({third}{join}({fourth})))")
    assert flat == normal(join.join(reversed(parts)))


# --- limits -------------------------------------------------------------------------------------


def limit_of(text: str) -> str:
    with pytest.raises(FilterLimitError) as caught:
        normal(text)
    error = caught.value
    assert getattr(limits, error.limit) == error.allowed
    assert f"{error.limit} = {error.allowed:,}" in str(error)
    return error.limit


def test_the_number_of_conjunctions_is_limited() -> None:
    most = limits.FILTER_CONJUNCTIONS_MAX
    assert len(normal(" OR ".join(f"a{i} = 1" for i in range(most)))) == most
    assert limit_of(" OR ".join(f"a{i} = 1" for i in range(most + 1))) == "FILTER_CONJUNCTIONS_MAX"


def test_a_product_is_refused_before_it_is_built() -> None:
    assert len(normal(" AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(8)))) == 256
    for factors in (9, 20, 1_000):
        text = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(factors))
        assert limit_of(text) == "FILTER_CONJUNCTIONS_MAX"
    wide = " AND ".join(
        "(" + " OR ".join(f"a{i}x{k} = 1" for k in range(256)) + ")" for i in range(4)
    )
    assert limit_of(wide) == "FILTER_STEPS_MAX"


def test_a_product_that_simplifies_is_accepted() -> None:
    assert written(" AND ".join(["(a OR b)"] * 1_000)) == ["a = TRUE", "b = TRUE"]
    assert len(normal(" OR ".join(f"a = {i} AND b = 1" for i in range(1_500)))) == 1


def test_patterns_that_are_too_expensive_to_compare_are_refused() -> None:
    many = [f"'%{'ab' * 20}{i:02}_%'" for i in range(40)]
    assert len(normal(" OR ".join(f"a LIKE {one}" for one in many[:20]))) == 20
    assert limit_of(" OR ".join(f"a LIKE '%{i}_x'" for i in range(3_000))) == "FILTER_STEPS_MAX"
    left = " OR ".join(f"a LIKE {one}" for one in many[:16])
    right = " OR ".join(f"a LIKE {one}" for one in many[16:32])
    assert limit_of(f"({left}) AND ({right})") == "FILTER_STEPS_MAX"


@pytest.mark.parametrize("separator", [" OR a = ", ", "])
def test_the_number_of_cut_points_is_limited(separator: str) -> None:
    values = [str(value) for value in range(limits.FILTER_CONSTRAINTS_MAX // 2 + 1)]
    opening, closing = ("a IN (", ")") if separator == ", " else ("a = ", "")
    (one,) = normal(opening + separator.join(values[:-1]) + closing)
    ((_, allowed),) = one.constraints
    assert len(allowed.numbers) == limits.FILTER_CONSTRAINTS_MAX
    assert limit_of(opening + separator.join(values) + closing) == "FILTER_CONSTRAINTS_MAX"


def test_texts_beside_patterns_are_charged_before_they_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = 0
    matches = Pattern.matches

    def counted(pattern: Pattern, text: str) -> bool:
        nonlocal tried
        tried += 1
        return matches(pattern, text)

    monkeypatch.setattr(Pattern, "matches", counted)
    patterns = [f"x LIKE '%{i:03}_z%'" for i in range(150)]
    texts = [f"'{i:03}qz{i}'" for i in range(1_500)]
    either = [f"x = {text}" for text in texts]
    listed = ", ".join(texts)
    assert limit_of(" OR ".join(patterns + either)) == "FILTER_STEPS_MAX"
    assert limit_of(" OR ".join([*patterns, f"x NOT IN ({listed})"])) == "FILTER_STEPS_MAX"
    assert tried == 0
    assert len(normal(" OR ".join(patterns[:20] + either[:300]))) == 21
    assert 0 < tried <= limits.FILTER_STEPS_MAX


def test_texts_and_patterns_that_must_both_hold_are_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(normal_form, "FILTER_STEPS_MAX", 10_000)
    listed = ", ".join(f"'{i:03}'" for i in range(500))
    patterns = [f"x LIKE '%{i}%'" for i in range(100)]
    with pytest.raises(FilterLimitError):
        normal(" AND ".join([f"x IN ({listed})", *patterns]))
    with pytest.raises(FilterLimitError):
        normal(f"(x IN ({listed}) OR y = 1) AND ({' AND '.join(patterns)} OR y = 2)")
    assert written(f"x IN ({listed}) AND x LIKE '%49_'")[0].startswith("x IN ('490', '491'")


def test_points_at_the_ends_of_a_range_are_joined_in_one_step() -> None:
    ends = " OR ".join(f"x > '{i:03}a' AND x < '{i:03}b'" for i in range(100))
    (plain, _) = normal(f"x LIKE '%_a' OR {ends}")
    (_, allowed) = plain.constraints[0]
    assert allowed.contains("007a")
    assert not allowed.contains("007b")


def test_a_normal_form_whose_text_is_above_the_limit_is_refused() -> None:
    def product(length: int) -> str:
        sides = [
            "(" + " OR ".join(f"{side}{'n' * length}{i} = 1" for i in range(16)) + ")"
            for side in "ab"
        ]
        return " AND ".join(sides)

    assert len(normal(product(100))) == 256
    assert limit_of(product(1_000)) == "FILTER_TEXT_MAX"
    most = limits.FILTER_TEXT_MAX
    (one,) = normal(f"a = '{'x' * (most - 6)}'")
    assert len(conjunction_text(one)) == most
    with pytest.raises(FilterLimitError, match="FILTER_TEXT_MAX"):
        disjoined([Conjunction((("a" * most, one_of([1])),))])


def test_many_conditions_on_one_attribute_are_one_sweep() -> None:
    assert limit_of(" AND ".join(f"a <> {i}" for i in range(4_000))) == "FILTER_CONSTRAINTS_MAX"
    assert limit_of(" AND ".join(f"a LIKE '%{i}%'" for i in range(3_000))) == (
        "FILTER_CONSTRAINTS_MAX"
    )
    assert written(" AND ".join(f"a > {i}" for i in range(4_000))) == ["a > 3999"]
