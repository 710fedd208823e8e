"""The states of a peer session and of a peer, their inputs, and their tables (R1 to R3, R40).

Theory of operation of a peer session
-------------------------------------
A session has two ends. Each end sends Hello until it knows that the other end has heard it.

::

    CLOSED --START--> OPENING --CONFIRMED--> OPEN
       ^                 ^  |                  |
       |                 +--|----- LOST -------+
       +------- END --------+

- ``CLOSED``: there is no route to the peer.
- ``OPENING``: this end says Hello. The other end may not have heard it.
- ``OPEN``: the other end has heard this one. Messages go out.

A session that is open is lost first, and then starts anew or ends: the components hear that it is over
before anything else happens. So ``OPEN`` has no entry for START and END.

Theory of operation of a peer
-----------------------------
A peer may have two sessions: a direct one over the link to it, and a relayed one over other brokers. The
components know of one at most, the active one. The state of a peer says which one is active, and whether
the components were told that too much waits on its route.

- ``NONE``: no session is active.
- ``DIRECT``, ``RELAYED``: the direct or the relayed session is active.

One session replaces another by two inputs: the active one is lost, and then the other is taken. Whether
the route is congested is looked at after that. So a peer without an active session may be congested for a
moment, and so may a session that has just been taken.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = [
    "NEXT_PEER_STATES",
    "NEXT_SESSION_STATES",
    "PeerInput",
    "PeerRoute",
    "PeerSessionInput",
    "PeerSessionState",
    "PeerState",
]


class PeerSessionState(Enum):
    """Whether the two ends of a session have heard each other."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"


class PeerSessionInput(Enum):
    """What can happen to a session."""

    START = auto()
    """There is a route to the peer, or the session begins anew with a new number."""
    CONFIRMED = auto()
    """The peer names this end: it has heard it."""
    LOST = auto()
    """The session is over: it is dead, has a gap, or the peer began anew."""
    END = auto()
    """There is no route to the peer."""


NEXT_SESSION_STATES: Final[dict[tuple[PeerSessionState, PeerSessionInput], PeerSessionState]] = {
    (PeerSessionState.CLOSED, PeerSessionInput.START): PeerSessionState.OPENING,
    (PeerSessionState.CLOSED, PeerSessionInput.END): PeerSessionState.CLOSED,
    (PeerSessionState.OPENING, PeerSessionInput.START): PeerSessionState.OPENING,
    (PeerSessionState.OPENING, PeerSessionInput.CONFIRMED): PeerSessionState.OPEN,
    (PeerSessionState.OPENING, PeerSessionInput.END): PeerSessionState.CLOSED,
    (PeerSessionState.OPEN, PeerSessionInput.LOST): PeerSessionState.OPENING,
}
"""The state of a session after an input."""


class PeerRoute(Enum):
    """The session of a peer that is active."""

    NONE = auto()
    DIRECT = auto()
    RELAYED = auto()


class PeerState(NamedTuple):
    """Which session of a peer is active, and whether its route is congested."""

    route: PeerRoute
    is_congested: bool = False


class PeerInput(Enum):
    """What can happen to a peer."""

    DIRECT_TAKEN = auto()
    RELAYED_TAKEN = auto()
    LOST = auto()
    """The active session is over, or another one replaces it."""
    CONGESTED = auto()
    """Too much waits on the route of the active session (R40)."""
    DRAINED = auto()
    """There is room again, or another route, or none."""


NEXT_PEER_STATES: Final[dict[tuple[PeerState, PeerInput], PeerState]] = {
    (PeerState(PeerRoute.NONE), PeerInput.DIRECT_TAKEN): PeerState(PeerRoute.DIRECT),
    (PeerState(PeerRoute.NONE), PeerInput.RELAYED_TAKEN): PeerState(PeerRoute.RELAYED),
    (PeerState(PeerRoute.DIRECT), PeerInput.LOST): PeerState(PeerRoute.NONE),
    (PeerState(PeerRoute.DIRECT), PeerInput.CONGESTED): PeerState(PeerRoute.DIRECT, True),
    (PeerState(PeerRoute.RELAYED), PeerInput.LOST): PeerState(PeerRoute.NONE),
    (PeerState(PeerRoute.RELAYED), PeerInput.CONGESTED): PeerState(PeerRoute.RELAYED, True),
    (PeerState(PeerRoute.NONE, True), PeerInput.DIRECT_TAKEN): PeerState(PeerRoute.DIRECT, True),
    (PeerState(PeerRoute.NONE, True), PeerInput.RELAYED_TAKEN): PeerState(PeerRoute.RELAYED, True),
    (PeerState(PeerRoute.NONE, True), PeerInput.DRAINED): PeerState(PeerRoute.NONE),
    (PeerState(PeerRoute.DIRECT, True), PeerInput.LOST): PeerState(PeerRoute.NONE, True),
    (PeerState(PeerRoute.DIRECT, True), PeerInput.DRAINED): PeerState(PeerRoute.DIRECT),
    (PeerState(PeerRoute.RELAYED, True), PeerInput.LOST): PeerState(PeerRoute.NONE, True),
    (PeerState(PeerRoute.RELAYED, True), PeerInput.DRAINED): PeerState(PeerRoute.RELAYED),
}
"""The state of a peer after an input."""
