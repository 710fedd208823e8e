"""Widening: merging pairs of conjunctions, those first that widen least.

A merged conjunction keeps the subjects that both have, each with a set that contains both sets, and
drops the others. Its cost is how much wider it is estimated to be than its parts together
(:mod:`gapless.content.scales`).

Not all pairs are examined. Conjunctions are members of several *chains*, each in another order: by
their subjects, from the first and from the last one, and by the values of their sets in one
subject, grouped by an equality if they have one. Only neighbours in a chain are candidates, and a
merged conjunction takes the position of its wider part. So a merge examines some dozen pairs, for
any number of conjunctions.
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
from gapless.content.scales import Ranks, Scale
from gapless.content.valueset import ValueSet

__all__ = [
    "ChainEntry",
    "Merger",
    "Patterns",
    "Subject",
    "common_patterns",
    "entries",
    "rebuilt",
    "uncovered",
    "with_patterns",
]

Subject: TypeAlias = str | Term
ChainEntry: TypeAlias = tuple[Subject, ValueSet]
Patterns: TypeAlias = tuple[tuple[Pattern, bool], ...]

_PATTERN_WIDTH: Final = 0.25
"""The assumed share of texts that match a pattern."""
_ABSORB_FACTOR: Final = 0.5
"""Covered conjunctions are searched again when this share of the conjunctions is left."""


def entries(conjunction: Conjunction) -> tuple[ChainEntry, ...]:
    """Return the value sets of a conjunction by attribute and derived term."""
    return (*conjunction.constraints, *conjunction.residuals)


def rebuilt(parts: Iterable[ChainEntry]) -> Conjunction:
    """Return the conjunction of these entries, which are satisfiable."""
    parts = tuple(parts)
    found = Conjunction.of(
        [(subject, allowed) for subject, allowed in parts if isinstance(subject, str)],
        [(subject, allowed) for subject, allowed in parts if not isinstance(subject, str)],
    )
    assert found is not None, "a set that holds one that is not empty is not empty"
    return found


def uncovered(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Return the conjunctions that no other covers, in the given order."""
    forest = CoveringForest()
    for conjunction in conjunctions:
        forest.insert(conjunction)
    return [conjunction for conjunction in forest if forest.is_root(conjunction)]


def common_patterns(left: Patterns, right: Patterns) -> Patterns:
    """Return the patterns that both have."""
    return tuple(pattern for pattern in left if pattern in right)


def with_patterns(one: ValueSet, patterns: Patterns) -> ValueSet:
    """Return the texts of a set narrowed by patterns, or the set if there are none."""
    return ValueSet(texts=one.texts, patterns=patterns) if patterns else one


class _ConjunctionPart(NamedTuple):
    """The constraint of a conjunction on one subject."""

    ranks: Ranks
    patterns: Patterns
    width: float


class _MergeItem(NamedTuple):
    """A conjunction in the merge; subjects are identified by their number."""

    number: int
    conjunction: Conjunction
    parts: dict[int, _ConjunctionPart]
    width: float


class Chain:
    """Items in one order. Each item has the chain's subjects."""

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
        """Remove an item; return the two that have become neighbours, or None."""
        before, after = self._previous.pop(number, None), self._next.pop(number, None)
        if before is not None:
            self._relink(self._next, before, after)
        if after is not None:
            self._relink(self._previous, after, before)
        return None if before is None or after is None else (before, after)

    def replace(self, old: int, new: int) -> None:
        """Put an item at the position of another one."""
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


class Merger:
    """Merges neighbours until the budget is met."""

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        by_subject: dict[Subject, list[ValueSet]] = {}
        for conjunction in conjunctions:
            for subject, allowed in entries(conjunction):
                by_subject.setdefault(subject, []).append(allowed)
        self._subjects = sorted(by_subject, key=lambda one: (not isinstance(one, str), str(one)))
        self._numbers = {subject: number for number, subject in enumerate(self._subjects)}
        self._scales = [
            Scale(by_subject[one], len(by_subject[one]) / len(conjunctions))
            for one in self._subjects
        ]
        self._made = 0
        self._items = {item.number: item for item in map(self._item, conjunctions)}
        self._chains: dict[int, list[Chain]] = {number: [] for number in self._items}
        self._pairs: list[tuple[float, int, int]] = []
        self._looked: set[tuple[int, int]] = set()
        self._link()

    def run(self, budget: int) -> list[Conjunction]:
        """Merge the cheapest pairs until at most ``budget`` conjunctions are left."""
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

    def _item(self, conjunction: Conjunction) -> _MergeItem:
        parts = {}
        for subject, allowed in entries(conjunction):
            number = self._numbers[subject]
            ranks = self._scales[number].encode(allowed)
            parts[number] = self._part(number, ranks, allowed.patterns)
        return self._numbered(conjunction, parts)

    def _numbered(self, conjunction: Conjunction, parts: dict[int, _ConjunctionPart]) -> _MergeItem:
        self._made += 1
        return _MergeItem(
            self._made, conjunction, parts, math.prod(part.width for part in parts.values())
        )

    def _part(self, subject: int, ranks: Ranks, patterns: Patterns) -> _ConjunctionPart:
        width = self._scales[subject].width(ranks)
        return _ConjunctionPart(ranks, patterns, width * _PATTERN_WIDTH ** len(patterns))

    def _joined(self, left: _MergeItem, right: _MergeItem) -> dict[int, _ConjunctionPart]:
        """Return the parts of the merged conjunction."""
        few, many = sorted((left.parts, right.parts), key=len)
        result = {}
        for subject, ours in few.items():
            theirs = many.get(subject)
            if theirs is None:
                continue
            ranks = self._scales[subject].hull(ours.ranks, theirs.ranks)
            patterns = common_patterns(ours.patterns, theirs.patterns)
            result[subject] = self._part(subject, ranks, patterns)
        return result

    def _joint_width(self, left: _MergeItem, right: _MergeItem) -> float:
        """Return the width of the merged conjunction."""
        few, many = left.parts, right.parts
        if len(few) > len(many):
            few, many = many, few
        width = 1.0
        for subject, ours in few.items():
            theirs = many.get(subject)
            if theirs is None:
                continue
            width *= self._scales[subject].joint_width(ours.ranks, theirs.ranks)
            if ours.patterns:
                width *= _PATTERN_WIDTH ** len(common_patterns(ours.patterns, theirs.patterns))
        return width

    def _merge(self, left: _MergeItem, right: _MergeItem) -> Conjunction:
        """Replace two items by one that covers both."""
        parts = self._joined(left, right)
        conjunction = rebuilt(
            (
                self._subjects[subject],
                with_patterns(self._scales[subject].decode(part.ranks), part.patterns),
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
        """Remove conjunctions that have become covered."""
        kept = set(uncovered(item.conjunction for item in self._items.values()))
        for item in tuple(self._items.values()):
            if item.conjunction in kept:
                kept.remove(item.conjunction)  # an equal second one is removed
            else:
                del self._items[item.number]
                self._unlink(item)

    # --- chains --------------------------------------------------------------------------------

    def _link(self) -> None:
        """Put all items into their chains and examine all neighbours."""
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
        chain = Chain(subjects, numbers)
        for number in numbers:
            self._chains[number].append(chain)
        for left, right in pairwise(numbers):
            self._look(left, right)

    def _orders(self, item: _MergeItem) -> Iterator[tuple[int, ...]]:
        """Yield the chains of subjects for an item: each subject, after an equality if any."""
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

    def _unlink(self, item: _MergeItem) -> None:
        for chain in self._chains.pop(item.number):
            if (met := chain.remove(item.number)) is not None:
                self._look(*met)

    def _succeed(self, old: _MergeItem, new: _MergeItem) -> None:
        """Give a merged item the positions of its part in the chains to which it belongs."""
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
        """Add the cost of merging two neighbours to the queue."""
        pair = (left, right) if left < right else (right, left)
        if pair in self._looked or left not in self._items or right not in self._items:
            return
        self._looked.add(pair)
        ours, theirs = self._items[left], self._items[right]
        widening = self._joint_width(ours, theirs) - ours.width - theirs.width
        heappush(self._pairs, (widening, *pair))


def _by_shape(item: _MergeItem, turn: int) -> list[tuple[int, int]]:
    """Return a sort key by which items with the same first (or last) subjects are adjacent."""
    ordered = sorted(item.parts.items(), reverse=turn < 0)
    return [(turn * subject, part.ranks[0] + part.ranks[-1]) for subject, part in ordered]
