"""The states of a feed, its inputs, and the table that joins them (R7 to R9).

Theory of operation
-------------------
A feed has at most one feeder, and at most one trial: a candidate that has not replied to an Attach.
Both together make the state:

- ``RETRYING``: no feeder, and no candidate is left to try. The retry timer is armed.
- ``TRYING``: no feeder. One candidate is tried.
- ``FED``: a feeder. No candidate is tried.
- ``FED_TRYING``: a feeder. A candidate of better rank is tried.
- ``FED_LEAVING``: a feeder that has sent nothing for ``dct_ms``. Any candidate that replies
  replaces the feeder. The feed remains in this state when no candidate is left to try.
- ``CLOSED``: the feed has ended.

Several inputs end with the same step: the feed tries the next untried candidate. If none is left, a
feed without a feeder arms the retry timer. So most entries of the table have two next states.

A pair of state and input that the table does not have cannot happen. For example, no trial can fail
in ``FED``, because no candidate is tried there.

Three invariants follow. There is at most one feeder and one trial. A feeder is replaced only when
another broker has replied, when the feeder refuses, or when its session ends. An attach number
lasts as long as the session.

The retry timer is armed in ``RETRYING`` only. If it fired in a state with a feeder, the feed would
try its own feeder, find it no better than itself, and detach it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["FED_STATES", "NEXT_STATES", "FeedInput", "FeedState"]


class FeedState(Enum):
    """Whether a feed has a feeder, and whether it tries a candidate."""

    RETRYING = auto()
    TRYING = auto()
    FED = auto()
    FED_TRYING = auto()
    FED_LEAVING = auto()
    CLOSED = auto()


class FeedInput(Enum):
    """An input that may change the state of a feed."""

    START = auto()
    """The feed was created."""
    STALE_ATTACHED = auto()
    """Attached with a number older than the last renewal."""
    TRIAL_ATTACHED = auto()
    """Attached from the tried candidate, with the number of the Attach."""
    FEEDER_ATTACHED = auto()
    """Attached from the feeder."""
    OTHER_ATTACHED = auto()
    """Attached from any other broker."""
    TRIAL_FAILED = auto()
    """The tried candidate refused, did not reply in time, or lost its session."""
    FEEDER_LOST = auto()
    """The feeder refused under its current number, or lost its session."""
    RETRY_TIMER = auto()
    SESSION_OPENED = auto()
    """A peer session has opened."""
    REFRESH_TIMER = auto()
    RENEW = auto()
    """The path to the pubend has changed."""
    CLOSE = auto()


FED_STATES: Final = frozenset({FeedState.FED, FeedState.FED_TRYING, FeedState.FED_LEAVING})
"""The states with a feeder."""

_UNFED: Final = (FeedState.TRYING, FeedState.RETRYING)
"""Without a feeder: the next candidate is tried, or none is left."""

_BETTER: Final = (FeedState.FED_TRYING, FeedState.FED)
"""The same with a feeder."""

NEXT_STATES: Final[dict[tuple[FeedState, FeedInput], tuple[FeedState, ...]]] = {
    (FeedState.RETRYING, FeedInput.START): _UNFED,
    (FeedState.RETRYING, FeedInput.STALE_ATTACHED): (FeedState.RETRYING,),
    (FeedState.RETRYING, FeedInput.OTHER_ATTACHED): (FeedState.FED,),
    (FeedState.RETRYING, FeedInput.RETRY_TIMER): _UNFED,
    (FeedState.RETRYING, FeedInput.SESSION_OPENED): _UNFED,
    (FeedState.RETRYING, FeedInput.REFRESH_TIMER): (FeedState.RETRYING,),
    (FeedState.RETRYING, FeedInput.RENEW): _UNFED,
    (FeedState.RETRYING, FeedInput.CLOSE): (FeedState.CLOSED,),
    (FeedState.TRYING, FeedInput.STALE_ATTACHED): (FeedState.TRYING,),
    (FeedState.TRYING, FeedInput.TRIAL_ATTACHED): (FeedState.FED,),
    (FeedState.TRYING, FeedInput.OTHER_ATTACHED): (FeedState.FED,),
    (FeedState.TRYING, FeedInput.TRIAL_FAILED): _UNFED,
    (FeedState.TRYING, FeedInput.SESSION_OPENED): (FeedState.TRYING,),
    (FeedState.TRYING, FeedInput.REFRESH_TIMER): (FeedState.TRYING,),
    (FeedState.TRYING, FeedInput.RENEW): _UNFED,
    (FeedState.TRYING, FeedInput.CLOSE): (FeedState.CLOSED,),
    (FeedState.FED, FeedInput.STALE_ATTACHED): (FeedState.FED,),
    (FeedState.FED, FeedInput.FEEDER_ATTACHED): (FeedState.FED,),
    (FeedState.FED, FeedInput.OTHER_ATTACHED): (FeedState.FED,),
    (FeedState.FED, FeedInput.FEEDER_LOST): _UNFED,
    (FeedState.FED, FeedInput.SESSION_OPENED): (FeedState.FED,),
    (FeedState.FED, FeedInput.REFRESH_TIMER): (*_BETTER, FeedState.FED_LEAVING),
    (FeedState.FED, FeedInput.RENEW): _UNFED,
    (FeedState.FED, FeedInput.CLOSE): (FeedState.CLOSED,),
    (FeedState.FED_TRYING, FeedInput.STALE_ATTACHED): (FeedState.FED_TRYING,),
    (FeedState.FED_TRYING, FeedInput.TRIAL_ATTACHED): _BETTER,
    (FeedState.FED_TRYING, FeedInput.FEEDER_ATTACHED): (FeedState.FED_TRYING,),
    (FeedState.FED_TRYING, FeedInput.OTHER_ATTACHED): (FeedState.FED_TRYING,),
    (FeedState.FED_TRYING, FeedInput.TRIAL_FAILED): _BETTER,
    (FeedState.FED_TRYING, FeedInput.FEEDER_LOST): (FeedState.TRYING,),
    (FeedState.FED_TRYING, FeedInput.SESSION_OPENED): (FeedState.FED_TRYING,),
    (FeedState.FED_TRYING, FeedInput.REFRESH_TIMER): (FeedState.FED_TRYING, FeedState.FED_LEAVING),
    (FeedState.FED_TRYING, FeedInput.RENEW): _UNFED,
    (FeedState.FED_TRYING, FeedInput.CLOSE): (FeedState.CLOSED,),
    (FeedState.FED_LEAVING, FeedInput.STALE_ATTACHED): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.TRIAL_ATTACHED): (FeedState.FED,),
    (FeedState.FED_LEAVING, FeedInput.FEEDER_ATTACHED): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.OTHER_ATTACHED): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.TRIAL_FAILED): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.FEEDER_LOST): _UNFED,
    (FeedState.FED_LEAVING, FeedInput.SESSION_OPENED): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.REFRESH_TIMER): (FeedState.FED_LEAVING,),
    (FeedState.FED_LEAVING, FeedInput.RENEW): _UNFED,
    (FeedState.FED_LEAVING, FeedInput.CLOSE): (FeedState.CLOSED,),
    (FeedState.CLOSED, FeedInput.STALE_ATTACHED): (FeedState.CLOSED,),
    (FeedState.CLOSED, FeedInput.OTHER_ATTACHED): (FeedState.CLOSED,),
    (FeedState.CLOSED, FeedInput.SESSION_OPENED): (FeedState.CLOSED,),
    (FeedState.CLOSED, FeedInput.REFRESH_TIMER): (FeedState.CLOSED,),
    (FeedState.CLOSED, FeedInput.CLOSE): (FeedState.CLOSED,),
}
"""The states in which a feed may be after an input."""
