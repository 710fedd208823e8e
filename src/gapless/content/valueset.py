"""Value sets: the values of one attribute that a condition allows.

A filter's condition on a single attribute is a set of values: some numbers, some texts, some bools,
NaN or not, missing or not. A comparison of unlike types is *unknown*, so a comparison and its
negation are both sets of one family, and NOT is a complement inside that family. Numbers and texts
are sequences of cuts (:mod:`gapless.content.spans`). A LIKE that is not just a prefix remains a
pattern that narrows the texts.

Invariants: a set whose texts are single points or none has no patterns; a set with patterns has
texts only. Equal fields mean equal sets; the reverse holds except between odd patterns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

import msgspec

from gapless.content import spans
from gapless.content.like import MANY, Pattern
from gapless.content.spans import ALL_NUMBERS, ALL_TEXTS, EMPTY, TEXT_MAX, Cut, Spans
from gapless.content.values import Number, Value, not_a_value, too_large
from gapless.core.limits import INT_MAX, INT_MIN, PATTERN_PAIRS_MAX

__all__ = [
    "ALL_BOOLS",
    "ANY",
    "ANY_NUMBER",
    "ANY_TEXT",
    "FALSE_ONLY",
    "MISSING",
    "NOTHING",
    "PRESENT",
    "TRUE_ONLY",
    "ValueSet",
    "intersection_of",
    "numbers",
    "one_of",
    "texts",
    "texts_like",
    "union_of",
]

_FALSE: Final = 1
_TRUE: Final = 2


class ValueSet(msgspec.Struct, frozen=True, gc=False):
    """A set of values of one attribute; ``bools`` is a mask: 1 for FALSE, 2 for TRUE."""

    numbers: Spans = EMPTY
    texts: Spans = EMPTY
    bools: int = 0
    null: bool = False
    nan: bool = False
    patterns: tuple[tuple[Pattern, bool], ...] = ()
    """(pattern, whether it must match) for the texts, sorted."""

    @property
    def is_empty(self) -> bool:
        """Whether no value is allowed (odd patterns may hide an empty set)."""
        return not (self.numbers or self.texts or self.bools or self.null or self.nan)

    @property
    def is_everything(self) -> bool:
        """Whether all values are allowed."""
        return self.null and self == ANY

    def contains(self, value: Value | None) -> bool:
        """Return whether the value (None: missing) is in the set."""
        if value is None:
            return self.null
        if isinstance(value, str):
            return spans.contains(self.texts, value) and self._fits(value)
        if isinstance(value, bool):
            return bool(self.bools & (_TRUE if value else _FALSE))
        if isinstance(value, float):
            if value != value:  # NaN, the only value that differs from itself
                return self.nan
        elif not isinstance(value, int):
            raise not_a_value(value)
        elif not INT_MIN <= value <= INT_MAX:
            raise too_large(value)
        return spans.contains(self.numbers, value)

    def intersection(self, other: ValueSet) -> ValueSet:
        """Return the values that both sets allow."""
        patterns = self.patterns
        if other.patterns and other.patterns != patterns:
            patterns = tuple(sorted({*patterns, *other.patterns}))
        return _normal(
            spans.intersection(self.numbers, other.numbers),
            spans.intersection(self.texts, other.texts),
            self.bools & other.bools,
            self.null and other.null,
            self.nan and other.nan,
            patterns,
        )

    def union(self, other: ValueSet) -> ValueSet | None:
        """Return the values that either set allows, or None if patterns prevent one set."""
        if self.patterns or other.patterns:
            if other.is_subset(self):
                return self
            return other if self.is_subset(other) else None
        return ValueSet(
            spans.union(self.numbers, other.numbers),
            spans.union(self.texts, other.texts),
            self.bools | other.bools,
            self.null or other.null,
            self.nan or other.nan,
        )

    def is_subset(self, other: ValueSet) -> bool:
        """Return whether the other set allows all of this one; false negatives with patterns."""
        return (
            spans.is_subset(self.numbers, other.numbers)
            and not self.bools & ~other.bools
            and self.null <= other.null
            and self.nan <= other.nan
            and self._texts_within(other)
        )

    def intersects(self, other: ValueSet) -> bool:
        """Return whether some value may be in both; false positives with patterns."""
        return bool(
            (self.null and other.null)
            or self.bools & other.bools
            or (self.nan and other.nan)
            or spans.intersects(self.numbers, other.numbers)
            or (spans.intersects(self.texts, other.texts) and self._texts_meet(other))
        )

    def _fits(self, text: str) -> bool:
        return all(pattern.matches(text) is wanted for pattern, wanted in self.patterns)

    def _texts_within(self, other: ValueSet) -> bool:
        """Return whether the other set allows all texts of this one."""
        if not spans.is_subset(self.texts, other.texts):
            if not self.patterns:
                return False
            outside = spans.intersection(self.texts, spans.complement(other.texts, ALL_TEXTS))
            strays = spans.points(outside)
            if strays is None or any(self._fits(stray) for stray in strays):
                return False
        if not other.patterns or self.patterns == other.patterns:
            return True
        values = spans.points(self.texts)
        if values is not None:
            return all(other._fits(value) for value in values)
        ours = _known_patterns(self)
        if len(ours) * len(other.patterns) > PATTERN_PAIRS_MAX:
            return set(other.patterns) <= set(ours)
        return all(_implied(ours, pattern, wanted) for pattern, wanted in other.patterns)

    def _texts_meet(self, other: ValueSet) -> bool:
        """Return whether some text may be in both sets, whose texts have some in common."""
        if not self.patterns and not other.patterns:
            return True
        common = self.intersection(other)
        if not common.texts:
            return False
        known = _known_patterns(common)
        if len(known) * len(known) > PATTERN_PAIRS_MAX:
            return True
        return not any(_implied(known, pattern, not wanted) for pattern, wanted in common.patterns)


def _known_patterns(one: ValueSet) -> tuple[tuple[Pattern, bool], ...]:
    """Return the patterns, and as another one the prefix that all texts of an interval share."""
    stem = spans.stem(one.texts) if len(one.texts) == 2 else ""
    return (*one.patterns, (Pattern((f"={stem}", MANY)), True)) if stem else one.patterns


def _implied(known: tuple[tuple[Pattern, bool], ...], pattern: Pattern, wanted: bool) -> bool:
    """Return whether a text that satisfies the known patterns must match (or not) another one."""
    if wanted:
        return any(one.implies(pattern) for one, positive in known if positive)
    return any(
        not one.meets(pattern) if positive else pattern.implies(one) for one, positive in known
    )


def _normal(
    number_spans: Spans,
    text_spans: Spans,
    bools: int,
    null: bool,
    nan: bool,
    patterns: tuple[tuple[Pattern, bool], ...],
) -> ValueSet:
    """Keep the invariants: apply patterns to single points, and drop them if there are no texts."""
    if patterns:
        values = spans.points(text_spans)
        if values is not None:
            text_spans = tuple(
                cut
                for value in values
                if all(pattern.matches(value) is wanted for pattern, wanted in patterns)
                for cut in spans.point(value)
            )
            patterns = ()
    return ValueSet(number_spans, text_spans, bools, null, nan, patterns)


NOTHING: Final = ValueSet()
MISSING: Final = ValueSet(null=True)
ALL_BOOLS: Final = ValueSet(bools=_FALSE | _TRUE)
TRUE_ONLY: Final = ValueSet(bools=_TRUE)
FALSE_ONLY: Final = ValueSet(bools=_FALSE)
ANY_NUMBER: Final = ValueSet(numbers=ALL_NUMBERS)
ANY_TEXT: Final = ValueSet(texts=ALL_TEXTS)
PRESENT: Final = ValueSet(ALL_NUMBERS, ALL_TEXTS, _FALSE | _TRUE, null=False, nan=True)
ANY: Final = ValueSet(ALL_NUMBERS, ALL_TEXTS, _FALSE | _TRUE, null=True, nan=True)


def numbers(number_spans: Spans) -> ValueSet:
    """Return a set of numbers."""
    return ValueSet(numbers=number_spans)


def texts(text_spans: Spans) -> ValueSet:
    """Return a set of texts."""
    return ValueSet(texts=text_spans)


def intersection_of(sets: Sequence[ValueSet]) -> ValueSet:
    """Return the values that all sets allow, with one sort."""
    return _normal(
        spans.intersection_of([one.numbers for one in sets]),
        spans.intersection_of([one.texts for one in sets]),
        reduce(and_, [one.bools for one in sets]),
        all(one.null for one in sets),
        all(one.nan for one in sets),
        tuple(sorted({pattern for one in sets for pattern in one.patterns})),
    )


def union_of(sets: Sequence[ValueSet]) -> list[ValueSet]:
    """Return few sets that together allow exactly what any of the given ones allows.

    Those without patterns become one, with one sort. The others are united only if one contains
    another. For single texts that a patterned set contains as well there is one rule, so that the
    result does not depend on the order of unions.
    """
    plain = [one for one in sets if not one.patterns]
    patterned = {one for one in sets if one.patterns}
    result = []
    if len(plain) == 1:
        result.append(plain[0])
    elif plain:
        result.append(
            ValueSet(
                spans.union_of([one.numbers for one in plain]),
                spans.union_of([one.texts for one in plain]),
                reduce(or_, [one.bools for one in plain]),
                any(one.null for one in plain),
                any(one.nan for one in plain),
            )
        )
    if patterned and result and result[0].texts:
        result = [_settled(result[0], patterned)]
        if result[0].is_empty:
            result.clear()
    for one in sorted(patterned, key=lambda one: (one.patterns, one.texts)):
        if not any(one.is_subset(kept) for kept in result):
            result = [kept for kept in result if not kept.is_subset(one)]
            result.append(one)
    return result


def _settled(plain: ValueSet, patterned: Collection[ValueSet]) -> ValueSet:
    """Give the texts of a plain set one form beside patterned sets that contain some of them too.

    A single text in a gap or at an end is added if a patterned set has it. An interval that a
    patterned set contains completely is removed.
    """
    texts = _not_held(plain.texts, patterned)
    added = [
        spans.point(value)
        for value in dict.fromkeys(cut[0] for cut in texts if cut != TEXT_MAX)
        if not spans.contains(texts, value)
        and any(one.contains(value) for one in patterned)
        and not value.endswith("\ud800")  # the end of a prefix, and no text by itself
    ]
    if added:
        texts = _not_held(spans.union_of([texts, *added]), patterned)
    return ValueSet(plain.numbers, texts, plain.bools, plain.null, plain.nan)


def _not_held(texts: Spans, patterned: Collection[ValueSet]) -> Spans:
    """Remove the intervals that one of the patterned sets contains completely."""
    left: list[Cut] = []
    for place in range(0, len(texts), 2):
        stretch = texts[place : place + 2]
        if not any(_holds(one, stretch) for one in patterned):
            left += stretch
    return tuple(left)


def _holds(patterned: ValueSet, stretch: Spans) -> bool:
    """Return whether a set contains an interval of texts; its last text may be checked alone."""
    (first, open_below), (final, last) = stretch
    if last and not open_below and first == final:
        return patterned.contains(first)
    if ValueSet(texts=stretch).is_subset(patterned):
        return True
    shorter = (stretch[0], (final, 0))
    return bool(last) and patterned.contains(final) and ValueSet(texts=shorter).is_subset(patterned)


def one_of(values: list[Value]) -> ValueSet:
    """Return the set of the given values, of any types.

    >>> one_of([2, 1.0, "x", True]).contains(1)
    True
    """
    number_points: set[Number] = set()
    text_points: set[str] = set()
    bools = 0
    for value in values:
        if isinstance(value, bool):
            bools |= _TRUE if value else _FALSE
        elif isinstance(value, str):
            text_points.add(value)
        else:
            number_points.add(value)
    return ValueSet(
        tuple(cut for value in sorted(number_points) for cut in spans.point(value)),
        tuple(cut for value in sorted(text_points) for cut in spans.point(value)),
        bools,
    )


def texts_like(pattern: Pattern, wanted: bool) -> ValueSet:
    """Return the texts that match a pattern, or all other texts if not ``wanted``."""
    exact: Spans | None = None
    if pattern.literal is not None:
        exact = spans.point(pattern.literal)
    elif pattern.is_prefix:
        exact = spans.prefix(pattern.prefix)
    if exact is not None:
        return ValueSet(texts=exact if wanted else spans.complement(exact, ALL_TEXTS))
    bounds = spans.prefix(pattern.prefix) if wanted else ALL_TEXTS
    return ValueSet(texts=bounds, patterns=((pattern, wanted),))
