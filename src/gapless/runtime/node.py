"""A node: one life of a broker, with its sockets, its disk and its timers.

It may be a process of its own (:mod:`.process`) or one of several in an event loop::

    node = Node(Settings(name="b1"))
    await node.start()
    ...  # clients connect to node.url
    await node.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from gapless.audit.brokers import BrokerAudit
from gapless.broker import Broker
from gapless.core.errors import DiskFullError, UsageError
from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Event, Fetch, Stopping, Write
from gapless.runtime.acceptor import Door
from gapless.runtime.addresses import Address
from gapless.runtime.authentication import Guard
from gapless.runtime.clients import SWEEPS_A_BEAT, Clients
from gapless.runtime.connection import Connection, Outbox
from gapless.runtime.disk_queue import Disk
from gapless.runtime.driver import Driver, moment
from gapless.runtime.health import Health, health_page
from gapless.runtime.http import Page, WebServer
from gapless.runtime.links import SWEEPS_A_SILENCE, Links
from gapless.runtime.logs import Voice
from gapless.runtime.metrics import METRICS_KIND, Metrics
from gapless.runtime.open_connections import Crowd
from gapless.runtime.settings import Settings
from gapless.runtime.stores import Opened, open_store
from gapless.wire import Introduce, Role

__all__ = ["Node"]

ACCEPTING_TURNS = 3
"""Turns of the loop between accepting a connection and telling its protocol that it is made."""


DAMAGES_SAID_S = 0.5
"""How soon a damaged row that was met is in the log of what happens."""


class Node:
    """One life of a broker. It is started once and stopped once."""

    def __init__(
        self,
        settings: Settings,
        *,
        addresses: MutableMapping[BrokerId, Address] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.settings = settings
        self.addresses = dict(settings.overlay.addresses) if addresses is None else addresses
        """Where brokers are. Nodes of one process may share it: each puts itself there."""
        self.failure: BaseException | None = None
        """Why it stopped by itself, if it did."""
        self.refused: dict[str, str] = {}
        """What could not be brought back from disk, and why."""
        self._on_failure = on_failure
        self._voice = Voice(broker=settings.name, cell=settings.cell)
        self._connections: Crowd[Connection] = Crowd()
        self._sweeps: list[asyncio.TimerHandle] = []
        self._server: asyncio.Server | None = None
        self._address = settings.listen
        self._started_ns = 0
        self._web: WebServer | None = None
        self.metrics_address: Address | None = None
        """Where /metrics and /healthz are."""
        self._audit: BrokerAudit | None = None
        self._guard: Guard | None = None
        self._said_damages: dict[PubendId, str] = {}
        self._stopping = False
        self._stopped = False

    # --- what others ask -----------------------------------------------------------------------

    @property
    def name(self) -> BrokerId:
        """The name of the broker."""
        return self.settings.name

    @property
    def address(self) -> Address:
        """Where others reach this broker."""
        return self.settings.advertise or self._address

    @property
    def url(self) -> str:
        """What clients connect to."""
        return self.address.url

    @property
    def is_running(self) -> bool:
        """Whether it was started and has neither failed nor been stopped."""
        return self._server is not None and not self._stopping and self.failure is None

    @property
    def uptime_s(self) -> float:
        """How long it has been running."""
        return (time.monotonic_ns() - self._started_ns) / 1e9 if self._started_ns else 0.0

    def health(self) -> Health:
        """Return how it is, for people and for those who watch."""
        return Health(
            broker=self.name,
            cell=self.settings.cell,
            overlay=self.settings.overlay.name,
            life=self.broker.context.identity.life,
            status="ok" if self.is_running else "stopping",
            url=self.url,
            uptime_s=round(self.uptime_s, 3),
            links=self.links.open_peers,
            links_missing=sorted(self.links.peers.difference(self.links.open_peers)),
            refused=self.refused,
            damaged={str(pubend): why for pubend, why in self.broker.pubends.damages.items()},
        )

    # --- starting ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin a life: when this returns, clients can connect and what was on disk is back."""
        assert not self._started_ns, "a node lives once; make another"
        loop = self._loop = asyncio.get_running_loop()
        if self.settings.access is not None:
            self._guard = Guard(self.settings.access, self._voice)
        self._started_ns = time.monotonic_ns()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._outbox = Outbox(loop)
        opened = await open_store(self.settings.data, loop, self._stored, self.disk_failed)
        step_bytes_max = self.settings.parameters.frame_bytes_max
        self.disk = Disk(opened.store, loop, self._stored, step_bytes_max)
        self.refused = opened.refused
        try:
            self._open_audit()
            self._make(opened)
            await self._bind()
            self.driver.happen(None)
            await self._begun
            await self._start_web()
            await self._serve()
        except BaseException:
            await self.kill()
            raise
        self._say_started()

    def _open_audit(self) -> None:
        if self.settings.audit is not None:
            self._audit = BrokerAudit(self.settings.audit, self.name, self.settings.cell)

    async def _serve(self) -> None:
        """Let others in, and reach for the peers."""
        assert self._server is not None
        await self._server.start_serving()
        self.addresses[self.name] = self.address
        self.links.start()
        parameters = self.settings.parameters
        self._sweep(self.clients.sweep, parameters.client_beat_ms / 1_000 / SWEEPS_A_BEAT)
        self._sweep(self.links.sweep, parameters.link_silent_ms / 1_000 / SWEEPS_A_SILENCE)
        self._sweep(self._say_damages, DAMAGES_SAID_S)

    async def _start_web(self) -> None:
        if self.settings.metrics is None:
            return
        metrics = Metrics(self)
        self._web = WebServer(
            {
                "/metrics": lambda: Page(metrics.text(), METRICS_KIND),
                "/healthz": lambda: health_page(self.health()),
            }
        )
        self.metrics_address = await self._web.start(self.settings.metrics)

    def _make(self, opened: Opened) -> None:
        settings, parameters = self.settings, self.settings.parameters
        around = settings.overlay.topology.neighbourhood(settings.cell, parameters.reach)
        self.broker = Broker(
            settings.name,
            settings.cell,
            parameters,
            around,
            opened.records,
            moment(),
            refused=opened.pubends,
            refused_subscriptions=opened.subscriptions,
        )
        self.driver = Driver(self.broker, self, self._loop, self._fail)
        happen, happen_together = self.driver.happen, self.driver.happen_together
        self.clients = Clients(happen, happen_together, parameters, self._voice, self._audit)
        self.links = Links(
            self.driver.happen,
            self._make_connection,
            Introduce(Role.BROKER, settings.name, overlay=settings.overlay.name),
            [peer for peer in around.all_brokers() if peer != settings.name],
            self.addresses,
            parameters,
            self._voice,
            self._own_token,
        )
        self.door = Door(
            self.broker.context.identity,
            settings.overlay.name,
            parameters,
            self.clients,
            self.links,
            self._voice,
            self._guard,
        )

    def _own_token(self) -> str:
        return "" if self._guard is None else self._guard.own_token

    async def _bind(self) -> None:
        host, port = self.settings.listen
        try:
            self._server = await self._loop.create_server(
                self._let_in, host, port, backlog=1_024, start_serving=False
            )
        except OSError as error:
            raise UsageError(
                f"cannot listen on {self.settings.listen}: {error.strerror or error}; "
                "choose another address with listen"
            ) from None
        self._address = Address(host, self._server.sockets[0].getsockname()[1])

    def _let_in(self) -> Connection:
        """Make a connection that comes in, of whom nobody knows yet."""
        connection = self.door.enter(self._make_connection())
        if self._stopping:
            connection.abort()  # it was accepted in the turn in which the server was closed
        return connection

    def _make_connection(self) -> Connection:
        parameters = self.settings.parameters
        return Connection(
            self._outbox,
            self._connections,
            parameters.queue_bytes_max,
            parameters.frame_bytes_max,
        )

    def _say_started(self) -> None:
        say = self._voice
        for what, why in self.refused.items():
            say.error("refused, the rest runs", what=what, reason=why)
        identity = self.broker.context.identity
        where = self.metrics_address
        web = {} if where is None else {"metrics": f"http://{where}/metrics"}
        data = self.settings.data
        say.info("broker is ready", url=self.url, life=identity.life, data=data, **web)
        if not self._address.is_loopback:
            asks = self._guard is not None and self._guard.asks
            who = "who has a token, sent unencrypted" if asks else "anybody, and may do all"
            say.warning("open to other computers", address=str(self._address), lets_in=who)

    def _say_damages(self) -> None:
        """Say once of every log that it is damaged, and once that it is not any more (P8)."""
        damages = self.broker.pubends.damages
        for pubend, why in damages.items():
            if self._said_damages.get(pubend) != why:
                self._voice.error(
                    "log is damaged, the stream waits there", pubend=pubend, reason=why
                )
        for pubend in self._said_damages:
            if pubend not in damages:
                self._voice.info("damage is released from the log", pubend=pubend)
        self._said_damages = damages

    # --- what the machine wants (Hands) --------------------------------------------------------

    def send(self, peer: BrokerId, packet: Any) -> None:
        """Send a packet to a peer."""
        self.links.send(peer, packet)

    def tell(self, client: str, notice: Any) -> None:
        """Tell a client something."""
        self.clients.tell(client, notice)

    def dismiss(self, client: str, reason: str) -> None:
        """Disconnect a client."""
        self.clients.dismiss(client, reason)

    def relink(self, peers: tuple[BrokerId, ...]) -> None:
        """Have links with these brokers and no others."""
        self.links.reach(peers)

    def write(self, write: Write) -> None:
        """Make changes durable; who publishes waits while too much is under way."""
        if self._audit is not None:
            self._audit.writing(write)
        self.disk.write(write)
        if self.disk.pending_bytes > self.settings.parameters.unwritten_bytes_max:
            self.clients.hold()

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""
        self.disk.fetch(fetch)

    def flush(self) -> None:
        """Write what was gathered for connections."""
        self._outbox.flush()

    def sync(self) -> None:
        """Let be durable at once what was written, if it is alone."""
        self.disk.step_ended()

    # --- what happens ----------------------------------------------------------------------------

    def _stored(self, events: Sequence[Event]) -> None:
        """Take what the disk has done."""
        if self._stopped:
            return
        if self._audit is not None:
            self._audit.written(events)
        for step in self.disk.steps_of(events):
            self.driver.happen_together(step)
        if not self._begun.done():
            self._begun.set_result(None)
        relaxed = self.disk.pending_bytes <= self.settings.parameters.unwritten_bytes_max // 2
        if relaxed and not self._stopping:
            self.clients.go_on()

    def _sweep(self, action: Callable[[], None], interval_s: float) -> None:
        """Call again and again."""
        place = len(self._sweeps)

        def swept() -> None:
            action()
            self._sweeps[place] = self._loop.call_later(interval_s, swept)

        self._sweeps.append(self._loop.call_later(interval_s, swept))

    def disk_failed(self, error: BaseException) -> None:
        """Take the news that nothing is written any more: this life is over (R27)."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End this life: it cannot go on."""
        if self.failure is not None or self._stopped:
            return
        self.failure = error
        self._say_failure(error)
        self.driver.stop()
        for connection in self._connections:
            connection.abort()
        if not self._begun.done():
            self._begun.set_exception(error)
        self.disk.give_up()
        if self._on_failure is not None:
            self._on_failure(error)

    def _say_failure(self, error: BaseException) -> None:
        if isinstance(error, DiskFullError):  # where in the program it shows helps nobody
            refused = f"writes that were not acknowledged: {self.disk.pending_writes:,}"
            self._voice.error("broker stops", reason=str(error), refused=refused)
        else:
            self._voice.error("broker stops", reason=str(error), cause=error.__cause__)

    # --- stopping ----------------------------------------------------------------------------------

    async def stop(self, reason: str = "the broker stops") -> None:
        """End this life in order: what was asked is written and answered, everybody is told."""
        if self._stopping:
            return
        self._stopping = True
        await self._close_server()
        if self.failure is None:
            self.clients.stop_reading()
            await self.links.stop_dialling()
            self.driver.happen(Stopping())
            await self._drain()
            self.clients.leave(reason)
            self.links.leave(reason)
        await self._end()
        self._voice.info("broker has stopped", reason=reason)

    async def kill(self) -> None:
        """End this life at once, as a crash would: nothing is flushed, nobody is told."""
        self._stopping = True
        if self._audit is not None:
            self._audit.abandon()
        await self._close_server()
        for connection in self._connections:
            connection.abort()
        await self._end()

    async def _close_server(self) -> None:
        """Let nobody in any more, and let those who were just let in come through the door.

        A server that is closed between accepting a connection and making its transport loses it
        open, so it stops accepting first.
        """
        if self._server is None:
            return
        for each in self._server.sockets:
            self._loop.remove_reader(each.fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._server.close()

    async def _drain(self) -> None:
        """Wait until what was asked for is on disk and answered, or the time is up."""
        try:
            async with asyncio.timeout(self.settings.parameters.stop_ms / 1_000):
                await self.disk.drained()
        except TimeoutError:
            self._voice.warning("disk is behind", writes=self.disk.pending_writes)
        self._outbox.flush()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for handle in self._sweeps:
            handle.cancel()
        if self._web is not None:
            await self._web.stop()
        if hasattr(self, "links"):
            await self.links.stop_dialling()
        await self._wait_for_connections()
        self._stopped = True
        if hasattr(self, "driver"):
            self.driver.stop()
        self.disk.flush()
        await self._loop.run_in_executor(None, self.disk.close)
        if self._audit is not None:
            self._audit.close()

    async def _wait_for_connections(self) -> None:
        """Let all connections send the rest; cut those that do not take it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.parameters.stop_ms / 1_000):
                await self._connections.all_gone()
        for connection in self._connections:
            connection.abort()
        await self._connections.all_gone()
