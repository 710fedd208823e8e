"""The normal form of a condition: an OR of conjunctions, exact in three-valued logic.

NOT is pushed down to the tests as a flag (``wanted``): whether the condition must be true or false.
A test has a set of values for which it is true and one for which it is false, and is unknown for
all others. So only *true* has to be carried upwards: AND is an intersection, OR a union.

The result is simplified until nothing changes: a conjunction that another one covers is removed,
and conjunctions that differ in one subject only become one if their value sets unite exactly. The
result is sorted by text. So filters with one meaning usually have one normal form (a guarantee
would cost exponential time), and parsing the text of a normal form gives the same normal form.

Multiplying out is bounded in advance: by conjunctions, by cuts, and by total steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from gapless.content.comparisons import refuted
from gapless.content.condition import (
    AllOf,
    AnyOf,
    AttributeCondition,
    Condition,
    ConstantCondition,
    Not,
)
from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.expression import Term
from gapless.content.text import conjunction_text
from gapless.content.valueset import ValueSet, union_of
from gapless.core.errors import FilterLimitError
from gapless.core.limits import (
    FILTER_CONJUNCTIONS_MAX,
    FILTER_CONSTRAINTS_MAX,
    FILTER_SEARCHES_MAX,
    FILTER_STEPS_MAX,
    FILTER_TEXT_MAX,
)

__all__ = ["disjoined", "normalise", "searches_of"]

Subject: TypeAlias = str | Term
Entries: TypeAlias = tuple[tuple[Subject, ValueSet], ...]
Normal: TypeAlias = tuple[Conjunction, ...]
Requirement: TypeAlias = tuple[Condition, bool]
"""A condition, and whether it must be true or false."""
AttributeRequirement: TypeAlias = tuple[AttributeCondition, bool]


def normalise(condition: Condition) -> Normal:
    """Return conjunctions of which at least one matches exactly if the condition is true."""
    return _written(_normalise(condition, True, _Steps()))


def disjoined(conjunctions: Iterable[Conjunction]) -> Normal:
    """Return the normal form of the OR of conjunctions."""
    return _written(_simplify(conjunctions, _Steps()))


class _Steps:
    """The work done so far for one filter."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def spend(self, steps: int) -> None:
        self._done += steps
        if self._done > FILTER_STEPS_MAX:
            raise FilterLimitError(
                "the filter takes too long to multiply out; "
                "simplify it, or split it at an OR into several filters",
                "FILTER_STEPS_MAX",
                FILTER_STEPS_MAX,
            )


def _normalise(condition: Condition, wanted: bool, steps: _Steps) -> Normal:
    while type(condition) is Not:
        condition, wanted = condition.operand, not wanted
    if type(condition) is ConstantCondition:
        return (EVERYTHING,) if condition.truth is wanted else ()
    if type(condition) is AttributeCondition:
        found = _join(((condition, wanted),), steps)
        return () if found is None else _within_limits((found,))
    assert not isinstance(condition, AttributeCondition | ConstantCondition | Not)
    is_product = (type(condition) is AllOf) is wanted
    tests, others = _parts(condition, wanted)
    parts = []
    for other, other_wanted in others:  # no comprehension: it would add a frame to every level
        parts.append(_normalise(other, other_wanted, steps))
    if is_product:
        found = _join(tests, steps)
        product = () if found is None else _within_limits((found,))
        for factor in sorted(parts, key=len):
            product = _multiply(product, factor, steps)
        return product
    return _simplify([*_alternatives(tests, steps), *chain.from_iterable(parts)], steps)


def _parts(
    condition: AllOf | AnyOf, wanted: bool
) -> tuple[list[AttributeRequirement], list[Requirement]]:
    """Return the tests and the other parts of an AND or OR, each with its required truth.

    An AND inside an AND (and an OR, or a negated AND, inside an OR) is merged into it, so that the
    normal form does not depend on parentheses.
    """
    is_product = (type(condition) is AllOf) is wanted
    tests: list[AttributeRequirement] = []
    others: list[Requirement] = []
    waiting: list[Requirement] = [(part, wanted) for part in reversed(condition.parts)]
    while waiting:
        part, required = waiting.pop()
        while type(part) is Not:
            part, required = part.operand, not required
        if type(part) is AttributeCondition:
            tests.append((part, required))
        elif isinstance(part, AllOf | AnyOf) and ((type(part) is AllOf) is required) is is_product:
            waiting.extend((inner, required) for inner in reversed(part.parts))
        else:
            others.append((part, required))
    return tests, others


# --- AND ----------------------------------------------------------------------------------------


def _join(tests: Iterable[AttributeRequirement], steps: _Steps) -> Conjunction | None:
    """Return the conjunction of tests with their required truths; None if it matches nothing."""
    constraints: list[tuple[str, ValueSet]] = []
    residuals: list[tuple[Term, ValueSet]] = []
    patterns = texts = 0
    for test, wanted in tests:
        subject = test.subject
        allowed = test.holds if wanted else refuted(test)
        if allowed.patterns:
            patterns += len(allowed.patterns)
        else:
            texts += len(allowed.texts)
        if type(subject) is str:
            constraints.append((subject, allowed))
        else:
            residuals.append((subject, allowed))  # type: ignore[arg-type]
    if patterns:
        steps.spend(patterns * texts // 4)  # single texts are matched with every pattern
    return Conjunction.of(constraints, residuals)


def _multiply(left: Normal, right: Normal, steps: _Steps) -> Normal:
    if len(left) == 1 and left[0] == EVERYTHING:
        return right
    if len(right) == 1 and right[0] == EVERYTHING:
        return left
    steps.spend(8 * len(left) * len(right) + len(left) * _size(right) + len(right) * _size(left))
    steps.spend(_fitting(left, right) + _fitting(right, left))
    product: list[Conjunction] = []
    for ours in left:
        for theirs in right:
            both = Conjunction.of(
                ours.constraints + theirs.constraints, ours.residuals + theirs.residuals
            )
            if both is not None:
                product.append(both)
    return _simplify(product, steps)


# --- OR -----------------------------------------------------------------------------------------


def _alternatives(tests: Iterable[AttributeRequirement], steps: _Steps) -> list[Conjunction]:
    """Return tests of which one must have its required truth, those of one subject united."""
    by_subject: dict[Subject, list[ValueSet]] = {}
    for test, wanted in tests:
        by_subject.setdefault(test.subject, []).append(test.holds if wanted else refuted(test))
    return [
        _rebuilt(((subject, allowed),))
        for subject, sets in by_subject.items()
        for allowed in _united(sets, steps)
        if not allowed.is_empty
    ]


def _simplify(conjunctions: Iterable[Conjunction], steps: _Steps) -> Normal:
    """Return fewer conjunctions with the same union, none of which is superfluous.

    The result does not depend on the order: neither which conjunctions are covered nor which
    differ in one subject does, and subjects are processed in the order of their names.
    """
    kept = list(dict.fromkeys(conjunctions))
    if len(kept) > 1:
        kept = _absorb(kept, steps)
        united = _unite(kept, steps)
        while united != kept:
            kept = _absorb(united, steps)
            united = _unite(kept, steps)
    return _within_limits(tuple(kept))


def _absorb(conjunctions: list[Conjunction], steps: _Steps) -> list[Conjunction]:
    """Remove conjunctions that another one covers (unless there are too many to compare)."""
    count = len(conjunctions)
    if count > FILTER_CONJUNCTIONS_MAX:
        return conjunctions
    sets = [allowed for one in conjunctions for _, allowed in one.constraints]
    steps.spend(count * count // 4 + count * _size(conjunctions) // 8 + _comparing(count, sets))
    bits: dict[Subject, int] = {}
    shapes = []
    for one in conjunctions:
        shape = 0
        for subject in _subjects(one):
            shape |= bits.setdefault(subject, 1 << len(bits))
        shapes.append(shape)
    kept = []
    for place, one in enumerate(conjunctions):
        missing = ~shapes[place]
        for other, shape in enumerate(shapes):
            if not shape & missing and other != place and _absorbs(conjunctions[other], one):
                break
        else:
            kept.append(one)
    return kept


def _absorbs(left: Conjunction, right: Conjunction) -> bool:
    """Return whether the right one is superfluous beside the left one; true in one order only."""
    if not left.covers(right):
        return False
    return not right.covers(left) or conjunction_text(left) < conjunction_text(right)


def _unite(conjunctions: list[Conjunction], steps: _Steps) -> list[Conjunction]:
    """Unite conjunctions with the same subjects that differ in one of them only."""
    shapes: dict[tuple[Subject, ...], list[Conjunction]] = {}
    for one in conjunctions:
        shapes.setdefault(_subjects(one), []).append(one)
    if len(shapes) == len(conjunctions):
        return conjunctions
    result: list[Conjunction] = []
    for subjects, alike in shapes.items():
        lines: list[Entries] = [one.constraints + one.residuals for one in alike]
        for place in range(len(subjects)):
            steps.spend(1 + len(lines))
            groups: dict[Entries, list[ValueSet]] = {}
            for line in lines:
                rest = line[:place] + line[place + 1 :]
                groups.setdefault(rest, []).append(line[place][1])
            lines = [
                (*rest[:place], (subjects[place], allowed), *rest[place:])
                for rest, sets in groups.items()
                for allowed in _united(sets, steps)
            ]
        if {*lines} == {one.constraints + one.residuals for one in alike}:
            result += alike
        else:
            result += map(_rebuilt, lines)
    return result


def _subjects(conjunction: Conjunction) -> tuple[Subject, ...]:
    return tuple([subject for subject, _ in conjunction.constraints + conjunction.residuals])


def _united(sets: Sequence[ValueSet], steps: _Steps) -> Sequence[ValueSet]:
    if len(sets) == 1:
        return sets
    patterned = [one for one in sets if one.patterns]
    if patterned:
        steps.spend(len(patterned) ** 2 + _comparing(len(patterned), patterned))
        # The texts of all other sets are matched with the patterns, and the patterns with them.
        texts = sum([len(one.texts) for one in sets if not one.patterns])
        steps.spend(4 * len(patterned) * texts + _comparing(texts, patterned) // 8)
    return union_of(sets)


def _rebuilt(entries: Entries) -> Conjunction:
    """Return the conjunction of these entries, which are satisfiable."""
    found = Conjunction.of(
        [(name, allowed) for name, allowed in entries if isinstance(name, str)],
        [(term, allowed) for term, allowed in entries if not isinstance(term, str)],
    )
    assert found is not None, "a union of sets that are not empty is not empty"
    return found


# --- limits and order ---------------------------------------------------------------------------


def _written(conjunctions: Normal) -> Normal:
    """Return the conjunctions sorted by text, after a check that the whole text can be parsed."""
    if not conjunctions or (len(conjunctions) == 1 and _is_short(conjunctions[0])):
        return conjunctions
    texts = [conjunction_text(one) for one in conjunctions]
    length = sum(map(len, texts)) + len(" OR ") * (len(texts) - 1)
    if length > FILTER_TEXT_MAX:
        raise FilterLimitError(
            f"the filter's normal form has {length:,} characters as text; "
            "split it at an OR into several filters, or use shorter names",
            "FILTER_TEXT_MAX",
            FILTER_TEXT_MAX,
        )
    order = sorted(range(len(texts)), key=texts.__getitem__)
    return tuple([conjunctions[place] for place in order])


def _is_short(conjunction: Conjunction) -> bool:
    """Return whether a conjunction's text is certainly within its limit, without writing it.

    A cut is written as a condition: the subject, an operator, a literal. Quotes and escapes at
    most double a text, and a cut that no literal can name takes two conditions.
    """
    length = 0
    for name, allowed in conjunction.constraints:
        cuts = 2 + len(allowed.numbers)
        if allowed.texts:
            cuts += 2 * len(allowed.texts) + len(allowed.patterns)
            for value, _ in allowed.texts:
                if type(value) is str:
                    length += 4 * len(value)
            for pattern, _ in allowed.patterns:
                length += 2 * sum(map(len, pattern.tokens))
        length += cuts * (2 * len(name) + 50)
    for term, allowed in conjunction.residuals:
        length += (2 + len(allowed.numbers)) * (2 * len(str(term)) + 50)
    return length <= FILTER_TEXT_MAX


def _size(conjunctions: Iterable[Conjunction]) -> int:
    """Return the number of cuts of all value sets and of tokens of patterns."""
    size = 0
    for one in conjunctions:
        for _, allowed in one.constraints + one.residuals:
            size += len(allowed.numbers) + len(allowed.texts)
            for pattern, _ in allowed.patterns:
                size += len(pattern.tokens)
    return size


def _fitting(left: Iterable[Conjunction], right: Iterable[Conjunction]) -> int:
    """Estimate the steps of matching the texts of the left with the patterns of the right."""
    sets = [allowed for one in right for _, allowed in one.constraints if allowed.patterns]
    if not sets:
        return 0
    patterns = sum([len(allowed.patterns) for allowed in sets])
    texts = 0
    for one in left:
        for _, allowed in one.constraints:
            if not allowed.patterns:
                texts += len(allowed.texts)
    return patterns * texts // 4


def _comparing(count: int, sets: Iterable[ValueSet]) -> int:
    """Estimate the steps of comparing the patterns of these sets with ``count`` others."""
    characters = 0
    for one in sets:
        for pattern, _ in one.patterns:
            characters += sum(map(len, pattern.tokens))
    return count * characters // 8


def _within_limits(conjunctions: Normal) -> Normal:
    if len(conjunctions) > FILTER_CONJUNCTIONS_MAX:
        raise FilterLimitError(
            f"the filter multiplies out to {len(conjunctions):,} conjunctions; "
            "split it at an OR into several filters, or write ORs of one attribute as IN",
            "FILTER_CONJUNCTIONS_MAX",
            FILTER_CONJUNCTIONS_MAX,
        )
    size = _size(conjunctions)
    if size > FILTER_CONSTRAINTS_MAX:
        raise FilterLimitError(
            f"the filter's value sets have {size:,} cut points and "
            "parts of patterns; use fewer values, or split it at an OR into several filters",
            "FILTER_CONSTRAINTS_MAX",
            FILTER_CONSTRAINTS_MAX,
        )
    searches = searches_of(conjunctions)
    if searches > FILTER_SEARCHES_MAX:
        raise FilterLimitError(
            f"the filter searches texts for {searches:,} parts of patterns; "
            "use fewer of them, or split it at an OR into several filters",
            "FILTER_SEARCHES_MAX",
            FILTER_SEARCHES_MAX,
        )
    return conjunctions


def searches_of(conjunctions: Normal) -> int:
    """Count the parts of patterns for which texts are searched."""
    return sum(
        pattern.searches
        for conjunction in conjunctions
        for _, allowed in conjunction.constraints
        for pattern, _ in allowed.patterns
    )
