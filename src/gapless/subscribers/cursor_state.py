"""What a strand can be, and what its buffer can hold; see :mod:`.cursor`."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from gapless.core.ticks import Tick

__all__ = ["FOREVER", "CursorPhase", "GapRange"]

FOREVER: Final = 2**62
"""Above every tick."""


class CursorPhase(Enum):
    """Where a strand stands."""

    PENDING = "pending"
    LIVE = "live"
    CATCHING_UP = "catching up"
    JOINING = "joining"
    DISCONNECTED = "disconnected"


class GapRange(NamedTuple):
    """A range in a buffer that the log no longer has."""

    low: Tick
    high: Tick

    @property
    def tick(self) -> Tick:
        """Where it stands among publications."""
        return self.low
