"""How a strand catches up: it reads the log and joins the live stream (R48).

Reading goes on while there is room in the buffer and something unread. Near the horizon, if the
live stream serves the strand's filter there, a tick J is chosen: up to J the log is read, and what
the subend hands over above J is held. When J is read, both are put together. If too much is held,
it is dropped and reading goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import TICKS_PER_MS, Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Publication
from gapless.subscribers.cursor_state import FOREVER, Lost, State
from gapless.subscribers.filter_segments import Segment

if TYPE_CHECKING:
    from gapless.requests.carrier import Errand
    from gapless.subscribers.cursor import Strand

__all__ = ["CatchUp"]


class CatchUp:
    """What a strand has read, and what it holds back meanwhile."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self._host = strand.subscription.host
        self._parameters = self._host.context.parameters
        self.held: list[Publication] = []
        """What came live above J."""
        self.join_at: Tick = 0
        """J: up to here the log is read."""
        self._top: Tick | None = None
        """The stream's top when the log was last read."""
        self._errand: Errand | None = None
        self._reading = 0
        """Counts reads: an answer to an older one is not for us."""
        self.fault = ""
        """Why the log cannot be read where the strand is; it is tried again and again (P8)."""

    @property
    def is_reading(self) -> bool:
        """Whether a read is under way."""
        return self._errand is not None

    def pump(self) -> None:
        """Go on reading, or join the live stream."""
        strand = self._strand
        if self._errand is not None or strand.subscription.client is None:
            return
        if strand.drifting.is_adrift or strand.asks_for_earlier:
            return
        if not strand.buffer.has_room:
            return  # nor join: the next event would be one too many, and all be read again
        strand.drifting.step_over_hole()
        if strand.state is State.CATCHING and not strand.drifting.is_hole_ahead:
            self.try_to_join()
        if not strand.reads_log:
            return
        known = max(strand.subend.horizon or 0, self._top or 0)
        if self._top is not None and strand.position >= known:
            return  # nothing more is there yet
        segment, end = strand.governing(strand.position + 1)
        if strand.base is not None and not self._host.meets(strand.pubend, segment):
            # not beyond the horizon: what is advertised there may be more than is known here
            self._pass_over(min(end, strand.subend.horizon or 0))
        else:
            high = min(end, self.join_at) if strand.state is State.JOINING else end
            self._read(segment, strand.drifting.up_to_hole(high))

    def _pass_over(self, high: Tick) -> None:
        """Go on without reading: a filter that can match nothing of the stream governs here."""
        strand = self._strand
        if high > strand.position:
            strand.position = high
            self.join_if_read()
            self._host.touch(strand.subscription)

    # --- joining ---------------------------------------------------------------------------------

    def try_to_join(self) -> None:
        """Join if the horizon is near, and the live stream serves the filter there."""
        strand, subend = self._strand, self._strand.subend
        horizon = subend.horizon
        if horizon is None or strand.base is None or not strand.segment.reached_by(subend.served):
            return
        window = self._parameters.join_window_ms * TICKS_PER_MS
        position = strand.position
        if position < horizon - window or strand.governing(position + 1)[1] != FOREVER:
            return
        if position >= horizon:
            strand.become(State.LIVE)
        else:
            self.join_at = horizon
            strand.become(State.JOINING)

    def hold_back(self, publications: list[Publication]) -> None:
        """Hold what came live until J is read, unless it becomes too much."""
        self.held += [each for each in publications if each.tick > self.join_at]
        if len(self.held) > self._parameters.join_hold:
            self._host.context.mark("joining held too much")
            self.held.clear()
            self._strand.become(State.CATCHING)

    def join_if_read(self) -> None:
        """Be live if the log is read up to J."""
        strand = self._strand
        if strand.state is State.JOINING and strand.position >= self.join_at:
            strand.buffer.extend(self.held)
            self.held.clear()
            strand.become(State.LIVE)

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, segment: Segment, high: Tick) -> None:
        strand = self._strand
        self._reading += 1
        turn, hold = self._reading, strand.holding.named()

        def read(reply: ReadReply) -> None:
            if turn == self._reading:
                self._reading += 1
                self._errand, self.fault = None, ""
                strand.holding.answered(hold)
                self.take_read(reply, segment, high)

        def fault(reason: str) -> None:
            if turn == self._reading:
                self.fault = reason
                strand.subscription.stalls.note(strand.pubend)

        errand = self._host.requests.read(
            strand.pubend,
            segment.text,
            strand.position + 1,
            high,
            hold=hold,
            hold_tick=strand.kept_from,
            then=read,
            fault=fault,
        )
        if turn == self._reading:
            self._errand = errand

    def take_read(self, reply: ReadReply, segment: Segment, high: Tick) -> None:
        """Buffer what was read; what the log no longer has is a loss, never silence (A14)."""
        strand = self._strand
        self._top = reply.top
        strand.learn_oldest(reply.released)
        # not beyond what was asked for: what lies above may have come live, and is held
        released, gone = min(reply.released, high), min(reply.gone, high)
        if released > strand.position:
            lost = gone > strand.position and strand.base is not None
            if lost and self._host.meets(strand.pubend, segment):
                strand.buffer.append_loss(Lost(strand.position + 1, gone))
            strand.position = released
        if strand.base is None:
            strand.begin(max(strand.position, strand.subscription.merged))
        for piece in reply.pieces:
            strand.buffer.extend(
                each for each in piece.publications if strand.position < each.tick <= high
            )
        strand.position = max(strand.position, min(reply.done, high))
        self.join_if_read()
        # what is to be told of the strand itself is told before its events, when the step ends
        self._host.touch(strand.subscription)

    def stop(self) -> None:
        """An answer that is under way is no longer wanted."""
        self._reading += 1
        self.fault = ""
        if self._errand is not None:
            self._errand.cancel()
            self._errand = None

    def forget_top(self) -> None:
        """Read again, whatever was known of the end of the log."""
        self._top = None
