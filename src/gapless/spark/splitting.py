"""Cuts a range of ticks into parts that hold about as much, without reading all of it.

Ticks are microseconds and events come in bursts, so equal times are not equal work. A *probe* reads the
log from a tick on, as far as one answer goes. Answers are of about the same size, so a probe measures how
dense the log is at one place. The range is halved where it seems heaviest, until the probes are used up,
and cut by what they have measured. The size of an answer is the unit of all weights here.

Wherever it is cut, the parts together are the range: a wrong estimate costs time and no rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from gapless.core.ticks import Tick, TickRange

__all__ = ["split"]

PROBES_MAX: Final = 32
"""Probes of one range. Each costs a broker a millisecond."""

PARTS_MAX: Final = 1_024
"""Parts of one range; more would cost Spark more than they bring."""


class _Stretch(msgspec.Struct):
    """Part of the range, with what a probe at its low end has measured."""

    low: Tick
    high: Tick
    reached: Tick
    """Up to here the log holds about one answer's worth."""

    @property
    def weight(self) -> float:
        """How many answers it holds, as far as its low end tells."""
        length = self.high - self.low + 1
        return max(1.0, length / (self.reached - self.low + 1))


def split(
    low: Tick, high: Tick, part_weight: float, probe: Callable[[Tick, Tick], Tick]
) -> list[TickRange]:
    """Return the range in parts of about so many answers each, lowest first.

    ``probe`` is asked how far an answer from one tick towards another goes.
    """
    stretches = _measured(low, high, max(1.0, part_weight), probe)
    total = sum(each.weight for each in stretches)
    target = max(part_weight, total / PARTS_MAX)
    count = max(1, round(total / target))
    return _cut(stretches, total / count)


def _measured(
    low: Tick, high: Tick, enough: float, probe: Callable[[Tick, Tick], Tick]
) -> list[_Stretch]:
    """Halve the range where it is heaviest; a stretch that is light enough is left alone."""

    def measure(begin: Tick, end: Tick) -> _Stretch:
        return _Stretch(begin, end, max(begin, min(end, probe(begin, end))))

    done: list[_Stretch] = []
    first = measure(low, high)
    heap = [(-first.weight, low, first)]
    left = PROBES_MAX - 1
    while heap and left >= 2:
        _, _, stretch = heapq.heappop(heap)
        rest = stretch.reached + 1
        if stretch.reached >= stretch.high or (stretch.weight <= enough / 4 and done):
            done.append(stretch)
            continue
        done.append(_Stretch(stretch.low, stretch.reached, stretch.reached))
        middle = (rest + stretch.high) // 2
        for start, end in ((rest, middle), (middle + 1, stretch.high)):
            if start <= end:
                found = measure(start, end)
                left -= 1
                heapq.heappush(heap, (-found.weight, start, found))
    done += [entry[2] for entry in heap]
    return sorted(done, key=lambda each: each.low)


def _cut(stretches: list[_Stretch], target: float) -> list[TickRange]:
    """Cut where the weights add up to the target, evenly within a stretch."""
    parts: list[TickRange] = []
    start = stretches[0].low
    remaining = target
    for each in stretches:
        weight, index = each.weight, each.low
        density = weight / (each.high - each.low + 1)
        while weight > remaining * 1.001 and density > 0:
            end = min(each.high - 1, index + max(1, int(remaining / density)) - 1)
            if end < index:
                break
            parts.append(TickRange(start, end))
            weight -= (end - index + 1) * density
            start = index = end + 1
            remaining = target
        remaining -= weight
    parts.append(TickRange(start, stretches[-1].high))
    return parts
