"""The doubt horizon as a value."""

from __future__ import annotations

import pytest

from gapless.core.ticks import TickRange
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import Stream
from tests.stream.model import PUBEND, piece, silence


def test_the_next_pieces_begin_just_above_the_horizon_and_end_at_the_first_gap() -> None:
    stream = Stream(PUBEND)
    horizon = DoubtHorizon(3)
    for part in (piece(1, 6, 2, 5), silence(7, 9, 2), piece(11, 12, 12, regime=2)):
        stream.accumulate(part)
    assert horizon.next_pieces(stream) == [piece(4, 6, 5), silence(7, 9, 2)]
    assert horizon.doubts(stream, stream.top) == [TickRange(10, 10)]


def test_whoever_stops_at_a_piece_goes_on_from_there() -> None:
    stream = Stream(PUBEND)
    horizon = DoubtHorizon(0)
    stream.accumulate(silence(1, 4))
    stream.accumulate(silence(5, 9, 2))
    horizon.pass_over(horizon.next_pieces(stream)[0])
    assert horizon.tick == 4
    assert horizon.next_pieces(stream) == [silence(5, 9, 2)]


def test_what_was_passed_is_not_offered_again_when_it_comes_again() -> None:
    stream = Stream(PUBEND)
    horizon = DoubtHorizon(9)
    stream.accumulate(piece(1, 9, 5))
    assert horizon.next_pieces(stream) == []


def test_a_piece_out_of_turn_cannot_be_passed() -> None:
    horizon = DoubtHorizon(4)
    for part in (silence(4, 9), silence(6, 9)):
        with pytest.raises(AssertionError, match="does not follow the horizon 4"):
            horizon.pass_over(part)


def test_the_horizon_never_falls() -> None:
    horizon = DoubtHorizon(4)
    horizon.skip_to(9)
    horizon.skip_to(2)
    assert horizon.tick == 9
