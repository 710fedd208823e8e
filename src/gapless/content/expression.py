"""Arithmetic and comparisons that cannot be indexed, as derived attributes.

``price * size > 1000`` is a condition on the *term* ``price * size``: an expression whose value is
computed from the event and then looked up in a value set, like an attribute's value. So covering,
intersection and merging work on terms as on attributes. A comparison of two terms, ``bid < ask``,
is a term too: its value is the outcome of the comparison.

A term's value is None (*unknown*) if an attribute is missing or of the wrong type, on division by
zero, if an int exceeds 64 bits and if a float is not finite.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from gapless.content.values import Attributes, Number, Value
from gapless.content.valueset import ANY_NUMBER, PRESENT, ValueSet
from gapless.core.limits import INT_MAX, INT_MIN

__all__ = [
    "ALIKE",
    "EQUAL",
    "GREATER",
    "KEYWORDS",
    "LESS",
    "UNEQUAL",
    "Arithmetic",
    "Attribute",
    "Comparison",
    "Constant",
    "Negative",
    "Term",
    "attribute_text",
    "is_plain_name",
    "literal_text",
]

LESS: Final = -1
EQUAL: Final = 0
GREATER: Final = 1
UNEQUAL: Final = 2
ALIKE: Final = 3
"""The outcomes of comparing two bools, which differ or not but have no order."""

KEYWORDS: Final = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)

_BINDING: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


class Attribute(msgspec.Struct, frozen=True, tag=True):
    """The value of an attribute."""

    name: str

    def value(self, attributes: Attributes) -> Value | None:
        """Return the value in an event, or None if it is unknown."""
        return attributes.get(self.name)

    def requires(self) -> dict[str, ValueSet]:
        """Return the value sets of the attributes outside which the value is unknown."""
        return {self.name: PRESENT}

    def __str__(self) -> str:
        return attribute_text(self.name)


class Constant(msgspec.Struct, frozen=True, tag=True, eq=False):
    """A literal. ``5`` and ``5.0`` differ: sums with the int may exceed 64 bits. The sign of a zero
    has no effect on any result, so it is dropped: equal constants have equal texts.
    """

    literal: bool | int | float | str

    def __post_init__(self) -> None:
        if type(self.literal) is float and self.literal == 0:
            msgspec.structs.force_setattr(self, "literal", 0.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return type(self.literal) is type(other.literal) and self.literal == other.literal

    def __hash__(self) -> int:
        return hash((type(self.literal).__name__, self.literal))

    def value(self, attributes: Attributes) -> Value | None:
        """Return the literal, for any event."""
        del attributes
        return self.literal

    def requires(self) -> dict[str, ValueSet]:
        """Return the value sets of the attributes outside which the value is unknown."""
        return {}

    def __str__(self) -> str:
        return literal_text(self.literal)


class Negative(msgspec.Struct, frozen=True, tag=True):
    """A number with its sign changed."""

    operand: Term

    def value(self, attributes: Attributes) -> Value | None:
        """Return the value in an event, or None if it is unknown."""
        operand = _number(self.operand.value(attributes))
        return None if operand is None else _in_range(-operand)

    def requires(self) -> dict[str, ValueSet]:
        """Return the value sets of the attributes outside which the value is unknown."""
        return _as_numbers(self.operand.requires())

    def __str__(self) -> str:
        operand = _bracketed(self.operand, 3)
        return f"- {operand}" if operand[0] == "-" else f"-{operand}"


class Arithmetic(msgspec.Struct, frozen=True, tag=True):
    """``left operator right`` over numbers."""

    operator: str
    left: Term
    right: Term

    def value(self, attributes: Attributes) -> Value | None:
        """Return the value in an event, or None if it is unknown."""
        left = _number(self.left.value(attributes))
        right = _number(self.right.value(attributes))
        if left is None or right is None:
            return None
        return _calculate(self.operator, left, right)

    def requires(self) -> dict[str, ValueSet]:
        """Return the value sets of the attributes outside which the value is unknown."""
        return _as_numbers(self.left.requires() | self.right.requires())

    def __str__(self) -> str:
        binding = _BINDING[self.operator]
        left, right = _bracketed(self.left, binding), _bracketed(self.right, binding + 1)
        return f"{left} {self.operator} {right}"


class Comparison(msgspec.Struct, frozen=True, tag=True):
    """The outcome of comparing two terms: LESS, EQUAL, GREATER, or for bools ALIKE, UNEQUAL."""

    left: Term
    right: Term

    def value(self, attributes: Attributes) -> Value | None:
        """Return the value in an event, or None if it is unknown."""
        return _compare(self.left.value(attributes), self.right.value(attributes))

    def requires(self) -> dict[str, ValueSet]:
        """Return the value sets of the attributes outside which the value is unknown."""
        required = self.left.requires() | self.right.requires()
        calculated = isinstance(self.left, _CALCULATED) or isinstance(self.right, _CALCULATED)
        return _as_numbers(required) if calculated else required

    def __str__(self) -> str:
        return f"{self.left} <=> {self.right}"


Term: TypeAlias = Attribute | Constant | Negative | Arithmetic | Comparison
_CALCULATED: Final = (Negative, Arithmetic)


def is_plain_name(name: str) -> bool:
    """Return whether a name follows the Java identifier rule: letters of any script, ``_``, ``$``
    and, not first, digits; dots between such parts.

    >>> [is_plain_name(name) for name in ("price", "order.größe", "$x", "2nd", "a..b", "a b")]
    [True, True, True, False, False, False]
    """
    return all(part.replace("$", "_").isidentifier() for part in name.split("."))


def attribute_text(name: str) -> str:
    """Return an attribute's name in the selector language: plain, or in double quotes."""
    if is_plain_name(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def literal_text(value: Value) -> str:
    """Return a literal in the selector language."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value).replace("e", "E")


def _bracketed(term: Term, binding: int) -> str:
    """Return the text of an operand, in parentheses if it binds less tightly than its operator.

    A sign binds most tightly of all, so ``a - -b`` and ``- -a`` need none.
    """
    if isinstance(term, Arithmetic) and _BINDING[term.operator] < binding:
        return f"({term})"
    return str(term)


def _as_numbers(required: dict[str, ValueSet]) -> dict[str, ValueSet]:
    return dict.fromkeys(required, ANY_NUMBER)


def _number(value: Value | None) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def _in_range(result: Number) -> Number | None:
    if isinstance(result, float):
        return result if math.isfinite(result) else None
    return result if INT_MIN <= result <= INT_MAX else None


def _calculate(operator: str, left: Number, right: Number) -> Number | None:
    if operator == "+":
        return _in_range(left + right)
    if operator == "-":
        return _in_range(left - right)
    if operator == "*":
        return _in_range(left * right)
    if right == 0:
        return None
    if operator == "/":
        return _in_range(left / right)
    if isinstance(left, int) and isinstance(right, int):
        remainder = abs(left) % abs(right)  # sign of the dividend, as in SQL
        return -remainder if left < 0 else remainder
    if not math.isfinite(left):
        return None
    return _in_range(math.fmod(left, right))


def _compare(left: Value | None, right: Value | None) -> int | None:
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool):
            return ALIKE if left is right else UNEQUAL
        return None
    if isinstance(left, str) and isinstance(right, str):
        return LESS if left < right else GREATER if left > right else EQUAL
    first, second = _number(left), _number(right)
    if first is None or second is None or first != first or second != second:
        return None  # unlike types, missing, or NaN
    return LESS if first < second else GREATER if first > second else EQUAL
