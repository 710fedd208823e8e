"""Records of the broker itself, of its neighbourhood, and of retirements."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.overlay import CellRecord

__all__ = [
    "ConfigurationRecord",
    "IncarnationRecord",
    "NeighbourhoodRecord",
    "RetirementRecord",
]


class IncarnationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker's incarnation. It grows with every start, independent of the clock (A9)."""

    incarnation: int

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("incarnation",)


class ConfigurationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker that owns the data directory and its tree, as configured at the first start."""

    broker: BrokerId
    cell: CellId
    delta: int
    """How many consecutive unreachable cells are bypassed."""
    version: int
    cells: tuple[CellRecord, ...]
    """The neighbourhood, nearest first, without addresses."""
    overlay: str = ""
    """The name of the overlay."""

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("configuration",)


class NeighbourhoodRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The records that a broker holds after a step; there is none before the first step (R13)."""

    own: CellId
    version: int
    """Counts the steps of this broker. It is not compared with that of other brokers (RS-1)."""
    cells: tuple[CellRecord, ...]
    """Nearest first."""

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("neighbourhood",)


class RetirementRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last retirement of a broker, or its return after it (R26)."""

    shb: ShbId
    version: int
    returned_at: Tick
    """0 if it is retired. Else none of its pubends had a tick above this one at its return."""
    without_pubends: bool = False
    """Whether it returned without any pubend."""
    heard_at: int = 0
    """When this broker received it, by the median clock of the neighbourhood; 0 if not noted."""
    late: bool = False
    """Whether it was too old to be acted on when it was received."""
    previously_returned_at: Tick = 0
    """The previous ``returned_at``; 0 if there was no return before."""
    pubends: tuple[PubendId, ...] | None = None
    """The pubends that it returned with; None if it named none."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per broker."""
        return self.key_of(self.shb)

    @staticmethod
    def key_of(shb: ShbId) -> tuple[str, ...]:
        """Return the key of a broker's retirement."""
        return ("retirement", str(shb))
