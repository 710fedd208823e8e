"""Overlays of real brokers in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from gapless.audit.options import AuditOptions
from gapless.client.loop_thread import EventLoopThread
from gapless.core.address import Address
from gapless.core.errors import ClosedError, UsageError
from gapless.core.ids import BrokerId
from gapless.core.parameters import DEFAULTS, Parameters
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.node import Node
from gapless.runtime.overlay_config import overlay_of
from gapless.runtime.principals import write_secret
from gapless.runtime.settings import BrokerSettings
from gapless.wire import new_token

__all__ = ["Overlay", "SyncOverlay"]


class Overlay:
    """A tree of brokers in the event loop of the test; use it with ``async with``.

    ``topology`` is ``line:3``, ``star:5``, ``tree:2x3`` or the name of a file; brokers are b1,
    b2, … In cells of several brokers, as in ``line:3x2``, they are b1a, b1b, b2a, …

    With ``on_disk=False`` nothing is written; this is faster, and a restarted broker has no data.
    With ``audit`` brokers write audit logs there. With ``tokens``, a file that ``gapless token
    new`` has made, they require tokens.
    """

    def __init__(
        self,
        topology: str = "line:1",
        *,
        parameters: Parameters = DEFAULTS,
        on_disk: bool = True,
        audit: AuditOptions | str | Path | None = None,
        tokens: str | Path | None = None,
    ) -> None:
        self._overlay = overlay_of(topology)
        self._tokens = tokens
        self._audit = None if audit is None else AuditOptions.of(audit)
        self._parameters = parameters
        self._on_disk = on_disk
        self._directory: TemporaryDirectory[str] | None = None
        self._addresses: dict[BrokerId, Address] = {}
        self._nodes: dict[BrokerId, Node] = {}

    @property
    def brokers(self) -> tuple[BrokerId, ...]:
        """The names of all brokers, running or not."""
        return tuple(name for name, _ in self._overlay.brokers)

    def url(self, *brokers: BrokerId) -> str:
        """Return the URL of these brokers, or of the first broker if none is named.

        It does not change when a broker is restarted.
        """
        names = brokers or self.brokers[:1]
        return "gapless://" + ",".join(str(self._address(name)) for name in names)

    def _address(self, name: BrokerId) -> Address:
        if name not in self._addresses:
            raise UsageError(f"{name} is no broker that was started; there are {self.brokers}")
        return self._addresses[name]

    def node(self, name: BrokerId) -> Node:
        """Return a running broker, to inspect it."""
        if name not in self._nodes:
            raise ClosedError(f"the broker {name} is not running")
        return self._nodes[name]

    async def __aenter__(self) -> Self:
        if self._on_disk or self._tokens is not None:
            self._directory = TemporaryDirectory(prefix="gapless-")
        try:
            for name in self.brokers:
                await self._start(name, Address())
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start(self, name: BrokerId, listen: Address) -> None:
        base = None if self._directory is None else Path(self._directory.name)
        settings = BrokerSettings(
            name=name,
            overlay=self._overlay,
            data=base / name if base is not None and self._on_disk else None,
            listen=listen,
            parameters=self._parameters,
            audit=self._audit,
            access=None if base is None else self._access(base),
        )
        node = Node(settings, addresses=self._addresses)
        await node.start()
        self._nodes[name] = node
        self._addresses[name] = node.address

    def _access(self, base: Path) -> AccessOptions | None:
        if self._tokens is None:
            return None
        secret = base / "broker.token"
        if not secret.exists():
            write_secret(secret, new_token())
        return AccessOptions(tokens=str(self._tokens), broker_token=str(secret))

    async def stop(self) -> None:
        """Stop all brokers and remove their data."""
        nodes, self._nodes = [*self._nodes.values()], {}
        await asyncio.gather(*(node.stop() for node in nodes))
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    async def kill(self, name: BrokerId) -> None:
        """End a broker as a crash would: nothing is flushed and no disconnect reason is sent."""
        node = self.node(name)
        del self._nodes[name]
        await node.kill()

    async def restart(self, name: BrokerId) -> None:
        """Start a broker at its old address, with its stored data; kill it first if it runs."""
        address = self._address(name)
        if name in self._nodes:
            await self.kill(name)
        await self._start(name, address)


class SyncOverlay:
    """An :class:`Overlay` in a thread, for tests without an event loop; use it with ``with``.

    Its brokers do not stand still while the test works, and a test may use it from an event loop of
    its own as well.
    """

    def __init__(
        self,
        topology: str = "line:1",
        *,
        parameters: Parameters = DEFAULTS,
        on_disk: bool = True,
        audit: AuditOptions | str | Path | None = None,
        tokens: str | Path | None = None,
    ) -> None:
        self._overlay = Overlay(
            topology, parameters=parameters, on_disk=on_disk, audit=audit, tokens=tokens
        )
        self._loop_thread: EventLoopThread | None = None

    @property
    def brokers(self) -> tuple[BrokerId, ...]:
        """The names of all brokers, running or not."""
        return self._overlay.brokers

    def url(self, *brokers: BrokerId) -> str:
        """Return the URL of these brokers, or of the first broker if none is named."""
        return self._overlay.url(*brokers)

    def __enter__(self) -> Self:
        loop_thread = EventLoopThread()
        try:
            loop_thread.run(self._overlay.__aenter__())
        except BaseException:
            loop_thread.stop()
            raise
        self._loop_thread = loop_thread
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop_thread, self._loop_thread = self._running, None
        try:
            loop_thread.run(self._overlay.stop())
        finally:
            loop_thread.stop()

    @property
    def _running(self) -> EventLoopThread:
        if self._loop_thread is None:
            raise ClosedError("open the overlay with 'with' first")
        return self._loop_thread

    def kill(self, name: BrokerId) -> None:
        """End a broker as a crash would."""
        self._running.run(self._overlay.kill(name))

    def restart(self, name: BrokerId) -> None:
        """Start a broker at its old address, with the data on its disk."""
        self._running.run(self._overlay.restart(name))
