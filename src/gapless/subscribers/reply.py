"""The reply to a client that subscribes or resumes: where the subscription continues (R46, R50).

A request is answered when all cursors have started, or after ``attach_timeout_ms``, but not before
the record of a durable subscription is on disk. The client is notified of each cursor that starts
later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.context import Timer
from gapless.core.parameters import microseconds
from gapless.messages.clients import (
    HostingReference,
    PendingStart,
    PositionTuple,
    RefusalCause,
    Refused,
    StartPoint,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["PendingReply", "SubscribeReply"]


class PendingReply(NamedTuple):
    """A request of the client that is not answered yet."""

    request: int
    start: StartPoint
    """The start that the client requested."""
    seek_count: int
    timer: Timer
    later: list[Callable[[], None]]
    """Later requests of the client, which are executed after the reply."""

    def do_later(self, action: Callable[[], None]) -> None:
        """Execute an action after the reply."""
        self.later.append(action)


class SubscribeReply:
    """The replies to the client of one subscription."""

    def __init__(self, subscription: HostedSubscription) -> None:
        self._subscription = subscription
        self._context = subscription.resources.context
        self._status = subscription.resources.status
        self.pending: PendingReply | None = None
        self._is_due = False
        """Whether the reply is sent as soon as the record is on disk, also with pending cursors."""

    @property
    def is_pending(self) -> bool:
        """Whether a request of the client is not answered yet."""
        return self.pending is not None

    def expect(self, request: int, start: StartPoint, seek_count: int) -> None:
        """Note a request; it is answered after ``attach_timeout_ms`` at the latest."""
        wait = microseconds(ms=self._context.parameters.attach_timeout_ms)
        timer = self._context.call_later(wait, self.send)
        self.pending, self._is_due = PendingReply(request, start, seek_count, timer, []), False

    def do_later(self, action: Callable[[], None]) -> bool:
        """Execute an action after the pending reply. Return False if no reply is pending."""
        if self.pending is None:
            return False
        self.pending.do_later(action)
        return True

    def forget_client(self) -> None:
        """The client has disconnected."""
        if self.pending is not None:
            self.pending.timer.cancel()
        self.pending = None

    # --- replies -------------------------------------------------------------------------------

    def send_if_ready(self) -> None:
        """Answer if every cursor has started. Notify the client of cursors that start later."""
        subscription = self._subscription
        if subscription.client is None or not subscription.is_on_disk:
            return
        if self.pending is not None:
            is_settled = all(each.is_resumable for each in subscription.cursors.values())
            if self._is_due or is_settled:
                self.send()
            return
        for pubend, cursor in subscription.cursors.items():
            if not cursor.start_confirmed and cursor.is_resumable:
                if cursor.confirm_start():
                    subscription.note_change()
                started = SubscriptionStarted(subscription.name, pubend, cursor.start.origin)
                subscription.notify(started)

    def send(self) -> None:
        """Send where the subscription continues, and which pubends are pending."""
        subscription = self._subscription
        if self.pending is not None and not subscription.is_on_disk:
            self._is_due = True  # when the write is durable
            return
        answer, self.pending = self.pending, None
        if answer is None or subscription.client is None:
            return
        answer.timer.cancel()
        pending = tuple(
            PendingStart(pubend, self.reason(cursor), cursor.acked_at)
            for pubend, cursor in subscription.cursors.items()
            if not cursor.is_resumable
        )
        for cursor in subscription.cursors.values():
            if not cursor.is_resumable:
                cursor.forget_confirmation()
            elif cursor.confirm_start():
                subscription.note_change()
        subscription.notify(self._subscribed(answer.request, pending))
        subscription.guarantees.confirm_newest()
        for each in answer.later:
            each()
        subscription.progress.start()
        subscription.delivery.send_available()

    def _subscribed(self, request: int, pending: tuple[PendingStart, ...]) -> Subscribed:
        subscription = self._subscription
        if not subscription.durable:
            return Subscribed(request, self._position(), pending)
        return Subscribed(
            request,
            self._position(),
            pending,
            subscription.seek_count,
            subscription.hosting_reference,
            subscription.newest.text,
            subscription.past_filters,
            subscription.start.for_unnamed(),
            subscription.guarantees.message(),
            subscription.guarantees.confirmed is None and not subscription.epoch,
            subscription.order,
        )

    def _position(self) -> PositionTuple:
        """Return the ticks after which this connection continues, of all started cursors."""
        return tuple(
            (pubend, cursor.start.origin)
            for pubend, cursor in self._subscription.cursors.items()
            if cursor.is_resumable
        )

    def reason(self, cursor: Cursor) -> str:
        """Return why a cursor has not started."""
        if cursor.fault:
            return cursor.fault
        if cursor.subend.feeder is None:
            return self._status.obstacle(cursor.pubend)
        if self._subscription.client is None:
            return "the client is disconnected; the subscription starts when the client returns"
        if cursor.phase is CursorPhase.CATCHING_UP:
            return "the broker of this pubend has not answered yet"
        return "the broker of this pubend does not know this subscription yet"

    def send_ended(
        self,
        reason: str,
        cause: RefusalCause = RefusalCause.FENCED,
        reference: HostingReference | None = None,
    ) -> None:
        """Notify the client that it has lost the subscription; a pending request is refused."""
        subscription = self._subscription
        if subscription.client is None:
            return
        if self.pending is not None:
            broker = "" if reference is None else reference.broker
            refused = Refused(self.pending.request, reason, cause, broker, reference)
            self._context.notify(subscription.client, refused)
        else:
            ended = SubscriptionEnded(subscription.name, reason, cause, reference)
            self._context.notify(subscription.client, ended)
