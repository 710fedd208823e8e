"""Operands of conditions: values combined by arithmetic.

Constants are folded at once, by the rules of :mod:`gapless.content.expression`.
"""

from __future__ import annotations

import msgspec

from gapless.content.expression import Arithmetic, Attribute, Constant, Negative, Term
from gapless.core.errors import FilterLimitError, shortened
from gapless.core.limits import FILTER_OPERATORS_MAX

__all__ = ["Operand", "OperandError", "arithmetic", "negative", "positive"]


class OperandError(Exception):
    """Operands cannot be combined; ``operand`` is the index of the wrong one."""

    def __init__(self, problem: str, operand: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.operand = operand


class Operand(msgspec.Struct, frozen=True):
    """A value: its term (None if folding found it unknown) and its number of operators."""

    term: Term | None
    operators: int = 0


def arithmetic(operator: str, left: Operand, right: Operand) -> Operand:
    """Return ``left operator right``; two constants are folded."""
    for place, operand in enumerate((left, right)):
        _check_number(operand, place)
    if left.term is None or right.term is None:
        return Operand(None)
    term = Arithmetic(operator, left.term, right.term)
    if isinstance(right.term, Constant):
        if isinstance(left.term, Constant):
            return _folded(term)
        if operator in ("/", "%") and right.term.literal == 0:
            return Operand(None)
    return Operand(term, _counted(left.operators + right.operators + 1))


def negative(operand: Operand) -> Operand:
    """Return a value with its sign changed."""
    _check_number(operand, 0)
    if operand.term is None:
        return operand
    term = Negative(operand.term)
    if isinstance(operand.term, Constant):
        return _folded(term)
    if isinstance(operand.term, Negative) and isinstance(operand.term.operand, Negative):
        # Three signs are one. Two are not none: the least int has no negative.
        return Operand(operand.term.operand, operand.operators - 1)
    return Operand(term, _counted(operand.operators + 1))


def positive(operand: Operand) -> Operand:
    """Return a value with ``+``, which requires a number: an attribute gets ``+ 0``."""
    _check_number(operand, 0)
    if isinstance(operand.term, Attribute):
        return arithmetic("+", operand, Operand(Constant(0)))
    return operand


def _check_number(operand: Operand, place: int) -> None:
    if isinstance(operand.term, Constant) and isinstance(operand.term.literal, bool | str):
        kind = "a string" if isinstance(operand.term.literal, str) else "a truth value"
        raise OperandError(
            f"arithmetic needs numbers; {shortened(str(operand.term))} is {kind}", place
        )


def _folded(term: Arithmetic | Negative) -> Operand:
    value = term.value({})
    return Operand(None if value is None else Constant(value))


def _counted(operators: int) -> int:
    if operators > FILTER_OPERATORS_MAX:
        raise FilterLimitError(
            f"one value has {operators} arithmetic operators; compute it before publishing",
            "FILTER_OPERATORS_MAX",
            FILTER_OPERATORS_MAX,
        )
    return operators
