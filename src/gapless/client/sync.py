"""The client for programs without an event loop: the same calls, which block.

The session runs in one background thread and may be used from several threads at once. The
deadlines of the asynchronous calls apply here too, so no call blocks for ever by default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from gapless.audit.options import AuditOptions
from gapless.client.closing import PubendClosing
from gapless.client.connection_changes import ConnectionCallback
from gapless.client.event import Event
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import DEADLINE_S, FAILOVER_AFTER_S, Unset
from gapless.client.overlay import SyncOverlayCalls
from gapless.client.session import EXPIRY_S, Session, connect
from gapless.client.starts import Start
from gapless.client.subscription import Acknowledge, OnGap
from gapless.client.sync_publisher import SyncPublisher
from gapless.client.sync_subscription import SyncSubscription
from gapless.content.filter import Filter
from gapless.core.backoff import Backoff
from gapless.core.errors import ClosedError, GaplessError, UsageError
from gapless.core.limits import FETCHED_MAX, IN_FLIGHT_EVENTS_MAX
from gapless.core.ticks import Tick
from gapless.messages.overlay import Partition

__all__ = ["SyncSession", "connect_sync"]

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
    on_connection: ConnectionCallback | None = None,
) -> SyncSession:
    """Return a session whose calls block, for ``with``. See :func:`gapless.connect`.

    ``on_connection`` is called in the background thread of the session, and must not call the session.

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
        on_connection=on_connection,
    )
    return SyncSession(session)


class SyncSession:
    """A :class:`~gapless.client.Session` whose calls block."""

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
        """Connect; raise ConnectionLostError if no handshake completes in time."""
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
        """The thread in which the session runs."""
        if self._loop_thread is None:
            raise ClosedError("the session is not open; use it with 'with'")
        return self._loop_thread

    @property
    def broker(self) -> str | None:
        """The broker to which the session is connected now, if any."""
        return self._session.broker

    @property
    def connected(self) -> bool:
        """Whether the session, its publishers and its subscriptions are all connected now."""
        return self._session.connected

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
        """Return a publisher, to be used with ``with``. See :meth:`Session.publisher`."""
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
        filter: str | Filter | None = None,
        *,
        durable: str | None = None,
        start: Start = "latest",
        order: Literal["publisher", "total"] | None = None,
        prefetch: int = 5_000,
        ack: Acknowledge = "auto",
        on_gap: OnGap = "raise",
        expiry_s: int = EXPIRY_S,
        take_over: bool = True,
        create: bool = False,
        deadline_s: float | Unset | None = _UNSET,
    ) -> SyncSubscription:
        """Return a subscription, for ``with`` and ``for``. See :meth:`Session.subscribe`."""
        made = self._session.subscribe(
            filter,
            durable=durable,
            start=start,
            order=order,
            prefetch=prefetch,
            ack="manual" if ack == "auto" else ack,
            on_gap=on_gap,
            expiry_s=expiry_s,
            take_over=take_over,
            create=create,
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
        """Yield the events that match between two ticks of a log. See :meth:`Session.read`."""
        loop_thread = self.loop_thread
        events = self._session.read(pubend, low, high, filter, deadline_s=deadline_s)
        return _fetched(loop_thread, events)

    def partitions(self, *, deadline_s: float | Unset | None = _UNSET) -> tuple[Partition, ...]:
        """Return the cells that cannot be reached, as far as the broker knows."""
        return self.loop_thread.run(self._session.partitions(deadline_s=deadline_s))

    @property
    def overlay(self) -> SyncOverlayCalls:
        """The calls that concern the overlay as a whole. See :attr:`Session.overlay`."""
        return SyncOverlayCalls(self.loop_thread, self._session.overlay)

    def unsubscribe(self, durable: str, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """End a durable subscription, wherever it is hosted. See :meth:`Session.unsubscribe`."""
        self.loop_thread.run(self._session.unsubscribe(durable, deadline_s=deadline_s))

    def close_pubend(
        self,
        pubend: str,
        *,
        discard_history: bool = False,
        now: bool = False,
        wait: bool = False,
        deadline_s: float | Unset | None = _UNSET,
    ) -> PubendClosing:
        """Close a pubend for ever. See :meth:`Session.close_pubend`."""
        return self.loop_thread.run(
            self._session.close_pubend(
                pubend,
                discard_history=discard_history,
                now=now,
                wait=wait,
                deadline_s=deadline_s,
            )
        )

    def request(
        self, message: Any, *, deadline_s: float | Unset | None = _UNSET, changes: bool = True
    ) -> Any:
        """Send any request and return its answer. See :meth:`Session.request`."""
        return self.loop_thread.run(
            self._session.request(message, deadline_s=deadline_s, changes=changes)
        )


def _fetched(loop_thread: EventLoopThread, events: AsyncIterator[Event]) -> Iterator[Event]:
    """Yield events that the background thread fetches, some at a time."""
    problem: BaseException | None = None
    while problem is None:
        found, problem = loop_thread.run(_some(events))
        yield from found
        if not found and problem is None:
            return
    raise problem


async def _some(events: AsyncIterator[Event]) -> tuple[list[Event], GaplessError | None]:
    """Return some events, none at the end, and the error that came after them."""
    found: list[Event] = []
    try:
        async for event in events:
            found.append(event)
            if len(found) >= FETCHED_MAX:
                break
    except GaplessError as error:
        return found, error
    return found, None
