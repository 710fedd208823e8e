"""The meaning of selectors, implemented a second time and as directly as possible.

The library turns a selector into a normal form and evaluates that. Here the same language is a
plain tree, and `evaluate` follows the definition sentence by sentence: no normal form, no
rewriting, no sharing of code with the library. Tests compare the two.

Truth has three values: `True`, `False` and `None` for *unknown*. An operand without a value (the
attribute is missing, the arithmetic has no result) is `None` as well.

The spelling of the language (keywords, spacing, parentheses) is in `surface.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = bool | int | float | str
Attributes = Mapping[str, Value | None]
Truth = bool | None

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1

ORDERINGS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "<>", *ORDERINGS)


# Operands have a value.


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value that the event carries under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the selector; a negative number carries its sign."""

    value: Value


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary `-` or `+`."""

    operator: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Binary `+ - * / %`."""

    operator: str
    left: Operand
    right: Operand


Operand = Attribute | Literal | Sign | Arithmetic


# Conditions are true, false or unknown.


@dataclass(frozen=True, slots=True)
class Constant:
    """`TRUE` or `FALSE` standing alone."""

    value: bool


@dataclass(frozen=True, slots=True)
class Flag:
    """A bare identifier: short for `identifier = TRUE`."""

    name: str


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`."""

    negated: bool
    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class In:
    """`name [NOT] IN (values)`."""

    negated: bool
    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`name [NOT] LIKE pattern [ESCAPE escape]`."""

    negated: bool
    name: str
    pattern: str
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class IsNull:
    """`name IS [NOT] NULL`."""

    negated: bool
    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT part`."""

    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    """`left AND right`."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Or:
    """`left OR right`."""

    left: Condition
    right: Condition


Predicate = Constant | Flag | Compare | Between | In | Like | IsNull
Condition = Predicate | Not | And | Or


# Three-valued logic.


def negation(truth: Truth) -> Truth:
    return None if truth is None else not truth


def conjunction(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    if left is None or right is None:
        return None
    return True


def disjunction(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    if left is None or right is None:
        return None
    return False


def evaluate(tree: Condition, attributes: Attributes) -> Truth:
    """The truth of a condition for one event."""
    match tree:
        case Not(part):
            return negation(evaluate(part, attributes))
        case And(left, right):
            return conjunction(evaluate(left, attributes), evaluate(right, attributes))
        case Or(left, right):
            return disjunction(evaluate(left, attributes), evaluate(right, attributes))
        case Between(negated=True) | In(negated=True) | Like(negated=True) | IsNull(negated=True):
            return negation(positive(tree, attributes))
        case _:
            return positive(tree, attributes)


def positive(tree: Predicate, attributes: Attributes) -> Truth:
    """Return the truth of a predicate without its NOT."""
    match tree:
        case Constant(value):
            return value
        case Flag(name):
            return compare("=", attributes.get(name), right=True)
        case Compare(operator, left, right):
            return compare(operator, value_of(left, attributes), value_of(right, attributes))
        case Between(_, operand, low, high):
            subject = value_of(operand, attributes)
            return conjunction(
                compare(">=", subject, value_of(low, attributes)),
                compare("<=", subject, value_of(high, attributes)),
            )
        case In(_, name, values):
            truth: Truth = False
            for candidate in values:
                truth = disjunction(truth, compare("=", attributes.get(name), candidate))
            return truth
        case Like(_, name, pattern, escape):
            subject = attributes.get(name)
            return like(subject, pattern, escape) if isinstance(subject, str) else None
        case IsNull(_, name):
            return attributes.get(name) is None


# Comparison.


def compare(operator: str, left: Value | None, right: Value | None) -> Truth:
    """Compare numbers by exact value, strings by code point, booleans for equality; else unknown."""
    if isinstance(left, bool) and isinstance(right, bool):
        return ordered(operator, int(left), int(right)) if operator in {"=", "<>"} else None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, str) and isinstance(right, str):
        left_points = [ord(character) for character in left]
        right_points = [ord(character) for character in right]
        if left_points == right_points:
            return ordered(operator, 0, 0)
        return ordered(operator, *((0, 1) if left_points < right_points else (1, 0)))
    if isinstance(left, int | float) and isinstance(right, int | float):
        if math.isnan(left) or math.isnan(right):
            return None
        return ordered(operator, left, right)
    return None


def ordered(operator: str, left: float, right: float) -> bool:
    """Python compares int with float by exact value, as the language requires."""
    results = {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return results[operator]


# Arithmetic.


def value_of(operand: Operand, attributes: Attributes) -> Value | None:
    """The value of an operand for one event, or None where it has none."""
    match operand:
        case Attribute(name):
            return attributes.get(name)
        case Literal(value):
            return value
        case Sign(operator, inner):
            return calculate(operator, 0, value_of(inner, attributes), unary=True)
        case Arithmetic(operator, left, right):
            return calculate(operator, value_of(left, attributes), value_of(right, attributes))


def calculate(
    operator: str, left: Value | None, right: Value | None, *, unary: bool = False
) -> int | float | None:
    """One step of arithmetic; None where it has no finite result that fits.

    A unary step ignores `left`, which only keeps the two forms in one place.
    """
    if isinstance(left, bool | str) or isinstance(right, bool | str):
        return None
    if left is None or right is None:
        return None
    if unary:
        result: int | float | None = -right if operator == "-" else right
    elif operator == "+":
        result = left + right
    elif operator == "-":
        result = left - right
    elif operator == "*":
        result = left * right
    elif operator == "/":
        result = divide(left, right)
    else:
        result = remainder(left, right)
    if isinstance(result, int):
        return result if INT_MIN <= result <= INT_MAX else None
    return result if result is not None and math.isfinite(result) else None


def divide(left: float, right: float) -> float | None:
    """True division: always a float, correctly rounded also for large ints."""
    return None if right == 0 else left / right


def remainder(left: float, right: float) -> int | float | None:
    """The remainder of the division that truncates: it has the sign of the dividend."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        size = abs(left) % abs(right)
        return -size if left < 0 else size
    if math.isnan(left) or math.isnan(right) or math.isinf(left):
        return None
    return math.fmod(left, right)


# LIKE.

ANY_RUN = "any run of characters"
ANY_ONE = "any one character"


def pattern_parts(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """The pattern as (kind, character) pairs; the character matters for kind "exactly" only."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in {"%", "_", escape}:
                raise ValueError(f"{pattern!r} uses its escape {escape!r} for nothing")
            parts.append(("exactly", escaped))
        elif character == "%":
            parts.append((ANY_RUN, ""))
        elif character == "_":
            parts.append((ANY_ONE, ""))
        else:
            parts.append(("exactly", character))
    return parts


def like(subject: str, pattern: str, escape: str | None = None) -> bool:
    """A table over prefixes: `row[n]` says that the parts so far match the first n characters."""
    row = [True] + [False] * len(subject)
    for kind, wanted in pattern_parts(pattern, escape):
        following = [False] * len(row)
        for length in range(len(row)):
            if kind == ANY_RUN:
                following[length] = row[length] or (length > 0 and following[length - 1])
            elif length > 0:
                fits = kind == ANY_ONE or subject[length - 1] == wanted
                following[length] = row[length - 1] and fits
        row = following
    return row[-1]


# Walking a tree.


def operands(tree: Condition) -> Iterator[Operand]:
    """Every operand that occurs in a condition, outermost first."""
    for predicate in predicates(tree):
        match predicate:
            case Compare(_, left, right):
                yield from _inside(left)
                yield from _inside(right)
            case Between(_, operand, low, high):
                yield from _inside(operand)
                yield from _inside(low)
                yield from _inside(high)
            case Flag(name) | In(_, name, _) | Like(_, name, _, _) | IsNull(_, name):
                yield Attribute(name)
            case Constant():
                pass


def predicates(tree: Condition) -> Iterator[Predicate]:
    """Every predicate of a condition, from left to right."""
    match tree:
        case Not(part):
            yield from predicates(part)
        case And(left, right) | Or(left, right):
            yield from predicates(left)
            yield from predicates(right)
        case _:
            yield tree


def names(tree: Condition) -> tuple[str, ...]:
    """Return the attributes that a condition uses, sorted."""
    return tuple(sorted({part.name for part in operands(tree) if isinstance(part, Attribute)}))


def _inside(operand: Operand) -> Iterator[Operand]:
    yield operand
    match operand:
        case Sign(_, inner):
            yield from _inside(inner)
        case Arithmetic(_, left, right):
            yield from _inside(left)
            yield from _inside(right)
        case _:
            pass
