"""The builder: filters written in Python are the filters of their texts."""

from __future__ import annotations

import copy
import enum
import pickle
from collections.abc import Callable

import pytest

from gapless.content.builder import Expression, F
from gapless.content.filter import Filter
from gapless.core import limits
from gapless.core.errors import FilterError, FilterLimitError, FilterTypeError


class Side(enum.StrEnum):
    BUY = "buy"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (F.price > 90, "price > 90"),
        (F.price >= 90, "price >= 90"),
        (F.price < 90.5, "price < 90.5"),
        (F.price <= 90, "price <= 90"),
        (F.price == 90, "price = 90"),
        (F.price != 90, "price <> 90"),
        (80 < F.price, "price > 80"),  # noqa: SIM300 - the test needs the value on the left
        (80 == F.price, "price = 80"),  # noqa: SIM300
        (F.symbol == "IBM", "symbol = 'IBM'"),
        (F.symbol < "J", "symbol < 'J'"),
        (F.note == "it's", "note = 'it''s'"),
        (F.urgent == True, "urgent"),  # noqa: E712
        (F.urgent != True, "NOT urgent"),  # noqa: E712
        (F.side == Side.BUY, "side = 'buy'"),
        (F.level >= Level.HIGH, "level >= 3"),
        (F["odd name"] == 1, '"odd name" = 1'),
        (F["AND"] == 1, '"AND" = 1'),
        (F.order.total > 1, "order.total > 1"),
        (F.order["unit price"] > 1, '"order.unit price" > 1'),
        (F["like"].like("a%"), "\"like\" LIKE 'a%'"),
        (F.bid < F.ask, "bid < ask"),
        (F.bid != F.ask, "bid <> ask"),
        (F.price * F.size > 1000, "price * size > 1000"),
        (F.a + 1 - F.b * 2 / F.c % 3 == 0, "a + 1 - b * 2 / c % 3 = 0"),
        (1 + F.a > 2, "1 + a > 2"),
        (1 - F.a > 2, "1 - a > 2"),
        (2 * F.a > 2, "2 * a > 2"),
        (1 / F.a > 2, "1 / a > 2"),
        (7 % F.a > 2, "7 % a > 2"),
        (-F.a > 2, "-a > 2"),
        (+F.a > 2, "+a > 2"),
        ((F.a + F.b) * F.c > 0, "(a + b) * c > 0"),
        (F.a - (F.b - F.c) > 0, "a - (b - c) > 0"),
        (F.a.in_(1, 2), "a IN (1, 2)"),
        (F.a.in_([1, "x", True]), "a IN (1, 'x', TRUE)"),
        (F.a.in_(range(3)), "a IN (0, 1, 2)"),
        (F.a.in_(value for value in ("x", "y")), "a IN ('x', 'y')"),
        (F.a.in_("abc"), "a IN ('abc')"),
        (F.a.in_(5), "a IN (5)"),
        ((F.a + F.b).in_(1, 2), "a + b IN (1, 2)"),
        (~F.a.in_(1, 2), "a NOT IN (1, 2)"),
        (F.a.like("x%"), "a LIKE 'x%'"),
        (F.a.like("x!%%", escape="!"), "a LIKE 'x!%%' ESCAPE '!'"),
        (~F.a.like("%x"), "a NOT LIKE '%x'"),
        (F.a.between(1, 5), "a BETWEEN 1 AND 5"),
        (F.a.between(F.b, F.c + 1), "a BETWEEN b AND c + 1"),
        (F.a.between("x", "z"), "a BETWEEN 'x' AND 'z'"),
        (~F.a.between(1, 5), "a NOT BETWEEN 1 AND 5"),
        (F.a.is_null(), "a IS NULL"),
        (F.a.is_not_null(), "a IS NOT NULL"),
        ((F.a > 1) & (F.b > 2) & (F.c > 3), "a > 1 AND b > 2 AND c > 3"),
        ((F.a > 1) | (F.b > 2), "a > 1 OR b > 2"),
        (~((F.a > 1) & (F.b > 2)), "NOT (a > 1 AND b > 2)"),
        ((F.a > 1) & ~(F.b.is_null() | (F.c == "x")), "a > 1 AND NOT (b IS NULL OR c = 'x')"),
        (F.urgent & (F.a > 1), "urgent AND a > 1"),
        ((F.a > 1) & F.urgent, "a > 1 AND urgent"),
        (F.urgent | (F.a > 1), "urgent OR a > 1"),
        ((F.a > 1) | ~F.urgent, "a > 1 OR NOT urgent"),
        (F.urgent & F.paid | F.late, "urgent AND paid OR late"),
        ((F.a > 1) | F.urgent, "a > 1 OR urgent"),
        (F.a / 0 > 1, "1/0 > 1"),
    ],
)
def test_a_built_filter_equals_the_filter_of_its_text(built: Filter, text: str) -> None:
    assert type(built) is Filter
    assert built == Filter(text)
    assert ~built == Filter(f"NOT ({text})")


def test_a_built_filter_and_a_parsed_one_can_be_combined() -> None:
    expected = Filter("price > 90 AND symbol = 'IBM'")
    assert (F.price > 90) & (F.symbol == "IBM") == expected
    assert (F.price > 90) & Filter("symbol = 'IBM'") == expected
    assert Filter("price > 90") & (F.symbol == "IBM") == expected


def test_not_keeps_unknown_in_a_built_filter() -> None:
    never = F.a.is_null() & (F.a > 5)
    assert never == Filter("FALSE")
    assert ~never == Filter("a IS NOT NULL")
    assert ~(F.a / 0 > 1) == Filter("FALSE")
    assert ~F.a.in_(1, "x") == Filter("FALSE")


def test_a_built_filter_can_be_pickled() -> None:
    for made in (F.a > 1, ~(F.a.like("%x") & (F.b < F.c)), F.a.is_null() & (F.a > 5)):
        again = pickle.loads(pickle.dumps(made))  # noqa: S301
        assert (again, ~again) == (made, ~made)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda: F.x == None, "None is not a value; use is_null"),  # noqa: E711
        (lambda: F.x != None, "None is not a value; use is_null"),  # noqa: E711
        (lambda: F.x.in_(1, None), "None is not a value"),  # type: ignore[arg-type]
        (lambda: F.x == [1, 2], "not a list; use in_"),
        (lambda: F.x == (1, 2), "not a tuple; use in_"),
        (lambda: F.x == b"x", "a bool, int, float or str, not a bytes"),
        (lambda: F.x.in_(b"x"), "not a bytes"),
        (lambda: F.x + object() > 1, "not a object"),  # type: ignore[operator]
        (lambda: F.x.like(5), "a pattern is a str, not a int"),  # type: ignore[arg-type]
        (lambda: F[5] == 1, "an attribute's name is a str"),  # type: ignore[index]
        (lambda: (F.a + 1).b, "only an attribute has parts"),
        (lambda: F.a & 5, "joined with a filter, not a int"),  # type: ignore[operator]
        (lambda: bool(F.x), "neither true nor false"),
        (lambda: bool(F.x > 1), "join filters with & | ~"),
        (lambda: 1 < F.x < 5, "F.x.between"),
        (lambda: F.x > 1 and F.y > 2, "instead of and, or, not"),
        (lambda: not F.x.is_null(), "instead of and, or, not"),
        (lambda: 5 in F.x, "use in_"),
        (lambda: F.x.like("x", escape=5), "escape is one character, not a int"),  # type: ignore[arg-type]
        (lambda: F.x[1], "an attribute's name is a str, not a int"),  # type: ignore[index]
        (lambda: F[1], "an attribute's name is a str, not a int"),  # type: ignore[index]
        (lambda: list(F.x), "cannot be iterated"),
    ],
)
def test_invalid_python_operations_are_type_errors(use: Callable[[], object], problem: str) -> None:
    with pytest.raises(FilterTypeError) as caught:
        use()
    assert isinstance(caught.value, TypeError)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda: F.x.in_(float("nan")), "nan is not a finite number, which a filter needs"),
        (lambda: F.x < float("inf"), "inf is not a finite number, which a filter needs"),
        (lambda: F.x == 2**63, "about 2**63 does not fit into 64 bits; use a float"),
        (lambda: F.x.between(-(2**63) - 1, 0), "does not fit into 64 bits"),
        (lambda: F.x + 2**64 > 0, "does not fit into 64 bits"),
        (lambda: F.x > 10**400, "about 2**1328 does not fit into 64 bits; use a float"),
        (lambda: F.x == "\ud800", "half of a surrogate pair"),
        (lambda: F["\ud800"] == 1, "half of a surrogate pair"),
        (F.x.in_, "in_() needs at least one value"),
        (lambda: F.x.in_([]), "in_() needs at least one value"),
        (lambda: F.x.like("a", escape=""), "escape needs exactly one character"),
        (lambda: F.x.like("a", escape="!!"), "escape needs exactly one character"),
        (lambda: F.x.like("a!", escape="!"), "the escape character stands last"),
        (lambda: (F.x + 1).like("a"), "LIKE needs the name of an attribute"),
        ((F.x + 1).is_null, "IS NULL needs the name of an attribute"),
        (lambda: F.x + "a" > 1, "arithmetic needs numbers; 'a' is a string"),
        (lambda: True * F.x > 1, "arithmetic needs numbers; TRUE is a truth value"),
        (lambda: F.x + 1 == "a", "arithmetic gives a number, which never compares with 'a'"),
        (lambda: (F.x + 1).in_(1, "a"), "arithmetic gives a number"),
        (lambda: F.x < True, "TRUE and FALSE compare only with = and <>"),
        (lambda: F.x.between(False, True), "TRUE and FALSE compare only with = and <>"),
        (lambda: (F.x + 1) & F.y, "this is a value, not a condition"),
    ],
)
def test_the_builder_refuses_what_the_language_refuses(
    use: Callable[[], object], problem: str
) -> None:
    with pytest.raises(FilterError) as caught:
        use()
    assert isinstance(caught.value, ValueError)
    assert problem in str(caught.value)


def test_nesting_of_operators_is_bounded() -> None:
    def nested(levels: int) -> Filter:
        made = F.a == 1
        for _ in range(levels):
            made = ~(made & (F.b == 1))
        return made

    most = limits.FILTER_NESTING_MAX + 1
    assert nested(most) == nested(most - 2)
    with pytest.raises(FilterLimitError, match="FILTER_NESTING_MAX"):
        nested(most + 1)


def test_arithmetic_is_bounded() -> None:
    def total(operators: int) -> Expression:
        return sum([F.a] * operators, start=F.a)

    assert (total(limits.FILTER_OPERATORS_MAX) > 0).matches({"a": 1})
    with pytest.raises(FilterLimitError, match="FILTER_OPERATORS_MAX"):
        total(limits.FILTER_OPERATORS_MAX + 1)


class Name(enum.StrEnum):
    PRICE = "price"


class Mixed(str, enum.Enum):  # noqa: UP042 - its members print as Mixed.UNIT
    UNIT = "unit"


def test_an_enum_member_counts_as_its_str() -> None:
    assert (F[Name.PRICE] > 1) == Filter("price > 1")
    assert (F.order[Mixed.UNIT] == Mixed.UNIT) == Filter("order.unit = 'unit'")
    assert F.x.like(Mixed.UNIT) == Filter("x LIKE 'unit'")
    made = F[Name.PRICE] + 1 > 2
    assert type(made.conjunctions[0].constraints[0][0]) is str
    assert pickle.loads(pickle.dumps(made)) == Filter(str(made)) == made  # noqa: S301


# --- Python's own protocols ---------------------------------------------------------------------


def test_the_builder_does_not_pretend_to_have_python_protocols() -> None:
    assert not hasattr(F, "__wrapped__")
    assert not hasattr(F.x, "__array__")
    assert copy.copy(F) is F
    assert pickle.loads(pickle.dumps(F)) is F  # noqa: S301
    assert repr(F) == "F"
    assert repr(F.a.b) == "F['a.b']"
    assert repr(F.a + 1) == "<expression a + 1>"
    assert repr(F.a / 0 + F.b) == "<expression of an unknown value>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(F.x)


def test_attributes_are_typed_for_users() -> None:
    price: Expression = F.price
    made: Filter = (price > 90) & (F.symbol == "IBM")
    assert made.matches({"price": 91, "symbol": "IBM"})
