"""Ranges of ticks, each with a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from gapless.core.ticks import Tick, TickRange

__all__ = ["StampedRange", "StampedRanges"]


class StampedRange(NamedTuple):
    """The ticks from ``low`` to ``high``, and a time."""

    low: Tick
    high: Tick
    stamp: int


class StampedRanges:
    """Ranges without overlap, lowest first, each with a time; neighbours of one time are joined."""

    __slots__ = ("_highs", "_lows", "_stamps")

    def __init__(self) -> None:
        self._lows: list[Tick] = []
        self._highs: list[Tick] = []
        self._stamps: list[int] = []

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._lows)

    def __iter__(self) -> Iterator[StampedRange]:
        return map(StampedRange, self._lows, self._highs, self._stamps)

    def put(self, low: Tick, high: Tick, stamp: int) -> None:
        """Set the time of all ticks of a range."""
        assert low <= high, f"[{low}, {high}] is no range"
        index = self._clear(low, high)
        if index and self._highs[index - 1] == low - 1 and self._stamps[index - 1] == stamp:
            index -= 1
            low = self._lows[index]
            self._set(index, index + 1, [])
        if index < len(self) and self._lows[index] == high + 1 and self._stamps[index] == stamp:
            high = self._highs[index]
            self._set(index, index + 1, [])
        self._set(index, index, [StampedRange(low, high, stamp)])

    def remove(self, low: Tick, high: Tick) -> None:
        """Remove the ticks of a range."""
        if self._lows and low <= high:
            self._clear(low, high)

    def within(self, low: Tick, high: Tick) -> list[StampedRange]:
        """Return the parts between two ticks."""
        return [
            StampedRange(
                max(low, self._lows[index]), min(high, self._highs[index]), self._stamps[index]
            )
            for index in range(bisect_left(self._highs, low), bisect_right(self._lows, high))
        ]

    def expire(self, before: int) -> None:
        """Remove the ranges that are older than a time."""
        kept = [part for part in self if part.stamp >= before]
        if len(kept) < len(self):
            self._set(0, len(self), kept)

    def drop_oldest(self) -> TickRange:
        """Remove and return the oldest range, the highest of several.

        The lowest ticks are needed first, so of ranges of the same time the lowest is dropped last.
        """
        oldest = min(self._stamps)
        index = max(index for index, stamp in enumerate(self._stamps) if stamp == oldest)
        dropped = TickRange(self._lows[index], self._highs[index])
        self._set(index, index + 1, [])
        return dropped

    def clear(self) -> None:
        """Remove everything."""
        self._set(0, len(self), [])

    def _clear(self, low: Tick, high: Tick) -> int:
        """Remove a range and return the index at which it would be inserted."""
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        if first >= last:
            return first
        kept = []
        if self._lows[first] < low:
            kept.append(StampedRange(self._lows[first], low - 1, self._stamps[first]))
        index = first + len(kept)
        if high < self._highs[last - 1]:
            kept.append(StampedRange(high + 1, self._highs[last - 1], self._stamps[last - 1]))
        self._set(first, last, kept)
        return index

    def _set(self, first: int, last: int, parts: list[StampedRange]) -> None:
        self._lows[first:last] = [part.low for part in parts]
        self._highs[first:last] = [part.high for part in parts]
        self._stamps[first:last] = [part.stamp for part in parts]
