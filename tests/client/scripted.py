"""A broker that sends what a test prescribes, right or wrong; it has no streams.

Fault budget: everything. It replies as scripted, not at all, with invalid messages, or with the bytes of
another protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Credit,
    FilterSet,
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    SetFilter,
    Subscribe,
    Subscribed,
)
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    VERSIONS,
    Connect,
    Connected,
    FrameReader,
    decode_handshake,
    encode_handshake,
)
from tests.client.running import close_server
from tests.wire.feeding import feed

__all__ = ["ScriptedBroker", "ScriptedConnection"]

Q = PubendId("quotes")


class ScriptedConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.intake = FrameReader()
        self.connect: Connect | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.broker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for body in feed(self.intake, data):
            if self.connect is None:
                handshake = decode_handshake(body)
                assert isinstance(handshake, Connect)
                self.connect = handshake
                self.broker.on_connect(self)
            else:
                request = CLIENT_REQUESTS.decode(body)
                self.broker.requests.append(request)
                answer = self.broker.answers.get(type(request))
                if answer is not None:
                    answer(self, request)

    def notify(self, *notices: Any) -> None:
        """Send notices to the client."""
        for notice in notices:
            self.transport.write(CLIENT_NOTICES.encode(notice))

    def send_handshake(self, handshake: Any) -> None:
        """Send a handshake message."""
        self.transport.write(encode_handshake(handshake))


class ScriptedBroker:
    """Listens on a free port; use it with ``async with``. Change ``answers`` to script it."""

    def __init__(self, name: str = "b1", *, keepalive_ms: int = 60_000) -> None:
        self.name = name
        self.keepalive_ms = keepalive_ms
        self.connections: list[ScriptedConnection] = []
        self.requests: list[Any] = []
        self.session = 0
        self.last_sequence = 0
        self.window = 64
        self.tick = 1_000
        self.on_connect: Callable[[ScriptedConnection], None] = self._send_connected
        self.answers: dict[type, Callable[[ScriptedConnection, Any], None]] = {
            OpenPubend: lambda connection, call: connection.notify(
                PubendOpened(call.request, PubendId(call.name))
            ),
            OpenPublisher: self._open_publisher,
            Publish: self._publish,
            Subscribe: lambda connection, call: connection.notify(
                Subscribed(call.request, ((Q, 0),))
            ),
            SetFilter: lambda connection, call: connection.notify(
                FilterSet(call.request, ((Q, 0),))
            ),
        }

    def _send_connected(self, connection: ScriptedConnection) -> None:
        connection.send_handshake(
            Connected(VERSIONS[-1], self.name, "c1", 1_048_576, self.keepalive_ms)
        )

    def _open_publisher(self, connection: ScriptedConnection, call: OpenPublisher) -> None:
        self.session += 1
        connection.notify(
            PublisherOpened(call.request, self.session, self.last_sequence, self.window)
        )

    def _publish(self, connection: ScriptedConnection, call: Publish) -> None:
        connection.notify(self.published(call))

    def published(self, call: Publish) -> Published:
        """Return the reply to a batch, which is now published."""
        ticks = tuple(range(self.tick + 1, self.tick + 1 + len(call.events)))
        self.tick += len(call.events)
        self.last_sequence = call.first + len(call.events) - 1
        return Published(call.request, ticks)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: ScriptedConnection(self), "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"gapless://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await close_server(self.server, self.cut)

    @property
    def connection(self) -> ScriptedConnection:
        """The newest connection."""
        return self.connections[-1]

    def cut(self) -> None:
        """Cut all connections now."""
        for connection in self.connections:
            connection.transport.abort()

    def requests_of(self, kind: type[Any]) -> list[Any]:
        """Return all requests of a kind."""
        return [each for each in self.requests if isinstance(each, kind)]

    @property
    def credit(self) -> int:
        """The sum of all credit that the client gave."""
        first: int = sum(each.credit for each in self.requests_of(Subscribe))
        later: int = sum(each.events for each in self.requests_of(Credit))
        return first + later
