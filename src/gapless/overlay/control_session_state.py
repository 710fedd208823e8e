"""The states of a control session, its inputs, and its table (RS-35).

Theory of operation
-------------------
A control session begins at the broker that needs it, which dials the other one. At the other broker
it begins when the link is up. Each end has a peer session inside it, with Hello, fences and
heartbeats, whose frames travel as ControlFrame.

::

    UNLINKED --LINK_UP--> LINKED --STARTED--> OPENING --CONFIRMED--> OPEN
        ^                   |                  |   ^                  |
        +----- LINK_DOWN ---+------------------+   +------ LOST ------+

    UNLINKED, LINKED, OPENING --ENDED--> OVER

- ``UNLINKED``: this broker needs the session, and there is no link.
- ``LINKED``: there is a link; nothing is needed here, and no Hello of a control session has come.
- ``OPENING``: this end sends Hello.
- ``OPEN``: messages are sent.
- ``OVER``: nothing needs the session any more, or a peer session has taken its place.

An open session is lost first, so that its end is notified before anything else happens.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT_CONTROL_STATES", "ControlInput", "ControlState"]


class ControlState(Enum):
    """How far a control session is."""

    UNLINKED = "unlinked"
    LINKED = "linked"
    OPENING = "opening"
    OPEN = "open"
    OVER = "over"


class ControlInput(Enum):
    """The inputs of a control session."""

    LINK_UP = auto()
    STARTED = auto()
    """This broker needs the session, or the other one has sent Hello."""
    CONFIRMED = auto()
    """The other end has received the Hello of this one."""
    LOST = auto()
    """The open session has ended."""
    LINK_DOWN = auto()
    ENDED = auto()
    """The session is not needed any more."""


NEXT_CONTROL_STATES: Final[dict[tuple[ControlState, ControlInput], ControlState]] = {
    (ControlState.UNLINKED, ControlInput.LINK_UP): ControlState.LINKED,
    (ControlState.UNLINKED, ControlInput.ENDED): ControlState.OVER,
    (ControlState.LINKED, ControlInput.STARTED): ControlState.OPENING,
    (ControlState.LINKED, ControlInput.LINK_DOWN): ControlState.UNLINKED,
    (ControlState.LINKED, ControlInput.ENDED): ControlState.OVER,
    (ControlState.OPENING, ControlInput.CONFIRMED): ControlState.OPEN,
    (ControlState.OPENING, ControlInput.LINK_DOWN): ControlState.UNLINKED,
    (ControlState.OPENING, ControlInput.ENDED): ControlState.OVER,
    (ControlState.OPEN, ControlInput.LOST): ControlState.OPENING,
}
"""The state of a control session after an input."""
