"""The states of a peer session and of a peer, their inputs, and their tables (R1 to R3, R40).

Theory of operation of a peer session
-------------------------------------
A session has two ends. Each end sends Hello until it knows that the other end has received it.

::

    CLOSED --START--> OPENING --CONFIRMED--> OPEN
       ^                 ^  |                  |
       |                 +--|----- LOST -------+
       +------- END --------+

- ``CLOSED``: there is no route to the peer.
- ``OPENING``: this end sends Hello. The other end may not have received it.
- ``OPEN``: the other end has received Hello. Messages are sent.

An open session is lost first, and then starts again or ends, so that the components are notified of
its end before anything else happens. So ``OPEN`` has no entry for START and END.

Theory of operation of a peer
-----------------------------
A peer may have two sessions: a direct one over the link to it, and a relayed one over other
brokers. The components use at most one, the active one. The state of a peer contains which one is
active, and whether the components were notified that its route is congested.

- ``NONE``: no session is active.
- ``DIRECT``, ``RELAYED``: the direct or the relayed session is active.

One session replaces another by two inputs: the active one is lost, and then the other is taken. The
congestion of the route is checked after that. So a peer may be marked as congested for a moment
while it has no active session, or one that has just been taken.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = [
    "NEXT_PEER_STATES",
    "NEXT_SESSION_STATES",
    "PeerConnectivity",
    "PeerInput",
    "PeerRoute",
    "PeerSessionInput",
    "PeerSessionState",
]


class PeerSessionState(Enum):
    """Whether the two ends of a session have received each other's Hello."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"


class PeerSessionInput(Enum):
    """The inputs of a session."""

    START = auto()
    """There is a route to the peer, or the session starts again with a new number."""
    CONFIRMED = auto()
    """A packet of the peer contains this end: the peer has received its Hello."""
    LOST = auto()
    """The session has ended: it is dead, has a gap, or the peer has restarted it."""
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


class PeerConnectivity(NamedTuple):
    """Which session of a peer is active, and whether its route is congested."""

    route: PeerRoute
    is_congested: bool = False


class PeerInput(Enum):
    """The inputs of a peer."""

    DIRECT_TAKEN = auto()
    RELAYED_TAKEN = auto()
    LOST = auto()
    """The active session has ended, or another one replaces it."""
    CONGESTED = auto()
    """The route of the active session is congested (R40)."""
    DRAINED = auto()
    """The route has drained or was replaced, or there is none."""


NEXT_PEER_STATES: Final[dict[tuple[PeerConnectivity, PeerInput], PeerConnectivity]] = {
    (PeerConnectivity(PeerRoute.NONE), PeerInput.DIRECT_TAKEN): PeerConnectivity(PeerRoute.DIRECT),
    (PeerConnectivity(PeerRoute.NONE), PeerInput.RELAYED_TAKEN): PeerConnectivity(
        PeerRoute.RELAYED
    ),
    (PeerConnectivity(PeerRoute.DIRECT), PeerInput.LOST): PeerConnectivity(PeerRoute.NONE),
    (PeerConnectivity(PeerRoute.DIRECT), PeerInput.CONGESTED): PeerConnectivity(
        PeerRoute.DIRECT, True
    ),
    (PeerConnectivity(PeerRoute.RELAYED), PeerInput.LOST): PeerConnectivity(PeerRoute.NONE),
    (PeerConnectivity(PeerRoute.RELAYED), PeerInput.CONGESTED): PeerConnectivity(
        PeerRoute.RELAYED, True
    ),
    (PeerConnectivity(PeerRoute.NONE, True), PeerInput.DIRECT_TAKEN): PeerConnectivity(
        PeerRoute.DIRECT, True
    ),
    (PeerConnectivity(PeerRoute.NONE, True), PeerInput.RELAYED_TAKEN): PeerConnectivity(
        PeerRoute.RELAYED, True
    ),
    (PeerConnectivity(PeerRoute.NONE, True), PeerInput.DRAINED): PeerConnectivity(PeerRoute.NONE),
    (PeerConnectivity(PeerRoute.DIRECT, True), PeerInput.LOST): PeerConnectivity(
        PeerRoute.NONE, True
    ),
    (PeerConnectivity(PeerRoute.DIRECT, True), PeerInput.DRAINED): PeerConnectivity(
        PeerRoute.DIRECT
    ),
    (PeerConnectivity(PeerRoute.RELAYED, True), PeerInput.LOST): PeerConnectivity(
        PeerRoute.NONE, True
    ),
    (PeerConnectivity(PeerRoute.RELAYED, True), PeerInput.DRAINED): PeerConnectivity(
        PeerRoute.RELAYED
    ),
}
"""The state of a peer after an input."""
