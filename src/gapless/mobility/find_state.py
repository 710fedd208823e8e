"""The states of a search for the hosting broker of a durable subscription (MV-15).

Theory of operation
-------------------
A search is WAITING until every broker that was asked has answered for itself and for all brokers
behind it. If all answers are NONE, no broker hosts the subscription. One UNKNOWN answer makes the
search DOUBTFUL: it waits for the others, because one of those brokers may host it.

An answer that names a hosting broker makes the search LOCATED. Brokers that can be reached are
still waited for, because one of them may host the subscription under a greater epoch. Those that
cannot be reached are not.

Two brokers may search for one name at the same time and both create it. Each receives the question
of the other. The broker whose name is greater is OUTRANKED, so at most one of them ends as NONE.
The other ends as CONTESTED, and its client asks again.

A search whose tree has changed ends as RETRY, whatever was found: a cell may have been missed, and it
may host the subscription under a greater epoch. Its requester asks anew (RS-15a).

NONE, FOUND, UNKNOWN, CONTESTED and RETRY are final: a search that has ended takes no input.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["FINAL", "TRANSITIONS", "FindInput", "FindState", "next_state"]


class FindState(Enum):
    """The state of a search."""

    WAITING = "waiting"
    DOUBTFUL = "doubtful"
    LOCATED = "located"
    NONE = "none"
    FOUND = "found"
    UNKNOWN = "unknown"
    CONTESTED = "contested"
    RETRY = "retry"


class FindInput(Enum):
    """An input that changes the state of a search."""

    ANSWER_NONE = "an answer: no broker there hosts it"
    ANSWER_UNKNOWN = "an answer: some brokers did not answer"
    ANSWER_FOUND = "an answer: a broker hosts it"
    ANSWER_CONTESTED = "an answer: another broker searches for the name"
    ANSWER_RETRY = "an answer: the tree has changed"
    TREE_STEPPED = "edges of the own cell have changed"
    OUTRANKED = "a broker of a lesser name searches for the name"
    ALL_ANSWERED = "no broker is silent"
    SOME_SILENT = "the answers of some brokers are not waited for any longer"


_State, _Input = FindState, FindInput

_UNLOCATED: Final[dict[FindInput, FindState]] = {
    _Input.ANSWER_UNKNOWN: _State.DOUBTFUL,
    _Input.ANSWER_FOUND: _State.LOCATED,
    _Input.ANSWER_CONTESTED: _State.CONTESTED,
    _Input.OUTRANKED: _State.CONTESTED,
    _Input.SOME_SILENT: _State.UNKNOWN,
    _Input.ANSWER_RETRY: _State.RETRY,
    _Input.TREE_STEPPED: _State.RETRY,
}

TRANSITIONS: Final[dict[FindState, dict[FindInput, FindState]]] = {
    _State.WAITING: {
        **_UNLOCATED,
        _Input.ANSWER_NONE: _State.WAITING,
        _Input.ALL_ANSWERED: _State.NONE,
    },
    _State.DOUBTFUL: {
        **_UNLOCATED,
        _Input.ANSWER_NONE: _State.DOUBTFUL,
        _Input.ALL_ANSWERED: _State.UNKNOWN,
    },
    _State.LOCATED: {
        _Input.ANSWER_NONE: _State.LOCATED,
        _Input.ANSWER_UNKNOWN: _State.LOCATED,
        _Input.ANSWER_FOUND: _State.LOCATED,
        _Input.ANSWER_CONTESTED: _State.LOCATED,
        _Input.OUTRANKED: _State.LOCATED,
        _Input.ALL_ANSWERED: _State.FOUND,
        _Input.SOME_SILENT: _State.FOUND,
        _Input.ANSWER_RETRY: _State.RETRY,
        _Input.TREE_STEPPED: _State.RETRY,
    },
    _State.NONE: {},
    _State.FOUND: {},
    _State.UNKNOWN: {},
    _State.CONTESTED: {},
    _State.RETRY: {},
}

FINAL: Final = frozenset(state for state, inputs in TRANSITIONS.items() if not inputs)
"""The states in which a search has ended."""


def next_state(state: FindState, happened: FindInput) -> FindState:
    """Return the state after an input.

    >>> next_state(FindState.DOUBTFUL, FindInput.ALL_ANSWERED).name
    'UNKNOWN'
    """
    found = TRANSITIONS[state].get(happened)
    assert found is not None, f"a search in state {state.name} takes no {happened.name}"
    return found
