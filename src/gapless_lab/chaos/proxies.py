"""A network of proxies, for computers on which namespaces are not allowed.

All brokers are on the loopback interface. A broker that dials another dials a proxy in this
process. The proxy forwards data in both directions and stops reading in a direction that is cut:
the sent data waits, as it does in TCP during a real cut. A broker that dials across a cut waits for
a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from gapless.core.address import Address
from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import OverlayConfig
from gapless.runtime.ports import ReservedPorts

__all__ = ["Proxies"]

HOST: Final = "127.0.0.1"


class _End(asyncio.Protocol):
    """One of the two connections of a passage; it reads data from ``source``."""

    def __init__(self, passage: _Passage, source: BrokerId, target: BrokerId) -> None:
        self._passage = passage
        self.link = (source, target)
        self.transport: asyncio.Transport | None = None
        self.other: _End
        self._is_full = False
        """Whether the other end accepts nothing more for now."""
        self._held = bytearray()
        """Data received while reading was paused: older loops read on after a pause at the
        start."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # not an assertion: the transports of uvloop are not subclasses of asyncio's
        self.transport = cast("asyncio.Transport", transport)
        self._passage.made(self)

    def data_received(self, data: bytes) -> None:
        if self._may_read:
            self._pass_on(data)
        else:
            self._held += data

    @property
    def _may_read(self) -> bool:
        """Whether data can be forwarded, and this direction is not cut."""
        passage = self._passage
        return passage.is_connected and not self._is_full and not passage.proxies.is_cut(self.link)

    def _pass_on(self, data: bytes) -> None:
        if self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.set_full(True)

    def resume_writing(self) -> None:
        self.other.set_full(False)

    def set_full(self, is_full: bool) -> None:
        """Set whether data that is read here cannot be forwarded."""
        self._is_full = is_full
        self.review()

    def review(self) -> None:
        """Resume or pause reading."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._may_read:
            held, self._held = bytes(self._held), bytearray()
            self._pass_on(held)
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._passage.end()


class _Passage:
    """A connection through a proxy: the connection from the dialling broker, and the one to its
    target.
    """

    def __init__(self, proxies: Proxies, dialler: BrokerId, listener: BrokerId) -> None:
        self.proxies = proxies
        self.near = _End(self, dialler, listener)
        self.far = _End(self, listener, dialler)
        self.near.other, self.far.other = self.far, self.near
        self.is_connected = False
        self._task: asyncio.Task[Any] | None = None

    def made(self, end: _End) -> None:
        """One of the connections is established; the first is that of the dialling broker."""
        if end is self.far:
            self.is_connected = True
        self.proxies.passages[self] = None
        self.review()

    def review(self) -> None:
        """Dial the target as soon as neither direction is cut; read from each direction that is not
        cut.
        """
        links = (self.near.link, self.far.link)
        if self._task is None and not any(map(self.proxies.is_cut, links)):
            address = self.proxies.addresses[self.near.link[1]]
            self._task = asyncio.get_running_loop().create_task(self._dial(address))
        self.near.review()
        self.far.review()

    async def _dial(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, *address)
        except OSError:
            self.end()

    def end(self) -> None:
        """Close both connections."""
        self.proxies.passages.pop(self, None)
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()


class Proxies:
    """A proxy for every pair of neighbours; see :mod:`gapless_lab.chaos.networks`."""

    def __init__(self) -> None:
        self.addresses: dict[BrokerId, Address] = {}
        """The addresses at which brokers listen."""
        self.passages: dict[_Passage, None] = {}
        """The open connections."""
        self._seen: dict[BrokerId, dict[BrokerId, Address]] = {}
        self._servers: list[asyncio.Server] = []
        self._held = ReservedPorts(0)
        self._cut: set[tuple[BrokerId, BrokerId]] = set()

    async def start(self, overlay: OverlayConfig) -> OverlayConfig:
        """Listen in place of every broker, for each broker that dials it."""
        names = [broker for broker, _ in overlay.brokers]
        self._held = ReservedPorts(len(names))
        self.addresses = {
            name: Address(HOST, port) for name, port in zip(names, self._held.ports, strict=True)
        }
        for dialler, cell in overlay.brokers:
            around = overlay.topology.neighbourhood(cell, overlay.delta + 1).all_brokers()
            for listener in around:
                if (
                    dialler < listener
                ):  # as links do: of two brokers the one whose name comes first dials
                    await self._listen(dialler, listener)
        return msgspec.structs.replace(overlay, addresses=self.addresses)

    async def _listen(self, dialler: BrokerId, listener: BrokerId) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Passage(self, dialler, listener).near, HOST, 0, backlog=16
        )
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        self._seen.setdefault(dialler, {})[listener] = Address(HOST, port)

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return no prefix: brokers run without a wrapper."""
        del broker
        return ()

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return the addresses of the proxies of all brokers that a broker dials."""
        return self._seen.get(broker, {})

    def is_cut(self, link: tuple[BrokerId, BrokerId]) -> bool:
        """Return whether the direction from the first to the second is cut."""
        return link in self._cut

    async def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Cut the direction from the first of each pair to the second."""
        self._cut.update(links)
        self._review()

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Heal the directions."""
        self._cut.difference_update(links)
        self._review()

    def _review(self) -> None:
        for passage in [*self.passages]:
            passage.review()

    async def stop(self) -> None:
        """Close everything."""
        self._held.release()
        for server in self._servers:
            server.close()
        for passage in [*self.passages]:
            passage.end()
