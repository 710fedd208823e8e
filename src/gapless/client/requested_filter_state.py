"""The states of a filter that a subscription requests, their inputs, and the table that joins them.

Theory of operation
-------------------
A subscription changes its filter by one request at a time.

- ``SETTLED``: no change is in progress. The text is the newest filter that was confirmed.
- ``CHANGING``: SetFilter was sent and has no reply.

While a subscription that is not durable changes its filter, its text is the new filter: if the
connection is lost, the subscription starts again with it. A durable subscription keeps the old text
until the reply, because its broker stores the filter. A change that was not made (``REFUSED``)
restores the former text. If the outcome is unknown (``UNKNOWN``), the text stays as it is; the
reply to the next Subscribe has the filter of a durable subscription. A broker may replace the
filter in both states: it confirms the stored one when a durable subscription is resumed, and an
operator may set another.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_STATE", "RequestedFilterInput", "RequestedFilterState"]


class RequestedFilterState(Enum):
    """Whether a change of the filter is in progress."""

    SETTLED = auto()
    CHANGING = auto()


class RequestedFilterInput(Enum):
    """What can happen to a filter that a subscription requests."""

    REQUESTED = auto()
    """The program requests another filter."""
    CHANGED = auto()
    """The broker has confirmed the change."""
    REFUSED = auto()
    """The change was not made."""
    UNKNOWN = auto()
    """The reply is not awaited any more."""
    REPLACED = auto()
    """The broker has sent the filter that applies."""


_State = RequestedFilterState
_Input = RequestedFilterInput

NEXT_STATE: Final[dict[tuple[RequestedFilterState, RequestedFilterInput], RequestedFilterState]] = {
    (_State.SETTLED, _Input.REQUESTED): _State.CHANGING,
    (_State.SETTLED, _Input.REPLACED): _State.SETTLED,
    (_State.CHANGING, _Input.CHANGED): _State.SETTLED,
    (_State.CHANGING, _Input.REFUSED): _State.SETTLED,
    (_State.CHANGING, _Input.UNKNOWN): _State.SETTLED,
    (_State.CHANGING, _Input.REPLACED): _State.CHANGING,
}
"""The next state. A pair that is not here cannot happen."""
