"""The states of a plan at the broker that executes it (RS-19 to RS-21).

Theory of operation
-------------------
A plan begins with a walk over the tree, and so it ends: a plan is done when a walk finds the wanted
tree. Else steps are planned, stored and executed, each after the one before it.

- ``WALKING``: the records of all cells are collected.
- ``PLANNING``: the planner works, a slice at a time.
- ``WRITING``: the steps, or how many are done, are being written. Nothing is requested meanwhile.
- ``SETTLING``: the edges of the next step's cells that the last step has changed settle.
- ``REQUESTING``: the next operation is requested from its coordinator, which repeats no harm: the
  request has the same id after a restart.
- ``STOPPING``: as ``REQUESTING``, but the plan is aborted, and its record is gone.
- ``ENDED``: nothing is requested any more.

A ``STALE`` operation leads to another walk and another plan to the same tree. The table does not count
these; the executor does, and takes ``FAILED`` when there were too many. A restart continues in
``SETTLING``, because the record is written.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "PlanInput", "PlanState"]


class PlanState(Enum):
    """The states of a plan."""

    WALKING = "the tree is walked"
    PLANNING = "steps are planned"
    WRITING = "the plan is being written"
    SETTLING = "edges settle before the next step"
    REQUESTING = "an operation is requested"
    STOPPING = "aborted, the last operation is under way"
    ENDED = "ended"


class PlanInput(Enum):
    """What changes the state of a plan."""

    REACHED = "the walk has found the wanted tree"
    DIFFERS = "the walk has found another tree"
    PLANNED = "there are steps"
    WRITTEN = "the record is durable"
    SETTLED = "the edges are settled, or settle_ms is over"
    EXHAUSTED = "no step is left"
    DONE = "the operation is done"
    STALE = "the tree is not as the operation expects"
    FAILED = "it is impossible to continue"
    ABORTED = "the operator aborts the plan"


_State, _Input = PlanState, PlanInput

TRANSITIONS: Final[dict[PlanState, dict[PlanInput, PlanState]]] = {
    _State.WALKING: {
        _Input.REACHED: _State.ENDED,
        _Input.DIFFERS: _State.PLANNING,
        _Input.FAILED: _State.ENDED,
        _Input.ABORTED: _State.ENDED,
    },
    _State.PLANNING: {
        _Input.PLANNED: _State.WRITING,
        _Input.FAILED: _State.ENDED,
        _Input.ABORTED: _State.ENDED,
    },
    _State.WRITING: {_Input.WRITTEN: _State.SETTLING, _Input.ABORTED: _State.ENDED},
    _State.SETTLING: {
        _Input.SETTLED: _State.REQUESTING,
        _Input.EXHAUSTED: _State.WALKING,
        _Input.ABORTED: _State.ENDED,
    },
    _State.REQUESTING: {
        _Input.DONE: _State.WRITING,
        _Input.STALE: _State.WALKING,
        _Input.FAILED: _State.ENDED,
        _Input.ABORTED: _State.STOPPING,
    },
    _State.STOPPING: {
        _Input.DONE: _State.ENDED,
        _Input.STALE: _State.ENDED,
        _Input.FAILED: _State.ENDED,
    },
    _State.ENDED: {},
}
