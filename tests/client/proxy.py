"""A proxy between clients and a broker that sees every message and can fail at any of them.

Fault budget. A connection may be cut before or after any message of either direction, one message may
be dropped or repeated, and new connections may be refused. The proxy never invents or changes a
message: for a broker that does, see :mod:`tests.client.scripted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gapless.core.address import parse_addresses
from gapless.wire import CLIENT_NOTICES, CLIENT_REQUESTS, FrameReader, decode_handshake
from tests.client.running import close_server
from tests.wire.feeding import feed

__all__ = ["Proxy"]

Rule = Callable[["Pair", bytes], bool]
"""Handles the frame of a message and returns whether nothing is left to do with it."""


class Side(asyncio.Protocol):
    """One of the two connections of a pair."""

    def __init__(self, pair: Pair, *, is_client: bool) -> None:
        self.pair = pair
        self.is_client = is_client
        self.transport: asyncio.Transport | None = None
        self.intake = FrameReader()
        self.has_handshake = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pair.made(self)

    def data_received(self, data: bytes) -> None:
        for body in feed(self.intake, data):
            frame = len(body).to_bytes(4, "big") + body
            if self.pair.over:
                return
            if not self.has_handshake:
                self.has_handshake = True
                self.pair.pass_on(self, decode_handshake(body), frame)
            else:
                codec = CLIENT_REQUESTS if self.is_client else CLIENT_NOTICES
                self.pair.pass_on(self, codec.decode(body), frame)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.pair.cut()


class Pair:
    """A client's connection and the one to the broker behind it."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client = Side(self, is_client=True)
        self.broker = Side(self, is_client=False)
        self.early: list[bytes] = []
        self.over = False
        self.task: asyncio.Task[None] | None = None

    def made(self, side: Side) -> None:
        if side is self.client:
            if self.proxy.closed:
                self.cut()
                return
            self.proxy.pairs.append(self)
            self.task = asyncio.get_running_loop().create_task(self.dial())
            return
        for frame in self.early:
            self.write(self.broker, frame)

    async def dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.broker, *self.proxy.upstream)
        except OSError:
            self.cut()

    def pass_on(self, side: Side, message: Any, frame: bytes) -> None:
        seen = self.proxy.requests if side is self.client else self.proxy.notices
        seen.append(message)
        for each in [*self.proxy.rules]:
            kind, rule = each
            if isinstance(message, kind):
                self.proxy.rules.remove(each)
                if rule(self, frame):
                    return
        self.forward(side, frame)

    def forward(self, side: Side, frame: bytes) -> None:
        other = self.broker if side is self.client else self.client
        if other.transport is None:
            self.early.append(frame)
        else:
            self.write(other, frame)

    def write(self, side: Side, frame: bytes) -> None:
        if side.transport is not None and not self.over:
            side.transport.write(frame)

    def cut(self) -> None:
        self.over = True
        if self in self.proxy.pairs:
            self.proxy.pairs.remove(self)
        for side in (self.client, self.broker):
            if side.transport is not None:
                side.transport.abort()


class Proxy:
    """A proxy in front of a broker; use it with ``async with``."""

    def __init__(self, url: str) -> None:
        (self.upstream,) = parse_addresses(url)
        self.requests: list[Any] = []
        self.notices: list[Any] = []
        self.rules: list[tuple[type[Any], Rule]] = []
        self.pairs: list[Pair] = []
        self.closed = False
        """Whether new connections are refused."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Pair(self).client, "127.0.0.1", 0)
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

    # --- faults --------------------------------------------------------------------------------

    def cut(self) -> None:
        """Cut all connections now."""
        for pair in [*self.pairs]:
            pair.cut()

    def cut_before(self, kind: type[Any]) -> None:
        """Cut the connection instead of forwarding the next message of a kind."""

        def rule(pair: Pair, frame: bytes) -> bool:
            del frame
            pair.cut()
            return True

        self.rules.append((kind, rule))

    def cut_after(self, kind: type[Any]) -> None:
        """Forward the next request of a kind, and cut the client off before the reply."""

        def rule(pair: Pair, frame: bytes) -> bool:
            pair.write(pair.broker, frame)
            assert pair.client.transport is not None
            pair.client.transport.abort()
            # what was written to the broker still arrives: that side closes in order
            pair.client.transport = None
            pair.over = True
            assert pair.broker.transport is not None
            pair.broker.transport.close()
            return True

        self.rules.append((kind, rule))

    def swallow(self, kind: type[Any]) -> None:
        """Do not forward the next message of a kind."""
        self.rules.append((kind, lambda pair, frame: True))  # noqa: ARG005

    def repeat(self, kind: type[Any]) -> None:
        """Send the next notice of a kind twice to the client."""

        def rule(pair: Pair, frame: bytes) -> bool:
            pair.write(pair.client, frame)
            pair.write(pair.client, frame)
            return True

        self.rules.append((kind, rule))

    # --- messages seen -------------------------------------------------------------------------

    def requests_of(self, kind: type[Any]) -> list[Any]:
        """Return all requests of a kind."""
        return [each for each in self.requests if isinstance(each, kind)]

    def notices_of(self, kind: type[Any]) -> list[Any]:
        """Return all notices of a kind."""
        return [each for each in self.notices if isinstance(each, kind)]
