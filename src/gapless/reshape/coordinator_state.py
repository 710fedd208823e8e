"""The phases of an operation at its coordinator (RS-7, RS-8).

Theory of operation
-------------------
An operation is PREPARING while the coordinator asks the participants for locks, one at a time in the
order of their cells. When all locks are granted, one write makes it COMMITTED: this is the decision.
Any failure before that write makes it ABORTED. A crash while it is PREPARING is such a failure.

A COMMITTED operation is never aborted. Its coordinator repeats OpSwitch until every participant that
stays in the tree has switched; then it is FINISHED, and OpFinish is repeated until every participant
has answered. The operation is OVER when nothing of it is repeated any more. A normal abort is sent
once, because a participant that missed it asks. The abort of a takeover is repeated until it is
answered everywhere (RS-17).

An operation is DROPPED when this broker learns that a greater term decides for the coordinator's
cell: another broker has taken over what is left of it (RS-18).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gapless.messages.records.reshape import OperationPhase

__all__ = ["TRANSITIONS", "OperationInput", "next_phase"]


class OperationInput(Enum):
    """An input that changes the phase of an operation."""

    ALL_PREPARED = "every participant has locked"
    FAILED = "a refusal, the end of the waiting time, a promise, or a restart"
    ALL_SWITCHED = "every participant that stays in the tree has switched"
    ALL_ANSWERED = "every participant has answered the last message"
    DROPPED = "a greater term decides for the coordinator's cell"


_Phase, _Input = OperationPhase, OperationInput

TRANSITIONS: Final[dict[OperationPhase, dict[OperationInput, OperationPhase | None]]] = {
    _Phase.PREPARING: {
        _Input.ALL_PREPARED: _Phase.COMMITTED,
        _Input.FAILED: _Phase.ABORTED,
        _Input.DROPPED: _Phase.ABORTED,
    },
    _Phase.COMMITTED: {_Input.ALL_SWITCHED: _Phase.FINISHED, _Input.DROPPED: None},
    _Phase.FINISHED: {_Input.ALL_ANSWERED: None, _Input.DROPPED: None},
    _Phase.ABORTED: {_Input.ALL_ANSWERED: None, _Input.DROPPED: None},
}
"""The next phase; None if the operation is over."""


def next_phase(phase: OperationPhase, happened: OperationInput) -> OperationPhase | None:
    """Return the phase after an input, or None if the operation is over.

    >>> next_phase(OperationPhase.PREPARING, OperationInput.ALL_PREPARED).name
    'COMMITTED'
    """
    assert happened in TRANSITIONS[phase], f"an operation that is {phase.name} takes no {happened}"
    return TRANSITIONS[phase][happened]
