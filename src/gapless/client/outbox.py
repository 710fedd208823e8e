"""The outbox of a publisher: its batches, from the first event to the answer.

Events are collected in batches. A batch is sent at once if little is in flight, else when it is
large enough for a frame or an earlier batch is answered. So a single event does not wait, and many
share a frame. All that is in flight fits into the window that the broker has announced, so that the
broker surely knows the outcome of every sequence (R27, R28). When a link is lost, the publisher is
opened again over the next one and sends the unanswered batches, in order and under the same
sequences.

A name belongs to one publisher at a time: the one that opened it last. The session number shows
whether another publisher did, because it grows by one with every opening. Then this publisher
stops: its repeated batches could be taken for those of the other.

:mod:`.outbox_state` has the states of the session at the PHB.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gapless.client.batches import PublishBatch
from gapless.client.link import ReconnectingLink
from gapless.client.outbox_state import NEXT_STATE, OutboxInput, OutboxState
from gapless.client.publish_failures import failure_of, late_closing
from gapless.client.requests import refusal
from gapless.core.errors import (
    ClosedError,
    FencedError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    UsageError,
    reworded,
)
from gapless.core.ids import PubendId
from gapless.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_EVENTS_MAX,
    IN_FLIGHT_BYTES_MAX,
    SMALL_BATCHES_MAX,
)
from gapless.messages.clients import (
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    RefusalCause,
    Refused,
)

if TYPE_CHECKING:
    from gapless.audit.clients import ClientAudit

__all__ = ["Outbox"]

FRAME_OVERHEAD: Final = 4_096
"""The most bytes of a frame beside its events: two names, of up to four bytes a character, and lengths."""


class Outbox:
    """The unanswered events of one publisher, and its session at the PHB."""

    def __init__(self, publisher: str, *, guaranteed: bool, on_end: Callable[[], None]) -> None:
        self.queue: deque[PublishBatch] = deque()
        """Batches not sent on this connection, oldest first; only the last may be open."""
        self.sent: deque[PublishBatch] = deque()
        """Batches sent on this connection and not answered, oldest first."""
        self.held = 0
        """How many events are in both."""
        self.event_bytes_max = 0
        """The size of the longest event that fits into a frame of this broker."""
        self.error: GaplessError | None = None
        """Why the outbox is over, if it is."""
        self.link: ReconnectingLink | None = None
        self.pubend = PubendId("")
        self._audit: ClientAudit | None = None
        """The audit log of what was published."""
        self._state = OutboxState.CLOSED
        self._publisher = publisher
        self._guaranteed = guaranteed
        self._on_end = on_end
        self._sent_bytes = 0
        self._sequence = 0
        self._window = 1
        self._session = 0
        """The number of the newest session that the PHB has opened; 0 if it has forgotten all."""
        self._lost_openings = 0
        """Openings whose connection was lost before the reply: the PHB may still execute one."""
        self._is_pumping = False
        self._changed: asyncio.Future[None] | None = None
        self._failed: list[PublishBatch] = []
        """Failed batches with receipts that may not have been awaited."""

    # --- start and end -------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the broker has opened the publisher on this connection."""
        return self._state is OutboxState.OPEN

    @property
    def state(self) -> OutboxState:
        """Whether the publisher has a session at its PHB."""
        return self._state

    def _take(self, given: OutboxInput) -> OutboxState:
        following = NEXT_STATE.get((self._state, given))
        assert following is not None, f"{given} in {self._state}"
        self._state = following
        return following

    def open_over(
        self, link: ReconnectingLink, pubend: PubendId, audit: ClientAudit | None
    ) -> None:
        """Publish to a pubend over a link, whenever it is up."""
        self.link = link
        self.pubend = pubend
        self._audit = audit
        link.add(self)

    def end(self, error: GaplessError) -> None:
        """End for good; waiting calls get the error."""
        if self._state is OutboxState.OVER:
            return
        self._take(OutboxInput.ENDED)
        self.error = error
        if self.link is not None:
            self.link.remove(self)
        for batch in (*self.sent, *self.queue):
            if not batch.is_done:
                self._fail(batch, _outcome(batch, error))
        self.sent.clear()
        self.queue.clear()
        self.held = self._sent_bytes = 0
        self._on_end()
        self.wake()

    def check(self) -> None:
        """Raise the error with which the outbox ended, if it has ended."""
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        """Wake all that wait for a change."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def change(self) -> None:
        """Wait until a batch is answered, the publisher is opened, or the outbox is over."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
        self.check()

    # --- adding events -------------------------------------------------------------------------

    def add(self, event: bytes) -> tuple[PublishBatch, int]:
        """Add an event; return its batch and its index there."""
        batch = self._batch_for(1, len(event))
        index = batch.add(event)
        self.held += 1
        if self.sent or self._is_pumping:
            self._pump_soon()
        else:
            self._pump()  # nothing else is in flight
        return batch, index

    def add_all(self, events: list[bytes]) -> tuple[PublishBatch, range]:
        """Add events, all to one batch; return the batch and their indices there."""
        size = sum(map(len, events))
        batch = self._batch_for(len(events), size)
        indices = batch.add_all(events, size)
        self.held += len(events)
        self._pump_soon()
        return batch, indices

    def take_out(self, batch: PublishBatch, index: int) -> bool:
        """Remove an event that was not sent yet; return whether it was removed."""
        is_out = batch.take_out(index)
        self.held -= is_out
        return is_out

    def _batch_for(self, count: int, size: int) -> PublishBatch:
        """Return the batch that events are added to: the last one if they fit, or a new one."""
        self.check()
        if self.queue:
            batch = self.queue[-1]
            fits = batch.bytes + size <= self.batch_bytes
            if fits and batch.first == 0 and len(batch.events) + count <= BATCH_EVENTS_MAX:
                return batch
        batch = PublishBatch()
        self.queue.append(batch)
        return batch

    def _pump_soon(self) -> None:
        """Send together what is added in this turn of the loop."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    @property
    def batch_bytes(self) -> int:
        """The largest size of a batch."""
        return min(BATCH_BYTES_MAX, self.event_bytes_max)

    def take_failure(self) -> GaplessError | None:
        """Return, once, an error for all events whose receipts were not awaited, or None."""
        failed, self._failed = self._failed, []
        return failure_of([batch for batch in failed if batch.receipts > 0])

    def end_late(self, waited: str, condition: str) -> GaplessError:
        """End with unanswered events; return the error that tells what became of them."""
        left = [batch for batch in (*self.sent, *self.queue) if not batch.is_done and batch.count]
        self.end(ClosedError(f"the publisher was closed {waited}: {condition}"))
        return late_closing(left, waited, condition)

    # --- sending -------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what fits into the window; a small batch may wait for more events."""
        self._is_pumping = False
        while self.queue and self._state is OutboxState.OPEN:
            batch = self.queue[0]
            if batch.is_open and not self._seal(batch):
                return

            if self.sent and (
                len(self.sent) >= self._window
                or self._sent_bytes + batch.bytes > IN_FLIGHT_BYTES_MAX
            ):
                return
            self.queue.popleft()
            if batch.count:
                self._send(batch)
            else:
                batch.succeed((), str(self.pubend), is_logged=False)

    def _seal(self, batch: PublishBatch) -> bool:
        """Give a batch its sequences, unless it should still grow; return whether it has them."""
        is_last = len(self.queue) == 1
        if len(self.sent) >= self._window:
            return False
        if (
            len(self.sent) >= SMALL_BATCHES_MAX
            and is_last
            and len(batch.events) < BATCH_EVENTS_MAX // 2
        ):
            return False
        assert self.link is not None
        batch.seal(self.link.numbers.next(), self._sequence + 1)
        self._sequence += batch.count
        return True

    def _send(self, batch: PublishBatch) -> None:
        assert self.link is not None
        request = Publish(
            batch.request,
            self.pubend,
            self._publisher,
            self._session,
            batch.first,
            batch.wire_events(),
        )
        try:
            self.link.request(request, lambda notice: self._answered(batch, notice))
        except UsageError as error:  # this broker takes smaller frames than the one before
            self.queue.appendleft(batch)
            self.end(error)
            return
        batch.note_sent()
        self.sent.append(batch)
        self._sent_bytes += batch.bytes

    def _answered(self, batch: PublishBatch, notice: Any) -> None:
        if isinstance(notice, Refused):
            self._refused(batch, notice)
            return
        answer: Published = ReconnectingLink.expect(notice, Published)
        if len(answer.ticks) != batch.count:
            raise ProtocolError(f"{batch.count} events got {len(answer.ticks)} ticks")
        if self._audit is not None and self._guaranteed:
            self._audit.confirmed(self.pubend, self._publisher, batch.first, answer)
        if self._take(OutboxInput.ANSWERED) is OutboxState.OVER or batch.is_done:
            return  # the program already has an OutcomeUnknownError
        self._finish(batch)
        batch.succeed(answer.ticks, str(self.pubend), is_logged=self._guaranteed)
        self.wake()
        self._pump()

    def _finish(self, batch: PublishBatch) -> None:
        if batch in self.sent:
            self.sent.remove(batch)
            self._sent_bytes -= batch.bytes
        else:
            self.queue.remove(batch)  # it was sent in the former session
        self.held -= batch.count

    def _refused(self, batch: PublishBatch, notice: Refused) -> None:
        if notice.cause in {RefusalCause.NOT_OPEN, RefusalCause.FENCED}:
            self._fenced(notice)
            return
        if self._take(OutboxInput.ANSWERED) is OutboxState.OVER or batch.is_done:
            return
        self._finish(batch)
        self._fail(batch, refusal(notice))
        self.wake()
        self._pump()

    def _fail(self, batch: PublishBatch, error: GaplessError) -> None:
        if batch.receipts:
            self._failed.append(batch)
        batch.fail(error)

    # --- the session at the broker -------------------------------------------------------------

    def link_up(self) -> None:
        """Open the publisher on the new connection."""
        if self._take(OutboxInput.LINK_UP) is OutboxState.OVER:
            return
        assert self.link is not None
        assert self.link.handshake is not None
        self.event_bytes_max = max(1, self.link.handshake.frame_bytes_max - FRAME_OVERHEAD)
        self._open()

    def link_down(self) -> None:
        """Batches in flight are sent again later, if that is safe."""
        self._lost_openings += self._state in {OutboxState.OPENING, OutboxState.FENCED}
        if self._take(OutboxInput.LINK_DOWN) is not OutboxState.OVER:
            self._rewind()

    def _rewind(self) -> None:
        """No batch of the former session will be answered: queue them again, or let them fail."""
        sent, self.sent = self.sent, deque()
        self._sent_bytes = 0
        if self._guaranteed:
            self.queue.extendleft(reversed(sent))
            return
        for batch in sent:
            self.held -= batch.count
            self._fail(
                batch,
                OutcomeUnknownError(
                    "the connection was lost before an answer came, and best effort is not repeated"
                ),
            )
        self.wake()

    def link_over(self, error: GaplessError) -> None:
        """The link is over; there will be no further connection."""
        self.end(error)

    def _open(self) -> None:
        assert self.link is not None
        request = OpenPublisher(self.link.numbers.next(), self.pubend, self._publisher)
        self.link.request(request, self._opened)

    def _opened(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self.end(refusal(notice))
            return
        answer: PublisherOpened = ReconnectingLink.expect(notice, PublisherOpened)
        expected = self._session + 1 + self._lost_openings
        pending = any(batch.was_sent for batch in self.queue)
        if self._session and pending and self._guaranteed and answer.session > expected:
            self.end(_fenced_by_other(self._publisher))
            return
        if self._take(OutboxInput.OPENED) is OutboxState.OVER:
            return
        self._session = answer.session
        self._window = max(1, answer.window)
        if not any(batch.first for batch in self.queue):
            # nothing has a sequence yet: continue after all that was published under this name
            self._sequence = max(self._sequence, answer.last_sequence)
        self.wake()
        self._pump()

    def _fenced(self, notice: Refused) -> None:
        """The session has ended: the PHB forgot it, or a later opening, perhaps ours, fenced it."""
        is_ours = notice.cause is RefusalCause.NOT_OPEN or self._lost_openings > 0
        if self._state is OutboxState.OPEN and not is_ours:
            error = FencedError(notice.reason)
            for batch in self.sent:
                if batch.sendings == 1:
                    self._fail(batch, error)  # sent only in a session that had ended
            self.end(error)
            return
        was_open = self._state is OutboxState.OPEN
        self._take(OutboxInput.FENCED)
        if not was_open:
            return  # it is already being opened again, or over
        if notice.cause is RefusalCause.NOT_OPEN:
            self._session = 0  # a new session may have any number
        self._rewind()
        self._open()


def _outcome(batch: PublishBatch, error: GaplessError) -> GaplessError:
    """Return the error for a batch when its publisher ends."""
    if not batch.was_sent:
        return reworded(error, f"not sent, and not published: {error}")
    return OutcomeUnknownError(f"sent and not answered when the publisher ended: {error}")


def _fenced_by_other(name: str) -> FencedError:
    return FencedError(
        f"another publisher has opened the name {name!r}: give each publisher a name of its own"
    )
