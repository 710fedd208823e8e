"""An overlay of real processes on this computer: started, watched, restarted, stopped.

A broker that dies is started again with its data. The wait before a start grows while the broker
dies at once. A broker that refuses its configuration, its data or its address several times is
given up, because another start would fail too. A broker whose disk fails is restarted, because
space may be freed. The supervisor reports the reason each time. It stops the brokers one after the
other.

:mod:`.broker_process` runs one broker, :mod:`.overlay_directory` writes the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from gapless.audit.options import AuditOptions
from gapless.core.address import PORT, Address
from gapless.core.backoff import Backoff
from gapless.core.errors import GaplessError, UsageError, shortened
from gapless.core.ids import BrokerId, CellId
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.broker_process import (
    BrokerProcess,
    LocalPlacement,
    ProcessEvent,
    ProcessPlacement,
    ProcessStage,
)
from gapless.runtime.config import LogConfig
from gapless.runtime.overlay_config import OverlayConfig
from gapless.runtime.overlay_directory import (
    OverlayDirectory,
    edited_addresses,
    refuse_names_of_files,
)
from gapless.runtime.overlay_socket import OverlaySocket
from gapless.runtime.ports import ReservedPorts, refuse_used_ports
from gapless.runtime.process import EXIT_WRONG_INPUT

__all__ = ["BrokerStartError", "Supervisor", "supervise"]

STEADY_S: Final = 10.0
"""A broker that ran for so long did not die at once."""

REFUSALS: Final = 5
"""So many times in a row a broker may refuse to start. Its configuration and its data have not
changed, but an address that another process uses may become free."""


class BrokerStartError(GaplessError):
    """A broker of the overlay cannot start: its log has the reason. ``exit_code`` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _ignore(event: ProcessEvent) -> None:
    del event


class Supervisor:
    """Starts the brokers of an overlay, restarts them and stops them."""

    def __init__(
        self,
        overlay: OverlayConfig,
        data: Path,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        metrics: bool = True,
        parameters: Mapping[str, bool | int] | None = None,
        log: LogConfig | None = None,
        audit: AuditOptions | None = None,
        tokens: Path | None = None,
        overwrite: bool = False,
        restart: bool = True,
        placement: ProcessPlacement = LocalPlacement(),  # noqa: B008  # it has no state
        on_event: Callable[[ProcessEvent], None] = _ignore,
    ) -> None:
        """``port`` is the port of the first broker, the others follow; 0 chooses free ports.

        With ``tokens``, a file of principals, brokers require tokens. Files in ``data`` that were
        edited are used as they are, or with ``overwrite`` moved aside.
        """
        refuse_names_of_files(overlay)
        self.data = data.absolute()
        self._host = host
        self._on_event = on_event
        self._restart = restart
        self._placement = placement
        self._stopping = False
        self._leaving: set[BrokerId] = set()
        """The brokers that are being stopped for good."""
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        count = len(overlay.brokers)
        self._reserved_ports = ReservedPorts(0 if port else count)
        ports = _ports_from(port, count) if port else self._reserved_ports.ports
        kept = {} if overwrite else edited_addresses(self.data, overlay)
        overlay = msgspec.structs.replace(
            overlay,
            addresses={**overlay.addresses, **kept},
            parameters={**overlay.parameters, **(parameters or {})},
        )
        self.overlay = _with_addresses(overlay, host, ports)
        self._reserved_metrics_ports = ReservedPorts(count if metrics else 0)
        """Reserved too, so that metrics have the same ports after a restart."""
        self.brokers = [
            BrokerProcess(name, cell, self.overlay.addresses[name], self.data / name, on_event)
            for name, cell in self.overlay.brokers
        ]
        self._metrics_ports = [*self._reserved_metrics_ports.ports]
        self._more_ports: list[ReservedPorts] = []
        """The ports of brokers that were started later."""
        self._has_metrics = metrics
        self._socket = OverlaySocket(self.data, self)
        self._directory = OverlayDirectory(
            self.data,
            self.overlay,
            log=log or LogConfig(),
            audit=audit,
            tokens=None if tokens is None else tokens.absolute(),
            placement=placement,
            overwrite=overwrite,
        )

    @property
    def kept_files(self) -> Sequence[Path]:
        """The edited files that are used as they are."""
        return self._directory.kept

    def __getitem__(self, name: BrokerId) -> BrokerProcess:
        """Return a broker by its name."""
        return next(each for each in self.brokers if each.name == name)

    @property
    def urls(self) -> list[str]:
        """The URLs that clients may connect to."""
        return [broker.url for broker in self.brokers]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- starting and stopping -------------------------------------------------------------------

    async def start(self) -> None:
        """Start all brokers; on return all are ready."""
        self.take_directory()
        for broker in self.brokers:
            name = f"supervise {broker.name}"
            self._tasks[broker.name] = asyncio.create_task(self._keep_running(broker), name=name)
        for broker in self.brokers:
            await broker.settled.wait()
            if broker.stage is ProcessStage.FAILED:
                await self.stop()
                why = broker.trouble or broker.log_tail()
                message = f"the broker {broker.name} cannot start:\n{why}"
                raise BrokerStartError(message, broker.exit_code)
        await self._socket.start()

    def take_directory(self) -> None:
        """Lock the data directory and write the brokers' files, unless something is refused."""
        self._directory.lock()
        try:
            here = [each for each in self.brokers if not self._placement.command(each.name)]
            refuse_used_ports(each.address for each in here)
            self._directory.write_files(self.brokers, self._metrics_ports)
        except BaseException:
            self.release_directory()
            raise

    def release_directory(self) -> None:
        """Release the data directory for another supervisor."""
        self._directory.release()

    async def stop(self) -> None:
        """Stop all brokers, the last one first; a broker that does not stop in time is killed."""
        self._stopping = True
        await self._socket.stop()
        for broker in reversed(self.brokers):
            await self._end(broker)
        for each in (self._reserved_ports, self._reserved_metrics_ports, *self._more_ports):
            each.release()
        self.release_directory()

    async def _end(self, broker: BrokerProcess) -> None:
        """Stop a broker and restart it no more."""
        task = self._tasks.pop(broker.name, None)
        if task is None:
            return
        if broker.process is None:
            task.cancel()
        else:
            self._leaving.add(broker.name)
            await broker.end()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._leaving.discard(broker.name)
        if broker.stage is not ProcessStage.FAILED:
            broker.set_stage(ProcessStage.STOPPED, "")

    # --- brokers that come and leave (RS-36) -----------------------------------------------------

    def listed(self) -> list[dict[str, Any]]:
        """Return the brokers."""
        return [
            {
                "broker": each.name,
                "cell": each.cell,
                "address": str(each.address),
                "stage": each.stage.value,
            }
            for each in self.brokers
        ]

    async def start_newcomer(self, name: BrokerId, cell: CellId) -> str:
        """Start a broker that waits to be appended; return its address."""
        if any(each.name == name for each in self.brokers):
            raise UsageError(f"a broker {name} runs here already")
        ports = ReservedPorts(1 + self._has_metrics)
        self._more_ports.append(ports)
        broker = BrokerProcess(
            name, cell, Address(self._host, ports.ports[0]), self.data / name, self._on_event
        )
        metrics = Address("127.0.0.1", ports.ports[1]) if self._has_metrics else None
        self._directory.write_newcomer(broker, metrics)
        self.brokers.append(broker)
        self._tasks[name] = asyncio.create_task(
            self._keep_running(broker), name=f"supervise {name}"
        )
        await broker.settled.wait()
        if broker.stage is ProcessStage.FAILED:
            await self.stop_broker(name)
            raise UsageError(
                f"the broker {name} cannot start: {broker.trouble or broker.log_tail()}"
            )
        return str(broker.address)

    async def stop_broker(self, name: BrokerId) -> None:
        """Stop a broker for good; one that is in no tree leaves its name to another one."""
        broker = next((each for each in self.brokers if each.name == name), None)
        if broker is None:
            raise UsageError(f"no broker {shortened(name)} runs here")
        await self._end(broker)
        self.brokers.remove(broker)
        if self.overlay.cell_of(name) is None:
            self._directory.set_broker_aside(broker)

    def write_tree(
        self, cells: dict[CellId, list[BrokerId]], edges: list[tuple[CellId, CellId]]
    ) -> list[Path]:
        """Write the present tree to the files; return the edited ones, which are kept."""
        processes = {each.name: each for each in self.brokers}
        foreign = sorted({name for names in cells.values() for name in names} - processes.keys())
        if foreign:
            raise UsageError(
                f"the tree has brokers that do not run here, {shortened(', '.join(foreign))}: "
                "overlay.toml stays as it is"
            )
        for cell, names in cells.items():
            for name in names:
                processes[name].move_to(cell)
        self.overlay = msgspec.structs.replace(
            self.overlay,
            topology=Topology.of(cells, edges),
            addresses={name: processes[name].address for names in cells.values() for name in names},
        )
        return self._directory.rewrite(self.overlay, self.brokers)

    def kill(self, name: BrokerId) -> None:
        """Kill a broker's process at once, as a crash would."""
        process = self[name].process
        if process is not None:
            process.kill()

    def prevent_restart(self, name: BrokerId) -> None:
        """Do not restart a broker that dies, until restarts are allowed again."""
        self[name].may_start.clear()

    def allow_restart(self, name: BrokerId) -> None:
        """Restart a broker if it has died."""
        self[name].may_start.set()

    # --- one broker ------------------------------------------------------------------------------

    async def _keep_running(self, broker: BrokerProcess) -> None:
        """Run a broker and restart it, until the supervisor stops or the broker cannot start."""
        waits = Backoff(first_s=0.1, longest_s=10.0).waits(random.random)
        refusals = 0
        while True:
            started_at = time.monotonic()
            try:
                code = await broker.run(self._placement.command(broker.name))
            except OSError as error:  # the log cannot be written, or the process not started
                broker.cannot_run(error)
                return
            if self._stopping or broker.name in self._leaving:
                return
            fate = broker.ended(code)
            refusals = refusals + 1 if code == EXIT_WRONG_INPUT else 0
            if not (self._restart and broker.was_ready):
                broker.give_up(fate)
                return
            if refusals >= REFUSALS:
                broker.give_up(f"{fate}; not restarted")
                return
            if time.monotonic() - started_at > STEADY_S:
                waits.reset()
            wait_s = next(waits)
            broker.set_stage(ProcessStage.DIED, f"{fate}; starts again in {wait_s:.1f} s")
            await asyncio.sleep(wait_s)
            await broker.may_start.wait()
            broker.started_again()


def _with_addresses(overlay: OverlayConfig, host: str, ports: Sequence[int]) -> OverlayConfig:
    """Give an address to every broker without one."""
    names = [name for name, _ in overlay.brokers]
    given = {name: Address(host, each) for name, each in zip(names, ports, strict=True)}
    return msgspec.structs.replace(overlay, addresses={**given, **overlay.addresses})


def _ports_from(port: int, count: int) -> list[int]:
    if port + count - 1 > 65_535:
        raise UsageError(f"{count} brokers need ports up to 65535, from {port}; choose a lower one")
    return [port + place for place in range(count)]


async def supervise(
    supervisor: Supervisor, *, ready: Callable[[Supervisor], None] | None = None
) -> None:
    """Run an overlay until SIGINT or SIGTERM, then stop it in order."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if ready is not None:
                ready(supervisor)
            await stopping
    finally:
        stopping.cancel()
        starting.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await supervisor.stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
