"""Reduce a failing condition to a readable one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.content.reference import And, Arithmetic, Compare, In, Not, Or, Sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.content.reference import Condition, Operand


def smaller(tree: Condition, fails: Callable[[Condition], bool]) -> Condition:
    """Return the smallest condition, found by removing branches, for which `fails` still holds."""
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in _cuts(tree):
            if fails(candidate):
                tree, shrunk = candidate, True
                break
    return tree


def _cuts(tree: Condition) -> Iterator[Condition]:
    match tree:
        case Not(part):
            yield part
            yield from (Not(cut) for cut in _cuts(part))
        case And(left, right) | Or(left, right):
            yield left
            yield right
            yield from (type(tree)(cut, right) for cut in _cuts(left))
            yield from (type(tree)(left, cut) for cut in _cuts(right))
        case In(negated, name, values) if len(values) > 1:
            for index in range(len(values)):
                yield In(negated, name, values[:index] + values[index + 1 :])
        case Compare(operator, left_operand, right_operand):
            yield from (Compare(operator, cut, right_operand) for cut in _parts(left_operand))
            yield from (Compare(operator, left_operand, cut) for cut in _parts(right_operand))
        case _:
            pass


def _parts(operand: Operand) -> Iterator[Operand]:
    match operand:
        case Sign(operator, inner):
            yield inner
            yield from (Sign(operator, cut) for cut in _parts(inner))
        case Arithmetic(operator, left, right):
            yield left
            yield right
            yield from (Arithmetic(operator, cut, right) for cut in _parts(left))
            yield from (Arithmetic(operator, left, cut) for cut in _parts(right))
        case _:
            pass
