"""The normal form of a condition: an OR of conjunctions, exact in three-valued logic.

NOT is pushed down to the tests as a wish (``wanted``): whether the condition shall come out true
or false. A test knows where it is true and where it is false, and is neither elsewhere, so *true*
is all that has to be carried upwards from there: AND is an intersection, OR a union.

The result is simplified until nothing changes: conjunctions that another one covers vanish, and
conjunctions that differ in one subject only become one if their value sets unite exactly. What
comes out is sorted by its text, so filters with one meaning usually have one normal form (the
whole truth would cost exponential time), and the text of a normal form has itself as normal form.

Multiplying out is bounded before it is done: by conjunctions, by cuts, and by steps in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gapless.content.condition import All, Condition, Not, Test, Verdict, refuted
from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.expression import Term
from gapless.content.text import conjunction_text
from gapless.content.valueset import ValueSet, union_of
from gapless.core.errors import FilterLimitError
from gapless.core.limits import (
    FILTER_CONJUNCTIONS_MAX,
    FILTER_CONSTRAINTS_MAX,
    FILTER_STEPS_MAX,
)

__all__ = ["conjoined", "disjoined", "normalise"]

Subject: TypeAlias = str | Term
Entries: TypeAlias = tuple[tuple[Subject, ValueSet], ...]
Normal: TypeAlias = tuple[Conjunction, ...]


def normalise(condition: Condition) -> Normal:
    """Return the conjunctions of which at least one matches where the condition is true."""
    return _sorted(_normalise(condition, True, _Steps()))


def conjoined(left: Normal, right: Normal) -> Normal:
    """Return the normal form of the AND of two."""
    return _sorted(_multiply(left, right, _Steps()))


def disjoined(*parts: Normal) -> Normal:
    """Return the normal form of the OR of several."""
    return _sorted(_simplify([one for part in parts for one in part], _Steps()))


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
    if type(condition) is Verdict:
        return (EVERYTHING,) if condition.truth is wanted else ()
    if type(condition) is Test:
        found = _join((condition,), wanted)
        return () if found is None else _within_limits((found,))
    assert not isinstance(condition, Test | Verdict | Not)
    tests = [part for part in condition.parts if type(part) is Test]
    others = [part for part in condition.parts if type(part) is not Test]
    if (type(condition) is All) is wanted:
        found = _join(tests, wanted)
        if found is None:
            return ()
        product = _within_limits((found,))
        factors = []
        for other in others:  # no comprehension: it would add a frame to every level
            factors.append(_normalise(other, wanted, steps))  # noqa: PERF401
        for factor in sorted(factors, key=len):
            product = _multiply(product, factor, steps)
        return product
    alternatives = _alternatives(tests, wanted, steps)
    for other in others:
        alternatives.extend(_normalise(other, wanted, steps))
    return _simplify(alternatives, steps)


# --- AND ----------------------------------------------------------------------------------------


def _join(tests: Iterable[Test], wanted: bool) -> Conjunction | None:
    """Return the conjunction of tests that shall all come out as wanted; None if none can be."""
    constraints: list[tuple[str, ValueSet]] = []
    residuals: list[tuple[Term, ValueSet]] = []
    for test in tests:
        subject = test.subject
        allowed = test.holds if wanted else refuted(test)
        if type(subject) is str:
            constraints.append((subject, allowed))
        else:
            residuals.append((subject, allowed))  # type: ignore[arg-type]
    return Conjunction.of(constraints, residuals)


def _multiply(left: Normal, right: Normal, steps: _Steps) -> Normal:
    if len(left) == 1 and left[0] == EVERYTHING:
        return right
    if len(right) == 1 and right[0] == EVERYTHING:
        return left
    steps.spend(8 * len(left) * len(right) + len(left) * _size(right) + len(right) * _size(left))
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


def _alternatives(tests: Iterable[Test], wanted: bool, steps: _Steps) -> list[Conjunction]:
    """Return tests of which one shall come out as wanted, those of one subject united."""
    by_subject: dict[Subject, list[ValueSet]] = {}
    for test in tests:
        by_subject.setdefault(test.subject, []).append(test.holds if wanted else refuted(test))
    return [
        _rebuilt(((subject, allowed),))
        for subject, sets in by_subject.items()
        for allowed in _united(sets, steps)
        if not allowed.is_empty
    ]


def _simplify(conjunctions: Iterable[Conjunction], steps: _Steps) -> Normal:
    """Return fewer conjunctions with the same union, none of which could still vanish.

    The result does not depend on the order: neither which conjunctions are covered nor which
    differ in one subject does, and subjects are taken in the order of their names.
    """
    kept = list(dict.fromkeys(conjunctions))
    if len(kept) > 1:
        kept = _absorb(kept, steps)
        united = _unite(kept, steps)
        while len(united) < len(kept):
            kept = _absorb(united, steps)
            united = _unite(kept, steps)
    return _within_limits(tuple(kept))


def _absorb(conjunctions: list[Conjunction], steps: _Steps) -> list[Conjunction]:
    """Leave out what another conjunction covers (unless there are too many to compare)."""
    count = len(conjunctions)
    if count > FILTER_CONJUNCTIONS_MAX:
        return conjunctions
    likes = sum(_pattern_characters(one) for line in conjunctions for _, one in line.constraints)
    steps.spend((count * count) // 4 + count * _size(conjunctions) // 8 + likes * likes // 64)
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
    """Say whether the right one is not needed beside the left one; not so both ways round."""
    if not left.covers(right):
        return False
    return not right.covers(left) or conjunction_text(left) < conjunction_text(right)


def _unite(conjunctions: list[Conjunction], steps: _Steps) -> list[Conjunction]:
    """Unite conjunctions that differ in one subject only; they have the same subjects."""
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
        result += alike if len(lines) == len(alike) else map(_rebuilt, lines)
    return result


def _subjects(conjunction: Conjunction) -> tuple[Subject, ...]:
    return tuple([subject for subject, _ in conjunction.constraints + conjunction.residuals])


def _united(sets: Sequence[ValueSet], steps: _Steps) -> Sequence[ValueSet]:
    if len(sets) == 1:
        return sets
    patterned = [one for one in sets if one.patterns]
    if patterned:  # each is compared with all others, symbol by symbol
        characters = sum(map(_pattern_characters, patterned))
        steps.spend(3 * len(patterned) ** 2 + characters * characters // 64)
    return union_of(sets)


def _rebuilt(entries: Entries) -> Conjunction:
    """Return the conjunction of these entries, which can be met."""
    found = Conjunction.of(
        [(name, allowed) for name, allowed in entries if isinstance(name, str)],
        [(term, allowed) for term, allowed in entries if not isinstance(term, str)],
    )
    assert found is not None, "a union of sets that are not empty is not empty"
    return found


# --- limits and order ---------------------------------------------------------------------------


def _sorted(conjunctions: Normal) -> Normal:
    if len(conjunctions) <= 1:
        return conjunctions
    return tuple(sorted(conjunctions, key=conjunction_text))


def _size(conjunctions: Iterable[Conjunction]) -> int:
    """Count the cuts of all value sets, and the pieces of patterns."""
    size = 0
    for one in conjunctions:
        for _, allowed in one.constraints + one.residuals:
            size += len(allowed.numbers) + len(allowed.texts)
            for pattern, _ in allowed.patterns:
                size += len(pattern.tokens)
    return size


def _pattern_characters(allowed: ValueSet) -> int:
    return sum(len(token) for pattern, _ in allowed.patterns for token in pattern.tokens)


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
            f"the filter's value sets have {size:,} cut points; "
            "use fewer values, or split it at an OR into several filters",
            "FILTER_CONSTRAINTS_MAX",
            FILTER_CONSTRAINTS_MAX,
        )
    return conjunctions
