"""The states of the lock of a broker (RS-6 to RS-8, RS-17).

Theory of operation
-------------------
A broker is FREE, or LOCKED for one operation. A locked broker changes no record of its cell for
another operation. It is SWITCHED when the records of the operation are durable; it stays locked
until OpFinish, so that a takeover learns of the operation from it.

A lock whose coordinator's cell is taken over is PASSED to the candidate: no proof from elsewhere
resolves it any more. A lock never ends by time. It ends by a message of the coordinator, or of a
candidate that decided in its place, and it ends when this broker is deposed: another one leads its
cell then, and the takeover has decided.

An operation of a broker that was declared by mistake may be undone after it has switched (RS-17).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gapless.messages.records.reshape import LockRecord

__all__ = ["TRANSITIONS", "LockInput", "LockState", "next_lock_state", "state_of"]


class LockState(Enum):
    """The state of the lock of a broker."""

    FREE = "free"
    LOCKED = "locked"
    PASSED = "passed"
    SWITCHED = "switched"


class LockInput(Enum):
    """An input that changes the lock."""

    PREPARE = "a coordinator asks for the lock"
    SWITCH = "the coordinator has committed"
    PROOF = "a record proves the commit"
    FINISH = "every participant has switched"
    ABORT = "the operation has no effect"
    HAND_ON = "a candidate has the promise for the coordinator's cell"
    DEPOSED = "another broker leads the cell"


_State, _Input = LockState, LockInput

TRANSITIONS: Final[dict[LockState, dict[LockInput, LockState]]] = {
    _State.FREE: {_Input.PREPARE: _State.LOCKED},
    _State.LOCKED: {
        _Input.SWITCH: _State.SWITCHED,
        _Input.PROOF: _State.SWITCHED,
        _Input.FINISH: _State.FREE,
        _Input.ABORT: _State.FREE,
        _Input.HAND_ON: _State.PASSED,
        _Input.DEPOSED: _State.FREE,
    },
    _State.PASSED: {
        _Input.SWITCH: _State.SWITCHED,
        _Input.FINISH: _State.FREE,
        _Input.ABORT: _State.FREE,
        _Input.HAND_ON: _State.PASSED,
        _Input.DEPOSED: _State.FREE,
    },
    _State.SWITCHED: {
        _Input.SWITCH: _State.SWITCHED,
        _Input.FINISH: _State.FREE,
        _Input.ABORT: _State.FREE,
        _Input.HAND_ON: _State.SWITCHED,
        _Input.DEPOSED: _State.FREE,
    },
}
"""FINISH of a lock that has not switched applies the records with it."""


def state_of(lock: LockRecord | None) -> LockState:
    """Return the state that a record of a lock is in."""
    if lock is None:
        return LockState.FREE
    if lock.switched:
        return LockState.SWITCHED
    return LockState.PASSED if lock.passed else LockState.LOCKED


def next_lock_state(state: LockState, happened: LockInput) -> LockState:
    """Return the state after an input.

    >>> next_lock_state(LockState.LOCKED, LockInput.PROOF).name
    'SWITCHED'
    """
    found = TRANSITIONS[state].get(happened)
    assert found is not None, f"a lock that is {state.name} takes no {happened.name}"
    return found
