"""The stream epochs of a hosted pubend along its ticks (R31).

Functions over the list of stream epochs, in the order of their numbers. The stream epoch of a tick
never changes while the pubend keeps it, so a knowledge range read from the log has the epoch with
which it was first sent. Ticks of an epoch that is not kept any more have epoch 0, the empty vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gapless.core.limits import STREAM_EPOCH_ENTRIES_MAX, STREAM_EPOCHS_MIN
from gapless.core.ticks import Tick
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange, Publication

__all__ = ["exact_ranges", "outlived", "stream_epoch_at", "surplus"]


def stream_epoch_at(stream_epochs: Sequence[StreamEpochRecord], tick: Tick, released: Tick) -> int:
    """Return the epoch of a tick: the last one that starts at or before it.

    0 if the tick is released or lies before the oldest epoch.
    """
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


def surplus(stream_epochs: Sequence[StreamEpochRecord], low: Tick, count_max: int) -> int:
    """Return how many stream epochs, from the oldest, a pubend need not keep (R31).

    These are the epochs without a tick above ``low``, those beyond ``count_max``, and those whose
    vectors are too large together.
    """
    entries = itertools.accumulate(len(each.entries) for each in reversed(stream_epochs))
    fitting = sum(total <= STREAM_EPOCH_ENTRIES_MAX for total in entries)
    kept = min(count_max, max(fitting, STREAM_EPOCHS_MIN))
    return max(outlived(stream_epochs, low), len(stream_epochs) - kept)
