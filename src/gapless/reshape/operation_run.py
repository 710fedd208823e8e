"""One operation at its coordinator: its record, its answers, and the messages of its phases."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId
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
from gapless.reshape.coordinator_state import OperationInput, next_phase
from gapless.reshape.proposals import Proposal, Refusal

__all__ = ["Ended", "OperationRun", "ignore_end"]

Ended = Callable[[OperationId, Refusal | None], None]
"""Called when an operation is finished, or aborted for a reason."""


def ignore_end(op: OperationId, why: Refusal | None) -> None:
    """Nobody waits for the end."""


class OperationRun:
    """An operation that this broker works on, and what its participants have answered."""

    def __init__(
        self,
        record: OperationRecord,
        cells: Collection[CellId] = (),
        proposal: Proposal | None = None,
        ended: Ended = ignore_end,
    ) -> None:
        self.record = record
        self.cells = tuple(cells)
        self.proposal = proposal
        self.prepared: dict[CellId, CellRecord] = {}
        """The cells whose participants have locked, with their records."""
        self.answered: set[CellId] = set()
        """The cells whose participants have answered the message of the present phase."""
        self.has_spread = False
        self.is_asking = False
        """Whether the operation is durable and participants are asked for locks."""
        """Whether the decision may be applied here and at all members (RS-7)."""
        self._ended = ended
        self._timer: Timer | None = None

    def note_lock(self, cell: CellId, record: CellRecord) -> None:
        """A participant has locked."""
        self.prepared[cell] = record

    def note_answer(self, broker: BrokerId) -> None:
        """A participant has answered the message of the present phase."""
        self.answered |= {e.cell for e in self.record.participants if e.broker == broker}

    def note_spread(self) -> None:
        """The decision may be applied everywhere."""
        self.has_spread = True

    def change(
        self,
        happened: OperationInput,
        records: tuple[CellRecord, ...] | None = None,
        term: Term | None = None,
    ) -> None:
        """Enter the next phase."""
        phase = next_phase(self.record.phase, happened)
        assert phase is not None, f"{happened} ends an operation"
        records = self.record.records if records is None else records
        term = self.record.term if term is None else term
        self.record = replace(self.record, phase=phase, records=records, term=term)
        self.answered.clear()
        self.stop()

    def end(self, why: Refusal | None) -> None:
        """Tell the request, once, that the operation is finished or has failed."""
        ended, self._ended = self._ended, ignore_end
        ended(self.record.op, why)

    def end_at(self, op: OperationId, why: Refusal | None) -> None:
        """Tell the request by a run that continues this one."""
        assert op == self.record.op, f"{op} does not continue {self.record.op}"
        self.end(why)

    def wait(self, context: Context, delay_us: int, action: Callable[[], None]) -> None:
        """Act after a delay, unless the phase changes."""
        self.stop()
        self._timer = context.call_later(delay_us, action)

    def stop(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin_asking(self) -> None:
        """Note that the operation is durable, so that participants may be asked."""
        self.is_asking = True

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
