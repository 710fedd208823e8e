"""Records of operations on the tree: of their coordinators, of locks and of promises (RS-6 to RS-8,
RS-17).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRecord, Term
from gapless.messages.reshape import (
    OperationId,
    OperationKind,
    OperationRequestId,
    Participant,
)

__all__ = ["LOCK_KEY", "LockRecord", "OperationPhase", "OperationRecord", "PromiseRecord"]


LOCK_KEY: Final = ("operation lock",)
"""The key of the only lock of a broker."""


class OperationPhase(IntEnum):
    """How far an operation is at its coordinator."""

    PREPARING = 0
    COMMITTED = 1
    FINISHED = 2
    ABORTED = 3


class OperationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An operation at the broker that coordinates it, or that decided it in a takeover."""

    op: OperationId
    request: OperationRequestId
    kind: OperationKind
    cell: CellId
    """Of the coordinator."""
    term: Term
    """In which its messages are sent."""
    participants: tuple[Participant, ...]
    """None when it is over: the record then only remembers the request and the number."""
    records: tuple[CellRecord, ...]
    """Proposed, or decided from COMMITTED on."""
    phase: OperationPhase
    new_term: bool = False
    """Whether a takeover has aborted it."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per operation."""
        return ("operation", str(self.op))


class LockRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The lock of this broker. It belongs to one operation until that one ends (RS-6)."""

    op: OperationId
    kind: OperationKind
    cells: tuple[CellId, ...]
    coordinator: BrokerId
    cell: CellId
    """Of the coordinator."""
    term: Term
    """Only a leader of the coordinator's cell in this term or a greater one resolves the lock."""
    own: CellRecord
    """The own cell before the operation."""
    participants: tuple[Participant, ...]
    records: tuple[CellRecord, ...]
    """The proposed records; the decided ones once it has switched."""
    switched: bool = False
    passed: bool = False
    """Whether it was passed to the candidate of a takeover."""

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind: a broker has one lock."""
        return LOCK_KEY


class PromiseRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The greatest term of a cell that this broker has promised (RS-17)."""

    cell: CellId
    term: Term

    @property
    def key(self) -> tuple[str, ...]:
        """One record per cell."""
        return ("promise", self.cell)
