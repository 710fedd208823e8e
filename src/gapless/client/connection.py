"""One connection to a broker: the greeting, beats, frames to notices and requests to frames."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, cast

from gapless.core.errors import ProtocolError
from gapless.core.limits import KEEPALIVES_MISSED_MAX
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    VERSIONS,
    Body,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    FrameReader,
    KeepAlive,
    Role,
    decode_handshake,
    encode_handshake,
)

__all__ = ["BrokerConnection", "ConnectionOwner"]

_KEEPALIVE: Final = bytes(CLIENT_REQUESTS.encode(KeepAlive()))


class ConnectionOwner(Protocol):
    """Whoever wants a connection and hears of it."""

    def opened(self, connection: BrokerConnection, handshake: Connected) -> None:
        """The broker has greeted."""

    def notice_received(self, connection: BrokerConnection, notice: Any) -> None:
        """The broker says something; raises ProtocolError if that cannot be."""

    def closed(
        self, connection: BrokerConnection, reason: str, code: DisconnectReason | None
    ) -> None:
        """The connection is over, once; ``code`` is what the broker said, if it did."""


class BrokerConnection(asyncio.BufferedProtocol):
    """Speaks frames with one broker and decides nothing."""

    def __init__(
        self,
        name: str,
        owner: ConnectionOwner,
        handshake_timeout_s: float = 10.0,
        *,
        token: str = "",
    ) -> None:
        """``handshake_timeout_s`` is how long a broker that accepted the connection may take to greet."""
        self._name = name
        self._token = token
        self._handshake_timeout_s = handshake_timeout_s
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._handshake: Connected | None = None
        self._over = False
        self._has_received = self._has_sent = True
        self._idle_checks = 0
        self.has_timed_out = False
        """Whether it was given up because the broker said nothing any more."""
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce this client."""
        # not an assertion: the transports of uvloop are of no class of asyncio's
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        if self._over:
            transport.abort()
            return
        transport.write(encode_handshake(Connect(Role.CLIENT, self._name, token=self._token)))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_timeout_s, self._handshake_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        self._end(f"the connection broke: {exc}" if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what is read."""
        del sizehint
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on every frame that is whole now; what cannot be understood ends the connection."""
        self._has_received = True
        try:
            for body in self._reader.filled(nbytes):
                if self._over:
                    return
                if self._handshake is None:
                    self._handshake_received(body)
                else:
                    self._take(CLIENT_NOTICES.decode(body))
        except ProtocolError as error:
            self.close(DisconnectReason.PROTOCOL_ERROR, f"the broker cannot be understood: {error}")

    def _handshake_received(self, body: Body) -> None:
        handshake = decode_handshake(body)
        if isinstance(handshake, Disconnect):
            self._broker_disconnected(handshake)
            return
        if not isinstance(handshake, Connected) or handshake.version not in VERSIONS:
            raise ProtocolError(f"expected a welcome, got {handshake!r:.200}")
        self._handshake = handshake
        self._set_timer(handshake)
        self._owner.opened(self, handshake)

    def _take(self, notice: Any) -> None:
        kind = type(notice)
        if kind is Disconnect:
            self._broker_disconnected(notice)
        elif kind is not KeepAlive:
            self._owner.notice_received(self, notice)

    def _broker_disconnected(self, disconnect: Disconnect) -> None:
        self._end(f"the broker says goodbye: {disconnect.reason}", disconnect.code)
        if self._transport is not None:
            self._transport.close()

    # --- signs of life -------------------------------------------------------------------------

    def _handshake_timed_out(self) -> None:
        self.has_timed_out = True
        self.abort(f"no greeting within {self._handshake_timeout_s:g} s; is there a broker?")

    def _set_timer(self, handshake: Connected) -> None:
        if self._timer is not None:
            self._timer.cancel()
        keepalive_s = max(handshake.keepalive_ms, 1) / 1_000
        self._timer = asyncio.get_running_loop().call_later(keepalive_s / 2, self._check_keepalive)

    def _check_keepalive(self) -> None:
        """Twice in the time of a beat: say something if nothing was said, count the silence."""
        assert self._handshake is not None
        if not self._has_sent and self._transport is not None:
            self._transport.write(_KEEPALIVE)
        self._idle_checks = 0 if self._has_received else self._idle_checks + 1
        self._has_sent = self._has_received = False
        if self._idle_checks >= 2 * KEEPALIVES_MISSED_MAX:
            self.has_timed_out = True
            self.abort("nothing was heard of the broker for too long")
        else:
            self._set_timer(self._handshake)

    # --- sending and ending ----------------------------------------------------------------------

    def send(self, request: Any) -> None:
        """Send a request."""
        self._write(CLIENT_REQUESTS.encode(request))

    def _write(self, frame: bytearray) -> None:
        if not self._over and self._transport is not None:
            self._has_sent = True
            self._transport.write(frame)

    def close(self, code: DisconnectReason, reason: str) -> None:
        """Say why and end; what was sent before still goes out."""
        if self._over:
            return
        self._write(encode_handshake(Disconnect(code, reason[:1_000])))
        self._end(reason)
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str, code: DisconnectReason | None = None) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.closed(self, reason, code)
