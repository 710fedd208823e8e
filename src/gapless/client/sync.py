"""The client for programs without an event loop: the same calls, which wait.

The session runs in one background thread, and may be used from several threads at once. Each
deadline of the asynchronous calls holds here too; so no call waits for ever unless it is told to.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gapless.audit.options import AuditOptions
from gapless.client.batches import Receipt
from gapless.client.event import Event
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import DEADLINE_S, FAILOVER_AFTER_S, Backoff, Unset
from gapless.client.position import Position
from gapless.client.publisher import EventLike, Publisher
from gapless.client.session import EXPIRY_S, Session, connect
from gapless.client.starts import Start, start_point_of
from gapless.client.subscription import ACK_S, Acknowledge, OnGap, Subscription
from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.errors import ClosedError, GapError, GaplessError, UsageError
from gapless.core.limits import FETCHED_MAX, IN_FLIGHT_EVENTS_MAX
from gapless.core.ticks import Tick
from gapless.messages.overlay import Partition

__all__ = ["SyncPublisher", "SyncReceipt", "SyncSession", "SyncSubscription", "connect_sync"]

_UNSET = Unset()


def connect_sync(
    servers: str | Iterable[str],
    *,
    name: str = "",
    deadline_s: float | None = DEADLINE_S,
    connect_deadline_s: float | None = 10.0,
    backoff: Backoff = Backoff(),  # noqa: B008
    failover_after_s: float | None = FAILOVER_AFTER_S,
    audit: AuditOptions | str | Path | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
) -> SyncSession:
    """Return a session whose calls wait, to be entered with ``with``. See :func:`gapless.connect`.

    >>> import gapless
    >>> from gapless.testing import SyncOverlay
    >>> with (
    ...     SyncOverlay(on_disk=False) as overlay,
    ...     gapless.connect_sync(overlay.url()) as session,
    ...     session.publisher("quotes") as publisher,
    ... ):
    ...     position = publisher.publish_many({"n": n} for n in range(3))
    ...     [event.attributes["n"] for event in session.read("quotes", filter="n > 0")]
    [1, 2]
    """
    session = connect(
        servers,
        name=name,
        deadline_s=deadline_s,
        connect_deadline_s=connect_deadline_s,
        backoff=backoff,
        failover_after_s=failover_after_s,
        audit=audit,
        token=token,
        token_file=token_file,
    )
    return SyncSession(session)


class SyncSession:
    """A :class:`~gapless.client.Session` whose calls wait."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop_thread: EventLoopThread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; raise ConnectionLostError if no broker greets in time."""
        if self._loop_thread is not None:
            raise UsageError("the session was opened already")
        loop_thread = self._loop_thread = EventLoopThread()
        try:
            loop_thread.run(self._session.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything."""
        loop_thread = self._loop_thread
        if loop_thread is not None:
            self._loop_thread = None
            try:
                loop_thread.run(self._session.close())
            finally:
                loop_thread.stop()

    @property
    def loop_thread(self) -> EventLoopThread:
        """Where the session runs."""
        if self._loop_thread is None:
            raise ClosedError("the session is not open; use it with 'with'")
        return self._loop_thread

    @property
    def broker(self) -> str | None:
        """The broker that the session is connected to now, if it is."""
        return self._session.broker

    def publisher(
        self,
        pubend: str,
        *,
        name: str = "",
        advertisement: str | Filter = "TRUE",
        guaranteed: bool = True,
        in_flight_max: int = IN_FLIGHT_EVENTS_MAX,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncPublisher:
        """Return a publisher, to be entered. See :meth:`Session.publisher`."""
        made = self._session.publisher(
            pubend,
            name=name,
            advertisement=advertisement,
            guaranteed=guaranteed,
            in_flight_max=in_flight_max,
            deadline_s=deadline_s,
        )
        return SyncPublisher(self.loop_thread, made)

    def subscribe(
        self,
        filter: str | Filter = "",
        *,
        durable: str | None = None,
        start: Start = "latest",
        order: Literal["publisher", "total"] = "publisher",
        prefetch: int = 5_000,
        ack: Acknowledge = "auto",
        on_gap: OnGap = "raise",
        expiry_s: int = EXPIRY_S,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncSubscription:
        """Return a subscription, to be entered and iterated. See :meth:`Session.subscribe`."""
        made = self._session.subscribe(
            filter,
            durable=durable,
            start=start,
            order=order,
            prefetch=prefetch,
            ack="manual" if ack == "auto" else ack,
            on_gap=on_gap,
            expiry_s=expiry_s,
            deadline_s=deadline_s,
        )
        return SyncSubscription(self.loop_thread, made, auto=durable is not None and ack == "auto")

    def read(
        self,
        pubend: str,
        low: Tick | None = None,
        high: Tick | None = None,
        filter: str | Filter = "",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> Iterator[Event]:
        """Give what matches between two ticks of a log. See :meth:`Session.read`."""
        events = self._session.read(pubend, low, high, filter, deadline_s=deadline_s)
        loop_thread = self.loop_thread
        problem: BaseException | None = None
        while problem is None:
            found, problem = loop_thread.run(_some(events))
            yield from found
            if not found and problem is None:
                return
        raise problem

    def partitions(self, *, deadline_s: float | Unset | None = _UNSET) -> tuple[Partition, ...]:
        """Return which cells cannot be reached, as far as the broker has heard."""
        return self.loop_thread.run(self._session.partitions(deadline_s=deadline_s))

    def unsubscribe(self, durable: str, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """End a durable subscription."""
        self.loop_thread.run(self._session.unsubscribe(durable, deadline_s=deadline_s))

    def request(
        self, message: Any, *, deadline_s: float | Unset | None = _UNSET, changes: bool = True
    ) -> Any:
        """Send any request and return its answer. See :meth:`Session.request`."""
        return self.loop_thread.run(
            self._session.request(message, deadline_s=deadline_s, changes=changes)
        )


async def _some(events: AsyncIterator[Event]) -> tuple[list[Event], GaplessError | None]:
    """Take some events, and what went wrong after them; none are left if there are none."""
    found: list[Event] = []
    try:
        async for event in events:
            found.append(event)
            if len(found) >= FETCHED_MAX:
                break
    except GaplessError as error:
        return found, error
    return found, None


class SyncReceipt:
    """Stands for an event that was given to a publisher."""

    __slots__ = ("_loop_thread", "_receipt")

    def __init__(self, loop_thread: EventLoopThread, receipt: Receipt) -> None:
        self._loop_thread = loop_thread
        self._receipt = receipt

    @property
    def is_done(self) -> bool:
        """Whether the fate of the event is known."""
        return self._receipt.is_done

    def result(self) -> Position:
        """Wait for the position of the event, or raise why there is none."""

        async def wait() -> Position:
            return await self._receipt

        return self._loop_thread.run(wait())


class SyncPublisher:
    """A :class:`~gapless.client.Publisher` whose calls wait."""

    def __init__(self, loop_thread: EventLoopThread, publisher: Publisher) -> None:
        self._loop_thread = loop_thread
        self._publisher = publisher

    def __enter__(self) -> Self:
        self._loop_thread.run(self._publisher.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop_thread.run(self._publisher.__aexit__(kind, error, trace))

    @property
    def name(self) -> str:
        """Under which name it publishes."""
        return self._publisher.name

    @property
    def pubend(self) -> str:
        """To which pubend."""
        return self._publisher.pubend

    @property
    def unanswered(self) -> int:
        """How many events were given to the publisher and are not answered."""
        return self._publisher.unanswered

    def publish(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> Position:
        """Publish an event; return its position when it is on disk."""
        return self._loop_thread.run(
            self._publisher.publish(attributes, payload, deadline_s=deadline_s)
        )

    def publish_many(
        self, events: Iterable[EventLike], *, deadline_s: float | Unset | None = _UNSET
    ) -> Position:
        """Publish events in order; return the position of the last when all are on disk.

        They are taken from the iterable here, in the calling thread, some at a time. The deadline is
        for each such part.
        """
        position = Position()
        source = iter(events)
        events_max = IN_FLIGHT_EVENTS_MAX
        while part := list(itertools.islice(source, events_max)):
            position |= self._loop_thread.run(
                self._publisher.publish_many(part, deadline_s=deadline_s)
            )
        return position

    def send(
        self,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncReceipt:
        """Let an event be published, and wait only for room."""
        work = self._publisher.send(attributes, payload, deadline_s=deadline_s)
        return SyncReceipt(self._loop_thread, self._loop_thread.run(work))

    def flush(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Wait until everything is answered; raise the first error that a receipt hides."""
        self._loop_thread.run(self._publisher.flush(deadline_s=deadline_s))

    def close(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """Publish what waits, then end."""
        self._loop_thread.run(self._publisher.close(deadline_s=deadline_s))


class SyncSubscription:
    """A :class:`~gapless.client.Subscription` whose calls wait; iterate it with ``for``.

    Events come over from the background thread some at a time. One that is interrupted while it
    waits loses nothing: what was under way is there at the next call. Other threads may seek, change
    the filter or close while one waits for an event.
    """

    def __init__(
        self, loop_thread: EventLoopThread, subscription: Subscription, *, auto: bool
    ) -> None:
        self._loop_thread = loop_thread
        self._subscription = subscription
        self._auto = auto
        self._ready: deque[Event] = deque()
        """What was fetched and not handed out. The background thread puts it here in the moment in
        which it takes it from the subscription, so that no event is in between."""
        self._last: Event | None = None
        """What was handed out last."""
        self._acked_at = 0.0
        self._coming: Future[bool] | None = None
        """Fetches; its result is whether something came."""
        self._taking = threading.Lock()
        """Held by who takes an event, also while it waits for one."""
        self._lock = threading.Lock()
        """Held while an event is handed out, and while the place changes. Not while one waits."""

    def __enter__(self) -> Self:
        self._loop_thread.run(self._subscription.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(done=kind is None)

    def close(self, *, done: bool = True) -> None:
        """Stop; what was handed out counts as ``done``, where that is automatic."""
        with contextlib.suppress(ClosedError):  # the session is closed, and this with it
            if done and self._auto and self._last is not None:
                self._loop_thread.run(_acknowledged(self._subscription, self._last))
            if self._coming is not None:
                self._coming.cancel()
            self._loop_thread.run(self._subscription.close(done=False))

    # --- events --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._next(None)
        if event is None:
            raise StopIteration
        return event

    def get(self, *, deadline_s: float | Unset | None = _UNSET) -> Event:
        """Return the next event, or raise DeadlineError if none comes in time."""
        event = self._next(deadline_s)
        if event is None:
            raise ClosedError("the subscription is closed")
        return event

    def _next(self, deadline_s: float | Unset | None) -> Event | None:
        with self._taking:
            while True:
                with self._lock:
                    if self._ready:
                        return self._hand_out()
                    coming = self._coming
                    if coming is None:
                        done = self._last if self._auto else None
                        coming = self._coming = self._loop_thread.start(
                            self._fetch(done, deadline_s)
                        )
                if not self._wait_for(coming):
                    return None

    def _hand_out(self) -> Event:
        if self._auto and self._last is not None:
            self._note_done(self._last)
        event = self._last = self._ready.popleft()
        return event

    def _note_done(self, done: Event) -> None:
        """Acknowledge now and then, so that a slow program that dies has little to do again."""
        now = time.monotonic()
        if now - self._acked_at >= ACK_S:
            self._acked_at = now
            with contextlib.suppress(ClosedError):  # then there is nobody to tell
                self._loop_thread.start(_acknowledged(self._subscription, done))

    async def _fetch(self, done: Event | None, deadline_s: float | Unset | None) -> bool:
        """Bring the next events over; those up to ``done`` are done. False: there are no more."""
        if done is not None:
            await _acknowledged(self._subscription, done)
        found = await self._subscription.next_batch(FETCHED_MAX, deadline_s=deadline_s)
        self._ready.extend(found)
        return bool(found)

    def _wait_for(self, coming: Future[bool]) -> bool:
        try:
            return coming.result()
        except CancelledError:
            return False
        finally:
            if coming.done():  # else we were interrupted, and it is there at the next call
                self._coming = None

    @property
    def position(self) -> Position:
        """Where the application is: everything up to here was handed out."""
        if self._coming is not None:
            with contextlib.suppress(ClosedError):
                return self._loop_thread.run(self._find_position())
        return self._position_now()

    async def _find_position(self) -> Position:
        """Return where the application is, with nothing on its way from one thread to the other."""
        return self._position_now()

    def _position_now(self) -> Position:
        if self._ready:
            return self._subscription.position_after(self._last)
        return self._subscription.position

    @property
    def gaps(self) -> list[GapError]:
        """Gaps that were met, if they are reported and not raised."""
        return [*self._subscription.gaps]

    @property
    def is_new(self) -> bool:
        """Of a durable one: whether it was made when this was opened; else it goes on where it was."""
        return self._subscription.is_new

    @property
    def pending(self) -> dict[str, str]:
        """Pubends of which nothing can come now, and why."""
        return dict(self._subscription.pending)

    def fetch_pending(self, *, deadline_s: float | Unset | None = _UNSET) -> dict[str, str]:
        """Ask the broker of which pubends nothing can come now, and why; also those cut off."""
        return self._loop_thread.run(self._subscription.fetch_pending(deadline_s=deadline_s))

    @property
    def filter(self) -> Filter:
        """The filter that governs in the end."""
        return self._subscription.filter

    # --- changing ------------------------------------------------------------------------------

    def ack(self, done: Event | Position | None = None) -> None:
        """Say that the application needs no more what is up to an event or a position."""
        self._loop_thread.run(self._subscription.ack(self.position if done is None else done))

    def set_filter(
        self, filter: str | Filter, *, deadline_s: float | Unset | None = _UNSET
    ) -> Position:
        """Change the filter; return the position of the change."""
        return self._loop_thread.run(self._subscription.set_filter(filter, deadline_s=deadline_s))

    def seek(self, start: Start, *, deadline_s: float | Unset | None = _UNSET) -> Position:
        """Go on from another place; return it. What waits to be handed out is dropped."""
        start_point_of(start)
        with self._lock:
            return self._loop_thread.run(self._move(start, deadline_s))

    async def _move(self, start: Start, deadline_s: float | Unset | None) -> Position:
        if isinstance(start, Mapping):
            start = Position({**self._position_now(), **start})
        return await self._subscription.seek_then(start, deadline_s, self._forget)

    def _forget(self) -> None:
        """Drop what was fetched: it is of the place that was left."""
        self._ready.clear()
        self._last = None

    def unsubscribe(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """End it for good, also at the broker and on its disk."""
        self._loop_thread.run(self._subscription.unsubscribe(deadline_s=deadline_s))


async def _acknowledged(subscription: Subscription, done: Event) -> None:
    """Acknowledge, unless it is over: then there is nobody to tell."""
    if not subscription.is_over:
        await subscription.ack(done)
