"""The nack repetition threshold, like a retransmission timeout (GD 3.2)."""

from __future__ import annotations

import pytest

from gapless.stream.repetition import NackRepetitionThreshold

LEAST, MOST = 50_000, 10_000_000


def test_before_the_first_answer_the_threshold_is_a_multiple_of_the_least() -> None:
    assert NackRepetitionThreshold(LEAST, MOST).us == 200_000
    assert NackRepetitionThreshold(LEAST, LEAST).us == LEAST


def test_steady_answers_lower_the_threshold_to_the_round_trip() -> None:
    threshold = NackRepetitionThreshold(LEAST, MOST)
    for _ in range(100):
        threshold.sample(200_000)
    assert 200_000 <= threshold.us <= 201_000


def test_the_threshold_never_falls_below_its_least_value() -> None:
    threshold = NackRepetitionThreshold(LEAST, MOST)
    for _ in range(100):
        threshold.sample(300)
    assert threshold.us == LEAST


def test_varying_answers_raise_the_threshold_above_their_mean() -> None:
    threshold = NackRepetitionThreshold(LEAST, MOST)
    for number in range(100):
        threshold.sample(100_000 if number % 2 else 300_000)
    assert threshold.us > 400_000


def test_the_threshold_doubles_up_to_its_greatest_value() -> None:
    threshold = NackRepetitionThreshold(LEAST, MOST)
    seen = []
    for _ in range(8):
        threshold.back_off()
        seen.append(threshold.us)
    assert seen[:3] == [400_000, 800_000, 1_600_000]
    assert seen[-2:] == [MOST, MOST]
    threshold.sample(100_000)
    assert threshold.us == 300_000


def test_another_feeder_ends_the_doubling_and_keeps_the_estimate() -> None:
    threshold = NackRepetitionThreshold(LEAST, MOST)
    threshold.sample(100_000)
    threshold.back_off()
    threshold.relax()
    assert threshold.us == 300_000


@pytest.mark.parametrize("bounds", [(0, 5), (6, 5)])
def test_invalid_bounds_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(AssertionError, match="no bounds"):
        NackRepetitionThreshold(*bounds)
