"""The interfaces that the directory uses: retirements and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.overlay import Partition

__all__ = ["PartitionsOnPaths", "RetiredBrokers"]


class RetiredBrokers(Protocol):
    """The brokers that were retired (R26)."""

    def has(self, broker: BrokerId) -> bool:
        """Return whether a broker is retired, in any cell."""

    def is_recent(self, shb: ShbId) -> bool:
        """Return whether a retirement is recent; only then logs and names are released."""

    def returned_at(self, broker: BrokerId) -> Tick:
        """Return the tick above which no merge excluded a returned broker, or 0."""


class PartitionsOnPaths(Protocol):
    """The partitions that this broker knows (R11, R12)."""

    def partitions_before(self, cell: CellId) -> Sequence[Partition]:
        """Return the partitions that contain a cell of the path to this one."""
