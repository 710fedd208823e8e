"""Incoming connections until their handshake.

Pending connections count against ``connections_max`` together with clients, so that connections
without a handshake are bounded. At the limit the oldest pending connection is refused. So a new
connection can always send its handshake: it may be a neighbour, which clients must not lock out.
"""

from __future__ import annotations

import asyncio

from gapless.core.context import Identity
from gapless.core.errors import ProtocolError, shortened
from gapless.core.parameters import Parameters
from gapless.runtime.authentication import AuthenticationDenial, Authenticator, ClientIdentity
from gapless.runtime.clients import ClientSessions
from gapless.runtime.connection import FramedConnection, TrafficCounters
from gapless.runtime.links import BrokerLinks
from gapless.runtime.logs import StructuredLog
from gapless.wire import (
    Body,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Role,
    common_version,
    decode_handshake,
    encode_handshake,
)

__all__ = ["Acceptor"]


class _PendingConnection:
    """A connection that has not sent its handshake."""

    def __init__(self, acceptor: Acceptor, connection: FramedConnection) -> None:
        self._acceptor = acceptor
        self._connection = connection
        self.traffic = acceptor.traffic
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(acceptor.handshake_timeout_s, self._give_up)

    def take(self, body: Body) -> None:
        handshake = decode_handshake(body)
        if isinstance(handshake, Disconnect):
            self._connection.abort()
        elif isinstance(handshake, Connect):
            self._leave()
            self._acceptor.connect_received(self._connection, handshake)
        else:
            raise ProtocolError(f"expected Connect, not {type(handshake).__name__}")

    def taken(self) -> None:
        """Nothing is deferred to the end of a read."""

    def congested(self) -> None:
        """Nothing is sent before the handshake."""

    def drained(self) -> None:
        """Nothing is sent before the handshake."""

    def closed(self, reason: str) -> None:
        del reason
        self._leave()

    def reject(self, reason: str) -> None:
        """Close the connection in favour of a newer one."""
        self._acceptor.refuse(self._connection, DisconnectReason.CONNECTION_LIMIT, reason)

    def _leave(self) -> None:
        self._timer.cancel()
        self._acceptor.forget(self)

    def _give_up(self) -> None:
        reason = f"no handshake in {self._acceptor.handshake_timeout_s:g} s"
        self._connection.close(DisconnectReason.KEEPALIVE_TIMEOUT, reason)


class Acceptor:
    """Accepts clients and peers, and refuses others."""

    def __init__(
        self,
        identity: Identity,
        overlay: str,
        parameters: Parameters,
        clients: ClientSessions,
        links: BrokerLinks,
        log: StructuredLog,
        authenticator: Authenticator | None = None,
        *,
        takes_clients: bool = True,
    ) -> None:
        self._takes_clients = takes_clients
        self.traffic = TrafficCounters()
        self.refused = 0
        self.pending: dict[_PendingConnection, None] = {}
        """Connections without a handshake, the oldest first."""
        self.handshake_timeout_s = parameters.handshake_timeout_ms / 1_000
        self._identity = identity
        self._overlay = overlay
        self._parameters = parameters
        self._clients = clients
        self._links = links
        self._log = log
        self._authenticator = authenticator

    def accept(self, connection: FramedConnection) -> FramedConnection:
        """Take a new connection."""
        pending = _PendingConnection(self, connection)
        connection.hand_to(pending)
        limit = self._parameters.connections_max
        if self.pending and len(self._clients) + len(self.pending) >= limit:
            oldest = next(iter(self.pending))
            oldest.reject(f"connections_max = {limit:,} are open, and no handshake was received")
        self.pending[pending] = None
        return connection

    def forget(self, pending: _PendingConnection) -> None:
        """A connection has sent its handshake, or has ended before it."""
        self.pending.pop(pending, None)

    def connect_received(self, connection: FramedConnection, handshake: Connect) -> None:
        """Accept a connection, or refuse it with a reason."""
        version = common_version(handshake.versions)
        if version is None:
            spoken = shortened(", ".join(map(str, handshake.versions)) or "none")
            reason = f"no common protocol version: you have {spoken}; update the older side"
            self.refuse(connection, DisconnectReason.NO_COMMON_VERSION, reason)
        elif handshake.role is Role.BROKER:
            self._accept_broker(connection, handshake, version)
        elif not self._takes_clients:
            reason = "this broker is in no tree yet: append it with gapless topo append"
            self.refuse(connection, DisconnectReason.STOPPING, reason)
        elif self._clients.is_full:
            reason = f"connections_max = {self._parameters.connections_max:,} clients are connected"
            self.refuse(connection, DisconnectReason.CONNECTION_LIMIT, reason)
        else:
            self._accept_client(connection, handshake, version)

    def _accept_client(
        self, connection: FramedConnection, handshake: Connect, version: int
    ) -> None:
        identity = (
            ClientIdentity()
            if self._authenticator is None
            else self._authenticator.authenticate_client(handshake.token)
        )
        if isinstance(identity, AuthenticationDenial):
            self.refuse(connection, identity.code, identity.reason)
            return
        name = self._clients.new_name(handshake.name)
        self._send_connected(connection, version, name)
        self._clients.accept(name, connection, identity, handshake.capabilities)

    def _accept_broker(
        self, connection: FramedConnection, handshake: Connect, version: int
    ) -> None:
        # first, so that unknown brokers do not learn the names of neighbours
        denial = (
            None
            if self._authenticator is None
            else self._authenticator.authenticate_broker(handshake.token)
        )
        fault = self._links.invalid_reason(handshake, self._overlay)
        if denial is not None:
            self.refuse(connection, denial.code, denial.reason)
        elif fault is not None:
            self.refuse(connection, DisconnectReason.UNKNOWN_BROKER, fault)
        else:
            self._send_connected(connection, version, "")
            self._links.link_opened(handshake.name, connection)

    def _send_connected(self, connection: FramedConnection, version: int, client: str) -> None:
        connected = Connected(
            version,
            self._identity.broker,
            self._identity.cell,
            self._parameters.frame_bytes_max,
            self._parameters.keepalive_ms,
            client,
        )
        connection.send(encode_handshake(connected))

    def refuse(self, connection: FramedConnection, code: DisconnectReason, reason: str) -> None:
        """Close a connection with a disconnect reason, and log it."""
        self.refused += 1
        address = connection.peer_address
        self._log.warning("connection is refused", address=address, reason=reason)
        connection.close(code, reason)
