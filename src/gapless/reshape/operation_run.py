"""One operation at its coordinator: its record, its answers, and the messages of its phases."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gapless.core.context import Timer
from gapless.core.ids import CellId
from gapless.messages.overlay import CellRecord, Term
from gapless.messages.records import OperationPhase, OperationRecord
from gapless.messages.reshape import (
    OpAbort,
    OperationId,
    OperationKind,
    OpFinish,
    OpSwitch,
    Participant,
)
from gapless.reshape.proposals import Proposal, Refusal

__all__ = ["Ended", "OperationRun", "ignore_end"]

Ended = Callable[[OperationId, Refusal | None], None]
"""Called when an operation is finished, or aborted for a reason."""


def ignore_end(op: OperationId, why: Refusal | None) -> None:
    """Nobody waits for the end."""


class OperationRun:
    """An operation that this broker works on, and what its participants have answered."""

    def __init__(self, record: OperationRecord, cells: Collection[CellId] = ()) -> None:
        self.record = record
        self.cells = tuple(cells)
        self.proposal: Proposal | None = None
        self.prepared: dict[CellId, CellRecord] = {}
        self.answered: set[CellId] = set()
        """The cells whose participants have answered the message of the present phase."""
        self.has_spread = False
        """Whether the decision may be applied here and at all members (RS-7)."""
        self.timer: Timer | None = None
        self.ended: Ended = ignore_end

    @property
    def newcomer(self) -> Participant | None:
        """The broker that an APPEND adds. It has promised nothing before."""
        if self.record.kind is not OperationKind.APPEND:
            return None
        cell = self.record.records[0].name
        return next((each for each in self.record.participants if each.cell == cell), None)

    @property
    def leaving(self) -> CellId | None:
        """The cell that a DETACH removes. It is not waited for to finish."""
        is_detach = self.record.kind is OperationKind.DETACH
        return self.record.records[0].name if is_detach else None

    @property
    def others(self) -> list[Participant]:
        """The participants of which one must have switched before anybody else applies (RS-7)."""
        newcomer, leader = self.newcomer, self.record.cell
        return [e for e in self.record.participants if e != newcomer and e.cell != leader]

    def message(self, term: Term) -> OpSwitch | OpFinish | OpAbort:
        """Return the message of the phase after the decision."""
        record = self.record
        if record.phase is OperationPhase.COMMITTED:
            return OpSwitch(record.op, record.cell, term, record.records)
        if record.phase is OperationPhase.FINISHED:
            return OpFinish(record.op, record.cell, term)
        return OpAbort(record.op, record.cell, term, record.new_term)
