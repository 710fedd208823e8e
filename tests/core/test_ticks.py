"""Sets of ticks, compared with Python's sets."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from gapless.core.ticks import RangeSet, TickRange
from tests.cases import scaled


def flat(ranges: RangeSet) -> set[int]:
    return {tick for part in ranges for tick in range(part.low, part.high + 1)}


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_with_random_changes_a_range_set_equals_a_set(seed: int) -> None:
    chance = Random(seed)
    ranges, model = RangeSet(), set[int]()
    for _ in range(500):
        low = chance.randrange(25)
        high = low + chance.randrange(6)
        ticks = set(range(low, high + 1))
        if chance.random() < 0.5:
            ranges.remove(low, high)
            model -= ticks
        else:
            ranges.add(low, high)
            model |= ticks
        check(ranges, model)
        assert flat(RangeSet(ranges.within(low, high))) == model & ticks
        assert flat(RangeSet(ranges.gaps(low, high))) == ticks - model


def check(ranges: RangeSet, model: set[int]) -> None:
    """Check that the ranges are ordered, not adjacent, and have the ticks of the model."""
    assert flat(ranges) == model
    assert all(tick in model or tick not in ranges for tick in range(-1, 32))
    assert all(tick in ranges for tick in sorted(model))
    assert ranges.span == len(model)
    assert bool(ranges) == bool(model)
    parts = list(ranges)
    assert len(parts) == len(ranges)
    assert all(left.high + 1 < right.low for left, right in itertools.pairwise(parts))


def test_adjacent_ranges_are_joined() -> None:
    assert list(RangeSet([(5, 6), (1, 2), (3, 4)])) == [TickRange(1, 6)]


def test_sets_with_equal_ticks_are_equal() -> None:
    assert RangeSet([(1, 2), (3, 4)]) == RangeSet([(1, 4)])
    assert RangeSet([(1, 2)]) != RangeSet([(1, 3)])
    assert RangeSet() != "no set"


def test_a_range_set_is_readable_and_has_no_hash() -> None:
    ranges = RangeSet([(1, 2), (4, 4)])
    assert repr(ranges) == "RangeSet([[1, 2], [4, 4]])"
    with pytest.raises(TypeError, match="unhashable"):
        hash(ranges)


def test_a_range_that_ends_before_its_start_is_refused() -> None:
    with pytest.raises(AssertionError, match="is not a range"):
        RangeSet().add(2, 1)
