"""An attachment: a feeder's record of one receiver of one pubend.

It has the last tick sent, the ticks that the receiver is curious about, and a state
(:mod:`.attachment_state`).
"""

from __future__ import annotations

from gapless.core.ids import BrokerId
from gapless.core.ticks import Tick
from gapless.messages.streams import BestEffortPosition
from gapless.overlay.path_epochs import PathEpochs
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachment_state import NEXT_STATES, AttachmentInput, AttachmentState
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
        "path_epochs",
        "peer",
        "position",
        "receiver",
        "refreshed",
        "sent",
        "silent",
        "state",
    )

    def __init__(
        self,
        peer: BrokerId,
        number: int,
        receiver: Receiver,
        curious: RequestedTicks,
        path_epochs: PathEpochs = (),
        position: BestEffortPosition | None = None,
        *,
        now: int = 0,
        eager: bool = False,
        is_congested: bool = False,
        is_filtered: bool = True,
    ) -> None:
        self.peer = peer
        self.path_epochs = path_epochs
        """The epochs that the receiver has named (RS-11)."""
        self.position = position
        """Of a best-effort pubend: the receiver was sent everything up to this position (RS-14)."""
        self.number = number
        self.receiver = receiver
        self.eager = eager
        self.sent: Tick = 0
        self.silent: Tick = 0
        """The known ticks above ``sent`` up to this one have no event for the receiver.

        This remains true: the tables were sufficient for the stream epoch of those ticks (R24).
        """
        self.curious = curious
        self.refreshed = now
        self.is_filtered = is_filtered
        """Whether tables may decide what the receiver is sent (R25)."""
        self.is_congested = is_congested
        """Whether the route to the peer is congested (R40)."""
        self.state = AttachmentState.WAITING

    # --- states ------------------------------------------------------------------------------

    def start(self, sent: Tick) -> None:
        """Feed the receiver above a tick: the router has a source."""
        state = AttachmentState.HELD if self.is_congested else AttachmentState.FED
        self._enter(AttachmentInput.SOURCE_FOUND, state)
        self.sent = sent

    def wait(self) -> None:
        """Feed nothing: the router has no source."""
        self._enter(AttachmentInput.SOURCE_LOST, AttachmentState.WAITING)

    def hold(self) -> None:
        """Send nothing of the stream: the route to the peer is congested (R40)."""
        self.is_congested = True
        is_fed = self.state is AttachmentState.FED
        self._enter(AttachmentInput.CONGESTED, AttachmentState.HELD if is_fed else self.state)

    def resume(self, top: Tick) -> bool:
        """Feed the receiver above a tick again; return False if the attachment waits.

        Ticks that were not sent meanwhile are a gap for the receiver.
        """
        self.is_congested = False
        if self.state is AttachmentState.WAITING:
            self._enter(AttachmentInput.DRAINED, AttachmentState.WAITING)
            return False
        self._enter(AttachmentInput.DRAINED, AttachmentState.FED)
        self.sent = max(self.sent, top)
        return True

    def _enter(self, cause: AttachmentInput, state: AttachmentState) -> None:
        """Change the state, and assert that the table allows it."""
        allowed = NEXT_STATES.get((self.state, cause), ())
        assert state in allowed, f"{cause} leads from {self.state} to {state}"
        self.state = state

    # --- progress ----------------------------------------------------------------------------

    def refresh(self, now: int, *, eager: bool) -> None:
        """Note that the receiver has attached again."""
        self.refreshed = now
        self.eager = eager

    def sent_through(self, high: Tick) -> None:
        """Note that everything known up to a tick was sent."""
        self.sent = max(self.sent, high)

    def sent_position(self, position: BestEffortPosition | None) -> None:
        """Note that everything up to a position of best effort was sent, or need not be."""
        self.position = position

    def silent_through(self, high: Tick) -> None:
        """Note that the known and unsent ticks up to a tick have no event for the receiver."""
        self.silent = high

    def doubt_from(self, tick: Tick) -> None:
        """Match the ticks from a tick on again: knowledge of them has arrived late."""
        self.silent = min(self.silent, tick - 1)
