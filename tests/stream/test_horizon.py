"""The doubt horizon as a value."""

from __future__ import annotations

import pytest

from gapless.core.ticks import TickRange
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import IStream
from tests.stream.model import PUBEND, knowledge_range, silence


def test_the_next_ranges_start_just_above_the_horizon_and_end_at_the_first_gap() -> None:
    stream = IStream(PUBEND)
    horizon = DoubtHorizon(3)
    for part in (
        knowledge_range(1, 6, 2, 5),
        silence(7, 9, 2),
        knowledge_range(11, 12, 12, stream_epoch=2),
    ):
        stream.accumulate(part)
    assert horizon.next_ranges(stream) == [knowledge_range(4, 6, 5), silence(7, 9, 2)]
    assert horizon.unknown_ranges(stream, stream.top) == [TickRange(10, 10)]


def test_a_reader_that_stops_at_a_range_continues_from_there() -> None:
    stream = IStream(PUBEND)
    horizon = DoubtHorizon(0)
    stream.accumulate(silence(1, 4))
    stream.accumulate(silence(5, 9, 2))
    horizon.pass_over(horizon.next_ranges(stream)[0])
    assert horizon.tick == 4
    assert horizon.next_ranges(stream) == [silence(5, 9, 2)]


def test_ticks_below_the_horizon_are_not_returned_when_they_are_received_again() -> None:
    stream = IStream(PUBEND)
    horizon = DoubtHorizon(9)
    stream.accumulate(knowledge_range(1, 9, 5))
    assert horizon.next_ranges(stream) == []


def test_the_horizon_cannot_pass_a_range_out_of_order() -> None:
    horizon = DoubtHorizon(4)
    for part in (silence(4, 9), silence(6, 9)):
        with pytest.raises(AssertionError, match="does not follow the horizon 4"):
            horizon.pass_over(part)


def test_the_horizon_never_falls() -> None:
    horizon = DoubtHorizon(4)
    horizon.skip_to(9)
    horizon.skip_to(2)
    assert horizon.tick == 9
