"""Build a condition with `gapless.F` instead of text."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, assert_never

import gapless
from tests.content.reference import (
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
    Or,
    Sign,
)

if TYPE_CHECKING:
    from tests.content.reference import Condition, Operand, Predicate

# The builder overloads Python's operators; here it is used through them only.
F: Any = gapless.F

OPERATORS: dict[str, Any] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


class NotExpressibleError(Exception):
    """Python itself would calculate this part before the builder sees it."""


def build(tree: Condition) -> Any:
    """Return the filter that the builder makes of this condition."""
    match tree:
        case Not(part):
            return ~build(part)
        case And(left, right):
            return build(left) & build(right)
        case Or(left, right):
            return build(left) | build(right)
        case _:
            return _predicate(tree)


def _predicate(tree: Predicate) -> Any:
    match tree:
        case Constant():
            raise NotExpressibleError
        case Flag(name):
            return _field(name) == True  # noqa: E712 - the builder's own equality
        case Compare(sign, left, right):
            return _binary(sign, left, right)
        case Between(negated, operand, low, high):
            if isinstance(operand, Literal):
                raise NotExpressibleError
            built = _operand(operand).between(_operand(low), _operand(high))
        case In(negated, name, values):
            built = _field(name).in_(*values)
        case Like(negated, name, pattern, escape):
            built = _field(name).like(pattern, escape=escape)
        case IsNull(negated, name):
            return _field(name).is_not_null() if negated else _field(name).is_null()
        case _:
            assert_never(tree)
    return ~built if negated else built


def _operand(operand: Operand) -> Any:
    match operand:
        case Attribute(name):
            return _field(name)
        case Literal(value):
            return value
        case Sign(sign, inner):
            if isinstance(inner, Literal):
                raise NotExpressibleError
            return -_operand(inner) if sign == "-" else +_operand(inner)
        case Arithmetic(sign, left, right):
            return _binary(sign, left, right)


def _binary(sign: str, left: Operand, right: Operand) -> Any:
    if isinstance(left, Literal) and isinstance(right, Literal):
        raise NotExpressibleError
    if isinstance(left, Literal) and isinstance(left.value, str) and sign == "%":
        raise NotExpressibleError
    return OPERATORS[sign](_operand(left), _operand(right))


def _field(name: str) -> Any:
    return getattr(F, name) if name.isidentifier() else F[name]
