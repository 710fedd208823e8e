"""What waits in memory for the client of a cursor: events and gaps, in tick order (R48).

``prefetch_max`` events may always wait. What comes live may wait beyond that while all cursors of this
SHB together have less than ``backlog_bytes`` waiting so. A client that falls behind for a moment continues
from memory. Otherwise its stream would travel a second time, out of the log, and make it later still. What
waits beyond is booked by the run in which it came, until the run is taken.
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
    """What waits beyond ``prefetch_max`` events each, of all cursors of this SHB."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def book(self, size: int) -> None:
        """Something waits beyond."""
        self.bytes += size

    def release(self, size: int) -> None:
        """Something does not wait any more."""
        self.bytes -= size


class Buffer:
    """What waits for one cursor."""

    __slots__ = ("_always", "_backlog", "_backlog_max", "_beyond", "_gaps", "_waiting")

    def __init__(self, parameters: Parameters, backlog: Backlog) -> None:
        self._always = parameters.prefetch_max
        self._backlog_max = parameters.backlog_bytes
        self._backlog = backlog
        self._waiting: deque[Publication | GapRange] = deque()
        self._gaps = 0
        """How many of those that wait are gaps."""
        self._beyond: deque[tuple[Tick, int]] = deque()
        """The last ticks and the sizes of runs that are booked on the backlog."""

    def __len__(self) -> int:
        """Return how much waits."""
        return len(self._waiting)

    @property
    def next_tick(self) -> Tick:
        """The tick of what is sent next; something must wait."""
        return self._waiting[0].tick

    @property
    def has_room(self) -> bool:
        """Whether fewer events wait than always may."""
        return len(self._waiting) < self._always

    @property
    def booked_bytes(self) -> int:
        """How much of the backlog is booked by this buffer."""
        return sum(size for _, size in self._beyond)

    # --- in --------------------------------------------------------------------------------------

    def put(self, publications: list[Publication]) -> int:
        """Let as many wait as always may; return how many that are."""
        room = max(0, self._always - len(self._waiting))
        self._waiting.extend(publications if room >= len(publications) else publications[:room])
        return min(room, len(publications))

    def put_beyond(self, publications: list[Publication]) -> bool:
        """Let a run wait though it is more than always may, if the backlog allows; say whether."""
        if self._backlog.bytes >= self._backlog_max:
            return False
        size = encoded_bytes(tuple(publications)) + PUBLICATION_BYTES * len(publications)
        self._backlog.book(size)
        self._beyond.append((publications[-1].tick, size))
        self._waiting.extend(publications)
        return True

    def extend(self, publications: Iterable[Publication]) -> None:
        """Let what was read or held back wait; a read is made only if there is room."""
        self._waiting.extend(publications)

    def append_gap(self, gap: GapRange) -> None:
        """Let a gap wait in its place."""
        self._waiting.append(gap)
        self._gaps += 1

    # --- out -------------------------------------------------------------------------------------

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take at most so many events, up to a tick, before any gap."""
        waiting = self._waiting
        if 0 < len(waiting) <= most and waiting[-1].tick <= up_to and not self._gaps:
            everything: list[Any] = [*waiting]  # the usual case, at once
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
        """Take a gap, if it is next."""
        head = self._waiting[0] if self._waiting else None
        if not isinstance(head, GapRange) or head.tick > up_to:
            return None
        self._waiting.popleft()
        self._gaps -= 1
        return head

    def clear(self) -> None:
        """Let nothing wait any more."""
        self._waiting.clear()
        self._gaps = 0
        self._release()

    def _release(self) -> None:
        """Take runs off the backlog of which nothing waits any more."""
        while self._beyond and not (self._waiting and self._waiting[0].tick <= self._beyond[0][0]):
            self._backlog.release(self._beyond.popleft()[1])
