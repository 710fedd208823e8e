"""Peers whose route is congested: they get nothing of the streams until it has drained (R40)."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import TickRange
from gapless.messages.streams import Nack
from gapless.routing.attachments import Attachments
from gapless.routing.receiver_requests import ReceiverRequests
from gapless.routing.routed import RoutedPubend

__all__ = ["Congestion"]


class Congestion:
    """Pauses and resumes all attachments of a peer."""

    def __init__(
        self,
        context: Context,
        attachments: Attachments,
        requests: ReceiverRequests,
        all_routed: Mapping[PubendId, RoutedPubend],
    ) -> None:
        self._context = context
        self._attachments = attachments
        self._requests = requests
        self._all_routed = all_routed

    def pause(self, peer: BrokerId) -> None:
        """Send a peer nothing of the streams."""
        self._context.mark("receiver was slow")
        if self._attachments.is_congested(peer):
            return
        self._attachments.congested(peer)
        for routed in self._all_routed.values():
            for attachment in routed.attachments.values():
                if attachment.peer == peer:
                    attachment.hold()

    def resume(self, peer: BrokerId) -> None:
        """Send a peer new knowledge again; it sees a gap and sends a nack.

        The nacks received meanwhile are answered now. Otherwise a peer that is congested most of
        the time would repeat them ever more rarely, and most would arrive while it is congested.
        """
        if not self._attachments.is_congested(peer):
            return
        self._attachments.drained(peer)
        for routed in self._all_routed.values():
            requested: list[TickRange] = []
            for attachment in routed.attachments.values():
                if attachment.peer == peer and attachment.resume(routed.stream.top):
                    attachment.sent_position(routed.replay.top)
                    requested += attachment.curious.take(0, routed.stream.top)
            if requested:
                self._requests.nack(routed, peer, Nack(routed.pubend, tuple(requested)))
