"""Publishers: events to one pubend, each exactly once, in order.

Theory of operation. Events gather in batches. One is sent at once if little is under way, else when
it is worth a frame or an earlier one is answered: a lone event does not wait, many share a frame. All
that is under way fits into the window that the broker has told, so that the outcome of every sequence
can surely be told (R27, R28). When a link is lost, the publisher is opened again over the next one
and sends what was not answered, in order and under the same sequences.

A pubend lives at one broker. Where a session knows several addresses, the publisher has a link of
its own to that broker, and waits for it; another broker could not take its events.

A name belongs to one publisher at a time: the newest that opened it. Whether somebody else did shows
in the number of the session, which grows by one with every opening. Then this one stops: what it
would send again might be taken for what the other has sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from gapless.client.batches import Batch, Receipt, Waiter, encoded, encoded_plain
from gapless.client.link import Link, refusal
from gapless.client.options import Unset, chosen
from gapless.client.position import Position
from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.errors import (
    ClosedError,
    DeadlineError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    TakenOverError,
    UsageError,
)
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Cause,
    OpenPubend,
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    Refused,
)
from gapless.messages.overlay import Quality

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["EventLike", "Publisher"]

EventLike: TypeAlias = Mapping[str, Value] | tuple[Mapping[str, Value], bytes]
"""An event to publish: attributes, or attributes and payload."""

_Parts: TypeAlias = dict[Batch, list[range]]
"""Where the events of one call are: in each batch the places that are its own, and no other's."""

BATCH_BYTES_MAX: Final = 262_144
"""A batch is sent when it has so many bytes, so that a frame is neither tiny nor long on its way."""

BATCH_EVENTS_MAX: Final = 500
"""The same for events."""

SMALL_BATCHES_MAX: Final = 4
"""When so many batches are under way, the next one is sent when it is worth a frame or one of them is
answered. So a lone event is not held back, and under load frames are full."""

UNDER_WAY_BYTES_MAX: Final = 8_388_608
"""More than this is not sent before something is answered."""

FRAME_OVERHEAD: Final = 2_048
"""Bytes of a frame beside its events, at most: names of a few hundred characters, and lengths."""

INFLIGHT_MAX: Final = 8_192
"""Events that may wait in a publisher, by default; ``send`` waits when there are more."""


class Publisher:
    """Publishes to one pubend. Made by :meth:`Session.publisher`; use it with ``async with``."""

    def __init__(
        self,
        session: Session,
        pubend: str,
        *,
        name: str,
        advertisement: str | Filter,
        guaranteed: bool,
        inflight: int,
        deadline: float | None,
    ) -> None:
        if inflight < 1:
            raise UsageError("at least one event must be allowed to be in flight")
        self.name = name
        self.pubend = pubend
        self.guaranteed = guaranteed
        self._session = session
        self._advertisement = (
            Filter(advertisement) if isinstance(advertisement, str) else advertisement
        )
        self._is_free = self._advertisement == Filter("TRUE")
        self._inflight_max = inflight
        self._deadline = deadline
        self._link: Link | None = None
        self._id = PubendId(pubend)
        self._queue: deque[Batch] = deque()
        """Not sent on this connection, oldest first; only the last may be open."""
        self._sent: deque[Batch] = deque()
        """Sent on this connection and not answered, oldest first."""
        self._held = 0
        """Events in both."""
        self._sent_bytes = 0
        self._sequence = 0
        self._window = 1
        self._event_bytes_max = 0
        self._number: int | None = None
        """The session's number at the broker; None while it is not open."""
        self._last_number = 0
        self._lost_openings = 0
        """Openings whose connection was lost before the answer: one may still fence us off."""
        self._is_pumping = False
        self._changed: asyncio.Future[None] | None = None
        self._error: GaplessError | None = None
        self._failed: list[Batch] = []
        """Those with receipts at which perhaps nobody has looked."""
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """When the timer rings; not every loop's handles can say."""

    # --- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Make or find the pubend and open the publisher."""
        if self._link is not None:
            raise ClosedError("a publisher is opened once; ask the session for another")
        quality = Quality.GUARANTEED if self.guaranteed else Quality.BEST_EFFORT
        call = OpenPubend(0, self.pubend, str(self._advertisement), quality)
        self._link, opened = await self._session.call_at_home(call, self._deadline)
        self._id = opened.pubend
        self.pubend = str(self._id)
        self._link.add(self)
        try:
            async with asyncio.timeout(self._deadline):
                while self._number is None:
                    self._check()
                    await self._change()
        except TimeoutError:
            error = self._link.late("OpenPublisher", self._deadline, sent=False)
            self._end(error)
            raise error from None
        except BaseException:
            self._end(ClosedError("the publisher was not opened"))
            raise
        self._session.opened(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until everything is published; after an exception, let go of what is not."""
        if kind is None:
            await self.close()
        else:
            self._end(OutcomeUnknownError("the publisher was left before an answer came"))

    async def close(self, *, deadline: float | Unset | None = Unset()) -> None:  # noqa: B008
        """Publish what waits, then end; raise if something may not be published."""
        try:
            await self.flush(deadline=deadline)
        finally:
            left = self._held
            self._end(ClosedError(f"the publisher was closed with {left} events not answered"))

    def _end(self, error: GaplessError) -> None:
        """End for good; who waits gets the error."""
        if self._error is not None:
            return
        self._error = error
        if self._link is not None:
            self._link.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        for batch in (*self._sent, *self._queue):
            if not batch.is_done:
                self._fail(batch, _outcome(batch, error))
        self._sent.clear()
        self._queue.clear()
        self._held = self._sent_bytes = 0
        self._session.closed(self)
        self._wake()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # --- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline: float | Unset | None = Unset(),  # noqa: B008
    ) -> Position:
        """Publish an event; return its position when it is on disk.

        Raises :class:`OutcomeUnknownError` if the deadline passes after the event was sent: it may
        be published. :class:`DeadlineError` and :class:`RefusedError` say that it is not.
        A publisher of best effort returns an empty position when the broker has sent the event out.
        """
        event = self._encoded(attributes, payload)
        seconds = chosen(deadline, self._deadline)
        loop = asyncio.get_running_loop()
        expires = None if seconds is None else loop.time() + seconds
        if self._held >= self._inflight_max:
            await self._room(seconds)
        batch, index = self._add(event)
        future: asyncio.Future[Position] = loop.create_future()
        batch.waiters.append(Waiter(index, future, expires))
        if expires is not None and (self._timer is None or expires < self._timer_at):
            self._set_timer(expires)
        try:
            return await future
        except asyncio.CancelledError:
            if batch.take_out(index):
                self._held -= 1
                self._wake()
            raise

    async def send(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline: float | Unset | None = Unset(),  # noqa: B008
    ) -> Receipt:
        """Let an event be published, and do not wait for the answer; wait only for room.

        The receipt can be awaited for the position. What fails also shows in :meth:`flush`.
        """
        event = self._encoded(attributes, payload)
        if self._held >= self._inflight_max:
            await self._room(chosen(deadline, self._deadline))
        batch, index = self._add(event)
        batch.receipts += 1
        return Receipt(batch, index, self.pubend, is_logged=self.guaranteed)

    async def publish_many(
        self,
        events: Iterable[EventLike],
        *,
        deadline: float | Unset | None = Unset(),  # noqa: B008
    ) -> Position:
        """Publish events in order; return the position of the last when all are on disk.

        An event is a mapping of attributes, or a pair of attributes and payload. If one of them
        cannot be an event, those before it are published and the error is raised.
        """
        seconds = chosen(deadline, self._deadline)
        parts: _Parts = {}
        wrong: GaplessError | None = None
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._add_many(events, parts)
                except (UsageError, RefusedError) as error:
                    wrong = error
                for batch in parts:
                    await batch.done()
        except TimeoutError:
            left = self._take_out(parts)
            raise self._opened_link.late("publish_many", seconds, sent=left > 0) from None
        except asyncio.CancelledError:
            self._take_out(parts)
            raise
        position = Position()
        for batch, part in parts.items():
            position |= batch.position(part[-1][-1], self.pubend, is_logged=self.guaranteed)
        if wrong is not None:
            raise wrong
        return position

    async def _add_many(self, events: Iterable[EventLike], parts: _Parts) -> None:
        """Add events to batches, and note which part of each batch they are."""
        source = iter(events)
        while True:
            while self._held >= self._inflight_max:
                await self._change()
            room = min(self._inflight_max - self._held, BATCH_EVENTS_MAX)
            chunk = [*islice(source, room)]
            if not chunk:
                return
            plain = encoded_plain(chunk) if self._is_free else None
            if plain is not None and sum(map(len, plain)) <= self._batch_bytes:
                self._add_part(plain, parts)
                continue
            for each in chunk:
                self._add_part([self._encoded(*_pair(each))], parts)

    def _add_part(self, events: list[bytes], parts: _Parts) -> None:
        """Add events, all to one batch, and note which part of it they are."""
        size = sum(map(len, events))
        batch = self._batch_for(len(events), size)
        added = batch.add_all(events, size)
        self._added(len(events))
        ranges = parts.setdefault(batch, [])
        if ranges and ranges[-1].stop == added.start:
            ranges[-1] = range(ranges[-1].start, added.stop)
        else:
            ranges.append(added)

    def _take_out(self, parts: _Parts) -> int:
        """Do not publish what was not sent yet; return how many may be published all the same."""
        left = 0
        for batch, ranges in parts.items():
            if batch.is_open:
                self._held -= sum(batch.take_out(each) for part in ranges for each in part)
            elif not batch.is_done:
                left += sum(map(len, ranges))
        self._wake()
        return left

    @property
    def _opened_link(self) -> Link:
        assert self._link is not None
        return self._link

    async def flush(self, *, deadline: float | Unset | None = Unset()) -> None:  # noqa: B008
        """Wait until everything is answered; raise the first error that a receipt hides."""
        seconds = chosen(deadline, self._deadline)
        try:
            async with asyncio.timeout(seconds):
                while self._held:
                    await self._change()
        except TimeoutError:
            raise self._late([*self._sent, *self._queue], seconds) from None
        failed, self._failed = self._failed, []
        for batch in failed:
            if batch.receipts > 0 and batch.error is not None:
                raise batch.error

    @property
    def unanswered(self) -> int:
        """How many events were given to the publisher and are not answered."""
        return self._held

    def _late(self, batches: list[Batch], seconds: float | None) -> GaplessError:
        left = [batch for batch in batches if not batch.is_done]
        count = sum(batch.count for batch in left)
        assert self._link is not None
        if count and not any(batch.was_sent for batch in left):
            return OutcomeUnknownError(
                f"{count} events wait and will be published when the broker can be reached: "
                f"{self._link.trouble}"
            )
        return self._link.late(f"Publish of {count} events", seconds, sent=count > 0)

    def _encoded(self, attributes: Mapping[str, Value], payload: bytes) -> bytes:
        event = encoded(attributes, payload)
        if self._error is not None or self._link is None:
            raise self._error or ClosedError("open the publisher with 'async with' first")
        if len(event) > self._event_bytes_max:
            raise UsageError(
                f"an event of {len(event):,} bytes does not fit into a frame of this broker, "
                f"which takes {self._event_bytes_max:,}; send the payload in parts"
            )
        if not (self._is_free or self._advertisement.matches(attributes)):
            raise RefusedError(
                f"an event does not match what this publisher advertises: {self._advertisement}"
            )
        return event

    def _add(self, event: bytes) -> tuple[Batch, int]:
        batch = self._batch_for(1, len(event))
        index = batch.add(event)
        self._added(1)
        return batch, index

    def _batch_for(self, count: int, size: int) -> Batch:
        """Return the batch that events are added to: the last one if they fit, or a new one."""
        self._check()
        if self._queue:
            batch = self._queue[-1]
            fits = batch.bytes + size <= self._batch_bytes
            if fits and batch.first == 0 and len(batch.events) + count <= BATCH_EVENTS_MAX:
                return batch
        batch = Batch()
        self._queue.append(batch)
        return batch

    def _added(self, count: int) -> None:
        self._held += count
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    @property
    def _batch_bytes(self) -> int:
        return min(BATCH_BYTES_MAX, self._event_bytes_max)

    # --- waiting -------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def _change(self) -> None:
        """Wait until something is answered, opened or over."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
        self._check()

    async def _room(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self._held >= self._inflight_max:
                    await self._change()
        except TimeoutError:
            raise DeadlineError(
                f"{self._held} events are not answered and there was no room for another "
                f"within {seconds:g} s; this one is not published"
            ) from None

    def _expire(self) -> None:
        """Tell those whose deadline has passed; what was not sent is taken out."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now, following = loop.time(), float("inf")
        for batch in (*self._sent, *self._queue):
            for index, future, expires in batch.waiters:
                if expires is None or future.done():
                    continue
                if expires > now:
                    following = min(following, expires)
                elif batch.take_out(index):
                    self._held -= 1
                    future.set_exception(self._too_late(sent=False))
                else:
                    future.set_exception(self._too_late(sent=True))
        if following < float("inf"):
            self._set_timer(following)
        self._wake()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)
        self._timer_at = when

    def _too_late(self, *, sent: bool) -> GaplessError:
        assert self._link is not None
        state = "the link is up" if self._link.is_up else f"no connection ({self._link.trouble})"
        if sent:
            return OutcomeUnknownError(
                f"an event was sent and not answered before its deadline: {state}; "
                "it may be published, now or later"
            )
        return DeadlineError(f"an event was not sent before its deadline, and will not be: {state}")

    # --- sending -------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what there is room for in the window; a small batch waits for company if it may."""
        self._is_pumping = False
        while self._queue and self._number is not None:
            batch = self._queue[0]
            if batch.is_open and not self._seal(batch):
                return

            if self._sent and (
                len(self._sent) >= self._window
                or self._sent_bytes + batch.bytes > UNDER_WAY_BYTES_MAX
            ):
                return
            self._queue.popleft()
            if batch.count:
                self._send(batch)
            else:
                batch.succeed((), self.pubend, is_logged=False)

    def _seal(self, batch: Batch) -> bool:
        """Give a batch its sequences, unless it is better to let it grow."""
        is_last = len(self._queue) == 1
        if len(self._sent) >= self._window:
            return False
        if (
            len(self._sent) >= SMALL_BATCHES_MAX
            and is_last
            and len(batch.events) < BATCH_EVENTS_MAX // 2
        ):
            return False
        assert self._link is not None
        batch.seal(self._link.numbers.next(), self._sequence + 1)
        self._sequence += batch.count
        return True

    def _send(self, batch: Batch) -> None:
        assert self._link is not None
        assert self._number is not None
        batch.sendings += 1
        self._sent.append(batch)
        self._sent_bytes += batch.bytes
        request = Publish(
            batch.request, self._id, self.name, self._number, batch.first, batch.wire_events()
        )
        self._link.ask(request, lambda notice: self._answered(batch, notice))

    def _answered(self, batch: Batch, notice: Any) -> None:
        if isinstance(notice, Refused):
            self._refused(batch, notice)
            return
        answer: Published = Link.expect(notice, Published)
        if len(answer.ticks) != batch.count:
            raise ProtocolError(f"{batch.count} events got {len(answer.ticks)} ticks")
        self._finish(batch)
        batch.succeed(answer.ticks, self.pubend, is_logged=self.guaranteed)
        self._wake()
        self._pump()

    def _finish(self, batch: Batch) -> None:
        self._sent.remove(batch)
        self._sent_bytes -= batch.bytes
        self._held -= batch.count

    def _refused(self, batch: Batch, notice: Refused) -> None:
        if notice.cause in {Cause.NOT_OPEN, Cause.TAKEN_OVER}:
            self._fenced(notice)
            return
        self._finish(batch)
        self._fail(batch, refusal(notice))
        self._wake()
        self._pump()

    def _fail(self, batch: Batch, error: GaplessError) -> None:
        if batch.receipts:
            self._failed.append(batch)
        batch.fail(error)

    # --- the session at the broker -------------------------------------------------------------

    def link_up(self) -> None:
        """Open the publisher on the new connection."""
        assert self._link is not None
        assert self._link.welcome is not None
        self._event_bytes_max = max(1, self._link.welcome.frame_bytes_max - FRAME_OVERHEAD)
        self._open()

    def link_down(self) -> None:
        """What was sent is sent again later, if that is safe."""
        self._lost_openings += self._number is None
        self._rewind()

    def _rewind(self) -> None:
        """Nothing is sent in a session any more."""
        self._number = None
        sent, self._sent = self._sent, deque()
        self._sent_bytes = 0
        if self.guaranteed:
            self._queue.extendleft(reversed(sent))
            return
        for batch in sent:
            self._held -= batch.count
            self._fail(
                batch,
                OutcomeUnknownError(
                    "the connection was lost before an answer came, and best effort is not repeated"
                ),
            )
        self._wake()

    def link_over(self, error: GaplessError) -> None:
        """There will be no connection any more."""
        self._end(error)

    def _open(self) -> None:
        assert self._link is not None
        self._number = None
        request = OpenPublisher(self._link.numbers.next(), self._id, self.name)
        self._link.ask(request, self._opened)

    def _opened(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self._end(refusal(notice))
            return
        answer: PublisherOpened = Link.expect(notice, PublisherOpened)
        expected = self._last_number + 1 + self._lost_openings
        pending = any(batch.was_sent for batch in self._queue)
        if self._last_number and pending and self.guaranteed and answer.session > expected:
            self._end(_taken_over(self.name))
            return
        self._number = self._last_number = answer.session
        self._window = max(1, answer.window)
        if not any(batch.first for batch in self._queue):
            # nothing has a sequence yet: go on after all that was published under this name
            self._sequence = max(self._sequence, answer.last_sequence)
        self._wake()
        self._pump()

    def _fenced(self, notice: Refused) -> None:
        """The session is over: forgotten, or by another publisher, or by an old opening of ours."""
        if self._number is None:
            return  # it is being opened again already
        if notice.cause is Cause.NOT_OPEN:
            self._last_number = 0  # it begins anew, with a number of any size
        elif not self._lost_openings:
            error = TakenOverError(notice.reason)
            for batch in self._sent:
                if batch.sendings == 1:
                    self._fail(batch, error)  # sent only in a session that was over
            self._end(error)
            return
        self._rewind()
        self._open()


def _pair(event: EventLike) -> tuple[Mapping[str, Value], bytes]:
    """Return the attributes and the payload of an event."""
    if not isinstance(event, tuple):
        return event, b""
    if len(event) != 2:
        raise UsageError(f"an event is a pair of attributes and payload, not {len(event)} things")
    return event


def _outcome(batch: Batch, error: GaplessError) -> GaplessError:
    """Return what to say of a batch when its publisher ends."""
    if not batch.was_sent or isinstance(error, OutcomeUnknownError):
        return error
    return OutcomeUnknownError(f"sent and not answered when the publisher ended: {error}")


def _taken_over(name: str) -> TakenOverError:
    return TakenOverError(
        f"another publisher has opened the name {name!r}: give each publisher a name of its own"
    )
