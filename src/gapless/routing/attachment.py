"""An attachment: a feeder's record of one receiver of one pubend.

It holds how far the receiver was sent, what the receiver is curious about, and its state
(:mod:`.attachment_state`).
"""

from __future__ import annotations

from gapless.core.ids import BrokerId
from gapless.core.ticks import Tick
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachment_state import NEXT_STATES, AttachmentInput, AttachmentState
from gapless.routing.protocols import ShapeVersions
from gapless.stream.curiosity import RequestedTicks

__all__ = ["Attachment"]


class Attachment:
    """One receiver of one pubend."""

    __slots__ = (
        "curious",
        "eager",
        "is_congested",
        "is_filtered",
        "number",
        "peer",
        "receiver",
        "refreshed",
        "sent",
        "shape_versions",
        "silent",
        "state",
    )

    def __init__(
        self,
        peer: BrokerId,
        number: int,
        receiver: Receiver,
        curious: RequestedTicks,
        shape_versions: ShapeVersions = (),
        *,
        now: int = 0,
        eager: bool = False,
        is_congested: bool = False,
        is_filtered: bool = True,
    ) -> None:
        self.peer = peer
        self.shape_versions = shape_versions
        self.number = number
        self.receiver = receiver
        self.eager = eager
        self.sent: Tick = 0
        self.silent: Tick = 0
        """Up to here, everything known above ``sent`` holds no event for the receiver.

        This stays true: the tables were sufficient for the stream epoch of those ticks (R24).
        """
        self.curious = curious
        self.refreshed = now
        self.is_filtered = is_filtered
        """Whether tables may decide what the receiver is sent (R25)."""
        self.is_congested = is_congested
        """Whether too much waits on the route to the peer (R40)."""
        self.state = AttachmentState.WAITING

    # --- states ------------------------------------------------------------------------------

    def start(self, sent: Tick) -> None:
        """The router has a source: feed the receiver above a tick."""
        state = AttachmentState.HELD if self.is_congested else AttachmentState.FED
        self._enter(AttachmentInput.SOURCE_FOUND, state)
        self.sent = sent

    def wait(self) -> None:
        """The router has no source."""
        self._enter(AttachmentInput.SOURCE_LOST, AttachmentState.WAITING)

    def hold(self) -> None:
        """Send nothing of the stream: too much waits on the route to the peer (R40)."""
        self.is_congested = True
        is_fed = self.state is AttachmentState.FED
        self._enter(AttachmentInput.CONGESTED, AttachmentState.HELD if is_fed else self.state)

    def resume(self, top: Tick) -> bool:
        """Send above a tick again; what lies below is a gap to the receiver. False if it waits."""
        self.is_congested = False
        if self.state is AttachmentState.WAITING:
            self._enter(AttachmentInput.DRAINED, AttachmentState.WAITING)
            return False
        self._enter(AttachmentInput.DRAINED, AttachmentState.FED)
        self.sent = max(self.sent, top)
        return True

    def _enter(self, cause: AttachmentInput, state: AttachmentState) -> None:
        """Change the state, as the table allows after an input."""
        allowed = NEXT_STATES.get((self.state, cause), ())
        assert state in allowed, f"{cause} leads from {self.state} to {state}"
        self.state = state

    # --- progress ----------------------------------------------------------------------------

    def refresh(self, now: int, *, eager: bool) -> None:
        """The receiver has attached again."""
        self.refreshed = now
        self.eager = eager

    def sent_through(self, high: Tick) -> None:
        """Everything that is known up to a tick was sent."""
        self.sent = max(self.sent, high)

    def silent_through(self, high: Tick) -> None:
        """Everything that is known up to a tick, and was not sent, holds nothing for the receiver."""
        self.silent = high

    def doubt_from(self, tick: Tick) -> None:
        """Knowledge came late: what was found silent is looked at again from a tick on."""
        self.silent = min(self.silent, tick - 1)
