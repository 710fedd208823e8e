"""Ticks, and sets of ticks as ranges.

A tick is a 64-bit number in a pubend's stream, in microseconds. It may be ahead of every clock.
Streams are stored as ranges, not as single ticks: a second of silence is one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from gapless.core.limits import SEQUENCE_MAX

__all__ = ["TICKS_PER_MS", "RangeSet", "Tick", "TickRange"]

Tick: TypeAlias = Annotated[int, msgspec.Meta(ge=-SEQUENCE_MAX, le=SEQUENCE_MAX)]
"""A tick of a stream. Decoding a message checks its range, which is that of the positions that clients
get and present."""

TICKS_PER_MS: Final = 1_000


class TickRange(NamedTuple):
    """The ticks from ``low`` to ``high``, both included."""

    low: Tick
    high: Tick

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]"


class RangeSet:
    """A set of ticks, held as ranges that neither overlap nor touch, lowest first.

    >>> wanted = RangeSet([(1, 4), (5, 6), (10, 12)])
    >>> wanted.remove(3, 10)
    >>> [*map(str, wanted)], [*map(str, wanted.gaps(0, 13))]
    (['[1, 2]', '[11, 12]'], ['[0, 0]', '[3, 10]', '[13, 13]'])
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[Tick, Tick]] = ()) -> None:
        self._lows: list[Tick] = []
        self._highs: list[Tick] = []
        for low, high in ranges:
            self.add(low, high)

    def __iter__(self) -> Iterator[TickRange]:
        return map(TickRange, self._lows, self._highs)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._lows)

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __contains__(self, tick: Tick) -> bool:
        index = bisect_right(self._lows, tick) - 1
        return index >= 0 and tick <= self._highs[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]  # a mutable set has no hash

    def __repr__(self) -> str:
        return f"RangeSet([{', '.join(map(str, self))}])"

    @property
    def span(self) -> int:
        """The number of ticks in the set."""
        return sum(self._highs) - sum(self._lows) + len(self._lows)

    def add(self, low: Tick, high: Tick) -> None:
        """Add the ticks from ``low`` to ``high``."""
        assert low <= high, f"[{low}, {high}] is not a range"
        first = bisect_left(self._highs, low - 1)  # the first range that overlaps or touches
        last = bisect_right(self._lows, high + 1)  # just after the last one
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, self._highs[last - 1])
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]

    def remove(self, low: Tick, high: Tick) -> None:
        """Remove the ticks from ``low`` to ``high``."""
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        if first >= last or low > high:
            return
        lows, highs = [], []
        if self._lows[first] < low:
            lows.append(self._lows[first])
            highs.append(low - 1)
        if self._highs[last - 1] > high:
            lows.append(high + 1)
            highs.append(self._highs[last - 1])
        self._lows[first:last] = lows
        self._highs[first:last] = highs

    def within(self, low: Tick, high: Tick) -> list[TickRange]:
        """Return the parts of the set between ``low`` and ``high``."""
        if low > high:
            return []
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        return [
            TickRange(max(low, self._lows[index]), min(high, self._highs[index]))
            for index in range(first, last)
        ]

    def gaps(self, low: Tick, high: Tick) -> list[TickRange]:
        """Return the ranges between ``low`` and ``high`` that are not in the set."""
        missing = []
        for part in self.within(low, high):
            if low < part.low:
                missing.append(TickRange(low, part.low - 1))
            low = part.high + 1
        if low <= high:
            missing.append(TickRange(low, high))
        return missing
