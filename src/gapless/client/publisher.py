"""Publishers: events to one pubend, each exactly once, in order.

This module has the calls of the program and their deadlines. The :mod:`.outbox` has the unanswered
events, sends them and sends them again.

A pubend is at one broker, its PHB. If a session has several addresses, the publisher has a link of
its own to the PHB and waits for it, because no other broker can take its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from gapless.client.arguments import iterated
from gapless.client.batches import PublishBatch, Receipt, Waiter, encoded, encoded_plain
from gapless.client.link import ReconnectingLink
from gapless.client.many import ManyEvents
from gapless.client.options import Unset, chosen
from gapless.client.outbox import Outbox
from gapless.client.position import Position
from gapless.content.filter import EVERYTHING, Filter
from gapless.content.values import Value
from gapless.core.errors import (
    ClosedError,
    DeadlineError,
    GaplessError,
    OutcomeUnknownError,
    RefusedError,
    UsageError,
)
from gapless.core.limits import BATCH_EVENTS_MAX
from gapless.messages.clients import OpenPubend
from gapless.messages.overlay import Quality

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["EventLike", "Publisher", "pair"]

EventLike: TypeAlias = Mapping[str, Value] | tuple[Mapping[str, Value], bytes]
"""An event to publish: attributes, or attributes and payload."""


class Publisher:
    """Publishes to one pubend. Made by :meth:`Session.publisher`; use it with ``async with``."""

    def __init__(
        self,
        session: Session,
        pubend: str,
        *,
        name: str,
        advertisement: Filter,
        guaranteed: bool,
        in_flight_max: int,
        deadline_s: float | None,
    ) -> None:
        self.name = name
        self.pubend = pubend
        self.guaranteed = guaranteed
        self._session = session
        self._advertisement = advertisement
        self._is_free = self._advertisement == EVERYTHING
        self._in_flight_max = in_flight_max
        self._deadline_s = deadline_s
        self._outbox = Outbox(name, guaranteed=guaranteed, on_end=self._ended)
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """The time of the timer; not every event loop's handles have it."""

    # --- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Create or find the pubend and open the publisher."""
        outbox = self._outbox
        if outbox.link is not None:
            raise ClosedError("a publisher is opened once; make another with the session")
        quality = Quality.GUARANTEED if self.guaranteed else Quality.BEST_EFFORT
        call = OpenPubend(0, self.pubend, str(self._advertisement), quality)
        link, opened = await self._session.call_at_phb(call, self._deadline_s)
        self.pubend = str(opened.pubend)
        outbox.open_over(link, opened.pubend, self._session.audit)
        try:
            async with asyncio.timeout(self._deadline_s):
                while not outbox.is_open:
                    outbox.check()
                    await outbox.change()
        except TimeoutError:
            error = link.late("OpenPublisher", self._deadline_s, sent=False)
            outbox.end(error)
            raise error from None
        except BaseException:
            outbox.end(ClosedError("the publisher was not opened"))
            raise
        self._session.opened(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until everything is published; after an exception, do not wait."""
        if kind is None:
            await self.close()
        else:
            self._outbox.end(ClosedError("the publisher was closed after an exception"))

    async def close(self, *, deadline_s: float | Unset | None = Unset()) -> None:  # noqa: B008
        """Publish the remaining events, then end; raise if an event may not be published.

        The error tells how many events are not published and how many may be. After the call nothing
        is sent any more.
        """
        seconds, outbox = chosen(deadline_s, self._deadline_s), self._outbox
        try:
            await self._answered(seconds)
        except TimeoutError:
            condition = self._opened_link.condition
            raise outbox.end_late(f"after {seconds:g} s", condition) from None
        finally:
            outbox.end(ClosedError("the publisher was closed"))
        failure = outbox.take_failure()
        if failure is not None:
            raise failure

    def _ended(self) -> None:
        """The outbox has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._session.closed(self)

    # --- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = Unset(),  # noqa: B008
    ) -> Position:
        """Publish an event; return its position when it is on disk.

        Raises :class:`OutcomeUnknownError` if the deadline passes after the event was sent: it may
        be published. After :class:`DeadlineError` or :class:`RefusedError` it is not.
        A best-effort publisher returns an empty position when the broker has sent the event on.
        """
        event = self._encoded(attributes, payload)
        seconds = chosen(deadline_s, self._deadline_s)
        loop = asyncio.get_running_loop()
        expires = None if seconds is None else loop.time() + seconds
        if self._outbox.held >= self._in_flight_max:
            await self._wait_for_capacity(seconds)
        batch, index = self._outbox.add(event)
        future: asyncio.Future[Position] = loop.create_future()
        batch.add_waiter(Waiter(index, future, expires))
        if expires is not None and (self._timer is None or expires < self._timer_at):
            self._set_timer(expires)
        try:
            return await future
        except asyncio.CancelledError:
            if self._outbox.take_out(batch, index):
                self._outbox.wake()
            raise

    async def send(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = Unset(),  # noqa: B008
    ) -> Receipt:
        """Publish an event without waiting for the answer; wait only while too many are unanswered.

        Await the receipt for the position. An error is also raised by :meth:`flush`.
        """
        seconds = chosen(deadline_s, self._deadline_s)
        event = self._encoded(attributes, payload)
        if self._outbox.held >= self._in_flight_max:
            await self._wait_for_capacity(seconds)
        batch, index = self._outbox.add(event)
        return batch.receipt(index, self.pubend, is_logged=self.guaranteed)

    async def publish_many(
        self,
        events: Iterable[EventLike],
        *,
        deadline_s: float | Unset | None = Unset(),  # noqa: B008
    ) -> Position:
        """Publish events in order; return the position of the last when all are on disk.

        An event is a mapping of attributes, or a pair of attributes and payload. If one of them is
        not a valid event, those before it are published and the error is raised: ``event_number``
        is its number, counted from 0, and ``published`` how many events are published.
        """
        return await self.publish_part(events, chosen(deadline_s, self._deadline_s), first=0)

    def deadline_of(self, deadline_s: float | Unset | None) -> float | None:
        """Return the deadline of a call in seconds."""
        return chosen(deadline_s, self._deadline_s)

    async def publish_part(
        self, events: Iterable[EventLike], seconds: float | None, *, first: int
    ) -> Position:
        """Publish a part of the events of a call; ``first`` were published before it."""
        source = iterated("events", events, "events")
        many = ManyEvents(first)
        wrong: GaplessError | None = None
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._add_many(source, many)
                except (UsageError, RefusedError) as error:
                    wrong = error
                for batch in many:
                    await batch.done()
        except TimeoutError:
            many.take_out(self._outbox)
            raise many.late(seconds, self._opened_link.condition) from None
        except asyncio.CancelledError:
            many.take_out(self._outbox)
            raise
        position = many.position(self.pubend, is_logged=self.guaranteed)
        if wrong is not None:
            raise many.refused(wrong) from None
        return position

    async def _add_many(self, source: Iterator[EventLike], many: ManyEvents) -> None:
        """Add events to batches, and note which part of each batch they are."""
        while True:
            while self._outbox.held >= self._in_flight_max:
                await self._outbox.change()
            capacity = min(self._in_flight_max - self._outbox.held, BATCH_EVENTS_MAX)
            chunk = [*islice(source, capacity)]
            if not chunk:
                return
            plain = encoded_plain(chunk) if self._is_free else None
            if plain is not None and sum(map(len, plain)) <= self._outbox.batch_bytes:
                many.add(*self._outbox.add_all(plain))
            else:
                for each in chunk:
                    many.add(*self._outbox.add_all([self._encoded(*pair(each))]))
            # these are sent before the next are encoded, and other tasks run
            await asyncio.sleep(0)

    @property
    def _opened_link(self) -> ReconnectingLink:
        assert self._outbox.link is not None
        return self._outbox.link

    async def flush(self, *, deadline_s: float | Unset | None = Unset()) -> None:  # noqa: B008
        """Wait until everything is answered; raise the first error that no receipt has raised."""
        seconds = chosen(deadline_s, self._deadline_s)
        try:
            await self._answered(seconds)
        except TimeoutError:
            raise self._late([*self._outbox.sent, *self._outbox.queue], seconds) from None
        failure = self._outbox.take_failure()
        if failure is not None:
            raise failure

    async def _answered(self, seconds: float | None) -> None:
        """Wait until everything is answered."""
        async with asyncio.timeout(seconds):
            while self._outbox.held:
                await self._outbox.change()

    @property
    def unanswered(self) -> int:
        """How many events were given to the publisher and are not answered yet."""
        return self._outbox.held

    def _late(self, batches: list[PublishBatch], seconds: float | None) -> GaplessError:
        left = [batch for batch in batches if not batch.is_done]
        count = sum(batch.count for batch in left)
        link = self._opened_link
        if count and not any(batch.was_sent for batch in left):
            return OutcomeUnknownError(
                f"{count} events wait and will be published when the broker can be reached: "
                f"{link.condition}"
            )
        return link.late(f"Publish of {count} events", seconds, sent=count > 0)

    def _encoded(self, attributes: Mapping[str, Value], payload: bytes) -> bytes:
        event = encoded(attributes, payload)
        outbox = self._outbox
        if outbox.error is not None or outbox.link is None:
            raise outbox.error or ClosedError("open the publisher first, as a block")
        if len(event) > outbox.event_bytes_max:
            raise UsageError(
                f"an event of {len(event):,} bytes does not fit into a frame of this broker, "
                f"which takes {outbox.event_bytes_max:,}; send the payload in parts"
            )
        if not (self._is_free or self._advertisement.matches(attributes)):
            raise RefusedError(
                f"an event does not match what this publisher advertises: {self._advertisement}"
            )
        return event

    # --- waiting -------------------------------------------------------------------------------

    async def _wait_for_capacity(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self._outbox.held >= self._in_flight_max:
                    await self._outbox.change()
        except TimeoutError:
            raise DeadlineError(
                f"{self._outbox.held} events are not answered, and no further event was accepted "
                f"within {seconds:g} s: {self._opened_link.condition}; this one is not published"
            ) from None

    def _expire(self) -> None:
        """End the calls whose deadline has passed; events that were not sent are removed."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now, following = loop.time(), float("inf")
        for batch in (*self._outbox.sent, *self._outbox.queue):
            for index, future, expires in batch.waiters:
                if expires is None or future.done():
                    continue
                if expires > now:
                    following = min(following, expires)
                elif self._outbox.take_out(batch, index):
                    future.set_exception(self._too_late(sent=False))
                else:
                    future.set_exception(self._too_late(sent=True))
        if following < float("inf"):
            self._set_timer(following)
        self._outbox.wake()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)
        self._timer_at = when

    def _too_late(self, *, sent: bool) -> GaplessError:
        state = self._opened_link.condition
        if sent:
            return OutcomeUnknownError(
                f"an event was sent and not answered before its deadline: {state}; "
                "it may be published, now or later"
            )
        return DeadlineError(f"an event was not sent before its deadline, and will not be: {state}")


def pair(event: EventLike) -> tuple[Mapping[str, Value], bytes]:
    """Return the attributes and the payload of an event."""
    if not isinstance(event, tuple):
        return event, b""
    if len(event) != 2:
        raise UsageError(f"an event is a pair of attributes and payload, not {len(event)} things")
    return event
