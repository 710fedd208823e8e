"""A node: one incarnation of a broker, with its sockets, its disk and its timers.

It may be a process of its own (:mod:`.process`) or one of several in an event loop::

    node = Node(BrokerSettings(name="b1"))
    await node.start()
    ...  # clients connect to node.url
    await node.stop()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from gapless.audit.brokers import BrokerAudit
from gapless.broker import Broker
from gapless.broker.joining import joined_neighbourhood
from gapless.core.address import Address
from gapless.core.context import nothing
from gapless.core.effects import Fetch, SetPeers, Write
from gapless.core.errors import DiskFullError, UsageError
from gapless.core.events import MachineEvent, Stopping
from gapless.core.ids import BrokerId
from gapless.core.limits import ROW_BYTES_MAX
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.runtime.acceptor import Acceptor
from gapless.runtime.authentication import Authenticator
from gapless.runtime.clients import CHECKS_PER_KEEPALIVE, ClientSessions
from gapless.runtime.connection import FramedConnection, WriteScheduler
from gapless.runtime.corruption_log import CORRUPTION_LOG_INTERVAL_S, CorruptionLog
from gapless.runtime.disk_queue import DiskQueue
from gapless.runtime.disk_space import SPACE_CHECK_INTERVAL_S, DiskWatch, with_log_limits
from gapless.runtime.driver import Driver, read_clocks
from gapless.runtime.health import Health, health_of, health_page
from gapless.runtime.http import WebServer
from gapless.runtime.links import CHECKS_PER_IDLE_TIMEOUT, BrokerLinks
from gapless.runtime.logs import StructuredLog
from gapless.runtime.metrics import Metrics
from gapless.runtime.open_connections import OpenConnections
from gapless.runtime.ports import bind_problem
from gapless.runtime.settings import BrokerSettings
from gapless.runtime.stores import OpenedStore, open_store
from gapless.runtime.turns import LoopTurns
from gapless.wire import Connect, Role

__all__ = ["Node"]

ACCEPTING_TURNS = 3
"""Turns of the loop between accepting a connection and the call of its ``connection_made``."""

STEP_WINDOW_S = 60
"""How often another window starts for the metric of the longest step."""


class Node:
    """One incarnation of a broker. It is started once and stopped once."""

    driver_class: type[Driver] = Driver
    """Replaced where steps are measured."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        addresses: MutableMapping[BrokerId, Address] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        on_start_again: Callable[[], None] = nothing,
    ) -> None:
        """``on_start_again`` is called when the broker has joined a tree: another node must follow."""
        self.settings = settings
        self.addresses = dict(settings.overlay.addresses) if addresses is None else addresses
        """The addresses of brokers. Nodes of one process may share it and add themselves."""
        self.failure: BaseException | None = None
        """Why the node stopped by itself, or None."""
        self.refused: dict[str, str] = {}
        """What could not be restored from disk, and why."""
        self._on_failure = on_failure
        self._on_start_again = on_start_again
        self.cell = settings.cell
        """The cell of the broker. A newcomer gets another one when it is appended."""
        self._log = StructuredLog(broker=settings.name, cell=settings.cell)
        self._connections: OpenConnections[FramedConnection] = OpenConnections()
        self._repeating: list[asyncio.TimerHandle] = []
        self._server: asyncio.Server | None = None
        self._address = settings.listen
        self._started_ns = 0
        self._web: WebServer | None = None
        self.metrics_address: Address | None = None
        """The address of /metrics and /healthz."""
        self._audit: BrokerAudit | None = None
        self._authenticator: Authenticator | None = None
        self.disk_watch = DiskWatch(
            settings.data, settings.parameters.disk_free_bytes_min, self._log
        )
        self._corruption_log = CorruptionLog(self._log)
        self._is_started = False
        """Whether clients can connect, so that a failure from now on is not one of the start."""
        self._is_made = False
        """Whether the machine, the driver and the connections exist."""
        self._stopping = False
        self._stopped = False

    # --- state for operators and tests ---------------------------------------------------------

    @property
    def name(self) -> BrokerId:
        """The name of the broker."""
        return self.settings.name

    @property
    def address(self) -> Address:
        """The address at which others reach this broker."""
        return self.settings.advertise or self._address

    @property
    def address_for_others(self) -> Address:
        """The address to which brokers and clients are sent: as configured, else where it listens."""
        settings = self.settings
        configured = (settings.advertise, settings.overlay.addresses.get(self.name))
        usable = (each for each in configured if each is not None and each.is_reachable)
        return next(usable, self.address)

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return self.address.url

    @property
    def is_running(self) -> bool:
        """Whether the node was started and has neither failed nor been stopped."""
        return self._server is not None and not self._stopping and self.failure is None

    @property
    def was_started(self) -> bool:
        """Whether the start was completed: clients could connect."""
        return self._is_started

    @property
    def uptime_s(self) -> float:
        """Seconds since the start, or 0 before it."""
        return (time.monotonic_ns() - self._started_ns) / 1e9 if self._started_ns else 0.0

    def health(self) -> Health:
        """Return the state for operators and monitoring."""
        return health_of(self)

    # --- starting ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker: on return clients can connect, and the stored state is restored."""
        assert not self._started_ns, "a node is started only once; make another one"
        loop = self._loop = asyncio.get_running_loop()
        if self.settings.access is not None:
            self._authenticator = Authenticator(self.settings.access, self._log)
        self._started_ns = time.monotonic_ns()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._scheduler = WriteScheduler(loop)
        self._turns = LoopTurns(loop)
        opened = await open_store(self.settings.data, loop, self._stored, self.disk_failed)
        self.disk = DiskQueue(opened.store, loop, self._stored, ROW_BYTES_MAX)
        self.refused = opened.refused
        try:
            may_join, records = self.settings.join, opened.records
            joined = joined_neighbourhood(self.cell, records) if may_join else None
            self.cell = self.cell if joined is None else joined.own
            self._open_audit()
            self._make(opened, joined)
            await self._bind()
            self.driver.handle(None)
            await self._ready
            await self._start_web()
            await self._serve()
        except BaseException:
            await self.kill()
            raise
        self._is_started = True
        self._log_started()

    def _open_audit(self) -> None:
        if self.settings.audit is not None:
            self._audit = BrokerAudit(self.settings.audit, self.name, self.cell)

    async def _serve(self) -> None:
        """Accept connections and dial the peers."""
        assert self._server is not None
        await self._server.start_serving()
        self.addresses[self.name] = self.address_for_others
        self.links.start()
        parameters = self.settings.parameters
        self._repeat(
            self.clients.check_keepalives, parameters.keepalive_ms / 1_000 / CHECKS_PER_KEEPALIVE
        )
        self._repeat(
            self.links.check_idle, parameters.link_idle_timeout_ms / 1_000 / CHECKS_PER_IDLE_TIMEOUT
        )
        self._repeat(self._log_corruptions, CORRUPTION_LOG_INTERVAL_S)
        self.disk_watch.review()
        self._repeat(self.disk_watch.review, SPACE_CHECK_INTERVAL_S)
        self._repeat(self.driver.start_step_window, STEP_WINDOW_S)
        if self.failure is not None:  # since it was ready
            raise self.failure

    async def _start_web(self) -> None:
        if self.settings.metrics is None:
            return
        metrics = Metrics(self)
        self._web = WebServer(
            {
                "/metrics": metrics.answer,
                "/healthz": lambda answer: answer(health_page(self.health())),
            }
        )
        self.metrics_address = await self._web.start(self.settings.metrics)

    def _make(self, opened: OpenedStore, joined: Neighbourhood | None) -> None:
        settings, parameters = self.settings, self.settings.parameters
        overlay = settings.overlay
        neighbourhood = joined or overlay.topology_with_addresses().neighbourhood(
            settings.cell, parameters.neighbourhood_radius
        )
        self.broker = Broker(
            settings.name,
            self.cell,
            with_log_limits(parameters, settings.data, settings.disk_shared_by),
            neighbourhood,
            opened.records,
            read_clocks(),
            corrupt_pubends=opened.pubends,
            corrupt_subscriptions=opened.subscriptions,
            addresses=self.addresses,
            overlay=overlay.name,
            may_join=settings.join and joined is None,
        )
        self.driver = self.driver_class(self.broker, self, self._loop, self._fail)
        handle, handle_all = self.driver.handle, self.driver.handle_all
        self.clients = ClientSessions(handle, handle_all, parameters, self._log, self._audit)
        self.links = BrokerLinks(
            self.driver.handle,
            self._make_connection,
            Connect(Role.BROKER, settings.name, overlay=overlay.name),
            [peer for peer in neighbourhood.all_brokers() if peer != settings.name],
            self.addresses,
            parameters,
            self._log,
            self._own_token,
        )
        self.acceptor = Acceptor(
            self.broker.context.identity,
            settings.overlay.name,
            parameters,
            self.clients,
            self.links,
            self._log,
            self._authenticator,
            takes_clients=joined is not None or not settings.join,
        )
        self._is_made = True

    def _own_token(self) -> str:
        return "" if self._authenticator is None else self._authenticator.own_token

    async def _bind(self) -> None:
        host, port = self.settings.listen
        try:
            self._server = await self._loop.create_server(
                self._accept, host, port, backlog=1_024, start_serving=False
            )
        except (OSError, UnicodeError) as error:  # a host name that IDNA does not allow
            raise UsageError(
                f"cannot listen on {self.settings.listen}: {bind_problem(error)}; "
                "choose another address with listen"
            ) from None
        self._address = Address(host, self._server.sockets[0].getsockname()[1])

    def _accept(self) -> FramedConnection:
        """Make an incoming connection, which is pending until its handshake."""
        connection = self.acceptor.accept(self._make_connection())
        if self._stopping:
            connection.abort()  # it was accepted in the turn in which the server was closed
        return connection

    def _make_connection(self) -> FramedConnection:
        parameters = self.settings.parameters
        return FramedConnection(
            self._scheduler,
            self._turns,
            self._connections,
            parameters.queue_bytes_max,
            parameters.frame_bytes_max,
        )

    def _log_started(self) -> None:
        log = self._log
        for what, why in self.refused.items():
            log.error("refused, the rest runs", what=what, reason=why)
        identity = self.broker.context.identity
        metrics_address = self.metrics_address
        web = {} if metrics_address is None else {"metrics": f"http://{metrics_address}/metrics"}
        data = self.settings.data
        log.info(
            "broker is ready", url=self.url, incarnation=identity.incarnation, data=data, **web
        )
        if not self._address.is_loopback:
            is_required = self._authenticator is not None and self._authenticator.is_required
            who = "holders of a token, unencrypted" if is_required else "anyone, with all rights"
            log.warning("open to other computers", address=str(self._address), lets_in=who)

    def _log_corruptions(self) -> None:
        self._corruption_log.review(self.broker.components.pubends.corruptions)

    # --- effects of the machine (EffectHandler) ------------------------------------------------

    def send(self, peer: BrokerId, packet: Any) -> None:
        """Send a packet to a peer."""
        self.links.send(peer, packet)

    def notify(self, client: str, notice: Any) -> None:
        """Send a notice to a client."""
        self.clients.notify(client, notice)

    def disconnect(self, client: str, reason: str) -> None:
        """Disconnect a client."""
        self.clients.disconnect(client, reason)

    def set_peers(self, wanted: SetPeers) -> None:
        """Have links with these brokers and no others."""
        self.links.set_peers(wanted)

    def start_again(self) -> None:
        """End this node in favour of another one."""
        self._log.info("broker has joined a tree and starts again")
        self._on_start_again()

    def write(self, write: Write) -> None:
        """Make changes durable; publishers are paused while too many bytes are pending."""
        if self._audit is not None:
            self._audit.writing(write)
        self.disk.write(write)
        if self.disk.pending_bytes > self.settings.parameters.pending_write_bytes_max:
            self.clients.pause_publishers()

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""
        self.disk.fetch(fetch)

    def flush(self) -> None:
        """Write the frames that were collected for connections."""
        self._scheduler.flush()

    def sync(self) -> None:
        """Make a single pending write durable at once."""
        self.disk.step_ended()

    # --- events -----------------------------------------------------------------------------------

    def _stored(self, events: Sequence[MachineEvent]) -> None:
        """Pass completed writes and fetches to the machine."""
        if self._stopped:
            return
        if self._audit is not None:
            self._audit.written(events)
        for step in self.disk.steps_of(events):
            self.driver.handle_all(step)
        if not self._ready.done():
            self._ready.set_result(None)
        relaxed = self.disk.pending_bytes <= self.settings.parameters.pending_write_bytes_max // 2
        if relaxed and not self._stopping:
            self.clients.resume_publishers()

    def _repeat(self, action: Callable[[], None], interval_s: float) -> None:
        """Call an action periodically."""
        index = len(self._repeating)

        def repeat() -> None:
            action()
            self._repeating[index] = self._loop.call_later(interval_s, repeat)

        self._repeating.append(self._loop.call_later(interval_s, repeat))

    def disk_failed(self, error: BaseException) -> None:
        """The disk writes nothing more: the incarnation ends (R27)."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End this incarnation, because it cannot continue; during the start, :meth:`start` raises
        the error.
        """
        if self.failure is not None or self._stopped:
            return
        self.failure = error
        if self._is_started:
            self._log_failure(error)
        if self._is_made:
            self.driver.stop()
            self.disk.give_up()
        for connection in self._connections:
            connection.abort()
        if not self._ready.done():
            self._ready.set_exception(error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _log_failure(self, error: BaseException) -> None:
        if isinstance(error, DiskFullError):  # a traceback does not help here
            refused = f"writes that were not acknowledged: {self.disk.pending_writes:,}"
            self._log.error("broker stops", reason=str(error), refused=refused)
        else:
            self._log.error("broker stops", reason=str(error), cause=error.__cause__)

    # --- stopping ---------------------------------------------------------------------------------

    async def stop(self, reason: str = "the broker stops") -> None:
        """Stop in order: write and answer pending requests, then disconnect everyone."""
        if self._stopping:
            return
        self._stopping = True
        await self._close_server()
        if self.failure is None:
            self.clients.stop_reading()
            await self.links.stop_dialling()
            self.driver.handle(Stopping())
            await self._drain()
            self.clients.disconnect_all(reason)
            self.links.disconnect_all(reason)
        await self._end()
        self._log.info("broker has stopped", reason=reason)

    async def kill(self) -> None:
        """Stop at once, as in a crash: nothing is flushed and no disconnect reason is sent."""
        self._stopping = True
        if self._audit is not None:
            self._audit.abandon()
        await self._close_server()
        for connection in self._connections:
            connection.abort()
        await self._end()

    async def _close_server(self) -> None:
        """Accept no more connections, and complete those that were just accepted.

        A server that is closed between accepting a connection and making its transport leaks the
        open socket. So it stops accepting first.
        """
        if self._server is None:
            return
        for each in self._server.sockets:
            self._loop.remove_reader(each.fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._server.close()

    async def _drain(self) -> None:
        """Wait until the pending requests are on disk and answered, or until the timeout."""
        try:
            async with asyncio.timeout(self.settings.parameters.shutdown_timeout_ms / 1_000):
                await self.disk.drained()
        except TimeoutError:
            self._log.warning("disk is behind", writes=self.disk.pending_writes)
        self._scheduler.flush()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for handle in self._repeating:
            handle.cancel()
        if self._web is not None:
            await self._web.stop()
        if self._is_made:
            self.clients.filters.close()
            await self.links.stop_dialling()
        timeout_s = self.settings.parameters.shutdown_timeout_ms / 1_000
        await self._connections.closed_within(timeout_s, FramedConnection.abort)
        self._stopped = True
        if self._is_made:
            self.driver.stop()
        if not self._ready.cancel() and not self._ready.cancelled():
            self._ready.exception()  # an error of the start was raised already
        self.disk.flush()
        await self._loop.run_in_executor(None, self.disk.close)
        if self._audit is not None:
            self._audit.close()
