"""Outstanding nacks of a router, requested ticks of a receiver, and the curiosity of a subend."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest

from gapless.core.parameters import DEFAULTS, microseconds
from gapless.core.ticks import RangeSet, TickRange
from gapless.stream.curiosity import Curiosity, OutstandingNacks, RequestedTicks, split_ranges
from tests.cases import scaled

SMALL = msgspec.structs.replace(DEFAULTS, nack_ranges_max=4, curious_ranges_max=3)
SPAN = DEFAULTS.nack_span_ms * 1_000
GCT = microseconds(ms=DEFAULTS.gct_ms)
NRT_MIN = microseconds(ms=DEFAULTS.nrt_min_ms)
FIRST_NRT = 4 * NRT_MIN


def spans(*ranges: tuple[int, int]) -> list[TickRange]:
    return [TickRange(low, high) for low, high in ranges]


# --- splitting ------------------------------------------------------------------------------------


def test_long_ranges_are_split_by_the_span_and_short_ones_are_not() -> None:
    assert split_ranges(spans((1, 10), (12, 13)), 4, 9) == spans((1, 4), (5, 8), (9, 10), (12, 13))


def test_a_gap_of_years_is_split_into_no_more_ranges_than_one_nack() -> None:
    assert len(split_ranges(spans((1, 10**18)), SPAN, 64)) == 64


# --- outstanding nacks of a router (R37) ----------------------------------------------------------


def test_ticks_nacked_by_a_second_receiver_are_not_forwarded_again() -> None:
    outstanding = OutstandingNacks(DEFAULTS)
    assert outstanding.take_due(spans((25, 33)), now=0) == spans((25, 33))
    assert outstanding.take_due(spans((25, 33)), now=NRT_MIN - 1) == []
    assert outstanding.take_due(spans((20, 40)), now=NRT_MIN - 1) == spans((20, 24), (34, 40))


def test_after_the_least_repetition_threshold_a_nack_is_forwarded_again() -> None:
    outstanding = OutstandingNacks(DEFAULTS)
    outstanding.take_due(spans((25, 33)), now=0)
    assert outstanding.take_due(spans((25, 33)), now=NRT_MIN) == spans((25, 33))
    assert outstanding.take_due(spans((25, 33)), now=NRT_MIN + 1) == []


def test_ticks_that_were_answered_and_forgotten_may_be_nacked_at_once() -> None:
    outstanding = OutstandingNacks(DEFAULTS)
    outstanding.answered(1, 9)
    outstanding.take_due(spans((25, 33)), now=0)
    outstanding.answered(28, 29)
    assert outstanding.take_due(spans((25, 33)), now=1) == spans((28, 29))


def test_all_outstanding_ticks_are_nacked_at_a_new_feeder() -> None:
    outstanding = OutstandingNacks(DEFAULTS)
    outstanding.take_due(spans((25, 33)), now=0)
    outstanding.clear()
    assert outstanding.take_due(spans((25, 33)), now=1) == spans((25, 33))


def test_ranges_that_do_not_fit_into_one_nack_do_not_become_outstanding() -> None:
    outstanding = OutstandingNacks(SMALL)
    assert len(outstanding.take_due(spans((0, 6 * SPAN - 1)), now=0)) == 4
    assert outstanding.take_due(spans((0, 6 * SPAN - 1)), now=1) == spans(
        (4 * SPAN, 5 * SPAN - 1), (5 * SPAN, 6 * SPAN - 1)
    )


def test_outstanding_nacks_are_bounded_and_expired_ones_are_forgotten_first() -> None:
    outstanding = OutstandingNacks(SMALL)
    outstanding.take_due(spans((0, 0)), now=0)
    outstanding.take_due(spans((2, 2), (4, 4)), now=NRT_MIN)
    outstanding.take_due(spans((6, 6)), now=NRT_MIN + 1)
    assert len(outstanding) == 3
    assert outstanding.take_due(spans((2, 6)), now=NRT_MIN + 1) == spans((3, 3), (5, 5))
    outstanding.take_due(spans((10, 10), (12, 12), (14, 14)), now=NRT_MIN + 2)
    assert len(outstanding) == 3


# --- requested ticks of a receiver (R36, R37) -----------------------------------------------------


def test_requested_ticks_are_returned_once() -> None:
    requested = RequestedTicks(DEFAULTS)
    assert requested.take(1, 100) == []
    assert not requested.has_any(1, 100)
    requested.add(10, 20, now=0)
    requested.add(30, 40, now=0)
    assert requested.has_any(20, 29)
    assert not requested.has_any(21, 29)
    assert requested.take(21, 29) == []
    assert requested.take(15, 34) == spans((15, 20), (30, 34))
    assert requested.take(15, 34) == []
    assert requested.take(1, 100) == spans((10, 14), (35, 40))
    assert len(requested) == 0


def test_above_the_limit_the_oldest_request_is_dropped() -> None:
    requested = RequestedTicks(SMALL)
    dropped = [requested.add(low, low, now=low) for low in (7, 5, 9, 1)]
    assert dropped == [0, 0, 0, 1]
    assert requested.take(0, 20) == spans((5, 5), (7, 7), (9, 9))


def test_a_repeated_request_counts_as_new() -> None:
    requested = RequestedTicks(SMALL)
    for now, low in enumerate((5, 7, 9, 5, 1)):
        requested.add(low, low, now)
    assert requested.take(0, 20) == spans((1, 1), (5, 5), (9, 9))


# --- curiosity of a subend (R45) ------------------------------------------------------------------


def test_a_gap_is_nacked_only_after_the_gap_curiosity_threshold() -> None:
    curiosity = Curiosity(DEFAULTS)
    assert curiosity.next_due() is None
    curiosity.observe(spans((25, 33)), now=100)
    assert curiosity.next_due() == 100 + GCT
    assert curiosity.due(100 + GCT - 1) == []
    assert curiosity.due(100 + GCT) == spans((25, 33))
    assert curiosity.due(100 + GCT) == []


def test_a_gap_that_closes_by_itself_is_never_nacked() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((25, 33)), now=0)
    curiosity.answered(20, 33, now=5)
    assert len(curiosity) == 0
    assert curiosity.due(GCT) == []
    assert curiosity.threshold.us == FIRST_NRT


def test_an_unanswered_gap_is_nacked_again_and_the_threshold_doubles() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((25, 33)), now=0)
    times, now = [], 0
    for _ in range(9):
        now = curiosity.next_due() or 0
        assert curiosity.due(now) == spans((25, 33))
        times.append(now)
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert waits[:4] == [FIRST_NRT, 2 * FIRST_NRT, 4 * FIRST_NRT, 8 * FIRST_NRT]
    assert waits[-1] == microseconds(ms=DEFAULTS.nrt_max_ms)


def test_ranges_that_are_overdue_one_after_the_other_double_the_threshold_once() -> None:
    curiosity = Curiosity(DEFAULTS)
    for now, gap in [(0, spans((1, 1))), (10, spans((1, 1), (3, 3))), (20, spans((1, 1), (3, 3)))]:
        curiosity.observe(gap, now)
        curiosity.due(now + GCT)
    assert curiosity.due(GCT + FIRST_NRT) == spans((1, 1))
    assert curiosity.due(GCT + FIRST_NRT + 10) == spans((3, 3))
    assert curiosity.threshold.us == 2 * FIRST_NRT


def test_the_round_trip_is_measured_from_ranges_nacked_once() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 9)), now=0)
    curiosity.due(GCT)
    curiosity.answered(1, 4, now=GCT + 100_000)
    assert curiosity.threshold.us == 300_000


def test_a_range_nacked_twice_is_not_measured_and_the_doubling_stays() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 9)), now=0)
    curiosity.due(GCT)
    curiosity.due(GCT + FIRST_NRT)
    curiosity.answered(1, 9, now=GCT + FIRST_NRT + 1)
    assert curiosity.threshold.us == 2 * FIRST_NRT
    curiosity.observe(spans((20, 20)), now=10**7)
    curiosity.due(10**7 + GCT)
    curiosity.answered(20, 20, now=10**7 + GCT + 100_000)
    assert curiosity.threshold.us == 300_000


def test_an_answer_that_ends_the_doubling_brings_the_next_repetition_forward() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 2)), now=0)
    now = 0
    for _ in range(6):
        now = curiosity.next_due() or 0
        curiosity.due(now)
    curiosity.observe(spans((1, 2), (5, 6)), now)
    curiosity.due(now + GCT)
    curiosity.answered(5, 6, now + GCT + 100_000)
    assert curiosity.next_due() == now + 300_000


def test_a_partial_answer_leaves_the_rest_outstanding() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 9)), now=0)
    curiosity.due(GCT)
    curiosity.answered(4, 6, now=GCT + 100_000)
    assert len(curiosity) == 2
    assert curiosity.due(GCT + FIRST_NRT) == spans((1, 3), (7, 9))


def test_a_short_round_trip_brings_the_repetition_of_the_rest_forward() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 9)), now=0)
    curiosity.due(GCT)
    curiosity.answered(4, 6, now=GCT + 10_000)
    assert curiosity.next_due() == GCT + NRT_MIN


def test_the_lowest_ticks_are_nacked_first_and_at_most_a_window_of_spans() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((0, 20 * SPAN - 1)), now=0)
    first = curiosity.due(GCT)
    assert first == [TickRange(n * SPAN, (n + 1) * SPAN - 1) for n in range(8)]
    assert curiosity.next_due() == GCT + FIRST_NRT
    curiosity.answered(0, 2 * SPAN - 1, now=GCT + 1)
    assert curiosity.next_due() == GCT
    assert [part.low // SPAN for part in curiosity.due(GCT + 1)] == [8, 9]


def test_many_small_gaps_share_the_window_up_to_the_ranges_of_one_nack() -> None:
    curiosity = Curiosity(SMALL)
    curiosity.observe(spans(*((low, low) for low in range(0, 20, 2))), now=0)
    assert curiosity.due(GCT) == spans((0, 0), (2, 2), (4, 4), (6, 6))
    assert curiosity.next_due() == GCT + FIRST_NRT


def test_the_nack_window_is_filled_to_the_tick() -> None:
    curiosity = Curiosity(msgspec.structs.replace(DEFAULTS, nack_window=1))
    curiosity.observe(spans((0, 9), (20, 3 * SPAN)), now=0)
    assert curiosity.due(GCT) == spans((0, 9), (20, SPAN + 9))
    assert curiosity.due(GCT) == []


def test_a_lower_gap_that_appears_later_does_not_wait_for_higher_ones() -> None:
    curiosity = Curiosity(DEFAULTS)
    high = (10 * SPAN, 18 * SPAN - 1)
    curiosity.observe(spans(high), now=0)
    assert len(curiosity.due(GCT)) == 8
    curiosity.observe(spans((5, 6), high), now=GCT)
    assert curiosity.due(2 * GCT) == spans((5, 6))


def test_an_expected_acknowledgement_makes_gaps_up_to_its_tick_due_at_once() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 2), (5, 6), (9, 9)), now=0)
    curiosity.expedite(6, now=1)
    assert curiosity.due(1) == spans((1, 2), (5, 6))
    curiosity.expedite(100, now=2)
    assert curiosity.due(2) == spans((1, 2), (5, 6), (9, 9))


def test_gaps_are_nacked_at_a_new_feeder_at_once_and_without_the_delay_of_the_old_one() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 2)), now=0)
    curiosity.due(GCT)
    curiosity.due(GCT + FIRST_NRT)
    curiosity.restart(now=10**6)
    assert curiosity.due(10**6) == spans((1, 2))
    assert curiosity.next_due() == 10**6 + FIRST_NRT
    curiosity.answered(1, 2, now=10**6 + 100_000)
    assert curiosity.threshold.us == 300_000


def test_ticks_that_are_no_longer_missing_are_no_longer_outstanding() -> None:
    curiosity = Curiosity(DEFAULTS)
    curiosity.observe(spans((1, 9), (20, 29)), now=0)
    curiosity.due(GCT)
    curiosity.observe(spans((3, 4), (6, 6), (25, 40)), now=GCT + 1)
    assert curiosity.threshold.us == FIRST_NRT
    assert curiosity.due(GCT + FIRST_NRT) == spans((3, 4), (6, 6), (25, 29), (30, 40))
    curiosity.observe([], now=10**9)
    assert curiosity.next_due() is None


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_with_random_gaps_exactly_the_missing_ticks_are_nacked(
    seed: int,
) -> None:
    chance = Random(seed)
    curiosity = Curiosity(DEFAULTS)
    missing = RangeSet()
    seen: dict[int, int] = {}
    now = 0
    for _ in range(400):
        now += chance.choice((0, 1, GCT // 2, GCT, FIRST_NRT))
        low = chance.randrange(60)
        high = low + chance.randrange(6)
        if chance.random() < 0.4:
            missing.add(low, high)
        else:
            missing.remove(low, high)
            curiosity.answered(low, high, now)
        curiosity.observe(list(missing), now)
        ticks = {tick for part in missing for tick in range(part.low, part.high + 1)}
        seen = {tick: seen.get(tick, now) for tick in sorted(ticks)}
        outstanding = [
            tick for part in curiosity.due(now) for tick in range(part.low, part.high + 1)
        ]
        assert outstanding == sorted(set(outstanding) & ticks)
        for tick in outstanding:
            # the age of a growing gap is that of its oldest tick below
            part = next(each for each in missing if each.low <= tick <= each.high)
            assert now >= min(seen[each] for each in range(part.low, tick + 1)) + GCT
        due = curiosity.next_due()
        assert (due is None) == (not ticks)
        assert due is None or due > now
        assert due is None or due <= now + curiosity.threshold.us
