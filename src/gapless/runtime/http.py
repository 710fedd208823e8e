"""A minimal web server: two pages, one request per connection, no configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast

from gapless.core.address import Address
from gapless.core.errors import UsageError
from gapless.core.limits import HTTP_REQUEST_BYTES_MAX
from gapless.runtime.open_connections import OpenConnections
from gapless.runtime.ports import bind_problem

__all__ = ["Page", "Pages", "WebServer"]

_REQUEST_S: Final = 5.0
"""How long a request and the reading of its reply may take."""


class Page(NamedTuple):
    """The current content of a path."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Answer: TypeAlias = Callable[[Page], None]
Pages: TypeAlias = Mapping[str, Callable[[Answer], None]]
"""By path, a function that calls back with the page, at once or later."""


class _Request(asyncio.Protocol):
    """One connection: it reads a request, answers it and closes."""

    def __init__(self, pages: Pages, connections: OpenConnections[_Request]) -> None:
        self._pages = pages
        self._connections = connections
        self._head = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        self._connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(_REQUEST_S, self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._connections.discard(self)
        self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            _find_page(self._head, self._pages, self._answer)
        elif len(self._head) > HTTP_REQUEST_BYTES_MAX:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._answer(Page(b"too large\n", status=status))

    def _answer(self, page: Page) -> None:
        if self.transport.is_closing():
            return  # nobody waits for the page any more
        head = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.kind}\r\nContent-Length: {len(page.body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        without_body = self._head.startswith(b"HEAD ")
        self.transport.write(head.encode() + (b"" if without_body else page.body))
        self.transport.close()


def _find_page(head: bytes, pages: Pages, answer: Answer) -> None:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        answer(Page(b"this is no request\n", status=HTTPStatus.BAD_REQUEST))
        return
    method, target, _ = words
    make = pages.get(target.partition("?")[0])
    if method not in {"GET", "HEAD"}:
        answer(Page(b"only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED))
    elif make is None:
        there = f"not found; valid paths: {', '.join(pages)}\n"
        answer(Page(there.encode(), status=HTTPStatus.NOT_FOUND))
    else:
        make(answer)


class WebServer:
    """Serves pages until it is closed."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._connections: OpenConnections[_Request] = OpenConnections()
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> Address:
        """Listen; return the address, because port 0 chooses any free port."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Request(self._pages, self._connections), *address
            )
        except (OSError, UnicodeError) as error:  # a host name that IDNA does not allow
            raise UsageError(
                f"cannot serve metrics on {address}: {bind_problem(error)}; "
                "choose another address with metrics"
            ) from None
        return Address(address.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end all requests."""
        if self._server is not None:
            self._server.close()
        for request in self._connections:
            request.transport.abort()
        await self._connections.all_closed()
