"""Splits a range of ticks into parts of about equal size, without reading all of it.

Ticks are microseconds and events come in bursts, so equal times are not equal work. A *probe* reads
the log from a tick on, as far as one reply goes. Replies have about the same size, so a probe
measures the density of the log at one tick. The range is halved where it seems heaviest, until the
probes are used up, and split by the measured weights. The size of a reply is the unit of all
weights here.

The parts together are always the whole range: a wrong estimate costs time and no rows.
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
"""Parts of one range; more would cost Spark more than they save."""


class _Stretch(msgspec.Struct):
    """Part of the range, with the result of a probe at its low end."""

    low: Tick
    high: Tick
    reached: Tick
    """The tick up to which the log contains about one reply."""

    @property
    def weight(self) -> float:
        """The number of replies it contains, estimated from its low end."""
        length = self.high - self.low + 1
        return max(1.0, length / (self.reached - self.low + 1))


def split(
    low: Tick, high: Tick, part_weight: float, probe: Callable[[Tick, Tick], Tick]
) -> list[TickRange]:
    """Return the range in parts of about so many replies each, lowest first.

    ``probe`` returns how far a reply from one tick towards another goes.
    """
    stretches = _measured(low, high, max(1.0, part_weight), probe)
    total = sum(each.weight for each in stretches)
    target = max(part_weight, total / PARTS_MAX)
    count = max(1, round(total / target))
    return _cut(stretches, total / count)


def _measured(
    low: Tick, high: Tick, enough: float, probe: Callable[[Tick, Tick], Tick]
) -> list[_Stretch]:
    """Halve the range where it is heaviest; a stretch that is light enough is kept."""

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
    """Split where the weights add up to the target, evenly within a stretch."""
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
