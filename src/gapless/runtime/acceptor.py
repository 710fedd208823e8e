"""The door: connections that come in, until they have introduced themselves.

Newcomers count as clients do, so that who only connects and says nothing has no more than there are
connections for. When all are taken, the newcomer goes that has been silent for longest. So there is
always room for one to introduce itself: it may be a neighbour, which a crowd must not keep out.
"""

from __future__ import annotations

import asyncio

from gapless.core.errors import ProtocolError
from gapless.core.machine import Identity
from gapless.core.parameters import Parameters
from gapless.runtime.authentication import Denial, Guard
from gapless.runtime.clients import Clients
from gapless.runtime.connection import Connection, Traffic
from gapless.runtime.links import Links
from gapless.runtime.logs import Voice
from gapless.wire import (
    Body,
    Farewell,
    Goodbye,
    Introduce,
    Role,
    Welcome,
    common_version,
    decode_greeting,
    encode_greeting,
)

__all__ = ["Door"]


class _Newcomer:
    """A connection that has not said who it is."""

    def __init__(self, door: Door, connection: Connection) -> None:
        self._door = door
        self._connection = connection
        self.traffic = door.traffic
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(door.patience_s, self._give_up)

    def take(self, body: Body) -> None:
        greeting = decode_greeting(body)
        if isinstance(greeting, Goodbye):
            self._connection.abort()
        elif isinstance(greeting, Introduce):
            self._leave()
            self._door.introduced(self._connection, greeting)
        else:
            raise ProtocolError(f"an introduction was expected, not {type(greeting).__name__}")

    def taken(self) -> None:
        """Nothing waits for the end of what was read."""

    def full(self) -> None:
        """Nothing is sent before the introduction."""

    def free(self) -> None:
        """Nothing is sent before the introduction."""

    def closed(self, reason: str) -> None:
        del reason
        self._leave()

    def turn_away(self, reason: str) -> None:
        """Make room for another."""
        self._door.refuse(self._connection, Farewell.TOO_MANY, reason)

    def _leave(self) -> None:
        self._timer.cancel()
        self._door.newcomers.pop(self, None)

    def _give_up(self) -> None:
        reason = f"no introduction in {self._door.patience_s:g} s"
        self._connection.close(Farewell.SILENT, reason)


class Door:
    """Lets clients and peers in, and others not."""

    def __init__(
        self,
        identity: Identity,
        overlay: str,
        parameters: Parameters,
        clients: Clients,
        links: Links,
        voice: Voice,
        guard: Guard | None = None,
    ) -> None:
        self.traffic = Traffic()
        self.refused = 0
        self.newcomers: dict[_Newcomer, None] = {}
        """Who has not said who it is, the oldest first."""
        self.patience_s = parameters.greeting_ms / 1_000
        self._identity = identity
        self._overlay = overlay
        self._parameters = parameters
        self._clients = clients
        self._links = links
        self._voice = voice
        self._guard = guard

    def enter(self, connection: Connection) -> Connection:
        """Take a new connection."""
        newcomer = connection.handler = _Newcomer(self, connection)
        limit = self._parameters.connections_max
        if self.newcomers and len(self._clients) + len(self.newcomers) >= limit:
            oldest = next(iter(self.newcomers))
            oldest.turn_away(
                f"connections_max = {limit:,} are here, and you did not say who you are"
            )
        self.newcomers[newcomer] = None
        return connection

    def introduced(self, connection: Connection, introduction: Introduce) -> None:
        """Let a newcomer in, or say why not."""
        version = common_version(introduction.versions)
        if version is None:
            spoken = ", ".join(map(str, introduction.versions)) or "none"
            reason = f"no version in common: you speak {spoken}; update the older side"
            self.refuse(connection, Farewell.NO_COMMON_VERSION, reason)
        elif introduction.role is Role.BROKER:
            self._let_broker_in(connection, introduction, version)
        elif self._clients.is_full:
            reason = f"connections_max = {self._parameters.connections_max:,} clients are here"
            self.refuse(connection, Farewell.TOO_MANY, reason)
        else:
            self._let_client_in(connection, introduction, version)

    def _let_client_in(self, connection: Connection, introduction: Introduce, version: int) -> None:
        principal = "" if self._guard is None else self._guard.client(introduction.token)
        if isinstance(principal, Denial):
            self.refuse(connection, principal.farewell, principal.reason)
            return
        name = self._clients.new_name(introduction.name)
        self._welcome(connection, version, name)
        self._clients.welcome(name, connection, principal)

    def _let_broker_in(self, connection: Connection, introduction: Introduce, version: int) -> None:
        # before anything else is said: strangers need not know who is a neighbour
        denial = None if self._guard is None else self._guard.broker(introduction.token)
        fault = self._links.fault_of(introduction, self._overlay)
        if denial is not None:
            self.refuse(connection, denial.farewell, denial.reason)
        elif fault is not None:
            self.refuse(connection, Farewell.NOT_EXPECTED, fault)
        else:
            self._welcome(connection, version, "")
            self._links.up(introduction.name, connection)

    def _welcome(self, connection: Connection, version: int, client: str) -> None:
        welcome = Welcome(
            version,
            self._identity.broker,
            self._identity.cell,
            self._parameters.frame_bytes_max,
            self._parameters.client_beat_ms,
            client,
        )
        connection.send(encode_greeting(welcome))

    def refuse(self, connection: Connection, farewell: Farewell, reason: str) -> None:
        """Turn a newcomer away, and say why."""
        self.refused += 1
        address = connection.peer_address
        self._voice.warning("connection is refused", address=address, reason=reason)
        connection.close(farewell, reason)
