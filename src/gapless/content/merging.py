"""Merging: few wide conjunctions instead of many narrow ones (VT 3.5).

A broker may send a neighbour any set of conjunctions that covers its subscriptions: a wider set
only brings events that are filtered out later. So the number of conjunctions has a budget, and
merging keeps to it with as few superfluous events as possible:

1. conjunctions that another one covers are omitted;
2. conjunctions that differ in one subject become one with the union of the sets, which is exact;
3. then pairs are merged, those first that widen least (:mod:`gapless.content.widening`).

The result depends on the set of conjunctions given, not on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gapless.content.conjunction import Conjunction
from gapless.content.scales import INTERVALS_MAX, Scale
from gapless.content.text import conjunction_text
from gapless.content.valueset import ValueSet
from gapless.content.widening import (
    ChainEntry,
    Merger,
    Subject,
    common_patterns,
    entries,
    rebuilt,
    uncovered,
    with_patterns,
)
from gapless.core.errors import UsageError

__all__ = ["hull", "merge"]


def merge(conjunctions: Iterable[Conjunction], budget: int) -> tuple[Conjunction, ...]:
    """Return at most ``budget`` conjunctions that cover the given ones, sorted by text.

    >>> from gapless import Filter
    >>> wanted = "a BETWEEN 1 AND 5 AND b > 7", "a BETWEEN 4 AND 6 AND b > 8", "a = 9 AND b > 9"
    >>> merged = merge([Filter(text).conjunctions[0] for text in wanted], 2)
    >>> [str(one) for one in merged]
    ['a = 9 AND b > 9', 'a BETWEEN 1 AND 6 AND b > 7']

    If the given ones are within the budget, only covered ones are omitted.
    """
    if budget < 1:
        raise UsageError(f"a budget of {budget} conjunctions is too small: give at least 1")
    kept = uncovered(sorted(set(conjunctions), key=conjunction_text))
    if len(kept) <= budget:
        return tuple(kept)
    united = list(_united(kept))
    if len(united) < len(kept):
        kept = uncovered(united)
    if len(kept) > budget:
        kept = uncovered(Merger(kept).run(budget))
    assert len(kept) <= budget, "merging did not keep its budget"
    return tuple(sorted(kept, key=conjunction_text))


def hull(left: ValueSet, right: ValueSet) -> ValueSet:
    """Return a set that contains both: their union, but with at most ``INTERVALS_MAX`` intervals.

    If the union has more, the nearest intervals are joined. Patterns are kept if both have them.
    """
    for narrow, wide in ((left, right), (right, left)):
        if narrow.is_subset(wide) and _interval_count(wide) <= INTERVALS_MAX:
            return wide
    scale = Scale((left, right))
    return with_patterns(
        scale.decode(scale.hull(scale.encode(left), scale.encode(right))),
        common_patterns(left.patterns, right.patterns),
    )


# --- exact unions -------------------------------------------------------------------------------


def _united(conjunctions: Iterable[Conjunction]) -> Iterator[Conjunction]:
    """Unite conjunctions that differ in one subject only."""
    shapes: dict[tuple[Subject, ...], list[Conjunction]] = {}
    for one in conjunctions:
        shapes.setdefault(tuple(subject for subject, _ in entries(one)), []).append(one)
    for alike in shapes.values():
        if len(alike) == 1:
            yield from alike
        else:
            yield from map(rebuilt, _united_lines([entries(one) for one in alike]))


def _united_lines(lines: list[tuple[ChainEntry, ...]]) -> list[tuple[ChainEntry, ...]]:
    """Unite entries of the same subjects, subject by subject."""
    for place, (subject, _) in enumerate(lines[0]):
        by_rest: dict[tuple[ChainEntry, ...], list[ValueSet]] = {}
        for line in lines:
            by_rest.setdefault(line[:place] + line[place + 1 :], []).append(line[place][1])
        lines = [
            (*rest[:place], (subject, allowed), *rest[place:])
            for rest, sets in by_rest.items()
            for allowed in _exact_unions(sets)
        ]
    return lines


def _exact_unions(sets: Sequence[ValueSet]) -> Iterator[ValueSet]:
    """Yield unions of neighbours, each with a bounded number of intervals."""
    ordered = sorted(
        sets, key=lambda one: (one.numbers, one.texts, one.bools, one.null, one.nan, one.patterns)
    )
    held = ordered[0]
    for one in ordered[1:]:
        joined = held.union(one)
        if joined is None or _interval_count(joined) > INTERVALS_MAX:
            yield held
            held = one
        else:
            held = joined
    yield held


def _interval_count(one: ValueSet) -> int:
    flags = (one.bools & 1) + (one.bools >> 1) + one.null + one.nan
    return (len(one.numbers) + len(one.texts)) // 2 + flags
