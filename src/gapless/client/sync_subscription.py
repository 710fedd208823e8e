"""A subscription for programs without an event loop: its calls block."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Literal, Self

from gapless.client.event import Event
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import Unset
from gapless.client.position import Position
from gapless.client.starts import Start, start_point_of
from gapless.client.subscription import ACK_S, Subscription
from gapless.content.filter import Filter
from gapless.core.errors import ClosedError, GapError
from gapless.core.limits import FETCHED_MAX

__all__ = ["SyncSubscription"]

_UNSET = Unset()


class SyncSubscription:
    """A :class:`~gapless.client.Subscription` whose calls block; iterate it with ``for``.

    The background thread passes events on some at a time. An interrupted call loses nothing: the
    next call gets what the interrupted one had requested. Other threads may seek, change the filter
    or close while one waits for an event.
    """

    def __init__(
        self, loop_thread: EventLoopThread, subscription: Subscription, *, auto: bool
    ) -> None:
        self._loop_thread = loop_thread
        self._subscription = subscription
        self._auto = auto
        self._ready: deque[Event] = deque()
        """Events that were fetched and not handed out. The background thread puts them here in the
        same step in which it takes them from the subscription, so that none is in between."""
        self._last: Event | None = None
        """The event that was handed out last."""
        self._acked_at = 0.0
        self._coming: Future[bool] | None = None
        """The fetch in progress; its result is whether events came."""
        self._taking = threading.Lock()
        """Held by the thread that takes an event, also while it waits for one."""
        self._lock = threading.Lock()
        """Held while an event is handed out or the position changes, not while a thread waits."""

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
        """Stop; if ``done``, acknowledge what was handed out, unless ``ack`` is manual."""
        with contextlib.suppress(ClosedError):  # the session is closed
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
        """Acknowledge now and then, so that a slow program that dies has little to repeat."""
        now = time.monotonic()
        if now - self._acked_at >= ACK_S:
            self._acked_at = now
            with contextlib.suppress(ClosedError):  # then nothing can be acknowledged
                self._loop_thread.start(_acknowledged(self._subscription, done))

    async def _fetch(self, done: Event | None, deadline_s: float | Unset | None) -> bool:
        """Fetch the next events; those up to ``done`` are done. Return False at the end."""
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
            if coming.done():  # else this call was interrupted, and the next call takes the result
                self._coming = None

    @property
    def position(self) -> Position:
        """The position of the application: everything up to here was handed out."""
        if self._coming is not None:
            with contextlib.suppress(ClosedError):
                return self._loop_thread.run(self._find_position())
        return self._position_now()

    async def _find_position(self) -> Position:
        """Return the position in the background thread, where no fetch is half done."""
        return self._position_now()

    def _position_now(self) -> Position:
        if self._ready:
            return self._subscription.position_after(self._last)
        return self._subscription.position

    @property
    def gaps(self) -> list[GapError]:
        """The gaps, if they are reported and not raised."""
        return [*self._subscription.gaps]

    @property
    def is_new(self) -> bool:
        """If it is durable: whether opening has created it; else it continues where it was."""
        return self._subscription.is_new

    @property
    def order(self) -> Literal["publisher", "total"]:
        """The order of the events: of each pubend, or one of all pubends."""
        return self._subscription.order

    @property
    def pending(self) -> dict[str, str]:
        """Pubends from which no events can come now, and why."""
        return dict(self._subscription.pending)

    def fetch_pending(self, *, deadline_s: float | Unset | None = _UNSET) -> dict[str, str]:
        """Query the broker: from which pubends no events can come now, and why."""
        return self._loop_thread.run(self._subscription.fetch_pending(deadline_s=deadline_s))

    @property
    def filter(self) -> Filter:
        """The newest filter."""
        return self._subscription.filter

    # --- changing ------------------------------------------------------------------------------

    def ack(self, done: Event | Position | None = None) -> None:
        """Acknowledge everything up to an event or a position."""
        self._loop_thread.run(self._subscription.ack(self.position if done is None else done))

    def set_filter(
        self, filter: str | Filter, *, deadline_s: float | Unset | None = _UNSET
    ) -> Position:
        """Change the filter; return the position of the change."""
        return self._loop_thread.run(self._subscription.set_filter(filter, deadline_s=deadline_s))

    def seek(self, start: Start, *, deadline_s: float | Unset | None = _UNSET) -> Position:
        """Continue at another position and return it. Waiting events are dropped."""
        start_point_of(start)
        with self._lock:
            return self._loop_thread.run(self._move(start, deadline_s))

    async def _move(self, start: Start, deadline_s: float | Unset | None) -> Position:
        if isinstance(start, Mapping):
            start = Position({**self._position_now(), **start})
        return await self._subscription.seek_then(start, deadline_s, self._forget)

    def _forget(self) -> None:
        """Drop the fetched events: they are of the former position."""
        self._ready.clear()
        self._last = None

    def unsubscribe(self, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """End the subscription for good, also at the broker and on its disk."""
        self._loop_thread.run(self._subscription.unsubscribe(deadline_s=deadline_s))


async def _acknowledged(subscription: Subscription, done: Event) -> None:
    """Acknowledge, unless the subscription is over."""
    if not subscription.is_over:
        await subscription.ack(done)
