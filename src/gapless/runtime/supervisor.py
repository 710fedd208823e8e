"""An overlay of real processes on this computer: started, watched, restarted, stopped.

A data directory holds all of it::

    overlay.toml            the tree, and where each broker listens
    overlay.lock            who runs it: one supervisor at a time
    broker.token            with tokens: the secret that brokers show each other
    b1/broker.toml          what `gapless broker --config` reads
    b1/broker.log           what it says; full files are put aside as broker.log.1, …
    b1/store/               what it must not forget

A directory that another supervisor uses, or that was made for another tree, is refused before anything
in it is changed: brokers that run read these files when they are started again.

A broker that dies is started again with what it has on disk, after a wait that grows while it dies
at once. One that refuses its file, its data or its address is given up after some times, since trying
mends nothing; one whose disk fails is not, since space may be made. Both say why each time. No process is left behind: a broker holds a pipe of its supervisor, and stops when that
ends, however the supervisor ended. It has a session of its own, so that Ctrl-C reaches the
supervisor alone, which then stops one broker after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from gapless.audit.options import AuditOptions
from gapless.core.errors import GaplessError, UsageError
from gapless.core.ids import BrokerId, CellId
from gapless.runtime.addresses import PORT, ListenAddress
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.backoff import DialBackoff
from gapless.runtime.config import LogConfig
from gapless.runtime.overlay_config import OverlayConfig, load_overlay
from gapless.runtime.ports import ReservedPorts
from gapless.runtime.principals import load_tokens, write_secret
from gapless.runtime.process import EXIT_BROKEN, EXIT_DISK, EXIT_WRONG_INPUT, Ready
from gapless.runtime.toml import toml_text
from gapless.storage.lock import DirectoryLock
from gapless.wire import new_token

__all__ = [
    "BrokerProcess",
    "BrokerStartError",
    "ProcessEvent",
    "ProcessPlacement",
    "ProcessStage",
    "Supervisor",
    "supervise",
]

READY_S: Final = 60.0
"""How long a broker may take to be ready: it may have a long log to look through."""

STOP_S: Final = 15.0
"""How long a broker may take to stop before it is killed; longer than its own ``shutdown_timeout_ms``."""

STEADY_S: Final = 10.0
"""A broker that lived so long did not die at once."""

REFUSALS: Final = 5
"""So many times in a row a broker may refuse to start again. Its file and its data are as they were, but
an address that somebody has taken may be free in a moment."""

_OVERLAY: Final = "overlay.toml"
_LOCK: Final = "overlay.lock"
_SECRET: Final = "broker.token"  # noqa: S105  # the name of a file

_LOG_SHOWN: Final = 2_000
"""So many characters of a log are shown when a broker cannot start."""


class BrokerStartError(GaplessError):
    """A broker of the overlay cannot start; its log says why. ``exit_code`` is what it ended with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ProcessStage(Enum):
    """Where a broker's process stands."""

    STARTING = "starting"
    READY = "ready"
    DIED = "died"
    FAILED = "failed"
    """It died and is not started again."""
    STOPPED = "stopped"


class ProcessEvent(NamedTuple):
    """Something that happened to a broker, for who watches."""

    broker: BrokerId
    stage: ProcessStage
    detail: str


class BrokerProcess:
    """A broker of the overlay, and its present process."""

    def __init__(
        self, name: BrokerId, cell: CellId, address: ListenAddress, directory: Path
    ) -> None:
        self.name = name
        self.cell = cell
        self.address = address
        self.directory = directory
        self.stage = ProcessStage.STOPPED
        self.pid: int | None = None
        self.metrics_url: str | None = None
        self.restarts = 0
        self.was_ready = False
        """Whether it ever was; one that never was will not be after a restart either."""
        self.exit_code = EXIT_BROKEN
        """What its last process ended with by itself; a broker that was killed is broken too."""
        self.trouble = ""
        """Why no process could be made, if that is so."""
        self.process: asyncio.subprocess.Process | None = None
        self.may_start = asyncio.Event()
        """Set unless it is to stay down for now."""
        self.may_start.set()
        self.log_start = (0, 0)
        """In which file, by its number, and where in it the words of the present process begin."""
        self.settled = asyncio.Event()
        """Set while it is ready, or when it will not become so."""

    @property
    def url(self) -> str:
        """What clients connect to."""
        return self.address.url

    @property
    def log_path(self) -> Path:
        """What it says."""
        return self.directory / "broker.log"

    @property
    def config_path(self) -> Path:
        """What it is told."""
        return self.directory / "broker.toml"

    def log_tail(self) -> str:
        """Return the last words of its last process."""
        with contextlib.suppress(OSError):
            number, offset = self.log_start
            start = offset if self.log_path.stat().st_ino == number else 0
            text = self.log_path.read_bytes()[start:].decode(errors="replace")
            return text[-_LOG_SHOWN:].strip()
        return ""


class ProcessPlacement(Protocol):
    """Where brokers run that have more between them than the loopback of one computer."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return what the command that runs a broker begins with."""

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, ListenAddress]:
        """Return where a broker finds others, as far as that is not where they listen."""


class _LocalPlacement:
    """All of this computer, and nothing between."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        del broker
        return ()

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, ListenAddress]:
        del broker
        return {}


def _ignore(event: ProcessEvent) -> None:
    del event


class Supervisor:
    """Starts the brokers of an overlay, keeps them running, stops them."""

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
        restart: bool = True,
        placement: ProcessPlacement = _LocalPlacement(),  # noqa: B008  # it has no state
        on_event: Callable[[ProcessEvent], None] = _ignore,
    ) -> None:
        """``port`` is that of the first broker, the others follow; 0 takes any that are free.

        With ``tokens``, a file of principals, brokers let nobody in without a token.
        """
        _refuse_names_of_files(overlay)
        self.data = data.absolute()
        self._parameters = dict(parameters or {})
        self._log = log or LogConfig()
        self._audit = audit
        self._tokens = None if tokens is None else tokens.absolute()
        self._restart = restart
        self._placement = placement
        self._on_event = on_event
        self._stopping = False
        self._lock: DirectoryLock | None = None
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        count = len(overlay.brokers)
        self._reserved_ports = ReservedPorts(0 if port else count)
        ports = _ports_from(port, count) if port else self._reserved_ports.ports
        self.overlay = _with_addresses(overlay, host, ports)
        self._reserved_metrics_ports = ReservedPorts(count if metrics else 0)
        """Held as well: who reads metrics finds them where they were, also after a restart."""
        self.brokers = [
            BrokerProcess(name, cell, self.overlay.addresses[name], self.data / name)
            for name, cell in self.overlay.brokers
        ]

    def __getitem__(self, name: BrokerId) -> BrokerProcess:
        """Return a broker by its name."""
        return next(each for each in self.brokers if each.name == name)

    @property
    def urls(self) -> list[str]:
        """What clients may connect to."""
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
        """Start all brokers; when this returns, all are ready."""
        self._take_directory()
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

    async def stop(self) -> None:
        """Stop all brokers, the last one first; what does not stop in time is killed."""
        self._stopping = True
        for broker in reversed(self.brokers):
            task = self._tasks.pop(broker.name, None)
            if task is None:
                continue
            process = broker.process
            if process is None:
                task.cancel()
            else:
                await _end(process)
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if broker.stage is not ProcessStage.FAILED:
                self._set_stage(broker, ProcessStage.STOPPED, "")
        self._reserved_ports.release()
        self._reserved_metrics_ports.release()
        self._release_directory()

    def kill(self, name: BrokerId) -> None:
        """Kill a broker's process at once, to see what then happens."""
        process = self[name].process
        if process is not None:
            process.kill()

    def prevent_restart(self, name: BrokerId) -> None:
        """Do not start a broker again that dies, until it is let up."""
        self[name].may_start.clear()

    def allow_restart(self, name: BrokerId) -> None:
        """Start a broker again, if it has died."""
        self[name].may_start.set()

    # --- one broker ------------------------------------------------------------------------------

    async def _keep_running(self, broker: BrokerProcess) -> None:
        """Run a broker again and again, until all is stopped or it cannot start."""
        backoff = DialBackoff(0.1, 10.0)
        refusals = 0
        while True:
            started_at = time.monotonic()
            try:
                code = await self._run(broker)
            except OSError as error:  # no log can be written, or no process made
                broker.trouble, broker.exit_code = str(error), EXIT_DISK
                self._give_up(broker, broker.trouble)
                return
            if self._stopping:
                return
            broker.exit_code = code if code > 0 else EXIT_BROKEN
            fate = _fate(code, broker.log_tail())
            refusals = refusals + 1 if code == EXIT_WRONG_INPUT else 0
            if not (self._restart and broker.was_ready):
                self._give_up(broker, fate)
                return
            if refusals >= REFUSALS:
                self._give_up(broker, f"{fate}; it is not started again")
                return
            if time.monotonic() - started_at > STEADY_S:
                backoff.reset()
            wait_s = backoff.next_s()
            self._set_stage(broker, ProcessStage.DIED, f"{fate}; starts again in {wait_s:.1f} s")
            await asyncio.sleep(wait_s)
            await broker.may_start.wait()
            broker.restarts += 1

    def _give_up(self, broker: BrokerProcess, why: str) -> None:
        self._set_stage(broker, ProcessStage.FAILED, why)
        broker.settled.set()

    async def _run(self, broker: BrokerProcess) -> int:
        """Run a process of a broker to its end; return its exit code."""
        self._set_stage(broker, ProcessStage.STARTING, "")
        with broker.log_path.open("ab") as log:
            broker.log_start = (os.fstat(log.fileno()).st_ino, log.tell())
            process = await asyncio.create_subprocess_exec(
                *self._placement.command(broker.name),
                *(sys.executable, "-m", "gapless.runtime", str(broker.config_path)),
                *("--supervised", "--restarts", str(broker.restarts)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        broker.process, broker.pid = process, process.pid
        try:
            await self._await_ready(broker, process)
            return await process.wait()
        finally:
            broker.settled.clear()
            broker.process = broker.pid = broker.metrics_url = None
            if process.stdin is not None:
                process.stdin.close()

    async def _await_ready(
        self, broker: BrokerProcess, process: asyncio.subprocess.Process
    ) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await process.stdout.readline()
        except TimeoutError:
            process.kill()
            return
        if line:
            ready = msgspec.json.decode(line, type=Ready)
            broker.metrics_url = ready.metrics
            broker.was_ready = True
            self._set_stage(broker, ProcessStage.READY, ready.url)
            broker.settled.set()

    def _set_stage(self, broker: BrokerProcess, stage: ProcessStage, detail: str) -> None:
        broker.stage = stage
        self._on_event(ProcessEvent(broker.name, stage, detail))

    # --- files -----------------------------------------------------------------------------------

    def _take_directory(self) -> None:
        """Have the data directory for ourselves, and write what brokers read, unless it is refused."""
        if self._tokens is not None:
            load_tokens(self._tokens)  # better said here than by every broker
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.data, _LOCK)
        try:
            self._refuse_other_overlay()
            self._write_files()
        except BaseException:
            self._release_directory()
            raise

    def _release_directory(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _refuse_other_overlay(self) -> None:
        """Refuse what brokers would refuse that have data: by then their files would be others."""
        path = self.data / _OVERLAY
        if not path.exists():
            return
        found = load_overlay(path)
        if found.topology != self.overlay.topology:
            difference = "its cells, brokers or edges are others"
        elif found.delta != self.overlay.delta:
            difference = f"its delta is {found.delta}, not {self.overlay.delta}"
        else:
            return
        raise UsageError(
            f"{self.data} holds another overlay ({difference}): choose another data directory, "
            "or start the one that is there with its own overlay.toml"
        )

    def _write_files(self) -> None:
        (self.data / _OVERLAY).write_text(self.overlay.to_toml())
        if self._tokens is not None and not self._secret.exists():
            write_secret(self._secret, new_token())
        for broker in self.brokers:
            broker.directory.mkdir(mode=0o700, exist_ok=True)
            broker.config_path.write_text(self._config(broker, self._overlay_file(broker)))

    @property
    def _secret(self) -> Path:
        return self.data / _SECRET

    def _overlay_file(self, broker: BrokerProcess) -> str:
        """Return the overlay's file for a broker, which has its own if it sees others elsewhere."""
        seen = self._placement.addresses_for(broker.name)
        if not seen:
            return f"../{_OVERLAY}"
        addresses = {**self.overlay.addresses, **seen}
        view = msgspec.structs.replace(self.overlay, addresses=addresses)
        (broker.directory / _OVERLAY).write_text(view.to_toml())
        return _OVERLAY

    def _config(self, broker: BrokerProcess, overlay: str) -> str:
        values: dict[str, object] = {
            "name": broker.name,
            "cell": broker.cell,
            "overlay": overlay,
            "data": "store",
            "listen": str(broker.address),
        }
        if self._reserved_metrics_ports.ports:
            port = self._reserved_metrics_ports.ports[self.brokers.index(broker)]
            values["metrics"] = str(ListenAddress("127.0.0.1", port))
        log = msgspec.structs.replace(self._log, file=broker.log_path.name)
        values["log"] = msgspec.to_builtins(log)
        if self._audit is not None:
            directory = str(self._audit.path.absolute())
            chosen = msgspec.structs.replace(self._audit, directory=directory)
            values["audit"] = msgspec.to_builtins(chosen)
        if self._tokens is not None:
            access = AccessOptions(tokens=str(self._tokens), broker_token=str(self._secret))
            values["access"] = msgspec.to_builtins(access)
        values["parameters"] = self._parameters
        return toml_text(values)


def _with_addresses(overlay: OverlayConfig, host: str, ports: Sequence[int]) -> OverlayConfig:
    """Give an address to every broker that has none."""
    names = [name for name, _ in overlay.brokers]
    given = {name: ListenAddress(host, each) for name, each in zip(names, ports, strict=True)}
    return msgspec.structs.replace(overlay, addresses={**given, **overlay.addresses})


def _ports_from(port: int, count: int) -> list[int]:
    if port + count - 1 > 65_535:
        raise UsageError(f"{count} brokers do not fit above port {port}; take a lower one")
    return [port + place for place in range(count)]


def _refuse_names_of_files(overlay: OverlayConfig) -> None:
    """Refuse a broker whose directory would be where a file of ours is."""
    for name, _ in overlay.brokers:
        if name in {_OVERLAY, _LOCK, _SECRET}:
            raise UsageError(f"a broker cannot be named {name}, as a file beside its directory is")


def _fate(code: int, log: str) -> str:
    """Say how a process ended, and with which last words if that was its own doing."""
    if code >= 0:
        last = log.rpartition("\n")[2]
        return f"exit code {code}: {last}" if code and last else f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


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
