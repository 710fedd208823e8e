"""The parser: precedence, refusals, and the position of the caret."""

from __future__ import annotations

import pytest

from gapless.content.condition import (
    AllOf,
    AnyOf,
    AttributeCondition,
    Condition,
    ConstantCondition,
    Not,
)
from gapless.content.expression import Arithmetic, Attribute, Comparison, Constant, Negative
from gapless.content.filter import Filter
from gapless.content.parser import parse
from gapless.content.values import Value
from gapless.content.valueset import (
    ALL_BOOLS,
    ANY,
    ANY_NUMBER,
    ANY_TEXT,
    MISSING,
    PRESENT,
    TRUE_ONLY,
    one_of,
)
from gapless.core import limits
from gapless.core.errors import FilterLimitError, FilterSyntaxError


def subject_text(text: str) -> str:
    condition = parse(text)
    assert isinstance(condition, AttributeCondition)
    return str(condition.subject)


def shape(condition: Condition) -> str:
    """Write a condition with all its parentheses, and leaf conditions by their subject."""
    if isinstance(condition, AllOf):
        return "(" + " & ".join(map(shape, condition.parts)) + ")"
    if isinstance(condition, AnyOf):
        return "(" + " | ".join(map(shape, condition.parts)) + ")"
    if isinstance(condition, Not):
        return "~" + shape(condition.operand)
    if isinstance(condition, ConstantCondition):
        return str(condition.truth)
    return str(condition.subject)


def refusal(text: str) -> FilterSyntaxError:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    return caught.value


# --- precedence ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a OR b AND c", "(a | (b & c))"),
        ("a AND b OR c", "((a & b) | c)"),
        ("(a OR b) AND c", "((a | b) & c)"),
        ("a OR b OR c", "(a | b | c)"),
        ("a AND b AND c", "(a & b & c)"),
        ("NOT a AND b", "(~a & b)"),
        ("NOT (a AND b)", "~(a & b)"),
        ("NOT a = 1 OR b", "(~a | b)"),
        ("NOT NOT a", "a"),
        ("NOT NOT NOT a", "~a"),
        ("a AND NOT b OR NOT c", "((a & ~b) | ~c)"),
        ("((a))", "a"),
        ("a = 1 AND b BETWEEN 1 AND 2 AND c", "(a & b & c)"),
        ("a NOT BETWEEN 1 AND 2 OR b", "(~a | b)"),
        ("a NOT IN (1) AND b NOT LIKE 'x'", "(~a & ~b)"),
        ("TRUE AND a", "(True & a)"),
        ("FALSE", "False"),
        ("1 = 2 OR 1/0 = 1", "(False | None)"),
    ],
)
def test_or_binds_less_than_and_and_and_less_than_not(text: str, expected: str) -> None:
    assert shape(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c > 0", "a + b * c"),
        ("(a + b) * c > 0", "(a + b) * c"),
        ("a - b - c > 0", "a - b - c"),
        ("a - (b - c) > 0", "a - (b - c)"),
        ("a / b * c > 0", "a / b * c"),
        ("a % b + c > 0", "a % b + c"),
        ("-a * b > 0", "-a * b"),
        ("-(a * b) > 0", "-(a * b)"),
        ("a - -b > 0", "a - -b"),
        ("- - a > 0", "- -a"),
        ("- - - a > 0", "-a"),
        ("a * -2 > 0", "a * -2"),
        ("+a > 0", "a + 0"),
        ("+(a * b) > 0", "a * b"),
        ("a + 2 * 3 > 0", "a + 6"),
        ("a + b > c * d", "a + b <=> c * d"),
    ],
)
def test_products_bind_tighter_than_sums_and_signs_tightest(text: str, expected: str) -> None:
    assert subject_text(text) == expected


def test_arithmetic_is_a_tree_of_terms() -> None:
    condition = parse("price * -size >= 5")
    assert isinstance(condition, AttributeCondition)
    assert condition.subject == Arithmetic("*", Attribute("price"), Negative(Attribute("size")))
    assert condition.within == ANY_NUMBER


# --- single conditions --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_blank_text_is_always_true(text: str) -> None:
    assert parse(text) == ConstantCondition(True)


@pytest.mark.parametrize("text", ["flag", "(flag)", "flag = TRUE", "TRUE = flag", "flag <> false"])
def test_a_bare_name_means_equals_true(text: str) -> None:
    assert parse(text) == AttributeCondition("flag", TRUE_ONLY, ALL_BOOLS)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("5 < a", "a > 5"),
        ("5 >= a", "a <= 5"),
        ("'x' = a", "a = 'x'"),
        ("a != 5", "a <> 5"),
        ("a > 2 * 5", "a > 10"),
        ("a = 5.0", "a = 5"),
        ("a = -0.0", "a = 0"),
        ("a = (5)", "a = 5"),
        ("(a) = 5", "a = 5"),
        ("a = +5", "a = 5"),
        ("a BETWEEN 2 - 1 AND 2 + 3", "a BETWEEN 1 AND 5"),
        ("a IN (+1, -2, -9223372036854775808)", "a IN (-9223372036854775808, -2, 1)"),
        ("a in (1, 1.0, 1)", "a IN (1)"),
        ("b > a", "a < b"),
        ("b = a", "a = b"),
        ("b <= a", "a >= b"),
        ("a = -9223372036854775808", "-9223372036854775807 - 1 = a"),
        ("a like 'x'", "a = 'x'"),
        ("a LIKE 'x!%' ESCAPE '!'", "a = 'x%'"),
    ],
)
def test_equivalent_conditions_are_parsed_to_the_same_one(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a IN (1, 2)", [1, 2]),
        ("a IN ('x')", ["x"]),
        ("a IN (TRUE, FALSE)", [True, False]),
        ("a IN (1, 'x', TRUE, 2.5)", [1, "x", True, 2.5]),
    ],
)
def test_in_accepts_any_literals(text: str, values: list[Value]) -> None:
    condition = parse(text)
    assert isinstance(condition, AttributeCondition)
    assert condition.holds == one_of(values)


def test_null_tests_are_never_unknown() -> None:
    assert parse("a IS NULL") == AttributeCondition("a", MISSING, ANY)
    assert parse("a IS NOT NULL") == AttributeCondition("a", PRESENT, ANY)
    assert parse("(a) is not null") == AttributeCondition("a", PRESENT, ANY)


def test_like_applies_to_texts() -> None:
    condition = parse("a LIKE '%x'")
    assert isinstance(condition, AttributeCondition)
    assert condition.within == ANY_TEXT


def test_two_attributes_are_compared_by_a_term_of_their_own() -> None:
    condition = parse("ask > bid")
    assert isinstance(condition, AttributeCondition)
    assert condition.subject == Comparison(Attribute("ask"), Attribute("bid"))


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("1 < 2", True),
        ("1 = 1.0", True),
        ("'a' < 'b'", True),
        ("'a' > 'b'", False),
        ("TRUE = TRUE", True),
        ("TRUE <> TRUE", False),
        ("1 = 'a'", None),
        ("TRUE = 1", None),
        ("1/0 = 1", None),
        ("a + 1/0 > 3", None),
        ("a / 0 > 3", None),
        ("a % 0.0 > 3", None),
        ("5 % 0 = 0", None),
        ("9223372036854775807 + 1 > 0", None),
        ("-(-9223372036854775807 - 1) > 0", None),
        ("1e308 * 10 > 0", None),
        ("5/2 = 2.5", True),
        ("-7 % 3 = -1", True),
        ("7 % -3 = 1", True),
        ("5 IN (1, 5)", True),
        ("5 IN (1, 'x')", None),
        ("5 IN (1, 2)", False),
        ("TRUE IN (FALSE, TRUE)", True),
        ("1/0 IN (1)", None),
        ("-(1/0) > 0", None),
        ("+(1/0) > 0", None),
    ],
)
def test_constants_are_folded(text: str, truth: bool | None) -> None:
    assert parse(text) == ConstantCondition(truth)


@pytest.mark.parametrize(
    "text",
    ["5 BETWEEN 1 AND 10", "'b' BETWEEN 'a' AND 'c'"],
)
def test_constants_between_constants_are_folded(text: str) -> None:
    assert shape(parse(text)) == "(True & True)"


def test_a_constant_keeps_its_type_in_arithmetic() -> None:
    assert parse("a + 1 > 0") != parse("a + 1.0 > 0")
    condition = parse("a + 1.0 > 0")
    assert isinstance(condition, AttributeCondition)
    assert condition.subject == Arithmetic("+", Attribute("a"), Constant(1.0))


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        # a value where a condition is needed
        ("3+5", 0, "this is a value, not a condition; compare it with something"),
        ("'abc'", 0, "this is a value, not a condition"),
        ("a = 1 AND 5", 10, "this is a value, not a condition"),
        ("a = 1 OR (b + 1)", 9, "this is a value, not a condition"),
        ("NOT 5", 4, "this is a value, not a condition"),
        ("NOT 'x'", 4, "this is a value, not a condition"),
        ("1/0", 0, "this is a value, not a condition"),
        # a condition where a value is needed
        ("(a > 1) = TRUE", 0, "a condition is not compared; use it as it is, or with NOT"),
        ("TRUE = (a > 1)", 7, "this is a condition, not a value"),
        ("(a > 1) + 1 > 0", 0, "this is a condition, not a value; + needs values"),
        ("1 + (a > 1) > 0", 4, "this is a condition, not a value"),
        ("-(a > 1) > 0", 1, "this is a condition, not a value"),
        ("(a > 1) IN (1)", 0, "this is a condition, not a value; IN needs values"),
        ("(a OR b) BETWEEN 1 AND 2", 0, "this is a condition, not a value; BETWEEN needs values"),
        ("a BETWEEN (b = 1) AND 2", 10, "this is a condition, not a value"),
        ("(a = 1) IS NULL", 0, "this is a condition, not a value"),
        ("a = NOT b", 4, "expected a value after '=', found NOT"),
        # unlike types that can be seen
        ("a + 'x' > 1", 4, "arithmetic needs numbers; 'x' is a string"),
        ("'x' * a > 1", 0, "arithmetic needs numbers; 'x' is a string"),
        ("TRUE + 1 > 0", 0, "arithmetic needs numbers; TRUE is a truth value"),
        ("-'x' = 1", 1, "arithmetic needs numbers; 'x' is a string"),
        ("+TRUE = 1", 1, "arithmetic needs numbers; TRUE is a truth value"),
        ("a + 1 = 'x'", 8, "arithmetic gives a number, which never compares with 'x'"),
        ("'x' = a + 1", 0, "arithmetic gives a number, which never compares with 'x'"),
        ("a + 1 = TRUE", 8, "arithmetic gives a number, which never compares with TRUE"),
        ("a + 1 IN (1, 'x')", 13, "arithmetic gives a number, which never compares with 'x'"),
        ("a + 1 BETWEEN 0 AND 'x'", 20, "arithmetic gives a number, which never compares with"),
        ("a + 1 BETWEEN 'x' AND 0", 14, "arithmetic gives a number, which never compares with"),
        ("TRUE < a", 0, "TRUE and FALSE compare only with = and <>"),
        ("a >= FALSE", 5, "TRUE and FALSE compare only with = and <>"),
        ("TRUE <= TRUE", 0, "TRUE and FALSE compare only with = and <>"),
        ("a BETWEEN TRUE AND 5", 10, "TRUE and FALSE compare only with = and <>"),
        ("a BETWEEN 1 AND TRUE", 16, "TRUE and FALSE compare only with = and <>"),
        ("TRUE BETWEEN a AND b", 0, "TRUE and FALSE compare only with = and <>"),
        # NULL
        ("a = NULL", 4, "NULL is not a value; use IS NULL or IS NOT NULL"),
        ("NULL = a", 0, "NULL is not a value"),
        ("a IN (1, NULL)", 9, "NULL is not a value"),
        ("NULL", 0, "NULL is not a value"),
        ("a IS 5", 5, "expected NULL or NOT NULL, found the number 5"),
        ("a IS NOT 5", 9, "expected NULL, found the number 5"),
        ("a + 1 IS NULL", 0, "IS NULL needs the name of an attribute on its left"),
        ("5 IS NULL", 0, "IS NULL needs the name of an attribute on its left"),
        ("TRUE IS NOT NULL", 0, "IS NULL needs the name of an attribute on its left"),
        # LIKE
        ("'abc' LIKE 'a%'", 0, "LIKE needs the name of an attribute on its left"),
        ("a + 1 LIKE 'a%'", 0, "LIKE needs the name of an attribute on its left"),
        ("a LIKE b", 7, "expected a pattern in '…' after LIKE, found the name b"),
        ("a LIKE 5", 7, "expected a pattern in '…' after LIKE, found the number 5"),
        ("a LIKE", 6, "expected a pattern in '…' after LIKE, found the end of the filter"),
        ("a LIKE 'x' ESCAPE", 17, "expected one character in '…' after ESCAPE"),
        ("a LIKE 'x' ESCAPE 5", 18, "expected one character in '…' after ESCAPE"),
        ("a LIKE 'x' ESCAPE ''", 18, "ESCAPE needs exactly one character"),
        ("a LIKE 'x' ESCAPE '!!'", 18, "ESCAPE needs exactly one character"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "the escape character stands last in the pattern"),
        # IN
        ("a IN ()", 6, "IN needs at least one literal"),
        ("a IN 5", 5, "expected '(' and a list of literals after IN"),
        ("a IN (b)", 6, "expected a literal in the list after IN, found the name b"),
        ("a IN (1 2)", 8, "expected ',' or ')' in the list after IN, found the number 2"),
        ("a IN (1,)", 8, "expected a literal in the list after IN, found ')'"),
        ("a IN (1", 7, "expected ',' or ')' in the list after IN, found the end"),
        ("a IN (-'x')", 6, "expected a literal in the list after IN, found '-'"),
        ("a IN (1 + 1)", 8, "expected ',' or ')' in the list after IN, found '+'"),
        # BETWEEN
        ("a BETWEEN 1", 11, "expected AND and the upper end of BETWEEN, found the end"),
        ("a BETWEEN 1 OR 2", 12, "expected AND and the upper end of BETWEEN, found OR"),
        ("a BETWEEN AND 2", 10, "expected a value after BETWEEN, found AND"),
        ("a BETWEEN 1 AND", 15, "expected the upper end of BETWEEN, found the end"),
        # operators without operands, chains
        ("price >", 7, "expected a value after '>', found the end of the filter"),
        ("a = = 1", 4, "expected a value after '=', found '='"),
        ("a == 1", 2, "write = instead of =="),
        ("a => 1", 2, "write >= instead of =>"),
        ("a =< 1", 2, "write <= instead of =<"),
        ("a > < 1", 4, "expected a value after '>', found '<'"),
        ("= 1", 0, "expected a condition, found '='"),
        ("AND a", 0, "expected a condition, found AND"),
        ("a AND", 5, "expected a condition, found the end of the filter"),
        ("a AND OR b", 6, "expected a condition, found OR"),
        ("NOT", 3, "expected a condition, found the end of the filter"),
        ("a + > 1", 4, "expected a value after '+', found '>'"),
        ("a * ", 4, "expected a value after '*', found the end of the filter"),
        ("a = -", 5, "expected a value after '-', found the end of the filter"),
        ("a < b < c", 6, "comparisons do not chain; join two of them with AND"),
        ("1 < a < 5", 6, "comparisons do not chain"),
        ("a = 1 = TRUE", 6, "comparisons do not chain"),
        ("a NOT 5", 6, "expected BETWEEN, IN or LIKE after NOT, found the number 5"),
        ("a IS NULL = TRUE", 10, "= needs a value on its left, and this is a condition"),
        ("a LIKE 'x' + 1", 11, "+ needs a value on its left, and this is a condition"),
        # what is left over, parentheses
        ("a b", 2, "expected an operator, found the name b"),
        ("a = 1 b = 2", 6, "expected AND, OR or the end of the filter, found the name b"),
        ("a = 1 2", 6, "expected AND, OR or the end of the filter, found the number 2"),
        ("a = 1)", 5, "this ')' has no '('"),
        ("(a = 1", 0, "this '(' has no ')'"),
        ("b AND ((a = 1)", 6, "this '(' has no ')'"),
        ("(a = 1 b)", 7, "expected AND, OR or ')', found the name b"),
        ("()", 1, "expected a condition or a value, found ')'"),
        ("(", 1, "expected a condition or a value, found the end of the filter"),
        ("a = 1, b = 2", 5, "expected AND, OR or the end of the filter, found ','"),
        ("name LIKE 'x' ESCAPE '!' ESCAPE '!'", 25, "expected AND, OR or the end of the filter"),
        # numbers that do not fit
        ("a = 9223372036854775808", 4, "this number does not fit into 64 bits"),
        ("9223372036854775808 = a", 0, "this number does not fit into 64 bits"),
        ("a = -9223372036854775809", 5, "this number does not fit into 64 bits"),
        ("a = -(9223372036854775808)", 6, "this number does not fit into 64 bits"),
        ("a = 0xffffffffffffffff", 4, "this number does not fit into 64 bits"),
        ("a BETWEEN 0 AND 9223372036854775808", 16, "this number does not fit into 64 bits"),
        ("a IN (-9223372036854775809)", 7, "this number does not fit into 64 bits"),
    ],
)
def test_an_invalid_text_is_refused_with_its_position(
    text: str, position: int, problem: str
) -> None:
    error = refusal(text)
    assert problem in error.problem
    assert error.position == position


def test_the_message_shows_a_caret_under_the_column() -> None:
    assert str(refusal("price > AND size > 1")) == (
        "expected a value after '>', found AND at column 9\n  price > AND size > 1\n          ^"
    )


def test_the_message_shows_the_line_of_a_longer_text() -> None:
    assert str(refusal("price > 1\n  AND size >\n  AND a")) == (
        "expected a value after '>', found AND at line 3, column 3\n    AND a\n    ^"
    )


def test_the_message_shows_a_window_of_a_long_line() -> None:
    message = str(refusal("a = 1 AND " * 30 + "b = = 2" + " AND c = 3" * 30))
    _, excerpt, caret = message.split("\n")
    assert len(excerpt) < 90
    assert excerpt[caret.index("^")] == "="
    assert excerpt.strip().startswith("…")
    assert excerpt.endswith("…")


# --- limits -------------------------------------------------------------------------------------


def limit_of(text: str) -> str:
    with pytest.raises(FilterLimitError) as caught:
        parse(text)
    error = caught.value
    assert getattr(limits, error.limit) == error.allowed
    assert error.limit in str(error)
    return error.limit


def test_the_length_of_a_text_is_limited() -> None:
    text = "a = 1".ljust(limits.FILTER_TEXT_MAX)
    assert parse(text) == parse("a = 1")
    assert limit_of(text + " ") == "FILTER_TEXT_MAX"


@pytest.mark.parametrize(
    ("opening", "inner", "closing", "levels"),
    [
        ("(", "a = 1", ")", 1),
        ("NOT ", "a = 1", "", 1),
        ("NOT (", "a = 1", ")", 2),
        ("a = 1 OR b = 2 AND (", "c = 3", ")", 1),
    ],
)
def test_nesting_is_limited_without_a_recursion_error(
    opening: str, inner: str, closing: str, levels: int
) -> None:
    most = limits.FILTER_NESTING_MAX // levels
    parse(opening * most + inner + closing * most)
    assert limit_of(opening * (most + 1) + inner + closing * (most + 1)) == "FILTER_NESTING_MAX"
    assert limit_of(opening * 3_000) == "FILTER_NESTING_MAX"


def test_values_nest_to_the_limit() -> None:
    most = limits.FILTER_NESTING_MAX
    parse("a = " + "1 + 2 * (" * most + "3" + ")" * most)
    assert limit_of("a = " + "1 + 2 * (" * (most + 1) + "3" + ")" * (most + 1)) == (
        "FILTER_NESTING_MAX"
    )


@pytest.mark.parametrize("sign", ["-", "+"])
def test_signs_nest_to_the_limit(sign: str) -> None:
    parse("a = " + sign * limits.FILTER_NESTING_MAX + "b")
    assert limit_of("a = " + sign * (limits.FILTER_NESTING_MAX + 1) + "b") == "FILTER_NESTING_MAX"
    parse(
        "a = " + sign * (limits.FILTER_NESTING_MAX + 1) + "1"
    )  # the last sign belongs to the literal
    assert limit_of(sign * 60_000) == "FILTER_NESTING_MAX"


def test_a_chain_of_conditions_is_no_nesting() -> None:
    condition = parse(" OR ".join(["a = 1"] * 5_000))
    assert isinstance(condition, AnyOf)
    assert len(condition.parts) == 5_000
    assert condition.depth == 1


def test_a_chain_of_constants_is_folded_however_long() -> None:
    assert parse("a = " + "1+" * 20_000 + "1") == parse("a = 20001")


def test_the_number_of_operators_of_a_value_is_limited() -> None:
    parse("a" + " + a" * limits.FILTER_OPERATORS_MAX + " > 0")
    assert limit_of("a" + " + a" * (limits.FILTER_OPERATORS_MAX + 1) + " > 0") == (
        "FILTER_OPERATORS_MAX"
    )
    assert limit_of("a" + " * a" * 10_000 + " > 0") == "FILTER_OPERATORS_MAX"
    negative = "-(" * (limits.FILTER_NESTING_MAX // 2)
    parse("a" + " + a" * 49 + " = " + negative + "b" + ")" * (limits.FILTER_NESTING_MAX // 2))


def test_the_operators_of_one_value_do_not_count_for_another() -> None:
    value = "a" + " + a" * limits.FILTER_OPERATORS_MAX
    parse(f"{value} > 0 AND {value} < 9 AND {value} <> {value.replace('a', 'b')}")


def test_a_long_name_or_text_is_shortened_in_the_message() -> None:
    for text in (
        "a " + "b" * 60_000,
        "a + '" + "b" * 60_000 + "' > 1",
        "a + 1 = '" + "b" * 60_000 + "'",
    ):
        with pytest.raises(FilterSyntaxError) as caught:
            parse(text)
        assert len(str(caught.value)) < 400


def test_the_length_of_a_pattern_that_needs_a_search_is_limited() -> None:
    most = limits.FILTER_PATTERN_MAX
    parse(f"a LIKE '%{'x' * (most - 1)}'")
    assert limit_of(f"a LIKE '%{'x' * most}'") == "FILTER_PATTERN_MAX"
    assert limit_of(f"a NOT LIKE '{'_' * (most + 1)}'") == "FILTER_PATTERN_MAX"
    parse(f"a LIKE '{'x' * 10 * most}%'")  # a mere range of texts


def test_the_length_of_a_part_of_a_pattern_that_is_searched_with_a_table_is_limited() -> None:
    most = limits.FILTER_SEGMENT_MAX
    parse(f"a LIKE '%{'x_' * (most // 2)}%'")
    assert limit_of(f"a LIKE '%{'x_' * (most // 2)}x%'") == "FILTER_SEGMENT_MAX"
    assert limit_of(f"a NOT LIKE 'b%{'_x' * most}%c'") == "FILTER_SEGMENT_MAX"
    for quick in (f"{'x_' * most}%", f"%{'_x' * most}", f"%{'x' * 2 * most}%", f"%{'_' * 999}%"):
        parse(f"a LIKE '{quick}'")  # no table is needed


def filter_limit(text: str) -> str:
    with pytest.raises(FilterLimitError) as caught:
        Filter(text)
    return caught.value.limit


def test_the_number_of_searches_of_a_filter_is_limited() -> None:
    most = limits.FILTER_SEARCHES_MAX

    def alternatives(count: int, pattern: str) -> str:
        return " OR ".join(f"a{number} LIKE '{pattern}'" for number in range(count))

    Filter(alternatives(most, "%x%y%"))
    assert filter_limit(alternatives(most + 1, "%x%y%")) == "FILTER_SEARCHES_MAX"
    assert filter_limit(alternatives(most // 2 + 1, "%x_y%x_y%")) == "FILTER_SEARCHES_MAX"
    Filter(alternatives(most + 1, "x%"))  # no text is searched
    parse(f"a LIKE '{'x' * 10 * most}'")
