"""A connection of a task to a broker, on which one read is under way at a time.

A task does one thing after the other, and there is much of it: so no event loop and no second thread,
which would fight with the task for the interpreter. The answer comes into the socket while the task
converts the one before. What is asked for is asked again if the connection is lost, or nothing comes over
it any more: to read twice does no harm. So a task sends no beats either: a broker that gives a slow task up
is dialled anew. It hears those of the broker, so it notices one that is gone without a word.

The first address is the one of the log. The others know the way to it: who cannot be reached, or refuses, is
followed by the next, and after an answer the first one is the next again.
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
)
from gapless.messages.clients import ReadLog, ReadPart, Refused
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
"""How long an address may take to accept a connection and to greet before the next one is tried."""

_PAUSE_S: Final = 0.1
"""Between two tries."""

_KEEPALIVES_MISSED_MAX: Final = 2
"""A broker says something with every beat, if only that it is there. One that misses so many is dialled
anew: that costs less than to wait for it in vain."""

_SILENCE_S: Final = 3.0
"""It may be busy for so long, however short its beats are."""


class UncopiedReadPart(ReadPart, frozen=True, array_like=True, tag="ReadPart"):
    """A part whose rows are not copied from the frame in which they came."""

    rows: tuple[memoryview, ...] = ()  # type: ignore[assignment]  # bytes to who only reads them


_NOTICES: Final[Codec[UncopiedReadPart | Refused | KeepAlive | Disconnect]] = Codec(
    UncopiedReadPart | Refused | KeepAlive | Disconnect
)
"""What is heard on a line."""


class ReadConnection:
    """Asks one of some brokers for parts of logs, and waits for the answers."""

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
        """How long the broker at the other end may be silent."""
        self._request: ReadLog | None = None
        self._number = 0

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: ReadLog) -> None:
        """Ask for a part; if nobody hears it now it is asked again by who waits for the answer."""
        self._request = request
        if self._socket is not None:
            self._say(self._socket)

    def answer(self) -> UncopiedReadPart:
        """Wait for the part that was asked for. A refusal is taken at the deadline, and not before."""
        ends_at = monotonic() + self._deadline_s
        refused: RefusedError | None = None
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
                self._say(self._socket)
        if refused is not None:
            raise refused
        assert self._request is not None
        raise DeadlineError(
            f"the log of {self._request.pubend} did not answer from tick {self._request.low} on within "
            f"{self._deadline_s:g} s: no broker at {', '.join(self._where)}"
        )

    def _received(self, left: float) -> UncopiedReadPart | Refused:
        """Return what the broker says to the request; OSError says that it has to be asked again."""
        ends_at = monotonic() + left
        if self._socket is None:
            self._socket = self._dialled(min(left, _DIAL_S))
            self._say(self._socket)
        while True:
            self._socket.settimeout(max(0.001, min(ends_at - monotonic(), self._silence_s)))
            notice = _NOTICES.decode(_body(self._socket))
            if isinstance(notice, Disconnect):
                raise ConnectionLostError(f"the broker says goodbye: {notice.reason}")
            if isinstance(notice, UncopiedReadPart | Refused) and notice.request == self._number:
                return notice

    def _say(self, connection: socket.socket) -> None:
        """Send the request under a new number; one that cannot be sent is noticed by who listens."""
        assert self._request is not None
        self._number += 1
        try:
            connection.sendall(CLIENT_REQUESTS.encode(replace(self._request, request=self._number)))
        except OSError:
            self.close()

    def _dialled(self, seconds: float) -> socket.socket:
        """Return a connection to the next address, greeted."""
        address = next(self._addresses)
        token = self._credentials.token_for(address)
        made = socket.create_connection(address, seconds)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = f"spark-{uuid4().hex[:8]}"
            made.sendall(encode_handshake(Connect(Role.CLIENT, name, token=token)))
            welcome = _checked(decode_handshake(bytes(_body(made))), address)
        except BaseException:
            made.close()
            raise
        self._silence_s = max(_SILENCE_S, _KEEPALIVES_MISSED_MAX * welcome.keepalive_ms / 1_000)
        return made


def _checked(handshake: Handshake, address: Address) -> Connected:
    if isinstance(handshake, Disconnect) and handshake.code is DisconnectReason.NOT_AUTHENTICATED:
        raise AuthenticationError(f"{address}: the broker says goodbye: {handshake.reason}")
    if not isinstance(handshake, Connected) or handshake.version not in VERSIONS:
        raise ConnectionLostError(f"expected a welcome, got {handshake!r:.200}")
    return handshake


def _body(connection: socket.socket) -> bytearray:
    """Return the next frame, however long it takes within the socket's timeout."""
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
