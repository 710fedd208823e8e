"""The states of a pending request, its inputs, and their table (R48).

Theory of operation
-------------------
A pending request is a pubend request of this broker that has not been answered. It is repeated by a
timer, each attempt under a new id.

- ``QUEUED``: a read that waits for its turn. At most ``reads_per_shb_max`` reads of one pubend have
  their turn at the same time.
- ``UNSENT``: it has its turn, but no hop was reachable at the last attempt. It is sent when a peer
  session opens.
- ``SENT``: the last attempt went to a hop, or to the pubend at this broker.
- ``YIELDED``: a read that has given its turn to other reads, because the log cannot be read at its
  lowest tick. Its timer puts it into the queue again.
- ``ENDED``: it was answered or cancelled.

Requests other than reads need no turn. They start in ``UNSENT``, and are never queued and never
yield.

A read without a turn may be attempted: if no hop was reachable at its last attempt and a session
opens, it is sent out of turn, and its state does not change.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATES", "PendingRequestInput", "PendingRequestState"]


class PendingRequestState(Enum):
    """Whether a request has its turn, and whether its last attempt was sent."""

    QUEUED = auto()
    UNSENT = auto()
    SENT = auto()
    YIELDED = auto()
    ENDED = auto()


class PendingRequestInput(Enum):
    """An input that may change the state of a pending request."""

    TURN = auto()
    """It is the next of the queue, and fewer than ``reads_per_shb_max`` reads are active."""
    ATTEMPT_SENT = auto()
    """An attempt went to a hop, or to the pubend at this broker."""
    ATTEMPT_FAILED = auto()
    """No hop was reachable at an attempt."""
    FAULT = auto()
    """The reply contains a fault: the log cannot be read."""
    TIMER = auto()
    """No reply arrived in time."""
    END = auto()
    """It was answered or cancelled."""


_State, _Input = PendingRequestState, PendingRequestInput

NEXT_STATES: Final[dict[tuple[PendingRequestState, PendingRequestInput], PendingRequestState]] = {
    (_State.QUEUED, _Input.TURN): _State.UNSENT,
    (_State.QUEUED, _Input.ATTEMPT_SENT): _State.QUEUED,
    (_State.QUEUED, _Input.ATTEMPT_FAILED): _State.QUEUED,
    (_State.QUEUED, _Input.FAULT): _State.QUEUED,
    (_State.QUEUED, _Input.TIMER): _State.QUEUED,
    (_State.QUEUED, _Input.END): _State.ENDED,
    (_State.UNSENT, _Input.ATTEMPT_SENT): _State.SENT,
    (_State.UNSENT, _Input.ATTEMPT_FAILED): _State.UNSENT,
    (_State.UNSENT, _Input.FAULT): _State.YIELDED,
    (_State.UNSENT, _Input.TIMER): _State.UNSENT,
    (_State.UNSENT, _Input.END): _State.ENDED,
    (_State.SENT, _Input.ATTEMPT_SENT): _State.SENT,
    (_State.SENT, _Input.ATTEMPT_FAILED): _State.UNSENT,
    (_State.SENT, _Input.FAULT): _State.YIELDED,
    (_State.SENT, _Input.TIMER): _State.SENT,
    (_State.SENT, _Input.END): _State.ENDED,
    (_State.YIELDED, _Input.ATTEMPT_SENT): _State.YIELDED,
    (_State.YIELDED, _Input.ATTEMPT_FAILED): _State.YIELDED,
    (_State.YIELDED, _Input.FAULT): _State.YIELDED,
    (_State.YIELDED, _Input.TIMER): _State.QUEUED,
    (_State.YIELDED, _Input.END): _State.ENDED,
    (_State.ENDED, _Input.FAULT): _State.ENDED,
    (_State.ENDED, _Input.END): _State.ENDED,
}
"""The state of a pending request after an input."""
