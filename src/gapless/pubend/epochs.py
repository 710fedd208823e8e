"""The stream epochs of a hosted pubend along its ticks (R31).

Functions over the list of stream epochs, in the order of their numbers. The stream epoch of a tick
never changes, so a knowledge range read from the log has the epoch with which it was first sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gapless.core.ticks import Tick
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange, Publication

__all__ = ["exact_ranges", "outlived", "stream_epoch_at"]


def stream_epoch_at(stream_epochs: Sequence[StreamEpochRecord], tick: Tick, released: Tick) -> int:
    """Return the epoch of a tick: the last one that starts at or before it; 0 if released."""
    number = 0
    for stream_epoch in stream_epochs:
        if stream_epoch.start > tick:
            break
        number = stream_epoch.number
    return number if tick > released else 0


def exact_ranges(
    stream_epochs: Sequence[StreamEpochRecord],
    released: Tick,
    low: Tick,
    high: Tick,
    publications: Sequence[Publication],
) -> list[KnowledgeRange]:
    """Return exact knowledge: these publications, all other ticks silent, cut at stream epochs."""
    starts = [each.start for each in stream_epochs if low < each.start <= high]
    ranges = []
    for first, beyond in itertools.pairwise([low, *starts, high + 1]):
        if first < beyond:
            inside = tuple(each for each in publications if first <= each.tick < beyond)
            ranges.append(
                KnowledgeRange(
                    first, beyond - 1, stream_epoch_at(stream_epochs, first, released), 0, inside
                )
            )
    return ranges


def outlived(stream_epochs: Sequence[StreamEpochRecord], up_to: Tick) -> int:
    """Return how many stream epochs, from the oldest, have no tick above ``up_to``; never all."""
    count = 0
    while count + 1 < len(stream_epochs) and stream_epochs[count + 1].start <= up_to + 1:
        count += 1
    return count
