"""Divides the time of the event loop among the connections that have frames to process.

The frames of one read may take long. A connection processes them for a slice of time. Then it waits
behind the other connections that have frames left, and reading from it pauses. All connections
together use a bounded time of each turn of the event loop. So timers, the disk and heartbeats have
theirs, whatever clients send. Links to brokers continue in every turn: the peers of a broker wait
for its heartbeats. One frame is always processed whole: the machine bounds a step by
counted work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["SLICE_S", "TURN_S", "LoopTurns", "TurnTaker"]

TURN_S: Final = 0.010
"""So long the connections process frames in one turn of the event loop. It is far below a heartbeat
interval."""

SLICE_S: Final = 0.002
"""So long one connection processes frames before others continue. A read of usual requests takes
less."""


class TurnTaker(Protocol):
    """A connection with frames that are not processed yet."""

    has_priority: bool
    """Whether it continues in every turn."""

    def take_turn(self) -> None:
        """Process frames for one slice, and wait again if frames are left."""


class LoopTurns:
    """The connections of one event loop, and how much of the current turn they have used."""

    __slots__ = ("_is_armed", "_loop", "_now", "_prior", "_used_s", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._now = now
        self._used_s = 0.0
        self._prior: list[TurnTaker] = []
        """Connections with priority that wait."""
        self._waiting: deque[TurnTaker] = deque()
        """The others, in the order in which they continue."""
        self._is_armed = False
        """Whether the next turn is scheduled."""

    def __len__(self) -> int:
        """Return the number of connections that wait for a turn."""
        return len(self._prior) + len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether the time of this turn is used."""
        return self._used_s >= TURN_S

    def start_slice(self) -> float:
        """Return the time at which a slice begins."""
        return self._now()

    def is_slice_over(self, started_s: float) -> bool:
        """Return whether a slice that began then, or the turn, is used up."""
        took_s = self._now() - started_s
        return took_s >= SLICE_S or self._used_s + took_s >= TURN_S

    def end_slice(self, started_s: float) -> None:
        """Count the time of a slice that began then."""
        self._used_s += self._now() - started_s
        if self._used_s >= SLICE_S:  # a turn with less work needs no end
            self._arm()

    def wait(self, taker: TurnTaker) -> None:
        """Let a connection continue in a later turn."""
        (self._prior if taker.has_priority else self._waiting).append(taker)
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """A new turn of the loop has begun: the waiting connections continue."""
        self._is_armed = False
        self._used_s = 0.0
        prior, self._prior = self._prior, []
        try:
            for taker in prior:
                taker.take_turn()
            while self._waiting:
                self._waiting.popleft().take_turn()
                if self.is_over:
                    break
        finally:  # an error of one connection must not leave the others waiting
            if len(self):
                self._arm()
