"""One control session, seen from this end (:mod:`.control_session_state`)."""

from __future__ import annotations

from gapless.core.effects import LinkTarget
from gapless.core.ids import BrokerId
from gapless.overlay.control_session_state import NEXT_CONTROL_STATES, ControlInput, ControlState
from gapless.overlay.session import PeerSession

__all__ = ["ControlSession"]


class ControlSession:
    """A control session: its state, and the peer session inside it."""

    __slots__ = ("broker", "is_needed", "session", "state", "target", "used_at")

    def __init__(self, session: PeerSession, now: int) -> None:
        self.broker: BrokerId = session.peer
        self.session = session
        self.state = ControlState.UNLINKED
        self.target: LinkTarget | None = None
        """Where this broker dials the other one; None if only the other one has dialled."""
        self.is_needed = False
        self.used_at = now
        """When a message was sent or received, or the session opened or ceased to be needed."""

    @property
    def is_open(self) -> bool:
        """Whether messages are sent."""
        return self.state is ControlState.OPEN

    @property
    def is_linked(self) -> bool:
        """Whether there is a link."""
        return self.state is not ControlState.UNLINKED

    def note_use(self, now: int) -> None:
        """Note that the session is used."""
        self.used_at = now

    def set_target(self, target: LinkTarget) -> None:
        """This broker needs the session, and dials the other one there."""
        self.is_needed, self.target = True, target

    def release(self, now: int) -> None:
        """This broker does not need the session any more."""
        if self.is_needed:
            self.is_needed, self.used_at = False, now

    def enter(self, cause: ControlInput) -> None:
        """Change the state by the transition table."""
        assert (self.state, cause) in NEXT_CONTROL_STATES, f"{cause} in {self.state}"
        self.state = NEXT_CONTROL_STATES[self.state, cause]
