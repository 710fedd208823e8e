"""What waits in memory for the client of a strand: events and losses, in tick order (R48).

``prefetch_max`` events may always wait. What comes live may wait beyond that while all strands of
the host together hold less than ``backlog_bytes`` so: a client that falls behind for a moment goes
on from memory, where otherwise its stream would travel a second time, out of the log, and make it
later still. What waits beyond is booked by the run in which it came, until the run is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.streams import Publication
from gapless.packed.encode import PUBLICATION_BYTES, encoded_bytes
from gapless.stream.istream import MemoryAccount
from gapless.subscribers.cursor_state import GapRange

__all__ = ["Buffer"]


class Buffer:
    """What one strand lets wait."""

    __slots__ = ("_always", "_backlog", "_backlog_max", "_beyond", "_gaps", "_waiting")

    def __init__(self, parameters: Parameters, backlog: MemoryAccount) -> None:
        self._always = parameters.prefetch_max
        self._backlog_max = parameters.backlog_bytes
        self._backlog = backlog
        """What waits beyond ``prefetch_max``, of all strands of the host."""
        self._waiting: deque[Publication | GapRange] = deque()
        self._gaps = 0
        """How many of those that wait are losses."""
        self._beyond: deque[tuple[Tick, int]] = deque()
        """The last ticks and the sizes of runs that are booked on the backlog."""

    def __len__(self) -> int:
        """Return how much waits."""
        return len(self._waiting)

    @property
    def next_tick(self) -> Tick:
        """The tick of what is to be told next, of which there must be something."""
        return self._waiting[0].tick

    @property
    def has_room(self) -> bool:
        """Whether fewer events wait than always may."""
        return len(self._waiting) < self._always

    @property
    def booked_bytes(self) -> int:
        """How much of the backlog is its."""
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
        self._backlog.bytes += size
        self._beyond.append((publications[-1].tick, size))
        self._waiting.extend(publications)
        return True

    def extend(self, publications: Iterable[Publication]) -> None:
        """Let what was read or held wait; who reads looks for room before."""
        self._waiting.extend(publications)

    def append_gap(self, gap: GapRange) -> None:
        """Let a loss wait in its place."""
        self._waiting.append(gap)
        self._gaps += 1

    # --- out -------------------------------------------------------------------------------------

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take events that may be told: so many, up to a tick, before any loss."""
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
        """Take a loss, if it is the next that may be told."""
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
            self._backlog.bytes -= self._beyond.popleft()[1]
