"""One connection to a broker: the greeting, beats, frames to notices and requests to frames."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, cast

from gapless.core.errors import ProtocolError
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    VERSIONS,
    Beat,
    Body,
    Farewell,
    Goodbye,
    Intake,
    Introduce,
    Role,
    Welcome,
    decode_greeting,
    encode_greeting,
)

__all__ = ["Connection", "Owner"]

_SILENT_BEATS: Final = 4
"""After so many times without a sign of the broker the connection is given up."""

_BEAT: Final = bytes(CLIENT_REQUESTS.encode(Beat()))


class Owner(Protocol):
    """Whoever wants a connection and hears of it."""

    def opened(self, connection: Connection, welcome: Welcome) -> None:
        """The broker has greeted."""

    def heard(self, connection: Connection, notice: Any) -> None:
        """The broker says something; raises ProtocolError if that cannot be."""

    def closed(self, connection: Connection, reason: str, farewell: Farewell | None) -> None:
        """The connection is over, once; ``farewell`` is what the broker said, if it did."""


class Connection(asyncio.BufferedProtocol):
    """Speaks frames with one broker and decides nothing."""

    def __init__(
        self, name: str, owner: Owner, greeting_s: float = 10.0, *, token: str = ""
    ) -> None:
        """``greeting_s`` is how long a broker that accepted the connection may take to greet."""
        self._name = name
        self._token = token
        self._greeting_s = greeting_s
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._intake = Intake()
        self._welcome: Welcome | None = None
        self._over = False
        self._heard = self._spoke = True
        self._silent = 0
        self.fell_silent = False
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
        transport.write(encode_greeting(Introduce(Role.CLIENT, self._name, token=self._token)))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._greeting_s, self._not_greeted)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        self._end(f"the connection broke: {exc}" if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what is read."""
        del sizehint
        return self._intake.room

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on every frame that is whole now; what cannot be understood ends the connection."""
        self._heard = True
        try:
            for body in self._intake.filled(nbytes):
                if self._over:
                    return
                if self._welcome is None:
                    self._greeted(body)
                else:
                    self._take(CLIENT_NOTICES.decode(body))
        except ProtocolError as error:
            self.close(Farewell.NOT_UNDERSTOOD, f"the broker cannot be understood: {error}")

    def _greeted(self, body: Body) -> None:
        greeting = decode_greeting(body)
        if isinstance(greeting, Goodbye):
            self._said_goodbye(greeting)
            return
        if not isinstance(greeting, Welcome) or greeting.version not in VERSIONS:
            raise ProtocolError(f"expected a welcome, got {greeting!r:.200}")
        self._welcome = greeting
        self._set_timer(greeting)
        self._owner.opened(self, greeting)

    def _take(self, notice: Any) -> None:
        kind = type(notice)
        if kind is Goodbye:
            self._said_goodbye(notice)
        elif kind is not Beat:
            self._owner.heard(self, notice)

    def _said_goodbye(self, goodbye: Goodbye) -> None:
        self._end(f"the broker says goodbye: {goodbye.reason}", goodbye.farewell)
        if self._transport is not None:
            self._transport.close()

    # --- signs of life -------------------------------------------------------------------------

    def _not_greeted(self) -> None:
        self.fell_silent = True
        self.abort(f"no greeting within {self._greeting_s:g} s; is there a broker?")

    def _set_timer(self, welcome: Welcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        beat_s = max(welcome.beat_ms, 1) / 1_000
        self._timer = asyncio.get_running_loop().call_later(beat_s / 2, self._look)

    def _look(self) -> None:
        """Twice in the time of a beat: say something if nothing was said, count the silence."""
        assert self._welcome is not None
        if not self._spoke and self._transport is not None:
            self._transport.write(_BEAT)
        self._silent = 0 if self._heard else self._silent + 1
        self._spoke = self._heard = False
        if self._silent >= 2 * _SILENT_BEATS:
            self.fell_silent = True
            self.abort("nothing was heard of the broker for too long")
        else:
            self._set_timer(self._welcome)

    # --- sending and ending ----------------------------------------------------------------------

    def send(self, request: Any) -> None:
        """Send a request."""
        self._write(CLIENT_REQUESTS.encode(request))

    def _write(self, frame: bytearray) -> None:
        if not self._over and self._transport is not None:
            self._spoke = True
            self._transport.write(frame)

    def close(self, farewell: Farewell, reason: str) -> None:
        """Say why and end; what was sent before still goes out."""
        if self._over:
            return
        self._write(encode_greeting(Goodbye(farewell, reason[:1_000])))
        self._end(reason)
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str, farewell: Farewell | None = None) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.closed(self, reason, farewell)
