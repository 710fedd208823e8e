"""Scales: value sets of one subject as spans of ranks, with an estimate of their width.

Merging compares many sets of the same subject. A scale is made once from all of them: every cut
that occurs gets a rank, in order, numbers first, then texts, then FALSE, TRUE, NaN and missing. A
set is then a flat tuple of the ranks at which its intervals start and end, in turn, and a union is
a sweep over small ints.

The width of a set depends on the events, which are unknown here. The filters are used as an
estimate. The share of filters that constrain a subject is taken as the share of events that have
it. The ends of intervals are taken as a sample of the values: each interval adds a mark at its
start and one at its end (a single point adds one), and the width of a set is its share of the
marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from gapless.content.spans import Cut
from gapless.content.valueset import ValueSet
from gapless.core.limits import ACCESS_VALUES_MAX

__all__ = ["INTERVALS_MAX", "Ranks", "Scale", "united"]

Ranks: TypeAlias = tuple[int, ...]
"""The starts and ends of the intervals of a set, in turn."""

INTERVALS_MAX: Final = ACCESS_VALUES_MAX
"""Intervals of a merged set. The index can still enter a set of so many points."""

_FLAGS: Final = 4
_GAP_WEIGHT: Final = 0.02
"""The weight of marks in the gaps of a set. Gaps are closed when there are too many of them, so of
two sets with as many marks the one with fewer between its ends is better."""
_PRESENT_MOST: Final = 0.98
"""The assumed share of events that have a subject which all filters constrain."""
_CHARACTERS: Final = 0x110000


class Scale:
    """The cuts of all sets of one subject in order, and their marks."""

    __slots__ = ("_before", "_flags", "_line", "_missing", "_present", "_rank", "_texts")

    def __init__(self, sets: Sequence[ValueSet], share: float = 1.0) -> None:
        numbers = sorted({cut for one in sets for cut in one.numbers})
        texts = sorted({cut for one in sets for cut in one.texts})
        self._line: list[Cut] = numbers + texts
        self._texts = len(numbers)
        self._flags = len(self._line)
        # a text never equals a number, so one table serves both
        self._rank = {cut: rank for rank, cut in enumerate(self._line)}
        self._missing = self._flags + 2 * (_FLAGS - 1)
        marks = Counter(mark for one in sets for mark in self._marks(one))
        marks[self._missing] = 0  # the share gives the events without the subject
        marked = [marks[rank] for rank in range(self._missing + 2)]
        self._before = list(accumulate(marked, initial=0))
        self._present = _PRESENT_MOST * share

    def encode(self, one: ValueSet) -> Ranks:
        """Return a set as ranks, without its patterns."""
        rank = self._rank
        result = [rank[cut] for cut in one.numbers]
        result += [rank[cut] for cut in one.texts]
        for at, held in enumerate((one.bools & 1, one.bools & 2, one.nan, one.null)):
            if held:
                result += (self._flags + 2 * at, self._flags + 2 * at + 1)
        return tuple(result)

    def decode(self, ranks: Ranks) -> ValueSet:
        """Return ranks as a set."""
        numbers = tuple(self._line[rank] for rank in ranks if rank < self._texts)
        texts = tuple(self._line[rank] for rank in ranks if self._texts <= rank < self._flags)
        flags = {(rank - self._flags) // 2 for rank in ranks if rank >= self._flags}
        return ValueSet(numbers, texts, (0 in flags) | (1 in flags) << 1, 3 in flags, 2 in flags)

    def width(self, ranks: Ranks) -> float:
        """Return the share of events in the set, plus a small part for its gaps."""
        before = self._before
        within = before[ranks[-1]] - before[ranks[0]]
        gaps = 0
        for at in range(1, len(ranks) - 1, 2):
            gaps += before[ranks[at + 1]] - before[ranks[at]]
        width = self._valued(within, gaps)
        return width + 1 - self._present if ranks[-2] == self._missing else width

    def joint_width(self, left: Ranks, right: Ranks) -> float:
        """Return the width of the hull of two sets."""
        if len(left) > 2 or len(right) > 2 or max(left[0], right[0]) == self._missing:
            return self.width(self.hull(left, right))
        before = self._before
        (low, high), (other_low, other_high) = (left, right) if left <= right else (right, left)
        within = before[max(high, other_high)] - before[low]
        return self._valued(within, before[other_low] - before[high] if high < other_low else 0)

    def _valued(self, within: int, gaps: int) -> float:
        """Return the share of events with a value among the marks, less those in gaps."""
        marks = self._before[-1]
        return self._present * (within - gaps * (1 - _GAP_WEIGHT)) / marks if marks else 0.0

    def is_point(self, ranks: Ranks) -> bool:
        """Return whether the set has one value."""
        return len(ranks) == 2 and self._is_point(*ranks)

    def hull(self, left: Ranks, right: Ranks) -> Ranks:
        """Return a set that contains both, of at most ``INTERVALS_MAX`` intervals."""
        joined = united(left, right)
        return joined if len(joined) <= 2 * INTERVALS_MAX else self._coarse(joined)

    def _coarse(self, ranks: Ranks) -> Ranks:
        """Close the gaps with the fewest marks, the shortest first, until few enough are left."""
        gaps = [
            (self._before[low] - self._before[high], self._distance(high, low), at)
            for at, (high, low) in enumerate(zip(ranks[1::2], ranks[2::2], strict=False))
            if self._family(high) == self._family(low) < 2
        ]
        too_many = len(ranks) // 2 - INTERVALS_MAX
        closed = {at for _, _, at in sorted(gaps)[:too_many]}
        return tuple(rank for place, rank in enumerate(ranks) if (place - 1) // 2 not in closed)

    def _marks(self, one: ValueSet) -> Iterable[int]:
        ranks = self.encode(one)
        for at in range(0, len(ranks), 2):
            yield ranks[at]
            if not self._is_point(ranks[at], ranks[at + 1]):
                yield ranks[at + 1]

    def _is_point(self, begin: int, end: int) -> bool:
        return begin >= self._flags or self._line[begin][0] == self._line[end][0]

    def _family(self, rank: int) -> int:
        """Return 0 for numbers, 1 for texts, 2 for values without order."""
        return (rank >= self._texts) + (rank >= self._flags)

    def _distance(self, high: int, low: int) -> float:
        """Return the distance from the end of an interval to the start of the next."""
        begin, end = self._line[high][0], self._line[low][0]
        return _text_distance(begin, end) if high >= self._texts else float(end) - float(begin)


def united(left: Ranks, right: Ranks) -> Ranks:
    """Return the ranks of the union.

    >>> united((1, 3, 8, 9), (2, 4, 5, 6))
    (1, 4, 5, 6, 8, 9)
    """
    if left == right:
        return left
    if len(left) == 2 and len(right) == 2:
        if left[1] < right[0]:
            return left + right
        if right[1] < left[0]:
            return right + left
        return min(left[0], right[0]), max(left[1], right[1])
    marks = [(rank, at & 1) for ranks in (left, right) for at, rank in enumerate(ranks)]
    marks.sort()  # at one rank starts come before ends, so touching intervals join
    result: list[int] = []
    depth = 0
    for rank, ends in marks:
        if ends:
            depth -= 1
            if not depth:
                result.append(rank)
        else:
            if not depth:
                result.append(rank)
            depth += 1
    return tuple(result)


def _text_distance(low: str, high: str) -> float:
    """Return a number that grows with the distance of two texts, read as digits of a number."""
    distance, digit = 0.0, 1.0
    for at in range(max(len(low), len(high))):
        digit /= _CHARACTERS
        if digit == 0.0:
            break
        first = ord(low[at]) if at < len(low) else 0
        second = ord(high[at]) if at < len(high) else 0
        distance += (second - first) * digit
    return distance
