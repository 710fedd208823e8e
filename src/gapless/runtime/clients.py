"""The client sessions of a broker: their connections, requests and notices.

Every connection has a name of its own for the machine, so that a new connection of a client is
never taken for the lost one. Requests go to the machine in the order of arrival. A client is
disconnected with a reason if it sends a malformed frame, sends nothing for too long or does not read;
the other clients are not affected. A request with a wrong field is refused, and the others of its
connection go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gapless.audit.brokers import BrokerAudit
from gapless.core.errors import ProtocolError
from gapless.core.events import (
    ClientDown,
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    MachineEvent,
)
from gapless.core.ids import PubendId
from gapless.core.limits import (
    KEEPALIVES_MISSED_MAX,
    PUBLISHES_PER_STEP_MAX,
    SHOWN_CLIENT_NAME_MAX,
)
from gapless.core.parameters import Parameters
from gapless.messages.clients import Delivery, Publish, Published, Refused
from gapless.messages.staging import StageChunk
from gapless.messages.streams import Publication
from gapless.packed.encode import cached_encoding
from gapless.runtime.authentication import ClientIdentity
from gapless.runtime.connection import FramedConnection, TrafficCounters
from gapless.runtime.filters import FilterPreparation
from gapless.runtime.logs import StructuredLog
from gapless.runtime.operator_requests import refusal_of
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    Body,
    Disconnect,
    DisconnectReason,
    KeepAlive,
    request_number,
)

__all__ = ["CHECKS_PER_KEEPALIVE", "INSIDE", "ClientSession", "ClientSessions"]

INSIDE: Final = "inside"
"""The client name of the process itself. The names of connections contain a number."""

CHECKS_PER_KEEPALIVE: Final = 2
"""So often per keepalive interval connections are checked, so that no keepalive is late."""

_KEEPALIVE: Final = CLIENT_NOTICES.encode(KeepAlive())


def halves(delivery: Delivery) -> tuple[Delivery, Delivery]:
    """Divide a delivery into two, in the order of its events."""
    events = delivery.events
    middle = len(events) // 2
    return _delivery(delivery, events[:middle]), _delivery(delivery, events[middle:])


def _delivery(whole: Delivery, events: list[tuple[PubendId, Publication]]) -> Delivery:
    runs: list[tuple[PubendId, list[Publication]]] = []
    for pubend, publication in events:
        if not runs or runs[-1][0] != pubend:
            runs.append((pubend, []))
        runs[-1][1].append(publication)
    return Delivery(whole.subscription, tuple((pubend, tuple(run)) for pubend, run in runs))


def reuse_encoding(delivery: Delivery) -> Delivery:
    """Return a delivery that reuses the cached encoding of runs that were just stored."""
    runs: Any = [(pubend, _cached_run(run) or run) for pubend, run in delivery.runs]
    return Delivery(delivery.subscription, runs)


def _cached_run(run: tuple[Publication, ...]) -> msgspec.Raw | None:
    packed = cached_encoding(run)
    return None if packed is None else msgspec.Raw(packed)


class ClientSession:
    """One connection of a client."""

    __slots__ = (
        "_clients",
        "_identity",
        "_idle_checks",
        "_prepares",
        "_published",
        "_stalled",
        "connection",
        "is_paused",
        "name",
        "publishes",
        "traffic",
    )

    def __init__(
        self,
        clients: ClientSessions,
        name: str,
        connection: FramedConnection,
        identity: ClientIdentity,
    ) -> None:
        self._clients = clients
        self._identity = identity
        self._stalled: asyncio.TimerHandle | None = None
        self._published: list[MachineEvent] = []
        """Publications of the current read."""
        self.name = name
        self.connection = connection
        self.publishes = False
        """Whether the client has published: then it is paused while the disk is behind."""
        self.is_paused = False
        self._prepares = False
        """Whether a thread makes the filters of its last request."""
        self._idle_checks = 0
        """How many checks in a row have found that nothing came."""
        self.traffic = clients.traffic
        """The traffic of all client connections."""

    def take(self, body: Body) -> None:
        """Hand a request to the machine."""
        try:
            request = CLIENT_REQUESTS.decode(body)
        except ProtocolError as error:
            self._refuse_malformed(body, error)
            return
        kind = type(request)
        if kind is Publish:
            self._published.append(ClientRequest(self.name, request))
            if len(self._published) >= PUBLISHES_PER_STEP_MAX:
                self.taken()
            return
        self.taken()
        self.publishes |= kind is StageChunk
        if kind is Disconnect:
            self.connection.abort()
        elif kind is not KeepAlive:
            refusal = refusal_of(request, self._identity)
            if refusal is not None:
                self._refuse(refusal)
            elif texts := self._clients.filters.texts_of(request):
                self._prepares = True
                self.connection.pause_reading()
                self._clients.filters.prepare(
                    texts, lambda: not self.connection.over, partial(self._prepared, request)
                )
            else:
                self._request(request)

    def _prepared(self, request: Any) -> None:
        """The filters of a request have their normal forms; requests after it have waited."""
        self._prepares = False
        if self.connection.over:
            return
        self._request(request)
        if not self.is_paused:
            self.connection.resume_reading()

    def _request(self, request: Any) -> None:
        if self._clients.audit is not None:
            self._clients.audit.client_requested(self.name, request)
        self._clients.handle(ClientRequest(self.name, request))

    def _refuse_malformed(self, body: Body, error: ProtocolError) -> None:
        """Refuse a request with a wrong field; raise if the body is no request with a number."""
        number = request_number(body)
        if number is None:
            raise error
        self.taken()
        self._refuse(Refused(number, str(error)))

    def _refuse(self, refusal: Refused) -> None:
        """Refuse a request of which the machine does not know."""
        self.connection.send(CLIENT_NOTICES.encode(refusal))
        self.connection.flush()

    def taken(self) -> None:
        """Pass the publications of one read to the machine, in one step."""
        if self._published:
            published, self._published = self._published, []
            self.publishes = True
            self._clients.handle_all(published)

    def congested(self) -> None:
        """The client reads too slowly; it has the keepalive timeout to catch up."""
        loop = asyncio.get_running_loop()
        self._stalled = loop.call_later(self._clients.keepalive_timeout_s, self._give_up)
        self._clients.handle(ClientFull(self.name))

    def drained(self) -> None:
        """The client has caught up."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._clients.handle(ClientDrained(self.name))

    def _give_up(self) -> None:
        pending = self.connection.waiting_bytes
        reason = f"this client does not read: {pending:,} bytes wait for it; read faster"
        self.connection.close(DisconnectReason.CLOSED_BY_BROKER, reason)

    def pause(self) -> None:
        """Read nothing from the client for a while."""
        self.is_paused = True
        self.connection.pause_reading()

    def resume(self) -> None:
        """Read from the client again."""
        self.is_paused = False
        if not self._prepares:
            self.connection.resume_reading()

    def is_idle(self) -> bool:
        """Check the connection; return whether nothing came for too many checks."""
        is_heard = self.connection.take_received()
        if is_heard or self.is_paused or self._prepares or self.connection.is_congested:
            self._idle_checks = 0  # a congested connection is not read, and has its own timeout
        else:
            self._idle_checks += 1
        return self._idle_checks >= KEEPALIVES_MISSED_MAX * CHECKS_PER_KEEPALIVE

    def closed(self, reason: str) -> None:
        """The connection is over."""
        self.drained()
        self._clients.session_closed(self, reason)


class ClientSessions:
    """All clients of a broker."""

    def __init__(
        self,
        handle: Callable[[MachineEvent], None],
        handle_all: Callable[[Sequence[MachineEvent]], None],
        parameters: Parameters,
        log: StructuredLog,
        audit: BrokerAudit | None = None,
    ) -> None:
        self.handle = handle
        self.audit = audit
        self.handle_all = handle_all
        self.traffic = TrafficCounters()
        self.filters = FilterPreparation(1 + parameters.segments_max)
        self.published = 0
        self.delivered = 0
        self.disconnected = 0
        self.keepalive_timeout_s = KEEPALIVES_MISSED_MAX * parameters.keepalive_ms / 1_000
        self._log = log
        self._limit = parameters.connections_max
        self._sessions: dict[str, ClientSession] = {}
        self._made = 0
        self._take_inside: Callable[[Any], None] | None = None
        self._are_publishers_paused = False

    def __len__(self) -> int:
        """Return the number of connected clients."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[ClientSession]:
        """Iterate over the connected clients."""
        return iter(list(self._sessions.values()))

    @property
    def is_full(self) -> bool:
        """Whether no more clients are accepted."""
        return len(self._sessions) >= self._limit

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait to be sent to all clients."""
        return sum(each.connection.waiting_bytes for each in self._sessions.values())

    def take_inside(self, take: Callable[[Any], None]) -> None:
        """Pass the replies to requests of the process itself to a function."""
        self._take_inside = take

    # --- connecting and disconnecting ------------------------------------------------------------

    def new_name(self, called: str) -> str:
        """Return a name that no other connection of this incarnation has."""
        self._made += 1
        shown = "".join(each for each in called[:SHOWN_CLIENT_NAME_MAX] if each.isprintable())
        return f"{shown or 'client'}.{self._made}"

    def accept(
        self,
        name: str,
        connection: FramedConnection,
        identity: ClientIdentity,
        capabilities: tuple[str, ...],
    ) -> None:
        """Take a connection after its handshake."""
        principal = identity.principal
        session = ClientSession(self, name, connection, identity)
        connection.hand_to(session)
        self._sessions[name] = session
        if self.audit is not None:
            self.audit.client_connected(name, principal)
        self._log.debug(
            "client connected", client=name, principal=principal, address=connection.peer_address
        )
        self.handle(ClientUp(name, capabilities))

    def session_closed(self, session: ClientSession, reason: str) -> None:
        """Pass ClientDown to the machine, unless the machine has disconnected the client."""
        if self._sessions.pop(session.name, None) is not None:
            self._log.debug("client disconnected", client=session.name, reason=reason)
            if self.audit is not None:
                self.audit.client_disconnected(session.name)
            self.handle(ClientDown(session.name))

    # --- effects of the machine -------------------------------------------------------------------

    def notify(self, client: str, notice: Any) -> None:
        """Send a notice to a client, if it is still connected."""
        session = self._sessions.get(client)
        if session is None:
            if client == INSIDE and self._take_inside is not None:
                self._take_inside(notice)
            return
        kind = type(notice)
        if kind is Delivery:
            self.delivered += notice.count
        elif kind is Published:
            self.published += len(notice.ticks)
        if self.audit is not None:
            self.audit.client_notified(client, notice)
        try:
            frame = CLIENT_NOTICES.encode(reuse_encoding(notice) if kind is Delivery else notice)
        except ProtocolError as error:
            self._notify_in_parts(session, notice, error)
        else:
            session.connection.send(frame)

    def _notify_in_parts(self, session: ClientSession, notice: Any, error: ProtocolError) -> None:
        """Send a delivery that exceeds a frame in two halves, and each of them likewise."""
        if type(notice) is not Delivery or notice.count < 2:
            session.connection.close(DisconnectReason.CLOSED_BY_BROKER, str(error))
            return
        for part in halves(notice):
            try:
                session.connection.send(CLIENT_NOTICES.encode(part))
            except ProtocolError as still:
                self._notify_in_parts(session, part, still)

    def disconnect(self, client: str, reason: str) -> None:
        """Disconnect a client; the machine knows it already."""
        session = self._sessions.pop(client, None)
        if session is not None:
            self.disconnected += 1
            if self.audit is not None:
                self.audit.client_disconnected(client)
            self._log.info("client is disconnected", client=client, reason=reason)
            session.connection.close(DisconnectReason.CLOSED_BY_BROKER, reason)

    # --- keepalives, backpressure -----------------------------------------------------------------

    def check_keepalives(self) -> None:
        """Send a keepalive where nothing was sent; close connections that were idle too long."""
        for session in list(self._sessions.values()):
            connection = session.connection
            if session.is_idle():
                reason = f"nothing was heard for {self.keepalive_timeout_s:g} s"
                connection.close(DisconnectReason.KEEPALIVE_TIMEOUT, reason)
                continue
            if not connection.take_sent():
                connection.send(_KEEPALIVE)
                connection.flush()
                connection.take_sent()  # a keepalive alone does not count

    def pause_publishers(self) -> None:
        """Read nothing from publishers: the disk is behind."""
        self._are_publishers_paused = True
        for session in self._sessions.values():
            if session.publishes and not session.is_paused:
                session.pause()

    def resume_publishers(self) -> None:
        """Read from publishers again."""
        if self._are_publishers_paused:
            self._are_publishers_paused = False
            for session in self._sessions.values():
                if session.is_paused:
                    session.resume()

    def stop_reading(self) -> None:
        """Read no more requests: the broker stops."""
        for session in self._sessions.values():
            session.pause()

    def disconnect_all(self, reason: str) -> None:
        """Disconnect all clients."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.connection.close(DisconnectReason.STOPPING, reason)
