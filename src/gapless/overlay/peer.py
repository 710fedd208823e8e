"""A peer: the sessions with one broker, and which of them is active (:mod:`.session_state`)."""

from __future__ import annotations

from gapless.overlay.session import PeerSession
from gapless.overlay.session_state import NEXT_PEER_STATES, PeerConnectivity, PeerInput, PeerRoute

__all__ = ["Peer"]


class Peer:
    """The sessions with one broker."""

    __slots__ = ("active", "direct", "relayed", "state", "unreached_since")

    def __init__(self, direct: PeerSession, now: int) -> None:
        self.direct = direct
        self.relayed: PeerSession | None = None
        self.active: PeerSession | None = None
        """The session that the components use."""
        self.state = PeerConnectivity(PeerRoute.NONE)
        self.unreached_since = now

    @property
    def is_direct(self) -> bool:
        """Whether the direct session is active."""
        return self.active is self.direct

    @property
    def is_unreached(self) -> bool:
        """Whether there is no active session, and no relayed one that may become active."""
        return self.active is None and self.relayed is None

    def take(self, session: PeerSession) -> None:
        """Make a session the active one; a direct one makes relays unnecessary."""
        is_direct = session is self.direct
        self._enter(PeerInput.DIRECT_TAKEN if is_direct else PeerInput.RELAYED_TAKEN)
        self.active = session
        if is_direct:
            self.relayed = None

    def lose(self) -> None:
        """Leave the peer without an active session."""
        self._enter(PeerInput.LOST)
        self.active = None

    def set_unreached(self, now: int) -> None:
        """Note since when there is no active session."""
        self.unreached_since = now

    def set_congested(self, congested: bool) -> bool:
        """Note whether the route is congested; return whether that has changed."""
        if congested == self.state.is_congested:
            return False
        self._enter(PeerInput.CONGESTED if congested else PeerInput.DRAINED)
        return True

    def set_relayed(self, session: PeerSession) -> None:
        """Add a relayed session to the direct one."""
        self.relayed = session

    def drop_relayed(self) -> PeerSession | None:
        """Remove and return the relayed session."""
        session, self.relayed = self.relayed, None
        return session

    def other_open(self, session: PeerSession) -> PeerSession | None:
        """Return an open session other than this one, the direct one first."""
        for other in (self.direct, self.relayed):
            if other is not None and other is not session and other.is_open:
                return other
        return None

    def _enter(self, cause: PeerInput) -> None:
        """Change the state by the transition table."""
        assert (self.state, cause) in NEXT_PEER_STATES, f"{cause} in {self.state}"
        self.state = NEXT_PEER_STATES[self.state, cause]
