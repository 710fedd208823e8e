"""The bound on what all streams of a broker hold together (R38).

Only soft state is held here, so anything may be forgotten: it becomes Q and is asked for
again by whoever needs it (GD 2.1).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from gapless.stream.istream import IStream, MemoryAccount

__all__ = ["SLACK", "shrink"]

SLACK: Final = 16
"""A full cache is emptied by this part of its size at once, so that few frames pay for it."""


def shrink(account: MemoryAccount, streams: Iterable[IStream], bytes_max: int) -> int:
    """Forget the lowest pieces of the greatest streams if the account is over its limit.

    Returns how many pieces were forgotten. Streams that are equally great are taken in the order
    in which they were given.
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
