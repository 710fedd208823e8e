"""Records of other brokers: which of them this broker takes (RS-2, RS-4).

Only the leader of a cell writes the record of the cell. A leader that got a record of its own cell
in its own term from elsewhere has not written it, or has undone it: it takes such a record only if
it proves the commit of an operation that it has locked. Otherwise it takes none of the records that
came with it: neighbours that follow an operation which the own cell does not follow would be cut off
from it. A set of records that makes no tree is refused as a whole as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRecord

__all__ = ["ReceivedRecords", "RecordStep", "proves_nothing"]


def proves_nothing(record: CellRecord) -> bool:  # noqa: ARG001
    """Return that a record proves no commit, at a broker that holds no lock."""
    return False


class RecordStep(Protocol):
    """The step of the tree, as received records see it."""

    def record(self, cell: CellId) -> CellRecord | None:
        """Return the newest durable record of a cell."""

    def is_consistent(self, records: tuple[CellRecord, ...]) -> bool:
        """Return whether a step with these records leads to a tree that this broker can take."""

    def apply(self, records: tuple[CellRecord, ...]) -> None:
        """Merge records into those held, make them durable, and apply them."""


class ReceivedRecords:
    """Applies the records of other brokers that this broker may take."""

    def __init__(
        self, context: Context, step: RecordStep, proves_commit: Callable[[CellRecord], bool]
    ) -> None:
        """``proves_commit`` tests a record of the own cell against the lock of this broker."""
        self._context = context
        self._step = step
        self._proves_commit = proves_commit

    def received(self, peer: BrokerId, records: tuple[CellRecord, ...]) -> None:  # noqa: ARG002
        """Apply the records in one step, or none of them."""
        if not all(map(self._may_take, records)):
            self._context.mark("record of the own cell from elsewhere")
        elif not self._step.is_consistent(records):
            self._context.mark("records that make no tree")
        else:
            self._step.apply(records)

    def _may_take(self, record: CellRecord) -> bool:
        identity = self._context.identity
        held = self._step.record(record.name) if record.name == identity.cell else None
        leads = held is not None and held.leader == identity.broker and held.term == record.term
        return not leads or self._proves_commit(record)
