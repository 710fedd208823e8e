"""The regimes of a hosted pubend, as they lie along its ticks (R31).

Plain functions over the list of regimes, in the order of their numbers. The regime of a tick never
changes, so a piece that is read from the log carries the regime with which it was first told.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gapless.core.ticks import Tick
from gapless.messages.records import RegimeRecord
from gapless.messages.streams import Piece, Publication

__all__ = ["exact_pieces", "outlived", "regime_at"]


def regime_at(regimes: Sequence[RegimeRecord], tick: Tick, released: Tick) -> int:
    """Return the regime of a tick: the last one that began at or before it; 0 if released."""
    number = 0
    for regime in regimes:
        if regime.start > tick:
            break
        number = regime.number
    return number if tick > released else 0


def exact_pieces(
    regimes: Sequence[RegimeRecord],
    released: Tick,
    low: Tick,
    high: Tick,
    publications: Sequence[Publication],
) -> list[Piece]:
    """Return exact knowledge of a range: these publications, silence elsewhere, cut at regimes."""
    starts = [each.start for each in regimes if low < each.start <= high]
    pieces = []
    for first, beyond in itertools.pairwise([low, *starts, high + 1]):
        if first < beyond:
            inside = tuple(each for each in publications if first <= each.tick < beyond)
            pieces.append(Piece(first, beyond - 1, regime_at(regimes, first, released), 0, inside))
    return pieces


def outlived(regimes: Sequence[RegimeRecord], up_to: Tick) -> int:
    """Return how many regimes, from the oldest, have no tick above ``up_to``; never all."""
    count = 0
    while count + 1 < len(regimes) and regimes[count + 1].start <= up_to + 1:
        count += 1
    return count
