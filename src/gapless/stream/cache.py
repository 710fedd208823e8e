"""The limit on the memory of all streams of a broker (R38).

Streams are soft state, so any range may be forgotten. Its ticks become Q, and receivers that need
them request them again (GD 2.1).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from gapless.stream.istream import IStream, MemoryAccount

__all__ = ["SLACK", "shrink"]

SLACK: Final = 16
"""A full cache is reduced by 1/16 of its limit at once, so that few frames have the cost."""


def shrink(account: MemoryAccount, streams: Iterable[IStream], bytes_max: int) -> int:
    """Forget the lowest ranges of the largest streams if the account is over its limit.

    Returns the number of forgotten ranges. Streams of equal size are processed in the given order.
    """
    if account.bytes <= bytes_max:
        return 0
    goal = bytes_max - bytes_max // SLACK
    greatest = [
        (-stream.bytes, order, stream) for order, stream in enumerate(streams) if len(stream)
    ]
    heapq.heapify(greatest)
    forgotten = 0
    while account.bytes > goal and greatest:
        _, order, stream = greatest[0]
        stream.forget_lowest()
        forgotten += 1
        if len(stream):
            heapq.heapreplace(greatest, (-stream.bytes, order, stream))
        else:
            heapq.heappop(greatest)
    return forgotten
