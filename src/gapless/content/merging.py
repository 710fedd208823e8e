"""Merging: few wide conjunctions instead of many narrow ones (VT 3.5).

What a broker tells a neighbour may be any set of conjunctions that covers what is wanted: what is
wider only brings events that are filtered out later. So the number of conjunctions has a budget,
and merging buys it for as few superfluous events as it can:

1. what another conjunction covers is left out;
2. conjunctions that differ in one subject become one whose set is the union: nothing is widened;
3. then pairs are merged, the cheapest first. A merged conjunction keeps the subjects that both
   have, each with a set that holds both sets, and loses the others. Its price is how much wider
   it is estimated to be than its parts together (:mod:`gapless.content.scales`).

Not all pairs are looked at. Conjunctions stand in several *chains*, each in another order: by
their subjects, from the front and from behind, and by where their sets lie in one subject, those
with an equality among their like. Only neighbours in a chain are candidates, and a merged
conjunction takes the place of its wider part. So a merge costs some dozen looks, whatever the
number of conjunctions.

The result depends on the set of conjunctions given, not on their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.expression import Term
from gapless.content.like import Pattern
from gapless.content.matching.forest import CoveringForest
from gapless.content.scales import INTERVALS_MAX, Ranks, Scale
from gapless.content.text import conjunction_text
from gapless.content.valueset import ValueSet
from gapless.core.errors import UsageError

__all__ = ["hull", "merge"]

Subject: TypeAlias = str | Term
_Patterns: TypeAlias = tuple[tuple[Pattern, bool], ...]

_PATTERN_WIDTH: Final = 0.25
"""The share of texts that a pattern is taken to let through."""
_ABSORB_FACTOR: Final = 0.5
"""What wide ones cover is looked for again when so much of the conjunctions is left."""


def merge(conjunctions: Iterable[Conjunction], budget: int) -> tuple[Conjunction, ...]:
    """Return at most ``budget`` conjunctions that cover the given ones, in the order of their text.

    >>> from gapless import Filter
    >>> near = [Filter(f"a = {n} AND b > {n}").conjunctions[0] for n in (1, 2, 90)]
    >>> [str(one) for one in merge(near, 2)]
    ['a = 90 AND b > 90', 'a IN (1, 2) AND b > 1']

    Within the budget only those that another one covers are left out.
    """
    if budget < 1:
        raise UsageError(f"a budget of {budget} conjunctions cannot be kept; give at least 1")
    kept = _uncovered(sorted(set(conjunctions), key=conjunction_text))
    if len(kept) <= budget:
        return tuple(kept)
    kept = _uncovered(_united(kept))
    if len(kept) > budget:
        kept = _uncovered(_Merger(kept).run(budget))
    assert len(kept) <= budget, "merging did not keep its budget"
    return tuple(sorted(kept, key=conjunction_text))


def hull(left: ValueSet, right: ValueSet) -> ValueSet:
    """Return a set that holds both: their union, but of at most ``INTERVALS_MAX`` intervals.

    Where the union has more the nearest intervals are joined; patterns are kept if both have them.
    """
    for narrow, wide in ((left, right), (right, left)):
        if narrow.is_subset(wide) and _interval_count(wide) <= INTERVALS_MAX:
            return wide
    scale = Scale((left, right))
    return _with_patterns(
        scale.decode(scale.hull(scale.encode(left), scale.encode(right))),
        _common(left.patterns, right.patterns),
    )


def _common(left: _Patterns, right: _Patterns) -> _Patterns:
    return tuple(pattern for pattern in left if pattern in right)


def _with_patterns(one: ValueSet, patterns: _Patterns) -> ValueSet:
    return ValueSet(texts=one.texts, patterns=patterns) if patterns else one


def _uncovered(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Return those that no other covers, in the order they came."""
    forest = CoveringForest()
    for conjunction in conjunctions:
        forest.insert(conjunction)
    return [conjunction for conjunction in forest if forest.is_root(conjunction)]


# --- unions that widen nothing ------------------------------------------------------------------

_Entry: TypeAlias = tuple[Subject, ValueSet]


def _entries(conjunction: Conjunction) -> tuple[_Entry, ...]:
    return (*conjunction.constraints, *conjunction.residuals)


def _rebuilt(entries: Iterable[_Entry]) -> Conjunction:
    entries = tuple(entries)
    found = Conjunction.of(
        [(subject, allowed) for subject, allowed in entries if isinstance(subject, str)],
        [(subject, allowed) for subject, allowed in entries if not isinstance(subject, str)],
    )
    assert found is not None, "a set that holds one that is not empty is not empty"
    return found


def _united(conjunctions: Iterable[Conjunction]) -> Iterator[Conjunction]:
    """Unite those that differ in one subject only, subject by subject."""
    shapes: dict[tuple[Subject, ...], list[tuple[_Entry, ...]]] = {}
    for one in conjunctions:
        entries = _entries(one)
        shapes.setdefault(tuple(subject for subject, _ in entries), []).append(entries)
    for subjects, lines in shapes.items():
        merged = lines
        for place in range(len(subjects)):
            alike: dict[tuple[_Entry, ...], list[ValueSet]] = {}
            for line in merged:
                alike.setdefault(line[:place] + line[place + 1 :], []).append(line[place][1])
            merged = [
                (*rest[:place], (subjects[place], allowed), *rest[place:])
                for rest, sets in alike.items()
                for allowed in _exact_unions(sets)
            ]
        yield from map(_rebuilt, merged)


def _exact_unions(sets: Sequence[ValueSet]) -> Iterator[ValueSet]:
    """Return unions of neighbours, each of a bounded number of intervals."""
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


# --- widening -----------------------------------------------------------------------------------


class _Part(NamedTuple):
    """What a conjunction asks of one subject."""

    ranks: Ranks
    patterns: _Patterns
    width: float


class _Item(NamedTuple):
    """A conjunction at work; subjects are known by their number."""

    number: int
    conjunction: Conjunction
    parts: dict[int, _Part]
    width: float


class _Chain:
    """Items in one order. Those who stand in it ask for the chain's subjects."""

    __slots__ = ("_next", "_previous", "subjects")

    def __init__(self, subjects: tuple[int, ...], numbers: Sequence[int]) -> None:
        self.subjects = subjects
        self._next: dict[int, int] = dict(pairwise(numbers))
        self._previous: dict[int, int] = dict(zip(numbers[1:], numbers, strict=False))

    def neighbours(self, number: int) -> Iterator[int]:
        for side in (self._previous, self._next):
            if (other := side.get(number)) is not None:
                yield other

    def remove(self, number: int) -> tuple[int, int] | None:
        """Take an item out; return the two that have become neighbours, if any."""
        before, after = self._previous.pop(number, None), self._next.pop(number, None)
        if before is not None:
            self._relink(self._next, before, after)
        if after is not None:
            self._relink(self._previous, after, before)
        return None if before is None or after is None else (before, after)

    def replace(self, old: int, new: int) -> None:
        """Put an item where another one was."""
        before, after = self._previous.pop(old, None), self._next.pop(old, None)
        if before is not None:
            self._next[before] = new
            self._previous[new] = before
        if after is not None:
            self._previous[after] = new
            self._next[new] = after

    @staticmethod
    def _relink(side: dict[int, int], at: int, other: int | None) -> None:
        if other is None:
            del side[at]
        else:
            side[at] = other


class _Merger:
    """Merges neighbours until few are left."""

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        by_subject: dict[Subject, list[ValueSet]] = {}
        for conjunction in conjunctions:
            for subject, allowed in _entries(conjunction):
                by_subject.setdefault(subject, []).append(allowed)
        self._subjects = sorted(by_subject, key=lambda one: (not isinstance(one, str), str(one)))
        self._numbers = {subject: number for number, subject in enumerate(self._subjects)}
        self._scales = [Scale(by_subject[subject]) for subject in self._subjects]
        self._shares = [len(by_subject[one]) / len(conjunctions) for one in self._subjects]
        self._made = 0
        self._items = {item.number: item for item in map(self._item, conjunctions)}
        self._chains: dict[int, list[_Chain]] = {number: [] for number in self._items}
        self._pairs: list[tuple[float, int, int]] = []
        self._looked: set[tuple[int, int]] = set()
        self._link()

    def run(self, budget: int) -> list[Conjunction]:
        """Merge the cheapest pairs until the budget is kept."""
        absorb_at = len(self._items) * _ABSORB_FACTOR
        while len(self._items) > budget:
            _, left, right = heappop(self._pairs)
            if left not in self._items or right not in self._items:
                continue
            if self._merge(self._items[left], self._items[right]) == EVERYTHING:
                return [EVERYTHING]
            if len(self._items) < absorb_at:
                self._absorb()
                absorb_at = len(self._items) * _ABSORB_FACTOR
        return [item.conjunction for item in self._items.values()]

    # --- items ---------------------------------------------------------------------------------

    def _item(self, conjunction: Conjunction) -> _Item:
        parts = {}
        for subject, allowed in _entries(conjunction):
            number = self._numbers[subject]
            ranks = self._scales[number].encode(allowed)
            parts[number] = self._part(number, ranks, allowed.patterns)
        return self._numbered(conjunction, parts)

    def _numbered(self, conjunction: Conjunction, parts: dict[int, _Part]) -> _Item:
        self._made += 1
        return _Item(
            self._made, conjunction, parts, math.prod(part.width for part in parts.values())
        )

    def _part(self, subject: int, ranks: Ranks, patterns: _Patterns) -> _Part:
        """Estimate a set: a subject that few ask for is one that few events have."""
        width = self._scales[subject].width(ranks) * self._shares[subject]
        return _Part(ranks, patterns, width * _PATTERN_WIDTH ** len(patterns))

    def _joined(self, left: _Item, right: _Item) -> dict[int, _Part]:
        """Return the parts of the merged conjunction."""
        few, many = sorted((left.parts, right.parts), key=len)
        result = {}
        for subject, ours in few.items():
            theirs = many.get(subject)
            if theirs is None:
                continue
            ranks = self._scales[subject].hull(ours.ranks, theirs.ranks)
            patterns = _common(ours.patterns, theirs.patterns)
            result[subject] = self._part(subject, ranks, patterns)
        return result

    def _joint_width(self, left: _Item, right: _Item) -> float:
        """Return the width that the merged conjunction would have."""
        few, many = left.parts, right.parts
        if len(few) > len(many):
            few, many = many, few
        width = 1.0
        for subject, ours in few.items():
            theirs = many.get(subject)
            if theirs is None:
                continue
            width *= self._shares[subject]
            width *= self._scales[subject].joint_width(ours.ranks, theirs.ranks)
            if ours.patterns:
                width *= _PATTERN_WIDTH ** len(_common(ours.patterns, theirs.patterns))
        return width

    def _merge(self, left: _Item, right: _Item) -> Conjunction:
        """Replace two items by one that covers both."""
        parts = self._joined(left, right)
        conjunction = _rebuilt(
            (
                self._subjects[subject],
                _with_patterns(self._scales[subject].decode(part.ranks), part.patterns),
            )
            for subject, part in sorted(parts.items())
        )
        assert conjunction.covers(left.conjunction), "a merged conjunction covers its parts"
        assert conjunction.covers(right.conjunction), "a merged conjunction covers its parts"
        item = self._numbered(conjunction, parts)
        wide, narrow = (left, right) if left.width >= right.width else (right, left)
        del self._items[wide.number], self._items[narrow.number]
        self._items[item.number] = item
        self._unlink(narrow)
        self._succeed(wide, item)
        return conjunction

    def _absorb(self) -> None:
        """Remove what has become covered."""
        kept = set(_uncovered(item.conjunction for item in self._items.values()))
        for item in tuple(self._items.values()):
            if item.conjunction in kept:
                kept.remove(item.conjunction)  # a second one that is equal goes
            else:
                del self._items[item.number]
                self._unlink(item)

    # --- chains --------------------------------------------------------------------------------

    def _link(self) -> None:
        """Put all items into their chains and look at all neighbours."""
        orders: dict[tuple[int, ...], list[tuple[list[int], int]]] = {}
        every = list(self._items.values())
        for turn in (1, -1):
            keyed = [(_by_shape(item, turn), item.number) for item in every]
            self._chain((), [number for _, number in sorted(keyed)])
        for item in every:
            for subjects in self._orders(item):
                key = [item.parts[one].ranks[0] + item.parts[one].ranks[-1] for one in subjects]
                orders.setdefault(subjects, []).append((key, item.number))
        for subjects in sorted(orders):
            self._chain(subjects, [number for _, number in sorted(orders[subjects])])

    def _chain(self, subjects: tuple[int, ...], numbers: Sequence[int]) -> None:
        chain = _Chain(subjects, numbers)
        for number in numbers:
            self._chains[number].append(chain)
        for left, right in pairwise(numbers):
            self._look(left, right)

    def _orders(self, item: _Item) -> Iterator[tuple[int, ...]]:
        """Return the chains of subjects for an item: each subject, after an equality if any."""
        anchors = [
            (part.width, subject)
            for subject, part in item.parts.items()
            if self._scales[subject].is_point(part.ranks)
        ]
        if not anchors:
            yield from ((subject,) for subject in item.parts)
            return
        _, anchor = min(anchors)
        others = [subject for subject in item.parts if subject != anchor]
        yield from ((anchor, other) for other in others)
        if not others:
            yield (anchor,)

    def _unlink(self, item: _Item) -> None:
        for chain in self._chains.pop(item.number):
            if (met := chain.remove(item.number)) is not None:
                self._look(*met)

    def _succeed(self, old: _Item, new: _Item) -> None:
        """Give a merged item the places of one of its parts, where it still belongs."""
        self._chains[new.number] = kept = []
        for chain in self._chains.pop(old.number):
            if all(subject in new.parts for subject in chain.subjects):
                chain.replace(old.number, new.number)
                kept.append(chain)
                for other in chain.neighbours(new.number):
                    self._look(other, new.number)
            elif (met := chain.remove(old.number)) is not None:
                self._look(*met)

    def _look(self, left: int, right: int) -> None:
        """Note what it would cost to merge two neighbours."""
        pair = (left, right) if left < right else (right, left)
        if pair in self._looked or left not in self._items or right not in self._items:
            return
        self._looked.add(pair)
        ours, theirs = self._items[left], self._items[right]
        widening = self._joint_width(ours, theirs) - ours.width - theirs.width
        heappush(self._pairs, (widening, *pair))


def _by_shape(item: _Item, turn: int) -> list[tuple[int, int]]:
    """Return a key that puts items with the same first (or last) subjects side by side."""
    ordered = sorted(item.parts.items(), reverse=turn < 0)
    return [(turn * subject, part.ranks[0] + part.ranks[-1]) for subject, part in ordered]
