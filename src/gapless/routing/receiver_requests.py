"""Requests of receivers: missing ticks, unknown stream epochs, silence (R36, R37, R39, R51).

What the router knows is sent. The rest is requested from the source of the pubend.
"""

from __future__ import annotations

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.core.ticks import TickRange
from gapless.messages.streams import AdvanceRequest, Nack, Released, StreamEpochRequest
from gapless.routing.epoch_sender import StreamEpochSender
from gapless.routing.nacks import UpstreamRequests
from gapless.routing.protocols import Filtering
from gapless.routing.routed import RoutedPubend
from gapless.routing.sending import MatchMasks, StreamSender

__all__ = ["ReceiverRequests"]


class ReceiverRequests:
    """Answers the requests of receivers, or passes them on."""

    def __init__(
        self,
        context: Context,
        filtering: Filtering,
        sender: StreamSender,
        epoch_sender: StreamEpochSender,
        upstream: UpstreamRequests,
    ) -> None:
        self._context = context
        self._filtering = filtering
        self._sender = sender
        self._epoch_sender = epoch_sender
        self._upstream = upstream

    def nack(self, routed: RoutedPubend, peer: BrokerId, message: Nack) -> None:
        """Send the known ticks of a nack, and request the others (R37)."""
        receivers = [each for each in routed.attachments.values() if each.peer == peer]
        masks = MatchMasks(self._filtering)
        unknown: list[TickRange] = []
        for low, high in message.ranges:
            if low <= routed.released:
                self._context.send(peer, Released(message.pubend, routed.released))
                low = routed.released + 1  # noqa: PLW2901 - the rest of the range
            if low > high:
                continue
            for attachment in receivers:
                attachment.curious.add(low, high, self._context.now)
                self._sender.answer(routed, attachment, low, high, masks)
            unknown += routed.stream.gaps(low, min(high, routed.stream.top))
        self._sender.flush()
        self._upstream.request_ticks(routed, unknown)

    def stream_epoch(
        self, routed: RoutedPubend, peer: BrokerId, message: StreamEpochRequest
    ) -> None:
        """Send a stream epoch, or request it from the feeder (R39)."""
        if routed.log is not None and not routed.stream_epochs.knows(message.number):
            self._context.mark("stream epoch is no longer kept")  # the subend reads the log (R44)
        elif not self._epoch_sender.answer(peer, message, routed.stream_epochs):
            self._upstream.request_stream_epoch(routed, message)

    def advance(self, routed: RoutedPubend, peer: BrokerId, message: AdvanceRequest) -> None:
        """Pass on a request for silence up to a tick; the waiting receiver repeats it (R51)."""
        tick = message.tick
        if tick <= routed.stream.top:
            for attachment in routed.fed_attachments():
                if attachment.peer == peer and attachment.sent < tick:
                    top, masks = routed.stream.top, MatchMasks(self._filtering)
                    self._sender.send_through(routed, attachment, top, masks)
            self._sender.flush()
        elif routed.log is not None:
            routed.log.advance(tick)
        elif routed.feeder is not None:
            greatest = routed.advance_due(tick)
            if greatest is not None:
                self._context.send(routed.feeder, AdvanceRequest(message.pubend, greatest))
