"""Conditions on operands: comparisons, BETWEEN, IN, LIKE, IS NULL.

Constants are folded at once, by the rules of :mod:`gapless.content.expression`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gapless.content import spans
from gapless.content.condition import (
    NEVER_KNOWN,
    AttributeCondition,
    Condition,
    ConstantCondition,
    all_of,
)
from gapless.content.expression import (
    ALIKE,
    EQUAL,
    GREATER,
    LESS,
    UNEQUAL,
    Arithmetic,
    Attribute,
    Comparison,
    Constant,
    Negative,
    Term,
    literal_text,
)
from gapless.content.like import Pattern
from gapless.content.operands import Operand, OperandError
from gapless.content.spans import ALL_NUMBERS, ALL_TEXTS, EMPTY, NUMBER_MAX, NUMBER_MIN, Spans
from gapless.content.values import Number, Value, canonical
from gapless.content.valueset import (
    ALL_BOOLS,
    ANY,
    ANY_NUMBER,
    ANY_TEXT,
    FALSE_ONLY,
    MISSING,
    NOTHING,
    PRESENT,
    TRUE_ONLY,
    ValueSet,
    numbers,
    one_of,
    texts_like,
)
from gapless.core.errors import FilterLimitError, shortened
from gapless.core.limits import FILTER_PATTERN_MAX, FILTER_SEGMENT_MAX

__all__ = [
    "OUTCOMES",
    "among",
    "as_condition",
    "between",
    "compare",
    "is_null",
    "like",
    "number_test",
    "range_test",
    "refuted",
    "text_test",
]

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

OUTCOMES: Final[dict[str, ValueSet]] = {
    "=": one_of([EQUAL, ALIKE]),
    "<>": one_of([LESS, GREATER, UNEQUAL]),
    "<": one_of([LESS]),
    "<=": one_of([LESS, EQUAL]),
    ">": one_of([GREATER]),
    ">=": one_of([EQUAL, GREATER]),
}
"""The outcomes of a comparison of two terms for which each operator is true."""

_ORDERED: Final = one_of([LESS, EQUAL, GREATER])
_COMPARABLE: Final = one_of([LESS, EQUAL, GREATER, UNEQUAL, ALIKE])


def as_condition(operand: Operand) -> Condition:
    """Return a value as a condition: an attribute means ``attribute = TRUE``."""
    term = operand.term
    if isinstance(term, Attribute):
        return AttributeCondition(term.name, TRUE_ONLY, ALL_BOOLS)
    if isinstance(term, Constant) and isinstance(term.literal, bool):
        return ConstantCondition(term.literal)
    raise OperandError("this is a value, not a condition; compare it with something")


def compare(operator: str, left: Operand, right: Operand) -> Condition:
    """Return the comparison of two values by one of ``= <> < <= > >=``."""
    first, second = left.term, right.term
    if operator not in ("=", "<>"):
        for place, term in enumerate((first, second)):
            if isinstance(term, Constant) and isinstance(term.literal, bool):
                raise OperandError("TRUE and FALSE compare only with = and <>", place)
    if first is None or second is None:
        return NEVER_KNOWN
    if isinstance(second, Constant):
        if isinstance(first, Constant):
            return _compare_constants(operator, first, second)
        return _compare_constant(operator, first, second.literal, 1)
    if isinstance(first, Constant):
        return _compare_constant(_MIRRORED[operator], second, first.literal, 0)
    return _compare_terms(operator, first, second)


def between(operand: Operand, low: Operand, high: Operand) -> Condition:
    """Return ``operand >= low AND operand <= high``, as one test if possible."""
    term = operand.term
    if isinstance(low.term, Constant) and isinstance(high.term, Constant):
        least, most = low.term.literal, high.term.literal
        if _are_numbers((least, most)) and isinstance(term, Attribute | Arithmetic | Negative):
            subject = term.name if isinstance(term, Attribute) else term
            return AttributeCondition(
                subject, numbers(closed(canonical(least), canonical(most))), ANY_NUMBER
            )
        if isinstance(least, str) and isinstance(most, str) and isinstance(term, Attribute):
            return AttributeCondition(term.name, ValueSet(EMPTY, closed(least, most)), ANY_TEXT)
    above = compare(">=", operand, low)
    try:
        below = compare("<=", operand, high)
    except OperandError as misuse:  # its second operand is the third here
        raise OperandError(misuse.problem, 2 * misuse.operand) from None
    return all_of((above, below))


def among(operand: Operand, values: Sequence[Value]) -> Condition:
    """Return the condition that the operand equals one of the values (at least one)."""
    term = operand.term
    if term is None:
        return NEVER_KNOWN
    if isinstance(term, Constant):
        return _first_true(_compare_constants("=", term, Constant(value)) for value in values)
    tidied = [canonical(value) for value in values]
    holds = one_of(tidied)
    if isinstance(term, Attribute):
        families = [family for family in (ANY_NUMBER, ANY_TEXT, ALL_BOOLS) if _meets(holds, family)]
        # With several families one comparison is always unknown, so the condition is never false.
        return AttributeCondition(term.name, holds, families[0] if len(families) == 1 else holds)
    for place, value in enumerate(values):
        if isinstance(value, bool | str):
            raise OperandError(_unlike(value), place + 1)
    return AttributeCondition(term, holds, ANY_NUMBER)


def like(operand: Operand, pattern: Pattern) -> Condition:
    """Return the condition that an attribute is a text that matches a pattern."""
    if not isinstance(operand.term, Attribute):
        raise OperandError("LIKE needs the name of an attribute on its left")
    if len(pattern) > FILTER_PATTERN_MAX and pattern.is_searched:
        raise FilterLimitError(
            f"a LIKE pattern has {len(pattern):,} characters; shorten it",
            "FILTER_PATTERN_MAX",
            FILTER_PATTERN_MAX,
        )
    if pattern.segment_length > FILTER_SEGMENT_MAX:
        raise FilterLimitError(
            f"a LIKE pattern has {pattern.segment_length:,} characters with _ between two %; "
            "shorten this part",
            "FILTER_SEGMENT_MAX",
            FILTER_SEGMENT_MAX,
        )
    return AttributeCondition(operand.term.name, texts_like(pattern, wanted=True), ANY_TEXT)


def is_null(operand: Operand, *, wanted: bool) -> Condition:
    """Return the condition that an attribute is missing (or, if not ``wanted``, that it exists)."""
    if not isinstance(operand.term, Attribute):
        raise OperandError("IS NULL needs the name of an attribute on its left")
    return AttributeCondition(operand.term.name, MISSING if wanted else PRESENT, ANY)


def refuted(test: AttributeCondition) -> ValueSet:
    """Return the values for which a test is false."""
    holds, within = test.holds, test.within
    if holds.patterns:
        ((pattern, wanted),) = holds.patterns
        return texts_like(pattern, not wanted)
    return ValueSet(
        spans.intersection(within.numbers, spans.complement(holds.numbers, ALL_NUMBERS)),
        spans.intersection(within.texts, spans.complement(holds.texts, ALL_TEXTS)),
        within.bools & ~holds.bools,
        within.null and not holds.null,
        within.nan and not holds.nan,
    )


def number_test(name: str, operator: str, value: Number) -> AttributeCondition:
    """Return the comparison of an attribute with a number."""
    return AttributeCondition(name, numbers(_half_line(operator, canonical(value))), ANY_NUMBER)


def text_test(name: str, operator: str, value: str) -> AttributeCondition:
    """Return the comparison of an attribute with a text."""
    return AttributeCondition(name, ValueSet(EMPTY, _text_half_line(operator, value)), ANY_TEXT)


def range_test(name: str, low: Number, high: Number) -> AttributeCondition:
    """Return the condition that an attribute is a number between two numbers."""
    return AttributeCondition(name, numbers(closed(canonical(low), canonical(high))), ANY_NUMBER)


def closed(low: Value, high: Value) -> Spans:
    """Return the set from ``low`` to ``high``, both included."""
    return ((low, 0), (high, 1)) if low <= high else EMPTY  # type: ignore[operator]


def _half_line(operator: str, value: Number) -> Spans:
    if operator == "=":
        return ((value, 0), (value, 1))
    if operator == "<":
        return (NUMBER_MIN, (value, 0))
    if operator == "<=":
        return (NUMBER_MIN, (value, 1))
    if operator == ">":
        return ((value, 1), NUMBER_MAX)
    if operator == ">=":
        return ((value, 0), NUMBER_MAX)
    return (NUMBER_MIN, (value, 0), (value, 1), NUMBER_MAX)


def _text_half_line(operator: str, value: str) -> Spans:
    low, high = ALL_TEXTS
    if operator == "=":
        return ((value, 0), (value, 1))
    if operator == "<":
        return (low, (value, 0)) if value else EMPTY
    if operator == "<=":
        return (low, (value, 1))
    if operator == ">":
        return ((value, 1), high)
    if operator == ">=":
        return ((value, 0), high)
    return spans.complement(spans.point(value), ALL_TEXTS)


def _compare_constant(operator: str, term: Term, value: Value, place: int) -> Condition:
    if isinstance(term, Attribute):
        if isinstance(value, bool):
            holds = TRUE_ONLY if value is (operator == "=") else FALSE_ONLY
            return AttributeCondition(term.name, holds, ALL_BOOLS)
        if isinstance(value, str):
            return text_test(term.name, operator, value)
        return number_test(term.name, operator, value)
    if isinstance(value, bool | str):
        raise OperandError(_unlike(value), place)
    return AttributeCondition(term, numbers(_half_line(operator, canonical(value))), ANY_NUMBER)


def _compare_constants(operator: str, left: Constant, right: Constant) -> ConstantCondition:
    outcome = Comparison(left, right).value({})
    if outcome is None:
        return NEVER_KNOWN
    return ConstantCondition(OUTCOMES[operator].contains(outcome))


def _compare_terms(operator: str, left: Term, right: Term) -> Condition:
    within = _COMPARABLE if operator in ("=", "<>") else _ORDERED
    if left == right:
        return _compare_same(operator, left)
    if str(left) > str(right):
        left, right, operator = right, left, _MIRRORED[operator]
    return AttributeCondition(Comparison(left, right), OUTCOMES[operator], within)


def _compare_same(operator: str, term: Term) -> Condition:
    """Return the comparison of a term with itself, which is equal if the term is known."""
    if isinstance(term, Attribute):
        known = ValueSet(ALL_NUMBERS, ALL_TEXTS, ALL_BOOLS.bools if operator in ("=", "<>") else 0)
        return AttributeCondition(term.name, known if "=" in operator else NOTHING, known)
    return AttributeCondition(term, ANY_NUMBER if "=" in operator else NOTHING, ANY_NUMBER)


def _first_true(verdicts: Iterable[ConstantCondition]) -> ConstantCondition:
    """Join constant conditions by OR."""
    truths = {verdict.truth for verdict in verdicts}
    return (
        ConstantCondition(True)
        if True in truths
        else NEVER_KNOWN
        if None in truths
        else ConstantCondition(False)
    )


def _are_numbers(values: Iterable[Value]) -> bool:
    return not any(isinstance(value, bool | str) for value in values)


def _meets(holds: ValueSet, family: ValueSet) -> bool:
    return not holds.intersection(family).is_empty


def _unlike(value: Value) -> str:
    return f"arithmetic gives a number, which never compares with {shortened(literal_text(value))}"
