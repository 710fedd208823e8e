"""Ranges are divided into parts that cover the range and have about the same size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gapless.spark.lookahead import shares
from gapless.spark.network import Extent
from gapless.spark.planning import after
from gapless.spark.splitting import split

EVENTS_A_PROBE = 100


def probe_of(ticks: list[int]) -> Callable[[int, int], int]:
    """Return a probe of a log with events at these ticks; one reply covers a limited number."""

    def probe(low: int, high: int) -> int:
        last = bisect_left(ticks, low) + EVENTS_A_PROBE - 1
        return min(high, ticks[last]) if last < len(ticks) else high

    return probe


def counts(ticks: list[int], parts: list[tuple[int, int]]) -> list[int]:
    return [bisect_left(ticks, high + 1) - bisect_left(ticks, low) for low, high in parts]


@given(
    st.lists(st.integers(1, 100_000), max_size=2_000).map(sorted),
    st.integers(1, 50_000),
    st.integers(0, 60_000),
    st.floats(0.001, 20),
)
def test_the_parts_cover_the_range(ticks: list[int], low: int, length: int, size: float) -> None:
    parts = split(low, low + length, size, probe_of(ticks))
    assert parts[0].low == low
    assert parts[-1].high == low + length
    for one, other in pairwise(parts):
        assert one.low <= one.high
        assert other.low == one.high + 1


def test_an_even_log_is_divided_evenly() -> None:
    ticks = list(range(1_000, 1_000_000, 10))
    parts = split(1, 1_000_000, 100, probe_of(ticks))
    found = counts(ticks, list(parts))
    assert 8 <= len(found) <= 12
    assert max(found) < 2 * len(ticks) / len(found)


def test_a_burst_at_the_end_of_a_long_silence_is_divided() -> None:
    ticks = list(range(9_990_000, 10_000_000))
    found = counts(ticks, list(split(1, 10_000_000, 25, probe_of(ticks))))
    assert sum(each > 0 for each in found) >= 3
    assert max(found) <= 0.6 * len(ticks)


def test_a_small_log_is_one_part() -> None:
    assert len(split(1, 10**12, 16, probe_of([5, 6, 7]))) == 1


def test_shares_use_up_the_limit() -> None:
    assert shares({"a": 0, "b": 5}, 3) == {"a": 0, "b": 3}
    assert shares({"a": 9, "b": 9}, 5) == {"a": 3, "b": 2}
    assert shares({}, 5) == {}


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 50), max_size=6), st.integers(1, 60))
def test_shares_add_up_to_the_limit(waiting: dict[str, int], most: int) -> None:
    taken = shares(waiting, most)
    assert sum(taken.values()) == min(most, sum(waiting.values()))
    assert all(0 <= taken[name] <= waiting[name] for name in waiting)


def test_a_pubend_that_a_position_does_not_name_starts_at_its_earliest() -> None:
    extents = {"a": Extent(10, 100), "b": Extent(20, 200)}
    assert after({"a": 50}, extents) == {"a": 50, "b": 20}
    assert after("latest", extents) == {"a": 100, "b": 200}
    assert after("earliest", extents) == {"a": 10, "b": 20}
