"""The syntax tree of a filter: conditions, and NOT, AND, OR over conditions.

The parser and the builder both create conditions with the functions of this module, of
:mod:`.operands` and of :mod:`.comparisons`. So both agree on the meaning of each condition and on
what is refused. A condition is an :class:`AttributeCondition` (of one subject: an attribute, or a
derived term), a :class:`ConstantCondition`, whose truth is known already, or NOT, AND, OR over
conditions.

An attribute condition has the values for which it is true (``holds``) and the values for which it
is true or false (``within``); for all others it is unknown. So its negation is true on ``within``
without ``holds``, and other modules need not handle unknown values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, TypeAlias

import msgspec

from gapless.content.expression import Term
from gapless.content.valueset import ValueSet
from gapless.core.errors import FilterLimitError
from gapless.core.limits import FILTER_NESTING_MAX

__all__ = [
    "NEVER_KNOWN",
    "AllOf",
    "AnyOf",
    "AttributeCondition",
    "Condition",
    "ConstantCondition",
    "Not",
    "all_of",
    "any_of",
    "both",
    "either",
    "negated",
]


class AttributeCondition(msgspec.Struct, frozen=True):
    """A condition on one attribute (its name) or one term."""

    __test__: ClassVar[bool] = False  # not one of pytest's
    depth: ClassVar[int] = 0

    subject: str | Term
    holds: ValueSet
    within: ValueSet


class ConstantCondition(msgspec.Struct, frozen=True):
    """A condition that depends on nothing; None is *unknown*."""

    depth: ClassVar[int] = 0

    truth: bool | None


class Not(msgspec.Struct, frozen=True):
    """The negation of a condition."""

    operand: Condition
    depth: int


class AllOf(msgspec.Struct, frozen=True):
    """Conditions joined by AND."""

    parts: tuple[Condition, ...]
    depth: int


class AnyOf(msgspec.Struct, frozen=True):
    """Conditions joined by OR."""

    parts: tuple[Condition, ...]
    depth: int


Condition: TypeAlias = AttributeCondition | ConstantCondition | Not | AllOf | AnyOf

NEVER_KNOWN: Final = ConstantCondition(None)


def all_of(parts: Sequence[Condition]) -> Condition:
    """Join conditions by AND."""
    if len(parts) == 1:
        return parts[0]
    return AllOf(tuple(parts), _deeper(parts))


def any_of(parts: Sequence[Condition]) -> Condition:
    """Join conditions by OR."""
    if len(parts) == 1:
        return parts[0]
    return AnyOf(tuple(parts), _deeper(parts))


def both(left: Condition, right: Condition) -> Condition:
    """Join two conditions by AND; chains stay flat in any order of joining."""
    return all_of(
        (left.parts if isinstance(left, AllOf) else (left,))
        + (right.parts if isinstance(right, AllOf) else (right,))
    )


def either(left: Condition, right: Condition) -> Condition:
    """Join two conditions by OR; chains stay flat in any order of joining."""
    return any_of(
        (left.parts if isinstance(left, AnyOf) else (left,))
        + (right.parts if isinstance(right, AnyOf) else (right,))
    )


def negated(operand: Condition) -> Condition:
    """Return the negation of a condition."""
    return operand.operand if isinstance(operand, Not) else Not(operand, _deeper((operand,)))


def _deeper(parts: Iterable[Condition]) -> int:
    depth = 1
    for part in parts:
        if part.depth >= depth:
            depth = part.depth + 1
    if depth > 2 * (FILTER_NESTING_MAX + 1):  # a parenthesis is an OR of ANDs: two levels
        raise FilterLimitError(
            "AND, OR and NOT are nested too deeply; join conditions flatly",
            "FILTER_NESTING_MAX",
            FILTER_NESTING_MAX,
        )
    return depth
