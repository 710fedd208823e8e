"""The attachments of a router: which receivers are fed, wait, or end (R10).

A router feeds only receivers that are beyond it, as seen from the pubend. So a chain of feeds
approaches the PHB and has no cycle (I11). A router needs a source to feed others. Until it has one
its receivers wait. It notifies them after a timeout, so that they can try another broker. A
receiver that does not attach again for a while is forgotten.
"""

from __future__ import annotations

from collections import Counter

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    FeedUnavailable,
    FeedUnavailableReason,
)
from gapless.overlay.path_epochs import SAME_VIEW
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachment import Attachment
from gapless.routing.attachment_state import AttachmentState
from gapless.routing.deferred import DeferredAttaches
from gapless.routing.protocols import Filtering, Paths
from gapless.routing.routed import RoutedPubend
from gapless.stream.curiosity import RequestedTicks

__all__ = ["Attachments"]


class Attachments:
    """The attachments of all pubends of a router."""

    def __init__(
        self, context: Context, filtering: Filtering, paths: Paths, deferred: DeferredAttaches
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._filtering = filtering
        self._paths = paths
        self._deferred = deferred
        self.count = 0
        """The number of attachments of all pubends."""
        self._fed: Counter[BrokerId] = Counter()
        """The number of attachments of each broker of another cell."""
        self._congested: set[BrokerId] = set()
        """Peers whose route is congested: they get nothing of the streams (R40)."""

    # --- start and end -----------------------------------------------------------------------

    def refusal(self, pubend: PubendId, receiver: Receiver) -> FeedUnavailableReason | None:
        """Return why a receiver that knows the same path cannot be fed here, or None if it can."""
        if not self._paths.is_announced(pubend):
            return FeedUnavailableReason.UNKNOWN_PUBEND
        if not self._paths.may_feed(pubend, receiver):
            return FeedUnavailableReason.NOT_NEARER
        if self.count >= self._context.parameters.attachments_max:
            return FeedUnavailableReason.LIMIT
        return None

    def admit(self, routed: RoutedPubend, peer: BrokerId, message: Attach) -> Attachment:
        """Create the attachment of a receiver that may be fed, and drop its earlier one."""
        receiver = Receiver(message.kind, message.receiver)
        made = Attachment(
            peer,
            message.number,
            receiver,
            RequestedTicks(self._context.parameters),
            message.path_epochs,
            message.after,
            now=self._context.now,
            eager=message.eager,
            is_congested=peer in self._congested,
            # the subend of this broker matches all its filters anyway
            is_filtered=message.kind is not AttachKind.PHB_CELL and peer != self._me,
        )
        for key, other in list(routed.attachments.items()):
            if other.peer == peer and other.receiver == receiver:
                self.drop(routed, key)  # the receiver has attached again and forgotten this one
        routed.add(made)
        self.count += 1
        if receiver.kind is AttachKind.CELL:
            self._fed[peer] += 1
            if self._fed[peer] == 1:
                self._filtering.set_fed(peer, fed=True)
        routed.review_eager()
        return made

    def refresh(self, routed: RoutedPubend, attachment: Attachment, *, eager: bool) -> None:
        """Refresh an attachment; send the receiver the last tick sent, unless it waits."""
        attachment.refresh(self._context.now, eager=eager)
        routed.review_eager()
        if attachment.state is not AttachmentState.WAITING:
            self.confirm(routed, attachment)

    def drop(self, routed: RoutedPubend, key: tuple[BrokerId, int]) -> None:
        """Stop feeding a receiver."""
        attachment = routed.remove(key)
        peer = attachment.peer
        self.count -= 1
        if attachment.receiver.kind is AttachKind.CELL:
            self._fed[peer] -= 1
            if not self._fed[peer]:
                del self._fed[peer]
                self._filtering.set_fed(peer, fed=False)

    def session_closed(self, routed: RoutedPubend, peer: BrokerId) -> None:
        """Drop the attachments of a session (R2)."""
        for key in [key for key in routed.attachments if key[0] == peer]:
            self.drop(routed, key)
        routed.review_eager()

    def expire(self, routed: RoutedPubend, oldest: int) -> None:
        """Drop the attachments that were last refreshed before a time."""
        expired = [key for key, each in routed.attachments.items() if each.refreshed < oldest]
        for key in expired:
            self._context.mark("attachment expired")
            self.drop(routed, key)
        if expired:
            routed.review_eager()

    def update_path(self, routed: RoutedPubend) -> None:
        """Drop the attachments that are no longer on the path, and send the reason (RS-11)."""
        for key, attachment in list(routed.attachments.items()):
            receiver = attachment.receiver
            difference = self._paths.difference(receiver, attachment.path_epochs)
            reason = self.refusal(routed.pubend, receiver)
            if difference != SAME_VIEW:
                self._deferred.exchange(attachment.peer, difference)
                reason = FeedUnavailableReason.SHAPE_MISMATCH
            if reason is not None and reason is not FeedUnavailableReason.LIMIT:
                self.drop(routed, key)
                self._context.send(
                    attachment.peer, FeedUnavailable(routed.pubend, attachment.number, reason)
                )
        routed.review_eager()

    # --- the source --------------------------------------------------------------------------

    def start(self, routed: RoutedPubend, attachment: Attachment, sent: Tick) -> None:
        """Feed a receiver above a tick, and send it that tick."""
        attachment.start(sent)
        self.confirm(routed, attachment)

    def confirm(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Send a receiver the last tick sent."""
        at = attachment.position
        sent = attachment.sent if at is None else at.tick
        message = Attached(routed.pubend, attachment.number, sent, routed.relayed, at)
        self._context.send(attachment.peer, message)

    def start_waiting(self, routed: RoutedPubend) -> None:
        """Feed the waiting receivers: the router has a source."""
        for attachment in routed.attachments.values():
            if attachment.state is AttachmentState.WAITING:
                self.start(routed, attachment, routed.stream.top)

    def await_source(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Let a receiver wait for a source, and notify it after a timeout."""

        def still_unfed() -> None:
            key = (attachment.peer, attachment.number)
            is_waiting = attachment.state is AttachmentState.WAITING
            if is_waiting and routed.attachments.get(key) is attachment:
                self._send_no_feed(routed, attachment)

        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms), still_unfed
        )

    def wait_all(self, routed: RoutedPubend) -> None:
        """Let all receivers wait and notify them: the router has no source."""
        for attachment in routed.attachments.values():
            attachment.wait()
            self._send_no_feed(routed, attachment)

    def _send_no_feed(self, routed: RoutedPubend, attachment: Attachment) -> None:
        message = FeedUnavailable(routed.pubend, attachment.number, FeedUnavailableReason.NO_FEED)
        self._context.send(attachment.peer, message)

    # --- congestion (R40) --------------------------------------------------------------------

    def is_congested(self, peer: BrokerId) -> bool:
        """Return whether the route to a peer is congested."""
        return peer in self._congested

    def congested(self, peer: BrokerId) -> None:
        """Note that the route to a peer is congested."""
        self._congested.add(peer)

    def drained(self, peer: BrokerId) -> None:
        """Note that the route to a peer has drained."""
        self._congested.discard(peer)
