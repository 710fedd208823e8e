"""A connection of a task to a broker, with one pending read at a time.

A task works sequentially and is busy, so there is neither an event loop nor a second thread, which
would compete with the task for the interpreter. The reply comes into the socket while the task
converts the one before. A request is sent again if the connection is lost or nothing more comes
over it: reading twice does no harm. So a task sends no keepalives either: if a broker disconnects a
slow task, the task dials again. It receives the broker's keepalives, so it notices a broker that
has crashed.

The first address is that of the log. The others know the route to it: if an address cannot be
reached or refuses, the next one is tried. After a reply the first one is next again.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import cycle
from time import monotonic, sleep
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from gapless.client.credentials import Credentials
from gapless.client.requests import refusal
from gapless.core.address import Address, parse_addresses
from gapless.core.errors import (
    AuthenticationError,
    ConnectionLostError,
    DeadlineError,
    ProtocolError,
    RefusedError,
    UsageError,
)
from gapless.messages.clients import Refused
from gapless.messages.reading import ReadLog, ReadPart
from gapless.wire import (
    CLIENT_REQUESTS,
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    VERSIONS,
    Codec,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Handshake,
    KeepAlive,
    Role,
    decode_handshake,
    encode_handshake,
)

__all__ = ["ReadConnection", "UncopiedReadPart"]

_DIAL_S: Final = 5.0
"""How long a connection and its handshake may take before the next address is tried."""

_PAUSE_S: Final = 0.1
"""Between two attempts."""

_KEEPALIVES_MISSED_MAX: Final = 2
"""A broker sends a keepalive in every interval. After so many missing ones it is dialled again:
that costs less than waiting in vain."""

_SILENCE_S: Final = 3.0
"""A broker may be busy for so long, however short its keepalive interval is."""


class UncopiedReadPart(ReadPart, frozen=True, array_like=True, tag="ReadPart"):
    """A part whose rows are not copied from their frame."""

    rows: tuple[memoryview, ...] = ()  # type: ignore[assignment]  # read-only bytes


_NOTICES: Final[Codec[UncopiedReadPart | Refused | KeepAlive | Disconnect]] = Codec(
    UncopiedReadPart | Refused | KeepAlive | Disconnect
)
"""The messages that a broker may send on this connection."""


class ReadConnection:
    """Requests parts of logs from one of some brokers, and waits for the replies."""

    def __init__(
        self,
        where: tuple[str, ...],
        deadline_s: float,
        credentials: Credentials = Credentials(),  # noqa: B008 - it does not change
    ) -> None:
        self._where = where
        self._credentials = credentials
        self._all = parse_addresses(where)
        self._addresses: Iterator[Address] = cycle(self._all)
        self._deadline_s = deadline_s
        self._socket: socket.socket | None = None
        self._silence_s = deadline_s
        """How long the broker may be silent."""
        self._request: ReadLog | None = None
        self._number = 0

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def request(self, request: ReadLog) -> None:
        """Request a part; if it cannot be sent now, :meth:`answer` sends it again."""
        self._request = request
        if self._socket is not None:
            self._send_pending(self._socket)

    def answer(self) -> UncopiedReadPart:
        """Wait for the requested part. A refusal is raised at the deadline, not before."""
        ends_at = monotonic() + self._deadline_s
        refused: RefusedError | UsageError | None = None
        while (left := ends_at - monotonic()) > 0:
            try:
                answer = self._received(left)
            except (OSError, ProtocolError):
                self.close()
                sleep(min(_PAUSE_S, left))
                continue
            if isinstance(answer, UncopiedReadPart):
                self._addresses = cycle(self._all)
                return answer
            refused = refusal(answer)
            sleep(min(_PAUSE_S, left))
            if len(self._all) > 1:
                self.close()
            elif self._socket is not None:
                self._send_pending(self._socket)
        if refused is not None:
            raise refused
        assert self._request is not None
        raise DeadlineError(
            f"the log of {self._request.pubend} was not read from tick {self._request.low} within "
            f"{self._deadline_s:g} s: no broker at {', '.join(self._where)}"
        )

    def _received(self, left: float) -> UncopiedReadPart | Refused:
        """Return the reply to the request; after an OSError the request must be sent again."""
        ends_at = monotonic() + left
        if self._socket is None:
            self._socket = self._dialled(min(left, _DIAL_S))
            self._send_pending(self._socket)
        while True:
            self._socket.settimeout(max(0.001, min(ends_at - monotonic(), self._silence_s)))
            notice = _NOTICES.decode(_body(self._socket))
            if isinstance(notice, Disconnect):
                raise ConnectionLostError(f"the broker disconnected: {notice.reason}")
            if isinstance(notice, UncopiedReadPart | Refused) and notice.request == self._number:
                return notice

    def _send_pending(self, connection: socket.socket) -> None:
        """Send the request under a new number; the next receive notices if that fails."""
        assert self._request is not None
        self._number += 1
        try:
            connection.sendall(CLIENT_REQUESTS.encode(replace(self._request, request=self._number)))
        except OSError:
            self.close()

    def _dialled(self, seconds: float) -> socket.socket:
        """Return a connection to the next address, after the handshake."""
        address = next(self._addresses)
        token = self._credentials.token_for(address)
        made = socket.create_connection(address, seconds)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = f"spark-{uuid4().hex[:8]}"
            made.sendall(encode_handshake(Connect(Role.CLIENT, name, token=token)))
            connected = _checked(decode_handshake(bytes(_body(made))), address)
        except BaseException:
            made.close()
            raise
        self._silence_s = max(_SILENCE_S, _KEEPALIVES_MISSED_MAX * connected.keepalive_ms / 1_000)
        return made


def _checked(handshake: Handshake, address: Address) -> Connected:
    if isinstance(handshake, Disconnect) and handshake.code is DisconnectReason.NOT_AUTHENTICATED:
        raise AuthenticationError(f"{address}: the broker disconnected: {handshake.reason}")
    if not isinstance(handshake, Connected) or handshake.version not in VERSIONS:
        raise ConnectionLostError(f"expected Connected, got {handshake!r:.200}")
    return handshake


def _body(connection: socket.socket) -> bytearray:
    """Return the next frame, within the socket's timeout."""
    size = int.from_bytes(_bytes(connection, HEADER_BYTES), "big")
    if size > FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {size:,} bytes is larger than {FRAME_BYTES_MAX:,}")
    return _bytes(connection, size)


def _bytes(connection: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    view, index = memoryview(found), 0
    while index < count:
        more = connection.recv_into(view[index:])
        if not more:
            raise ConnectionLostError("the broker closed the connection")
        index += more
    return found
