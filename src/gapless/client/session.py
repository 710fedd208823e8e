"""Sessions: a program's connection to the overlay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

from gapless.audit.clients import ClientAudit
from gapless.audit.options import AuditOptions
from gapless.client.arguments import (
    check_choice,
    check_filter,
    check_flag,
    check_name,
    check_new_name,
    check_pubend_name,
    check_seconds,
    check_text,
    check_whole,
)
from gapless.client.connection_changes import ConnectionCallback, ConnectionReporter
from gapless.client.credentials import Credentials
from gapless.client.event import Event
from gapless.client.link import ReconnectingLink
from gapless.client.options import DEADLINE_S, FAILOVER_AFTER_S, SessionOptions, Unset, chosen
from gapless.client.overlay import OverlayCalls
from gapless.client.position import pubend_id
from gapless.client.publisher import Publisher
from gapless.client.reading import read_log
from gapless.client.requests import check_request
from gapless.client.session_links import SessionLinks
from gapless.client.session_operations import SessionOperations
from gapless.client.settings import ORDERS
from gapless.client.staged_writer import (
    CommitResult,
    StagedPart,
    StagedWriter,
    commit_staged,
    drop_staged,
)
from gapless.client.starts import Start, start_point_of
from gapless.client.subscription import Acknowledge, OnGap, Subscription, SubscriptionOptions
from gapless.content.filter import Filter
from gapless.core.address import Address, parse_addresses
from gapless.core.backoff import Backoff
from gapless.core.errors import ClosedError, ConnectionLostError, UsageError
from gapless.core.limits import (
    CLIENT_COUNT_MAX,
    IN_FLIGHT_EVENTS_MAX,
    NAME_PREFIX_MAX,
    SEQUENCE_MAX,
)
from gapless.core.ticks import Tick

__all__ = ["EXPIRY_S", "Session", "connect"]

EXPIRY_S = 604_800
"""How long a durable subscription is kept without a client, by default: a week."""

_UNSET = Unset()


def connect(
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
) -> Session:
    """Return a session with the brokers at ``gapless://host:port,host:port``; use it with ``async
    with``.

    ``deadline_s`` limits every call that has no deadline of its own, in seconds; None is no limit.
    ``connect_deadline_s`` limits the first connection. A connection that is lost later is replaced,
    with growing waits (``backoff``), as long as the session lasts. If several addresses are given,
    a durable subscription whose broker is unreachable for ``failover_after_s`` seconds continues at
    another broker, from what was received; with None it waits. ``audit`` is a directory for a log
    of what is published and received (:mod:`gapless.audit`). ``token``, or the file that has it,
    identifies the client to brokers that require it; without them GAPLESS_TOKEN or
    GAPLESS_TOKEN_FILE is taken from the environment. A file is read again for every connection.
    ``on_connection`` is called with a :class:`ConnectionChange` whenever a connection to a broker is
    made or lost.

    >>> import asyncio, gapless
    >>> from gapless.testing import Overlay
    >>> async def example() -> None:
    ...     async with (
    ...         Overlay(on_disk=False) as overlay,
    ...         gapless.connect(overlay.url()) as session,
    ...     ):
    ...         async with session.publisher("quotes") as publisher:
    ...             async with session.subscribe("price > 90") as events:
    ...                 await publisher.publish({"symbol": "IBM", "price": 80})
    ...                 position = await publisher.publish({"symbol": "IBM", "price": 95})
    ...                 async for event in events:
    ...                     print(event.attributes, event.position == position)
    ...                     break
    ...                 switch = await events.set_filter("price > 100")
    ...                 print(switch >= position)
    >>> asyncio.run(example())
    {'symbol': 'IBM', 'price': 95} True
    True
    """
    addresses = parse_addresses(servers)
    name = check_text("name", name) and check_new_name("name", name)
    if not isinstance(backoff, Backoff):
        raise UsageError(f"backoff is a Backoff, not a {type(backoff).__name__}")
    called = name or f"client-{uuid4().hex[:12]}"
    options = SessionOptions(
        name=called,
        reporter=ConnectionReporter(called, on_connection),
        deadline_s=check_seconds("deadline_s", deadline_s),
        connect_deadline_s=check_seconds("connect_deadline_s", connect_deadline_s),
        backoff=backoff,
        failover_after_s=check_seconds("failover_after_s", failover_after_s),
        audit=None if audit is None else AuditOptions.of(audit),
        audit_name=name or "client",
        credentials=Credentials.of(token, token_file),
    )
    return Session(addresses, options)


class Session(SessionOperations):
    """A program's connection to the overlay, replaced whenever it is lost. See :func:`connect`."""

    def __init__(self, addresses: tuple[Address, ...], options: SessionOptions) -> None:
        self._options = options
        self._token = uuid4().hex[:12]
        self._count = 0
        self._open: dict[Publisher | Subscription, None] = {}
        self._is_opened = False
        self._is_over = False
        self.audit: ClientAudit | None = None
        """The audit log, if one was requested; only while the session is open."""
        self._links = SessionLinks(addresses, options)

    # --- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; raise ConnectionLostError if no handshake completes in time.

        AuthenticationError means that a broker requires a token, or another one.
        """
        if self._is_over:
            raise ClosedError("the session is closed; connect again")
        if self._is_opened:
            raise UsageError("the session was opened already")
        self._options.credentials.check()
        self._is_opened = True
        if self._options.audit is not None:
            self.audit = ClientAudit.shared(self._options.audit, self._options.audit_name)
        self.main.start()
        deadline_s = self._options.connect_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                await self.main.up()
        except TimeoutError:
            trouble = self.main.trouble
            await self.close()
            raise ConnectionLostError(
                f"no handshake with a broker within {deadline_s:g} s: {trouble}"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End everything; close publishers first, to be sure that all is published."""
        if self._is_over:
            return
        self._is_over = True
        for each in [*self._open]:
            if isinstance(each, Subscription):
                await each.close(done=False)
        error = ClosedError("the session was closed")
        try:
            await self._links.close(error)
        finally:
            if self.audit is not None:
                self.audit.release()

    def opened(self, each: Publisher | Subscription) -> None:
        """A publisher or subscription was opened."""
        self._open[each] = None

    def closed(self, each: Publisher | Subscription) -> None:
        """A publisher or subscription was closed."""
        self._open.pop(each, None)

    @property
    def main(self) -> ReconnectingLink:
        """The link for everything that any broker can serve."""
        return self._links.main

    @property
    def broker(self) -> str | None:
        """The broker to which the session is connected now, if any."""
        return None if self.main.handshake is None else self.main.handshake.broker

    @property
    def connected(self) -> bool:
        """Whether the session, its publishers and its subscriptions are all connected now."""
        return self._links.are_connected

    @property
    def has_one_address(self) -> bool:
        """Whether the session has only one address."""
        return self._links.has_one_address

    def _check(self) -> None:
        if self._is_over:
            raise ClosedError("the session is closed; connect again")

    def _check_open(self) -> None:
        self._check()
        if not self._is_opened:
            raise ClosedError("the session is not open; use it with 'async with'")

    # --- links ---------------------------------------------------------------------------------

    async def link_for(self, *, durable: bool) -> ReconnectingLink:
        """Return the link of a subscription."""
        self._check_open()
        return await self._links.for_subscription(durable=durable)

    async def call_at_phb(
        self, request: Any, deadline_s: float | None
    ) -> tuple[ReconnectingLink, Any]:
        """Send a request to the PHB that it concerns; return the link to it and the answer."""
        self._check_open()
        return await self._links.call_at_phb(request, deadline_s)

    # --- publishing and subscribing --------------------------------------------------------------

    def publisher(
        self,
        pubend: str,
        *,
        name: str = "",
        advertisement: str | Filter = "TRUE",
        guaranteed: bool = True,
        in_flight_max: int = IN_FLIGHT_EVENTS_MAX,
        deadline_s: float | Unset | None = _UNSET,
    ) -> Publisher:
        """Return a publisher to a pubend, to be used with ``async with``; the pubend is created if
        needed.

        The broker at which a pubend is created hosts it. ``guaranteed`` applies to a pubend that is
        created now: with False it has no log and guarantees only order. ``advertisement`` is a
        filter that all its events match. It lets brokers skip subscriptions that cannot match, and
        only ever widens. A ``name`` continues the sequences of that name; no other publisher may
        use it at the same time.
        """
        self._check()
        return Publisher(
            self,
            check_pubend_name(pubend, is_new=True),
            name=check_new_name("name", name)
            if check_text("name", name)
            else self._generated_name(),
            advertisement=check_filter("advertisement", advertisement),
            guaranteed=check_flag("guaranteed", guaranteed),
            in_flight_max=check_whole("in_flight_max", in_flight_max, 1),
            deadline_s=chosen(deadline_s, self._options.deadline_s),
        )

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
    ) -> Subscription:
        """Return a subscription to all events that match a filter, for ``async with`` and ``async
        for``.

        A ``durable`` subscription has a name: its broker keeps its position for ``expiry_s``
        seconds while no client is connected. A program that subscribes under that name continues
        after what was acknowledged, with the filter given here, or with the one that the
        subscription has if none is given; ``start`` applies only when the subscription is created.
        The name is looked for at all brokers. While a broker that may host it does not answer, the
        subscription waits for that broker; with ``create`` it is created all the same. If another
        client has it, that client loses it, or with ``take_over=False`` the call is refused.
        Without ``durable`` and without a filter, all events match. With ``order="total"`` all
        subscribers see the events of all pubends in one order; otherwise each pubend has its own
        order. A durable subscription keeps the order with which it was created. At most ``prefetch`` events wait to
        be handed out. Where a log has released events that the subscription must receive,
        :class:`GapError` is raised, or with ``on_gap="report"`` added to ``gaps``.
        """
        self._check()
        name = self._generated_name() if durable is None else check_new_name("durable", durable)
        settings = SubscriptionOptions(
            durable=durable is not None,
            start=start_point_of(start),
            order=None if order is None else check_choice("order", order, ORDERS),
            prefetch=prefetch,
            ack=ack,
            on_gap=on_gap,
            expiry_s=expiry_s,
            create=create,
            deadline_s=chosen(deadline_s, self._options.deadline_s),
            take_over=take_over,
        )
        keeps_filter = filter is None and durable is not None
        text = (
            None if keeps_filter else str(check_filter("filter", "" if filter is None else filter))
        )
        return Subscription(self, name, text, settings)

    # --- staging -------------------------------------------------------------------------------

    def staged_writer(
        self,
        pubend: str,
        *,
        writer: str,
        batch: int,
        partition: int = 0,
        advertisement: str | Filter = "TRUE",
        deadline_s: float | Unset | None = _UNSET,
    ) -> StagedWriter:
        """Return a writer that stages one attempt of a partition; the pubend is created if needed.

        For programs whose tasks may fail or run twice: staged events are published only when
        :meth:`commit_staged` names them. A ``writer`` numbers its batches and commits them in that
        order; it is the publisher of its events.
        """
        self._check()
        return StagedWriter(
            self,
            check_pubend_name(pubend, is_new=True),
            writer=check_new_name("writer", writer),
            batch=check_whole("batch", batch, 0, CLIENT_COUNT_MAX),
            partition=check_whole("partition", partition, 0, CLIENT_COUNT_MAX),
            advertisement=check_filter("advertisement", advertisement),
            deadline_s=chosen(deadline_s, self._options.deadline_s),
        )

    async def commit_staged(
        self, parts: Iterable[StagedPart], *, deadline_s: float | Unset | None = _UNSET
    ) -> CommitResult:
        """Publish a batch as a whole: one part of each partition, in their order. Repeating it is
        safe.

        Raises :class:`RefusedError` if a part is not staged any more: then nothing was published,
        and the batch has to be staged again. After :class:`OutcomeUnknownError`, repeat the call.
        """
        self._check_open()
        return await commit_staged(self, parts, chosen(deadline_s, self._options.deadline_s))

    async def drop_staged(
        self, pubend: str, writer: str, batch: int, *, deadline_s: float | Unset | None = _UNSET
    ) -> None:
        """Drop the staged events of a batch; the broker also drops them by itself after a time."""
        self._check_open()
        pubend, writer = check_pubend_name(pubend), check_name("writer", writer)
        batch = check_whole("batch", batch, 0, CLIENT_COUNT_MAX)
        seconds = chosen(deadline_s, self._options.deadline_s)
        await drop_staged(self, pubend, writer, batch, seconds)

    def _generated_name(self) -> str:
        """Return a name for a publisher or a subscription that was given none."""
        self._count += 1
        return f"{self._options.name[:NAME_PREFIX_MAX]}-{self._token}-{self._count}"

    # --- reading and requests ------------------------------------------------------------------

    def read(
        self,
        pubend: str,
        low: Tick | None = None,
        high: Tick | None = None,
        filter: str | Filter = "",
        *,
        deadline_s: float | Unset | None = _UNSET,
    ) -> AsyncIterator[Event]:
        """Yield the events that match a filter between two ticks of a pubend's log.

        Without ``low`` the read starts with the oldest event of the log; without ``high`` it ends
        with the newest when the read starts. The deadline applies to each part of the answer.
        """
        self._check_open()
        return read_log(
            self.main,
            pubend_id(check_pubend_name(pubend)),
            str(check_filter("filter", filter)),
            None if low is None else check_whole("low", low, 0, SEQUENCE_MAX),
            None if high is None else check_whole("high", high, 0, SEQUENCE_MAX),
            chosen(deadline_s, self._options.deadline_s),
        )

    @property
    def overlay(self) -> OverlayCalls:
        """The calls that concern the overlay as a whole."""
        return OverlayCalls(self)

    async def request(
        self, message: Any, *, deadline_s: float | Unset | None = _UNSET, changes: bool = True
    ) -> Any:
        """Send any request of :mod:`gapless.messages.clients` and return the answer.

        The session sets its number. A refusal is raised. If no answer comes in time, a request that
        ``changes`` something raises OutcomeUnknownError, any other DeadlineError.
        """
        self._check_open()
        seconds = chosen(deadline_s, self._options.deadline_s)
        is_change = check_flag("changes", changes)
        return await self.main.call(check_request(message), seconds, changes=is_change)
