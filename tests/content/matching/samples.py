"""Random conjunctions and events over small dense domains, built without the selector language."""

from __future__ import annotations

import random

from gapless.content import spans, valueset
from gapless.content.conjunction import Conjunction
from gapless.content.expression import EQUAL, LESS, Arithmetic, Attribute, Comparison, Term
from gapless.content.like import Pattern
from gapless.content.values import Value
from gapless.content.valueset import ValueSet

NUMBERS: tuple[int | float, ...] = (
    -1, 0, 0.5, 1, 1.5, 2, 3, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), 1e300,
)  # fmt: skip
TEXTS = ("", "a", "ab", "abc", "abd", "b", "ba", "é")
PATTERNS = ("%b", "a%c", "_b%", "%", "a_", "%a%", "ab%")
NAMES = ("a", "b", "c", "d")
EVENT_VALUES: tuple[Value | None, ...] = (
    *NUMBERS, *TEXTS, True, False, None, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip


def value_set(rng: random.Random) -> ValueSet:
    """Return a set of one of the kinds that conditions have."""
    number, text = rng.choice(NUMBERS), rng.choice(TEXTS)
    kind = rng.randrange(11)
    if kind <= 2:
        low, high = sorted((number, rng.choice(NUMBERS)))
        ends = ((low, rng.randrange(2)), (high, rng.randrange(2)))
        return valueset.numbers(ends if ends[0] < ends[1] else spans.point(low))
    if kind == 3:
        return valueset.numbers((spans.NUMBER_MIN, (number, rng.randrange(2))))
    if kind == 4:
        return valueset.numbers(((number, rng.randrange(2)), spans.NUMBER_MAX))
    if kind == 5:
        values = (*NUMBERS, *TEXTS, True, False)
        return valueset.one_of([rng.choice(values) for _ in range(rng.randrange(1, 20))])
    if kind == 6:
        return valueset.texts(spans.prefix(text))
    if kind == 7:
        return valueset.texts_like(Pattern.parse(rng.choice(PATTERNS)), rng.random() < 0.7)
    if kind == 8:
        return rng.choice([valueset.MISSING, valueset.PRESENT])
    if kind == 9:
        return valueset.numbers(spans.complement(spans.point(number), spans.ALL_NUMBERS))
    return valueset.one_of([rng.choice([number, text])])


def conjunction(rng: random.Random, names: tuple[str, ...] = NAMES) -> Conjunction:
    """Return a conjunction of up to three conditions, sometimes with a derived term."""
    while True:
        residuals: list[tuple[Term, ValueSet]] = []
        if rng.random() < 0.1:
            left, right = Attribute(rng.choice(names)), Attribute(rng.choice(names))
            below = valueset.numbers((spans.NUMBER_MIN, (1, rng.randrange(2))))
            if rng.random() < 0.5:
                residuals.append((Comparison(left, right), valueset.one_of([LESS, EQUAL])))
            else:
                residuals.append((Arithmetic("+", left, right), below))
        conditions = [(rng.choice(names), value_set(rng)) for _ in range(rng.randrange(4))]
        made = Conjunction.of(conditions, residuals)
        if made is not None:
            return made


def event(rng: random.Random, names: tuple[str, ...] = NAMES) -> dict[str, Value | None]:
    """Return an event that has most of the attributes."""
    return {name: rng.choice(EVENT_VALUES) for name in names if rng.random() < 0.8}
