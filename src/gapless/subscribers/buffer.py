"""The buffer of a cursor: events and gaps that wait for the client, in tick order (R48).

A buffer always accepts ``prefetch_max`` events. It accepts more live events while the *backlog*,
the events beyond ``prefetch_max`` in all buffers of this SHB, has less than ``backlog_bytes``. So a
client that falls behind for a short time continues from memory. Otherwise its events would be read
from the log and sent over the network again, which delays it further. A run of live events is
booked on the backlog until it is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.streams import Publication
from gapless.packed.encode import PUBLICATION_BYTES, encoded_bytes
from gapless.subscribers.cursor_state import GapRange

__all__ = ["Backlog", "Buffer"]


class Backlog:
    """The size of the events beyond ``prefetch_max`` in all buffers of this SHB."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def book(self, size: int) -> None:
        """Events were added beyond ``prefetch_max``."""
        self.bytes += size

    def release(self, size: int) -> None:
        """Events beyond ``prefetch_max`` were taken or discarded."""
        self.bytes -= size


class Buffer:
    """The buffer of one cursor."""

    __slots__ = ("_always", "_backlog", "_backlog_max", "_beyond", "_gaps", "_waiting")

    def __init__(self, parameters: Parameters, backlog: Backlog) -> None:
        self._always = parameters.prefetch_max
        self._backlog_max = parameters.backlog_bytes
        self._backlog = backlog
        self._waiting: deque[Publication | GapRange] = deque()
        self._gaps = 0
        """The number of gaps in the buffer."""
        self._beyond: deque[tuple[Tick, int]] = deque()
        """The last ticks and the sizes of runs that are booked on the backlog."""

    def __len__(self) -> int:
        """Return the number of events and gaps."""
        return len(self._waiting)

    @property
    def next_tick(self) -> Tick:
        """The tick of the first event or gap; the buffer must not be empty."""
        return self._waiting[0].tick

    @property
    def has_space(self) -> bool:
        """Whether the buffer has fewer than ``prefetch_max`` entries."""
        return len(self._waiting) < self._always

    @property
    def booked_bytes(self) -> int:
        """The part of the backlog that this buffer has booked."""
        return sum(size for _, size in self._beyond)

    # --- in --------------------------------------------------------------------------------------

    def put(self, publications: list[Publication]) -> int:
        """Add publications up to ``prefetch_max`` entries. Return how many were added."""
        space = max(0, self._always - len(self._waiting))
        self._waiting.extend(publications if space >= len(publications) else publications[:space])
        return min(space, len(publications))

    def put_beyond(self, publications: list[Publication]) -> bool:
        """Add a run beyond ``prefetch_max`` if the backlog allows it. Return whether it does."""
        if self._backlog.bytes >= self._backlog_max:
            return False
        size = encoded_bytes(tuple(publications)) + PUBLICATION_BYTES * len(publications)
        self._backlog.book(size)
        self._beyond.append((publications[-1].tick, size))
        self._waiting.extend(publications)
        return True

    def extend(self, publications: Iterable[Publication]) -> None:
        """Add publications from a read or a join. A read is sent only if the buffer is not full."""
        self._waiting.extend(publications)

    def append_gap(self, gap: GapRange) -> None:
        """Add a gap after everything in the buffer."""
        self._waiting.append(gap)
        self._gaps += 1

    # --- out -------------------------------------------------------------------------------------

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take at most ``most`` events up to a tick, and before any gap."""
        waiting = self._waiting
        if 0 < len(waiting) <= most and waiting[-1].tick <= up_to and not self._gaps:
            everything: list[Any] = [*waiting]  # the usual case: take everything
            self.clear()
            return everything
        taken: list[Publication] = []
        while waiting and len(taken) < most:
            head = waiting[0]
            if isinstance(head, GapRange) or head.tick > up_to:
                break
            taken.append(head)
            waiting.popleft()
        self._release()
        return taken

    def take_gap(self, up_to: Tick) -> GapRange | None:
        """Take a gap if it is first in the buffer and starts at or below a tick."""
        head = self._waiting[0] if self._waiting else None
        if not isinstance(head, GapRange) or head.tick > up_to:
            return None
        self._waiting.popleft()
        self._gaps -= 1
        return head

    def clear(self) -> None:
        """Remove everything."""
        self._waiting.clear()
        self._gaps = 0
        self._release()

    def _release(self) -> None:
        """Release the runs that have left the buffer from the backlog."""
        while self._beyond and not (self._waiting and self._waiting[0].tick <= self._beyond[0][0]):
            self._backlog.release(self._beyond.popleft()[1])
