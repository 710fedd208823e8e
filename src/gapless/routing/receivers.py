"""Who is fed by a router: receivers are admitted, told of a feed or its loss, and let go (R10).

A router feeds only those that lie beyond it, as seen from the pubend, so a chain of feeds approaches the
pubend's broker and has no cycle (I11). It needs a feed itself to feed others: until it has one its
receivers wait, and are told if that takes too long, so that they can look elsewhere. Who does not ask
again for a while is gone.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    FeedUnavailable,
    FeedUnavailableReason,
)
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachments import Attachment, RoutedPubend, RoutingPolicy, ShapeVersions
from gapless.stream.curiosity import RequestedTicks

__all__ = ["FedPeerCallback", "Receivers", "review_eager"]


class FedPeerCallback(Protocol):
    """Hears when a broker of another cell begins to be fed, and when it no longer is."""

    def __call__(self, peer: BrokerId, *, fed: bool) -> None:
        """Note it."""


class Receivers:
    """The attachments of all pubends of a router."""

    def __init__(self, context: Context, routing: RoutingPolicy, set_fed: FedPeerCallback) -> None:
        self._context = context
        self._routing = routing
        self._set_fed = set_fed
        self._count = 0
        self._fed: Counter[BrokerId] = Counter()
        """How many streams each broker of another cell has asked for."""

    # --- coming and going --------------------------------------------------------------------

    def refusal(
        self, pubend: PubendId, receiver: Receiver, shape_versions: ShapeVersions
    ) -> FeedUnavailableReason | None:
        """Say why a receiver cannot be fed here; None if it can."""
        if not self._routing.is_announced(pubend):
            return FeedUnavailableReason.UNKNOWN_PUBEND
        if not self._routing.has_shape(receiver, shape_versions):
            self._context.mark("receiver knows another shape")
            return FeedUnavailableReason.SHAPE_MISMATCH
        if not self._routing.may_feed(pubend, receiver):
            return FeedUnavailableReason.NOT_NEARER
        if self._count >= self._context.parameters.attachments_max:
            return FeedUnavailableReason.LIMIT
        return None

    def admit(self, routed: RoutedPubend, peer: BrokerId, message: Attach) -> Attachment:
        """Have an attachment for a receiver that may be fed, in place of one it had before."""
        receiver = Receiver(message.kind, message.receiver)
        curious = RequestedTicks(self._context.parameters)
        made = Attachment(peer, message.number, receiver, curious, message.shape_versions)
        made.refreshed = self._context.now
        made.eager = message.eager
        for key, other in list(routed.attachments.items()):
            if other.peer == peer and other.receiver == receiver:
                self.drop(routed, key)  # the receiver asks anew and has forgotten the old one
        routed.attachments[peer, message.number] = made
        self._count += 1
        if receiver.kind is AttachKind.CELL:
            self._fed[peer] += 1
            if self._fed[peer] == 1:
                self._set_fed(peer, fed=True)
        review_eager(routed)
        return made

    def refresh(self, routed: RoutedPubend, attachment: Attachment, *, eager: bool) -> None:
        """A receiver that is fed asks again: it is there, and is told how far it was sent."""
        attachment.refreshed = self._context.now
        attachment.eager = eager
        review_eager(routed)
        if not attachment.waiting:
            self._confirm(routed, attachment)

    def drop(self, routed: RoutedPubend, key: tuple[BrokerId, int]) -> None:
        """Feed a receiver no more."""
        attachment = routed.attachments.pop(key)
        peer = attachment.peer
        self._count -= 1
        if attachment.receiver.kind is AttachKind.CELL:
            self._fed[peer] -= 1
            if not self._fed[peer]:
                del self._fed[peer]
                self._set_fed(peer, fed=False)

    def session_closed(self, routed: RoutedPubend, peer: BrokerId) -> None:
        """What belonged to a session is gone with it (R2)."""
        for key in [key for key in routed.attachments if key[0] == peer]:
            self.drop(routed, key)
        review_eager(routed)

    def expire(self, routed: RoutedPubend) -> None:
        """End attachments that were not refreshed: their receiver is gone."""
        oldest = self._context.now - microseconds(ms=self._context.parameters.attach_expiry_ms)
        for key, attachment in list(routed.attachments.items()):
            if attachment.refreshed < oldest:
                self._context.mark("attachment expired")
                self.drop(routed, key)
        review_eager(routed)

    def update_path(self, routed: RoutedPubend) -> None:
        """End what is not on the way of a pubend any more, and say why (R13)."""
        for key, attachment in list(routed.attachments.items()):
            receiver, versions = attachment.receiver, attachment.shape_versions
            reason = self.refusal(routed.pubend, receiver, versions)
            if reason is not None and reason is not FeedUnavailableReason.LIMIT:
                self.drop(routed, key)
                self._context.send(
                    attachment.peer, FeedUnavailable(routed.pubend, attachment.number, reason)
                )
        review_eager(routed)

    # --- whether there is a feed -------------------------------------------------------------

    def confirm_feed(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Tell a receiver that it is fed from here on."""
        attachment.waiting = False
        attachment.sent = routed.stream.top
        self._confirm(routed, attachment)

    def _confirm(self, routed: RoutedPubend, attachment: Attachment) -> None:
        number, at = attachment.number, attachment.sent
        self._context.send(attachment.peer, Attached(routed.pubend, number, at, routed.relayed))

    def confirm_waiting(self, routed: RoutedPubend) -> None:
        """There is a feed: those who waited for it are fed."""
        for attachment in routed.attachments.values():
            if attachment.waiting:
                self.confirm_feed(routed, attachment)

    def defer(self, routed: RoutedPubend, attachment: Attachment) -> None:
        """Let a receiver wait for a feed, and tell it if that takes too long."""

        def still_unfed() -> None:
            key = (attachment.peer, attachment.number)
            if attachment.waiting and routed.attachments.get(key) is attachment:
                self._send_no_feed(routed, attachment)

        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_timeout_ms), still_unfed
        )

    def notify_feed_lost(self, routed: RoutedPubend) -> None:
        """There is no feed any more: receivers must look elsewhere, and wait here meanwhile."""
        for attachment in routed.attachments.values():
            attachment.waiting = True
            self._send_no_feed(routed, attachment)

    def _send_no_feed(self, routed: RoutedPubend, attachment: Attachment) -> None:
        message = FeedUnavailable(routed.pubend, attachment.number, FeedUnavailableReason.NO_FEED)
        self._context.send(attachment.peer, message)


def review_eager(routed: RoutedPubend) -> None:
    """Tell the source whether silence has to flow at once."""
    if routed.log is not None:
        routed.log.set_eager(routed.is_eager)
    elif routed.feed is not None:
        routed.feed.set_eager(routed.is_eager)
