"""One broker of an overlay as a process: start, readiness, end.

A process has a session of its own, so that Ctrl-C reaches only the supervisor. It holds a pipe from
its supervisor and stops when the pipe closes, however the supervisor ended.
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
"""How long a broker may take to be ready: it may have to scan a long log."""

STOP_S: Final = 15.0
"""How long a broker may take to stop before it is killed; longer than ``shutdown_timeout_ms``."""

_LOG_SHOWN: Final = 2_000
"""So many characters of a log are shown when a broker cannot start."""


class ProcessStage(Enum):
    """The state of a broker's process."""

    STARTING = "starting"
    READY = "ready"
    DIED = "died"
    FAILED = "failed"
    """The process died and is not restarted."""
    STOPPED = "stopped"


class ProcessEvent(NamedTuple):
    """A change of a process's stage, for observers."""

    broker: BrokerId
    stage: ProcessStage
    detail: str


class ProcessPlacement(Protocol):
    """Where brokers run, if not all on the loopback of one computer."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return the prefix of the command that runs a broker."""

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return the addresses at which a broker reaches others, if not where they listen."""


class LocalPlacement:
    """Brokers on the loopback of this computer."""

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Return no prefix."""
        del broker
        return ()

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return nothing: all are reached where they listen."""
        del broker
        return {}


class BrokerProcess:
    """A broker of the overlay and its current process."""

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
        """Whether the broker was ever ready; otherwise a restart would not make it ready either."""
        self.exit_code = EXIT_BROKEN
        """The exit code of the last process that ended by itself; EXIT_BROKEN if it was killed."""
        self.trouble = ""
        """Why no process could be started, or empty."""
        self.process: asyncio.subprocess.Process | None = None
        self.may_start = asyncio.Event()
        """Set unless restarts are prevented."""
        self.may_start.set()
        self.settled = asyncio.Event()
        """Set while the broker is ready, or when it has failed."""
        self._on_event = on_event
        self._log_start = (0, 0)
        """The inode of the log file, and the offset at which the current process's log begins."""

    def move_to(self, cell: CellId) -> None:
        """Note the cell of a broker that was appended."""
        self.cell = cell

    @property
    def pid(self) -> int | None:
        """The id of the current process."""
        return None if self.process is None else self.process.pid

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return self.address.url

    @property
    def log_path(self) -> Path:
        """The log file."""
        return self.directory / "broker.log"

    @property
    def config_path(self) -> Path:
        """The configuration file."""
        return self.directory / "broker.toml"

    def log_tail(self) -> str:
        """Return the end of the last process's log."""
        with contextlib.suppress(OSError):
            number, offset = self._log_start
            start = offset if self.log_path.stat().st_ino == number else 0
            text = self.log_path.read_bytes()[start:].decode(errors="replace")
            return text[-_LOG_SHOWN:].strip()
        return ""

    # --- a process -------------------------------------------------------------------------------

    async def run(self, command: Sequence[str]) -> int:
        """Run a process to its end; return its exit code. ``command`` prefixes its command."""
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
        """Stop the current process; it is killed if it does not stop in time."""
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
        """Set the stage and report it."""
        self.stage = stage
        self._on_event(ProcessEvent(self.name, stage, detail))

    def ended(self, code: int) -> str:
        """The process has ended by itself; return how, for operators."""
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
        """No process could be started, or no log written: the broker is not restarted."""
        self.trouble, self.exit_code = str(error), EXIT_DISK
        self.give_up(self.trouble)


def _fate(code: int, log: str) -> str:
    """Describe how a process ended, with its last log line if it ended by itself."""
    if code >= 0:
        last = log.rpartition("\n")[2]
        return f"exit code {code}: {last}" if code and last else f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
