"""What a strand can be, and what its buffer can hold; see :mod:`.strand`."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from gapless.core.ticks import Tick

__all__ = ["FOREVER", "Lost", "State"]

FOREVER: Final = 2**62
"""Above every tick."""


class State(Enum):
    """Where a strand stands."""

    WAITING = "waiting"
    LIVE = "live"
    CATCHING = "catching"
    JOINING = "joining"
    AWAY = "away"


class Lost(NamedTuple):
    """A range in a buffer that the log no longer has."""

    low: Tick
    high: Tick

    @property
    def tick(self) -> Tick:
        """Where it stands among publications."""
        return self.low
