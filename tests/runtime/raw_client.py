"""A client that sends and receives single frames, so that a test sees what goes over the wire."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self, TypeVar

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Ack,
    Credit,
    Delivery,
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    Subscribe,
    Subscribed,
)
from gapless.messages.streams import Events
from gapless.runtime import Address
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    HEADER_BYTES,
    Connect,
    Connected,
    Disconnect,
    KeepAlive,
    Role,
    decode_handshake,
    encode_handshake,
)

DEADLINE_S = 30.0
"""Far longer than any step of a test takes; a test fails when it has passed."""

T = TypeVar("T")


class RawClient:
    """One connection with a broker."""

    def __init__(self, url: str, name: str = "raw", token: str = "") -> None:
        self._address = Address.parse(url)
        self._name = name
        self._token = token
        self._request = 0
        self._notices: list[Any] = []
        self._position: dict[PubendId, int] = {}
        self.handshake: Connected

    async def __aenter__(self) -> Self:
        await self.connect()
        self.send_handshake(Connect(Role.CLIENT, self._name, token=self._token))
        handshake = decode_handshake(await self.body())
        assert isinstance(handshake, Connected), handshake
        self.handshake = handshake
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address, limit=2**16)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # the broker closed it first
            await self._writer.wait_closed()

    # --- frames ----------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def send_handshake(self, handshake: Any) -> None:
        self._writer.write(encode_handshake(handshake))

    def send(self, request: Any) -> None:
        self._writer.write(CLIENT_REQUESTS.encode(request))

    async def body(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            header = await self._reader.readexactly(HEADER_BYTES)
            return await self._reader.readexactly(int.from_bytes(header, "big"))

    async def read_disconnect(self) -> Disconnect:
        """Read until the broker disconnects."""
        while True:
            notice = CLIENT_NOTICES.decode(await self.body())
            if isinstance(notice, Disconnect):
                async with asyncio.timeout(DEADLINE_S):
                    assert not await self._reader.read()
                return notice

    async def read_refusal(self) -> Disconnect:
        """Read an optional Connected, then the Disconnect and the end."""
        body = await self.body()
        handshake = decode_handshake(body)
        return handshake if isinstance(handshake, Disconnect) else await self.read_disconnect()

    async def read_disconnect_or_reset(self) -> Disconnect | None:
        """Read until the end; the broker may have cut the connection without a Disconnect."""
        try:
            return await self.read_disconnect()
        except (ConnectionError, asyncio.IncompleteReadError):
            return None

    def send_keepalive(self) -> None:
        """Send one keepalive."""
        self.send(KeepAlive())

    async def keep_alive(self, interval_s: float) -> None:
        """Send keepalives for ever."""
        while True:
            self.send_keepalive()
            await asyncio.sleep(interval_s)

    async def next(self, kind: type[T], **fields: Any) -> T:
        """Return the next notice of a kind with some values; keep others for later."""
        for index, notice in enumerate(self._notices):
            if _fits(notice, kind, fields):
                del self._notices[index]
                return notice  # type: ignore[no-any-return]
        while True:
            notice = CLIENT_NOTICES.decode(await self.body())
            if _fits(notice, kind, fields):
                return notice  # type: ignore[return-value]
            if isinstance(notice, Disconnect):
                raise ConnectionError(notice.reason)
            if not isinstance(notice, KeepAlive):
                self._notices.append(notice)

    async def request(self, kind: type[T], request: Any) -> T:
        """Send a request and return its reply."""
        self.send(request)
        return await self.next(kind, request=request.request)

    def number(self) -> int:
        self._request += 1
        return self._request

    # --- common steps of tests ---------------------------------------------------------------------

    async def open(self, pubend: str, publisher: str = "desk") -> PublisherOpened:
        opened = await self.request(PubendOpened, OpenPubend(self.number(), pubend))
        return await self.request(
            PublisherOpened, OpenPublisher(self.number(), opened.pubend, publisher)
        )

    async def publish(
        self, pubend: str, session: int, first: int, count: int = 1, payload: bytes = b""
    ) -> Published:
        number = self.send_publish(pubend, session, first, count, payload)
        return await self.next(Published, request=number)

    def send_publish(
        self, pubend: str, session: int, first: int, count: int = 1, payload: bytes = b""
    ) -> int:
        """Publish without waiting for the reply; return the number of the request."""
        events: Events = tuple(({"n": first + index}, payload) for index in range(count))
        number = self.number()
        self.send(Publish(number, PubendId(pubend), "desk", session, first, events))
        return number

    async def published(self, count: int) -> int:
        """Wait until this many events are acknowledged; return their number."""
        found = 0
        while found < count:
            found += len((await self.next(Published)).ticks)
        return found

    def received(self, kind: type) -> list[Any]:
        """Return the notices of a kind that were received and not consumed."""
        return [notice for notice in self._notices if isinstance(notice, kind)]

    async def subscribe(self, subscription: str, text: str = "", **options: Any) -> Subscribed:
        """Subscribe and wait until every pubend has started."""
        options.setdefault("credit", 100_000)
        request = Subscribe(self.number(), subscription, text, **options)
        return await self.request(Subscribed, request)

    async def events(self, count: int) -> list[int]:
        """Return the numbers of the next events."""
        found: list[int] = []
        while len(found) < count:
            delivery = await self.next(Delivery)
            for pubend, publication in delivery.events:
                found.append(int(publication.attributes["n"]))
                self._position[pubend] = publication.tick
        return found

    def give_credit(self, subscription: str, events: int) -> None:
        """Give credit for more events."""
        self.send(Credit(subscription, events))

    def acknowledge(self, subscription: str, pubend: str) -> None:
        """Acknowledge all received events of a pubend."""
        tick = self._position[PubendId(pubend)]
        self.send(Ack(subscription, ((PubendId(pubend), tick),)))


def _fits(notice: Any, kind: type, fields: dict[str, Any]) -> bool:
    if not isinstance(notice, kind):
        return False
    return all(getattr(notice, name) == value for name, value in fields.items())
