"""Requested ticks: the curiosity streams of GD 2.1.1, 3.1 and 3.2.

Three classes, from the router to the subend:

- :class:`OutstandingNacks`: the ticks that a router has requested from its feeder, and when. Ticks
  that many receivers request are requested once. After the least repetition threshold they may be
  requested again, so that repeated nacks are passed on (GD 3.1; R37).
- :class:`RequestedTicks`: the ticks that one receiver has requested from a router and not received
  (R36, R37).
- :class:`Curiosity`: the gaps of a subend. Each is requested when it is old enough, and again when
  the reply is overdue (GD 3.2; R45). Only this class repeats requests by itself.

All three are bounded. Ticks that are dropped at a limit are requested again.
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
    """Cut ranges to a maximal length; return at most ``ranges_max``, since a gap may be years long.

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
    """The ticks of one pubend that a router has requested from its feeder, and when."""

    __slots__ = ("_memory_us", "_ranges", "_ranges_max", "_remembered_max", "_span")

    def __init__(self, parameters: Parameters) -> None:
        self._memory_us = microseconds(ms=parameters.nrt_min_ms)
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._ranges_max = parameters.nack_ranges_max
        self._remembered_max = parameters.curious_ranges_max
        self._ranges = StampedRanges()

    def __len__(self) -> int:
        """Return the number of outstanding ranges."""
        return len(self._ranges)

    def take_due(self, ranges: Iterable[TickRange], now: int) -> list[TickRange]:
        """Return the parts of these ranges to request now, cut to size, and note them.

        Ticks requested within the least repetition threshold are omitted, and so are those that do
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
        """Remove ticks that are known now; if the cache drops them, they can be requested."""
        self._ranges.remove(low, high)

    def clear(self) -> None:
        """Remove everything: the feeder has changed."""
        self._ranges.clear()

    def _fresh(self, low: Tick, high: Tick, now: int) -> Iterator[TickRange]:
        """Return the parts of a range that were not requested recently."""
        for part in self._ranges.within(low, high):
            if now - part.stamp >= self._memory_us:
                continue
            if low < part.low:
                yield TickRange(low, part.low - 1)
            low = part.high + 1
        if low <= high:
            yield TickRange(low, high)


class RequestedTicks:
    """The ticks that one receiver has requested and not received."""

    __slots__ = ("_ranges", "_ranges_max")

    def __init__(self, parameters: Parameters) -> None:
        self._ranges = StampedRanges()
        self._ranges_max = parameters.curious_ranges_max

    def __len__(self) -> int:
        """Return the number of requested ranges."""
        return len(self._ranges)

    def add(self, low: Tick, high: Tick, now: int) -> int:
        """Add a requested range; return how many old ones were dropped for it."""
        self._ranges.put(low, high, now)
        dropped = 0
        while len(self._ranges) > self._ranges_max:
            self._ranges.drop_oldest()
            dropped += 1
        return dropped

    def has_any(self, low: Tick, high: Tick) -> bool:
        """Return whether any tick between two is requested."""
        return bool(len(self._ranges)) and bool(self._ranges.within(low, high))

    def take(self, low: Tick, high: Tick) -> list[TickRange]:
        """Remove and return the requested ranges between two ticks, which are sent now."""
        if not len(self._ranges):
            return []
        wanted = [TickRange(part.low, part.high) for part in self._ranges.within(low, high)]
        if wanted:
            self._ranges.remove(low, high)
            while len(self._ranges) > self._ranges_max:
                self._ranges.drop_oldest()
        return wanted


class _Gap:
    """A missing range: when to request it, when it was last requested, and how often."""

    __slots__ = ("attempts", "due", "high", "low", "requested_at")

    def __init__(
        self, low: Tick, high: Tick, due: int, requested_at: int = 0, attempts: int = 0
    ) -> None:
        self.low = low
        self.high = high
        self.due = due
        self.requested_at = requested_at
        self.attempts = attempts

    def part(self, low: Tick, high: Tick) -> _Gap:
        """Return the part between two ticks, due at the same time."""
        return _Gap(
            max(low, self.low), min(high, self.high), self.due, self.requested_at, self.attempts
        )

    def split(self, tick: Tick) -> _Gap:
        """Shorten the gap to end below a tick; return the rest."""
        rest = self.part(tick, self.high)
        self.high = tick - 1
        return rest

    def grow(self, high: Tick) -> None:
        """Extend the gap up to a tick."""
        self.high = high

    def expedite(self, due: int) -> None:
        """Make the gap due at a time, unless it is due before."""
        self.due = min(self.due, due)

    def restart(self, now: int) -> None:
        """Make the gap due at once, as if it had not been requested."""
        self.due = now
        self.attempts = 0

    def note_request(self, now: int, repeat_us: int) -> None:
        """Note a request; the gap is due again after ``repeat_us``."""
        self.requested_at = now
        self.attempts += 1
        self.due = now + repeat_us


_low = attrgetter("low")
_high = attrgetter("high")


class Curiosity:
    """The gaps of a subend's stream, and when to request which.

    Only the lowest gaps are requested, since the doubt horizon waits for them: at most
    ``nack_window`` spans of ticks and ``nack_ranges_max`` ranges at a time. The owner passes in
    what is missing (:meth:`observe`) and what has arrived (:meth:`answered`), and sends what is
    :meth:`due` whenever :meth:`next_due` is reached.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._threshold_us = microseconds(ms=parameters.gct_ms)
        self._span = parameters.nack_span_ms * TICKS_PER_MS
        self._window = parameters.nack_window * self._span
        self._ranges_max = parameters.nack_ranges_max
        self.threshold = NackRepetitionThreshold(
            microseconds(ms=parameters.nrt_min_ms), microseconds(ms=parameters.nrt_max_ms)
        )
        self._gaps: list[_Gap] = []
        self._doubled = 0

    def __len__(self) -> int:
        """Return the number of gaps, as they are requested."""
        return len(self._gaps)

    def observe(self, missing: Iterable[TickRange], now: int) -> None:
        """Set the missing ranges, lowest first; gaps that are not among them are dropped.

        A new gap has the gap curiosity threshold to close by itself. Ticks added at the upper end
        of a gap are as old as the gap.
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
                    break  # the gap may overlap the next missing range
                index += 1
            if here <= high:
                self._note(gaps, here, high, now)
        self._gaps = gaps

    def _note(self, gaps: list[_Gap], low: Tick, high: Tick, now: int) -> None:
        """Add a gap, or extend the one below it if that was not requested yet."""
        last = gaps[-1] if gaps else None
        if last is not None and last.high + 1 == low and not last.attempts:
            last.grow(high)
        else:
            gaps.append(_Gap(low, high, now + self._threshold_us))

    def answered(self, low: Tick, high: Tick, now: int) -> None:
        """Remove the ticks between two: they are known now."""
        first = bisect_left(self._gaps, low, key=_high)
        last = bisect_left(self._gaps, high + 1, key=_low)
        if first >= last:
            return
        touched = self._gaps[first:last]
        for gap in touched:
            if gap.attempts == 1:  # requested once: it is clear which nack was answered
                self._learn(now - gap.requested_at)
                break
        kept = []
        if touched[0].low < low:
            kept.append(touched[0].part(touched[0].low, low - 1))
        if high < touched[-1].high:
            kept.append(touched[-1].part(high + 1, touched[-1].high))
        self._gaps[first:last] = kept

    def _learn(self, round_trip_us: int) -> None:
        """Add a round-trip sample; gaps requested under a longer threshold are due sooner now."""
        self.threshold.sample(round_trip_us)
        for gap in self._gaps:
            if gap.attempts:
                gap.expedite(gap.requested_at + self.threshold.us)

    def expedite(self, high: Tick, now: int) -> None:
        """Make all gaps up to a tick due at once: an acknowledgement is expected (R45, R57)."""
        for gap in self._gaps:
            if gap.low > high:
                break
            gap.expedite(now)

    def restart(self, now: int) -> None:
        """Make all gaps due at once: a new feeder has no earlier requests (R45)."""
        self.threshold.relax()
        for gap in self._gaps:
            gap.restart(now)

    def due(self, now: int) -> list[TickRange]:
        """Return the ranges to request now, lowest first, cut to size; note the requests."""
        requested: list[_Gap] = []
        remaining = self._window
        index = 0
        while index < min(len(self._gaps), self._ranges_max) and remaining > 0:
            gap = self._gaps[index]
            if gap.due <= now:
                most = min(self._span, remaining)
                if gap.high - gap.low >= most:
                    self._gaps.insert(index + 1, gap.split(gap.low + most))
                requested.append(gap)
            remaining -= gap.high - gap.low + 1
            index += 1
        self._count_repetitions(requested, now)
        for gap in requested:
            gap.note_request(now, self.threshold.us)
        return [TickRange(gap.low, gap.high) for gap in requested]

    def next_due(self) -> int | None:
        """Return when the next gap is due, or None if nothing is missing."""
        soonest: int | None = None
        remaining = self._window
        for gap in self._gaps[: self._ranges_max]:
            if remaining <= 0:
                break
            soonest = gap.due if soonest is None else min(soonest, gap.due)
            remaining -= gap.high - gap.low + 1
        return soonest

    def _count_repetitions(self, requested: list[_Gap], now: int) -> None:
        """Double the threshold if a range is repeated that was requested since the last doubling.

        Ranges requested before the last doubling are overdue by the old threshold, which is known.
        """
        if any(gap.attempts and gap.requested_at >= self._doubled for gap in requested):
            self.threshold.back_off()
            self._doubled = now
