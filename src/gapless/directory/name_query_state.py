"""The states of a name query.

Theory of operation
-------------------
A query is WAITING until every broker that it was sent to has replied for itself and for all brokers
behind it. If all replies are FREE, the name is FREE. One UNKNOWN reply makes the query DOUBTFUL: it
waits for the other replies, because one of those brokers may have the name, and ends as UNKNOWN. A
reply that names a broker ends the query at once as TAKEN. A broker that does not reply in time may
have the name, so the query ends as UNKNOWN.

Two brokers may query one name at the same time. Each receives the query of the other. The broker
whose own name is greater is OUTRANKED and gives up, so at most one of them finds the name free.

The tree may change while a query is under way. A broker that knows another epoch of the edge that the
query has crossed replies RETRY, and a step that changes edges of the own cell ends the query here.
The query ends as RETRY, and its requester queries anew (RS-15a).

FREE, TAKEN, UNKNOWN and RETRY are final: a query that has ended takes no input.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["FINAL", "TRANSITIONS", "NameQueryInput", "NameQueryState", "next_state"]


class NameQueryState(Enum):
    """The state of a name query."""

    WAITING = "waiting"
    DOUBTFUL = "doubtful"
    FREE = "free"
    TAKEN = "taken"
    UNKNOWN = "unknown"
    RETRY = "retry"


class NameQueryInput(Enum):
    """An input that changes the state of a name query."""

    REPLY_FREE = "a reply: the name is not in use"
    REPLY_UNKNOWN = "a reply: some brokers did not reply"
    REPLY_TAKEN = "a reply: a broker has the name"
    REPLY_RETRY = "a reply: the tree has changed"
    TREE_STEPPED = "edges of the own cell have changed"
    ALL_REPLIED = "no reply is outstanding"
    TIMEOUT = "a reply did not come in time"
    OUTRANKED = "a broker of a lesser name queries the same name"


_WAITING, _DOUBTFUL = NameQueryState.WAITING, NameQueryState.DOUBTFUL
_FREE, _TAKEN, _UNKNOWN = NameQueryState.FREE, NameQueryState.TAKEN, NameQueryState.UNKNOWN
_RETRY = NameQueryState.RETRY

TRANSITIONS: Final[dict[NameQueryState, dict[NameQueryInput, NameQueryState]]] = {
    _WAITING: {
        NameQueryInput.REPLY_FREE: _WAITING,
        NameQueryInput.REPLY_UNKNOWN: _DOUBTFUL,
        NameQueryInput.REPLY_TAKEN: _TAKEN,
        NameQueryInput.REPLY_RETRY: _RETRY,
        NameQueryInput.TREE_STEPPED: _RETRY,
        NameQueryInput.ALL_REPLIED: _FREE,
        NameQueryInput.TIMEOUT: _UNKNOWN,
        NameQueryInput.OUTRANKED: _TAKEN,
    },
    _DOUBTFUL: {
        NameQueryInput.REPLY_FREE: _DOUBTFUL,
        NameQueryInput.REPLY_UNKNOWN: _DOUBTFUL,
        NameQueryInput.REPLY_TAKEN: _TAKEN,
        NameQueryInput.REPLY_RETRY: _RETRY,
        NameQueryInput.TREE_STEPPED: _RETRY,
        NameQueryInput.ALL_REPLIED: _UNKNOWN,
        NameQueryInput.TIMEOUT: _UNKNOWN,
        NameQueryInput.OUTRANKED: _TAKEN,
    },
    _FREE: {},
    _TAKEN: {},
    _UNKNOWN: {},
    _RETRY: {},
}

FINAL: Final = frozenset(state for state, inputs in TRANSITIONS.items() if not inputs)
"""The states in which a query has ended."""


def next_state(state: NameQueryState, happened: NameQueryInput) -> NameQueryState:
    """Return the state after an input.

    >>> next_state(NameQueryState.DOUBTFUL, NameQueryInput.ALL_REPLIED).name
    'UNKNOWN'
    """
    found = TRANSITIONS[state].get(happened)
    assert found is not None, f"a name query in state {state.name} takes no {happened.name}"
    return found
