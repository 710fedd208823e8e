"""Who wants to know which ticks: the curiosity streams of GD 2.1.1, 3.1 and 3.2.

Three holders, from the router to the subend:

- :class:`OutstandingNacks`: what a router asked its feeder for, and when. The same ticks asked for by many
  receivers travel up once; after the least repetition threshold they count as fresh again, so
  that repeated nacks are not swallowed (GD 3.1; R37).
- :class:`RequestedTicks`: what one receiver asked a router for and was not told yet (R36, R37).
- :class:`Curiosity`: the gaps of a subend, each asked for once it is old enough and again when
  the answer is overdue (GD 3.2; R45). Only it repeats by itself.

All three are bounded. What is dropped at a limit is asked for again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter

from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import TICKS_PER_MS, Tick, TickRange
from gapless.stream.repetition import NackRepetitionThreshold
from gapless.stream.stamped import StampedRanges

__all__ = ["Curiosity", "OutstandingNacks", "RequestedTicks", "split_ranges"]


def split_ranges(ranges: Iterable[TickRange], span: int, ranges_max: int) -> list[TickRange]:
    """Cut ranges to a greatest length; the first so many, since a gap may be years long.

    >>> [*map(str, split_ranges([TickRange(1, 7), TickRange(9, 9)], 3, 10))]
    ['[1, 3]', '[4, 6]', '[7, 7]', '[9, 9]']
    """
    parts: list[TickRange] = []
    for low, high in ranges:
        while low <= high:
            if len(parts) == ranges_max:
                return parts
            part = TickRange(low, min(high, low + span - 1))
            parts.append(part)
            low = part.high + 1  # noqa: PLW2901  # the rest of the range
    return parts


class OutstandingNacks:
    """The ticks of one pubend that a router has asked its feeder for, and when."""

    __slots__ = ("_memory_us", "_ranges", "_ranges_max", "_remembered_max", "_span")

    def __init__(self, parameters: Parameters) -> None:
        self._memory_us = microseconds(ms=parameters.nrt_min_ms)
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._ranges_max = parameters.nack_ranges_max
        self._remembered_max = parameters.curious_ranges_max
        self._ranges = StampedRanges()

    def __len__(self) -> int:
        """Return how many ranges are remembered."""
        return len(self._ranges)

    def ask(self, ranges: Iterable[TickRange], now: int) -> list[TickRange]:
        """Return what of these ranges to ask for now, cut to size, and remember it.

        What was asked for within the least repetition threshold is left out; so is what does
        not fit into one nack.
        """
        fresh = [part for low, high in ranges for part in self._fresh(low, high, now)]
        parts = split_ranges(fresh, self._span, self._ranges_max)
        for low, high in parts:
            self._ranges.put(low, high, now)
        if len(self._ranges) > self._remembered_max:
            self._ranges.expire(now - self._memory_us + 1)
        while len(self._ranges) > self._remembered_max:
            self._ranges.drop_oldest()
        return parts

    def answered(self, low: Tick, high: Tick) -> None:
        """Forget what is known now; if it is forgotten, it may be asked for again at once."""
        self._ranges.remove(low, high)

    def clear(self) -> None:
        """Forget everything: the feeder that was asked is no longer the feeder."""
        self._ranges.clear()

    def _fresh(self, low: Tick, high: Tick, now: int) -> Iterator[TickRange]:
        """Return the parts of a range that were not asked for lately."""
        for part in self._ranges.within(low, high):
            if now - part.stamp >= self._memory_us:
                continue
            if low < part.low:
                yield TickRange(low, part.low - 1)
            low = part.high + 1
        if low <= high:
            yield TickRange(low, high)


class RequestedTicks:
    """The ticks that one receiver has asked for and not been told."""

    __slots__ = ("_ranges", "_ranges_max")

    def __init__(self, parameters: Parameters) -> None:
        self._ranges = StampedRanges()
        self._ranges_max = parameters.curious_ranges_max

    def __len__(self) -> int:
        """Return how many ranges are wanted."""
        return len(self._ranges)

    def add(self, low: Tick, high: Tick, now: int) -> int:
        """Note that a range is wanted; return how many old ones were dropped for it."""
        self._ranges.put(low, high, now)
        dropped = 0
        while len(self._ranges) > self._ranges_max:
            self._ranges.drop_oldest()
            dropped += 1
        return dropped

    def wants(self, low: Tick, high: Tick) -> bool:
        """Whether any tick between two is wanted."""
        return bool(len(self._ranges)) and bool(self._ranges.within(low, high))

    def take(self, low: Tick, high: Tick) -> list[TickRange]:
        """Return what is wanted between two ticks; it is wanted no longer, since it is told now."""
        if not len(self._ranges):
            return []
        wanted = [TickRange(part.low, part.high) for part in self._ranges.within(low, high)]
        if wanted:
            self._ranges.remove(low, high)
            while len(self._ranges) > self._ranges_max:
                self._ranges.drop_oldest()
        return wanted


class _Gap:
    """A range that is missing: when to ask for it, when it was asked for last, how often."""

    __slots__ = ("asked", "attempts", "due", "high", "low")

    def __init__(self, low: Tick, high: Tick, due: int, asked: int = 0, attempts: int = 0) -> None:
        self.low = low
        self.high = high
        self.due = due
        self.asked = asked
        self.attempts = attempts

    def part(self, low: Tick, high: Tick) -> _Gap:
        """Return what lies between two ticks, due when this is due."""
        return _Gap(max(low, self.low), min(high, self.high), self.due, self.asked, self.attempts)

    def split(self, tick: Tick) -> _Gap:
        """End below a tick; return the rest."""
        rest = self.part(tick, self.high)
        self.high = tick - 1
        return rest

    def grow(self, high: Tick) -> None:
        """Reach up to a tick."""
        self.high = high

    def hurry(self, due: int) -> None:
        """Be due at a time, unless it is due before."""
        self.due = min(self.due, due)

    def restart(self, now: int) -> None:
        """Be due at once, as if it had not been asked for."""
        self.due = now
        self.attempts = 0

    def ask(self, now: int, repeat_us: int) -> None:
        """Count as asked for; be due again after a while."""
        self.asked = now
        self.attempts += 1
        self.due = now + repeat_us


_low = attrgetter("low")
_high = attrgetter("high")


class Curiosity:
    """The gaps of a subend's stream, and when to ask for which.

    Only the lowest gaps are asked for, since the doubt horizon waits for them: so many spans of
    ticks, and so many ranges, at a time. The owner says what is missing (:meth:`observe`) and what
    came (:meth:`answered`), and sends what is :meth:`due` whenever :meth:`next_due` is reached.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._patience_us = microseconds(ms=parameters.gct_ms)
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._window = parameters.nack_window * self._span
        self._ranges_max = parameters.nack_ranges_max
        self.threshold = NackRepetitionThreshold(
            microseconds(ms=parameters.nrt_min_ms), microseconds(ms=parameters.nrt_max_ms)
        )
        self._gaps: list[_Gap] = []
        self._doubled = 0

    def __len__(self) -> int:
        """Return how many ranges are missing, as they are asked for."""
        return len(self._gaps)

    def observe(self, missing: Iterable[TickRange], now: int) -> None:
        """Learn what is missing, lowest first; what is not named is no longer wanted.

        A gap seen for the first time is given the gap curiosity threshold to close by itself; what
        it grows by at its upper end is as old as the gap.
        """
        gaps: list[_Gap] = []
        index = 0
        for low, high in missing:
            here = low
            while index < len(self._gaps) and self._gaps[index].low <= high:
                gap = self._gaps[index]
                if gap.high >= low:
                    if here < gap.low:
                        self._note(gaps, here, gap.low - 1, now)
                    inside = low <= gap.low and gap.high <= high
                    gaps.append(gap if inside else gap.part(low, high))
                    here = gap.high + 1
                if gap.high > high:
                    break  # it may reach into the next missing range
                index += 1
            if here <= high:
                self._note(gaps, here, high, now)
        self._gaps = gaps

    def _note(self, gaps: list[_Gap], low: Tick, high: Tick, now: int) -> None:
        """Add a gap, or let the one below it grow if that was not asked for yet."""
        last = gaps[-1] if gaps else None
        if last is not None and last.high + 1 == low and not last.attempts:
            last.grow(high)
        else:
            gaps.append(_Gap(low, high, now + self._patience_us))

    def answered(self, low: Tick, high: Tick, now: int) -> None:
        """Learn that the ticks between two are known now."""
        first = bisect_left(self._gaps, low, key=_high)
        last = bisect_left(self._gaps, high + 1, key=_low)
        if first >= last:
            return
        touched = self._gaps[first:last]
        for gap in touched:
            if gap.attempts == 1:  # asked for once: it is clear which nack was answered
                self._learn(now - gap.asked)
                break
        kept = []
        if touched[0].low < low:
            kept.append(touched[0].part(touched[0].low, low - 1))
        if high < touched[-1].high:
            kept.append(touched[-1].part(high + 1, touched[-1].high))
        self._gaps[first:last] = kept

    def _learn(self, round_trip_us: int) -> None:
        """Take a round trip in; what was asked for under a longer threshold is due sooner now."""
        self.threshold.sample(round_trip_us)
        for gap in self._gaps:
            if gap.attempts:
                gap.hurry(gap.asked + self.threshold.us)

    def expedite(self, high: Tick, now: int) -> None:
        """Let everything up to a tick be due at once: its acknowledgement is expected (R45, R57)."""
        for gap in self._gaps:
            if gap.low > high:
                break
            gap.hurry(now)

    def restart(self, now: int) -> None:
        """Let everything be due at once: a new feeder answers, and nobody else will (R45)."""
        self.threshold.relax()
        for gap in self._gaps:
            gap.restart(now)

    def due(self, now: int) -> list[TickRange]:
        """Return what to ask for now, lowest first, cut to size; it counts as asked for."""
        asked: list[_Gap] = []
        room = self._window
        index = 0
        while index < min(len(self._gaps), self._ranges_max) and room > 0:
            gap = self._gaps[index]
            if gap.due <= now:
                most = min(self._span, room)
                if gap.high - gap.low >= most:
                    self._gaps.insert(index + 1, gap.split(gap.low + most))
                asked.append(gap)
            room -= gap.high - gap.low + 1
            index += 1
        self._count_repetitions(asked, now)
        for gap in asked:
            gap.ask(now, self.threshold.us)
        return [TickRange(gap.low, gap.high) for gap in asked]

    def next_due(self) -> int | None:
        """Return when something is due next, or None if nothing is missing."""
        soonest: int | None = None
        room = self._window
        for gap in self._gaps[: self._ranges_max]:
            if room <= 0:
                break
            soonest = gap.due if soonest is None else min(soonest, gap.due)
            room -= gap.high - gap.low + 1
        return soonest

    def _count_repetitions(self, asked: list[_Gap], now: int) -> None:
        """Double the threshold if a range is asked for again that was asked under the present one.

        Ranges asked for before the last doubling are overdue by the old threshold, which is known.
        """
        if any(gap.attempts and gap.asked >= self._doubled for gap in asked):
            self.threshold.back_off()
            self._doubled = now
