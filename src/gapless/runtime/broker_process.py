"""One broker of an overlay as a process of its own: started, watched until it is ready, ended.

A process has a session of its own, so that Ctrl-C reaches the supervisor alone. It holds a pipe of
its supervisor and stops when that closes, however the supervisor ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from gapless.core.address import Address
from gapless.core.ids import BrokerId, CellId
from gapless.runtime.process import EXIT_BROKEN, EXIT_DISK, Ready

__all__ = ["BrokerProcess", "LocalPlacement", "ProcessEvent", "ProcessPlacement", "ProcessStage"]

READY_S: Final = 60.0
"""How long a broker may take to be ready: it may have a long log to look through."""

STOP_S: Final = 15.0
"""How long a broker may take to stop before it is killed; longer than its own ``shutdown_timeout_ms``."""

_LOG_SHOWN: Final = 2_000
"""So many characters of a log are shown when a broker cannot start."""


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


class ProcessPlacement(Protocol):
    """Where brokers run that have more between them than the loopback of one computer."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return what the command that runs a broker begins with."""

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return where a broker finds others, as far as that is not where they listen."""


class LocalPlacement:
    """Brokers on the loopback of this computer."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return nothing: the command runs as it is."""
        del broker
        return ()

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return nothing: all are where they listen."""
        del broker
        return {}


class BrokerProcess:
    """A broker of the overlay, and its present process."""

    def __init__(
        self,
        name: BrokerId,
        cell: CellId,
        address: Address,
        directory: Path,
        on_event: Callable[[ProcessEvent], None],
    ) -> None:
        self.name = name
        self.cell = cell
        self.address = address
        self.directory = directory
        self.stage = ProcessStage.STOPPED
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
        self.settled = asyncio.Event()
        """Set while it is ready, or when it will not become so."""
        self._on_event = on_event
        self._log_start = (0, 0)
        """The file, by its number, and the offset at which the log of the present process begins."""

    @property
    def pid(self) -> int | None:
        """The id of the present process."""
        return None if self.process is None else self.process.pid

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
            number, offset = self._log_start
            start = offset if self.log_path.stat().st_ino == number else 0
            text = self.log_path.read_bytes()[start:].decode(errors="replace")
            return text[-_LOG_SHOWN:].strip()
        return ""

    # --- a process -------------------------------------------------------------------------------

    async def run(self, command: Sequence[str]) -> int:
        """Run a process to its end; return its exit code. ``command`` is what its command begins with."""
        self.set_stage(ProcessStage.STARTING, "")
        with self.log_path.open("ab") as log:
            self._log_start = (os.fstat(log.fileno()).st_ino, log.tell())
            process = await asyncio.create_subprocess_exec(
                *command,
                *(sys.executable, "-m", "gapless.runtime", str(self.config_path)),
                *("--supervised", "--restarts", str(self.restarts)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.process = process
        try:
            await self._await_ready(process)
            return await process.wait()
        finally:
            self.settled.clear()
            self.process = self.metrics_url = None
            if process.stdin is not None:
                process.stdin.close()

    async def _await_ready(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await process.stdout.readline()
        except TimeoutError:
            process.kill()
            return
        if line:
            ready = msgspec.json.decode(line, type=Ready)
            self.metrics_url = ready.metrics
            self.was_ready = True
            self.set_stage(ProcessStage.READY, ready.url)
            self.settled.set()

    async def end(self) -> None:
        """End the present process; one that does not stop in time is killed."""
        process = self.process
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    # --- stages ----------------------------------------------------------------------------------

    def set_stage(self, stage: ProcessStage, detail: str) -> None:
        """Note the stage and report it."""
        self.stage = stage
        self._on_event(ProcessEvent(self.name, stage, detail))

    def ended(self, code: int) -> str:
        """The process has ended by itself; return how, for people."""
        self.exit_code = code if code > 0 else EXIT_BROKEN
        return _fate(code, self.log_tail())

    def started_again(self) -> None:
        """Another process follows the one that died."""
        self.restarts += 1

    def give_up(self, why: str) -> None:
        """The broker is not started again."""
        self.set_stage(ProcessStage.FAILED, why)
        self.settled.set()

    def cannot_run(self, error: OSError) -> None:
        """No process could be made, or no log written: the broker is given up."""
        self.trouble, self.exit_code = str(error), EXIT_DISK
        self.give_up(self.trouble)


def _fate(code: int, log: str) -> str:
    """Say how a process ended, and with which last words if that was its own doing."""
    if code >= 0:
        last = log.rpartition("\n")[2]
        return f"exit code {code}: {last}" if code and last else f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
