"""One connection to a broker: handshake, keepalives, encoding of requests, decoding of notices."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, cast

from gapless.core.errors import ProtocolError, UsageError
from gapless.core.limits import KEEPALIVES_MISSED_MAX
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    HEADER_BYTES,
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
    """The callbacks of a connection."""

    def opened(self, connection: BrokerConnection, handshake: Connected) -> None:
        """The handshake is complete."""

    def notice_received(self, connection: BrokerConnection, notice: Any) -> None:
        """A notice has come; raises ProtocolError if it is not valid."""

    def closed(
        self, connection: BrokerConnection, reason: str, code: DisconnectReason | None
    ) -> None:
        """The connection has ended; called once. ``code`` is the reason of the broker, if any."""


class BrokerConnection(asyncio.BufferedProtocol):
    """Sends and receives the frames of one connection; its owner decides what they mean."""

    def __init__(
        self,
        name: str,
        owner: ConnectionOwner,
        handshake_timeout_s: float = 10.0,
        *,
        token: str = "",
    ) -> None:
        """``handshake_timeout_s`` limits the wait for the broker's handshake."""
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
        """Whether it was ended because the broker sent nothing for too long."""
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the client's handshake."""
        # not an assertion: uvloop's transports do not derive from asyncio's classes
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        if self._over:
            transport.abort()
            return
        transport.write(encode_handshake(Connect(Role.CLIENT, self._name, token=self._token)))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_timeout_s, self._handshake_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport has closed."""
        self._transport = None
        self._end(f"the connection broke: {exc}" if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes."""
        del sizehint
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process every complete frame; an invalid one ends the connection."""
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
            self.close(
                DisconnectReason.PROTOCOL_ERROR, f"the broker sent an invalid frame: {error}"
            )

    def _handshake_received(self, body: Body) -> None:
        handshake = decode_handshake(body)
        if isinstance(handshake, Disconnect):
            self._broker_disconnected(handshake)
            return
        if not isinstance(handshake, Connected) or handshake.version not in VERSIONS:
            raise ProtocolError(f"expected Connected, got {handshake!r:.200}")
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
        self._end(f"the broker disconnected: {disconnect.reason}", disconnect.code)
        if self._transport is not None:
            self._transport.close()

    # --- keepalive -----------------------------------------------------------------------------

    def _handshake_timed_out(self) -> None:
        self.has_timed_out = True
        self.abort(f"no handshake within {self._handshake_timeout_s:g} s; is there a broker?")

    def _set_timer(self, handshake: Connected) -> None:
        if self._timer is not None:
            self._timer.cancel()
        keepalive_s = max(handshake.keepalive_ms, 1) / 1_000
        self._timer = asyncio.get_running_loop().call_later(keepalive_s / 2, self._check_keepalive)

    def _check_keepalive(self) -> None:
        """Twice per interval: send a keepalive if nothing was sent, count silence of the broker."""
        assert self._handshake is not None
        if not self._has_sent and self._transport is not None:
            self._transport.write(_KEEPALIVE)
        self._idle_checks = 0 if self._has_received else self._idle_checks + 1
        self._has_sent = self._has_received = False
        if self._idle_checks >= 2 * KEEPALIVES_MISSED_MAX:
            self.has_timed_out = True
            self.abort("the broker has sent nothing for too long")
        else:
            self._set_timer(self._handshake)

    # --- sending and ending ----------------------------------------------------------------------

    def send(self, request: Any) -> None:
        """Send a request; raise UsageError if it is too large for the broker, which would disconnect."""
        try:
            frame = CLIENT_REQUESTS.encode(request)
        except ProtocolError as error:
            raise UsageError(str(error)) from None
        size = len(frame) - HEADER_BYTES
        if self._handshake is not None and size > self._handshake.frame_bytes_max:
            raise UsageError(
                f"a {type(request).__name__} of {size:,} bytes was not sent, because this broker takes "
                f"{self._handshake.frame_bytes_max:,}: make it shorter"
            )
        self._write(frame)

    def _write(self, frame: bytearray) -> None:
        if not self._over and self._transport is not None:
            self._has_sent = True
            self._transport.write(frame)

    def close(self, code: DisconnectReason, reason: str) -> None:
        """Send the reason and end; bytes that were written before are still sent."""
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
