"""Ranges with times, compared with a dictionary of ticks."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from gapless.core.ticks import TickRange
from gapless.stream.stamped import StampedRange, StampedRanges
from tests.cases import scaled


def flat(ranges: StampedRanges) -> dict[int, int]:
    return {tick: part.stamp for part in ranges for tick in range(part.low, part.high + 1)}


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_with_random_operations_stamped_ranges_equal_a_dictionary(seed: int) -> None:
    chance = Random(seed)
    ranges = StampedRanges()
    model: dict[int, int] = {}
    for _ in range(500):
        low = chance.randrange(20)
        high = low + chance.randrange(8)
        stamp = chance.randrange(4)
        match chance.randrange(8):
            case 0:
                ranges.expire(stamp)
                model = {tick: old for tick, old in model.items() if old >= stamp}
            case 1 if model:
                oldest = min(model.values())
                dropped = ranges.drop_oldest()
                assert {model.pop(tick) for tick in range(dropped.low, dropped.high + 1)} == {
                    oldest
                }
            case 2 | 3:
                ranges.remove(low, high)
                for tick in range(low, high + 1):
                    model.pop(tick, None)
            case _:
                ranges.put(low, high, stamp)
                model.update(dict.fromkeys(range(low, high + 1), stamp))
        assert flat(ranges) == model
        parts = list(ranges)
        assert len(parts) == len(ranges)
        for left, right in itertools.pairwise(parts):
            assert left.high < right.low
            assert left.high + 1 < right.low or left.stamp != right.stamp
        assert [
            (tick, part.stamp)
            for part in ranges.within(low, high)
            for tick in range(part.low, part.high + 1)
        ] == [(tick, model[tick]) for tick in range(low, high + 1) if tick in model]


def test_adjacent_ranges_with_equal_times_are_joined() -> None:
    ranges = StampedRanges()
    for low, high in [(1, 2), (5, 6), (3, 4)]:
        ranges.put(low, high, 7)
    assert list(ranges) == [StampedRange(1, 6, 7)]


def test_the_highest_of_the_oldest_is_dropped_first() -> None:
    # of ticks requested at once the lowest are needed first
    ranges = StampedRanges()
    for low, stamp in [(1, 5), (3, 2), (5, 2)]:
        ranges.put(low, low, stamp)
    assert ranges.drop_oldest() == TickRange(5, 5)
    ranges.clear()
    assert list(ranges) == []


def test_an_empty_range_removes_nothing() -> None:
    ranges = StampedRanges()
    ranges.put(1, 9, 7)
    ranges.remove(6, 5)
    assert list(ranges) == [StampedRange(1, 9, 7)]


def test_a_range_that_ends_before_its_start_is_refused() -> None:
    with pytest.raises(AssertionError, match="no range"):
        StampedRanges().put(2, 1, 0)
