"""The states of a takeover at its candidate (RS-17).

Theory of operation
-------------------
A candidate is IDLE, or ASKING for promises. The promises may name neighbours and terms that it did
not know: then it asks again, for more cells or in a greater term, and all must promise anew. When
everybody has promised, one write decides; while that write is pending the candidate is DECIDING.
A silent broker that is not declared replaced is waited for. An operator ends a takeover that cannot
continue by another one, with more declared brokers. After a restart a candidate is IDLE.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "TakeoverInput", "TakeoverState", "next_takeover_state"]


class TakeoverState(Enum):
    """The state of a takeover."""

    IDLE = "idle"
    ASKING = "asking"
    DECIDING = "deciding"


class TakeoverInput(Enum):
    """An input that changes the state of a takeover."""

    DECLARED = "an operator declares brokers replaced"
    WIDENED = "more cells, more brokers or a greater term are known"
    ALL_PROMISED = "everybody has promised"
    GIVEN_UP = "other candidates ask for greater terms, or too much is to be taken over"
    DURABLE = "the decision is on disk"


_State, _Input = TakeoverState, TakeoverInput

TRANSITIONS: Final[dict[TakeoverState, dict[TakeoverInput, TakeoverState]]] = {
    _State.IDLE: {_Input.DECLARED: _State.ASKING},
    _State.ASKING: {
        _Input.DECLARED: _State.ASKING,
        _Input.WIDENED: _State.ASKING,
        _Input.ALL_PROMISED: _State.DECIDING,
        _Input.GIVEN_UP: _State.IDLE,
    },
    _State.DECIDING: {_Input.DURABLE: _State.IDLE},
}


def next_takeover_state(state: TakeoverState, happened: TakeoverInput) -> TakeoverState:
    """Return the state after an input.

    >>> next_takeover_state(TakeoverState.ASKING, TakeoverInput.ALL_PROMISED).name
    'DECIDING'
    """
    found = TRANSITIONS[state].get(happened)
    assert found is not None, f"a takeover that is {state.name} takes no {happened.name}"
    return found
