"""What the operations on the tree need of other components."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from gapless.core.context import nothing
from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.records import StorageChange

__all__ = ["CellContents", "HeldRecords", "OperationPeers"]


class HeldRecords(Protocol):
    """The durable records of this broker, and the step that replaces them (RS-1)."""

    @property
    def own(self) -> CellId:
        """The cell of this broker."""

    @property
    def may_join(self) -> bool:
        """Whether this broker can become a member of another cell, if it is alone in its own."""

    def record(self, cell: CellId) -> CellRecord | None:
        """Return the newest durable record of a cell, or None if none is held."""

    def records(self) -> Collection[CellRecord]:
        """Return all records that are held."""

    def is_consistent(self, records: Collection[CellRecord]) -> bool:
        """Return whether a step with these records leads to a tree that this broker can take."""

    def apply(
        self,
        records: Collection[CellRecord],
        *,
        changes: tuple[StorageChange, ...] = (),
        then: Callable[[], None] = nothing,
    ) -> None:
        """Write the newer ones of some records together with changes; then apply them and call back."""


class OperationPeers(Protocol):
    """Messages to any broker, in peer sessions or control sessions (RS-35)."""

    def send(self, broker: BrokerId, message: Any) -> None:
        """Send a message; it is lost if there is no session."""

    def require(self, owner: str, members: Collection[CellMember]) -> None:
        """Keep sessions with exactly these brokers for one owner."""

    def is_open(self, broker: BrokerId) -> bool:
        """Return whether there is a session with a broker."""


class CellContents(Protocol):
    """What this broker has that keeps its cell in the tree (RS-15)."""

    def left(self) -> tuple[str, ...]:
        """Return descriptions of what is left; some if there is much."""

    def is_member(self) -> bool:
        """Return whether this broker is a member of pubends."""

    def leave(self) -> None:
        """Leave the pubends of which this broker is a member."""
