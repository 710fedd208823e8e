"""The processes of a run: three brokers in a line, and the healthy pair.

::

    a0 (the fuzzer) --- b1 --- b2 --- b3
                                |      |
                               far   publisher, near

Of the neighbourhood of b3, the broker of the healthy pubend, the hostile neighbour a0 is no member.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from gapless.core.address import Address
from gapless.core.errors import GaplessError
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.overlay_config import OverlayConfig
from gapless.runtime.ports import ReservedPorts
from gapless.runtime.toml import toml_text
from gapless_lab.fuzz.probe import BrokerMeasurement
from gapless_lab.fuzz.vocabulary import BROKERS, HOSTILE, OVERLAY

__all__ = ["AttackedOverlay", "EndedError", "MeasuredProcess", "PairProcess", "ProbedBrokerProcess"]

ANSWER_S: Final = 60.0
"""How long a process may take to answer; longer than the audit waits for the last events."""

READY_S: Final = 60.0

STACK_S: Final = 1.0
"""How long a process that does not answer may take to write its stack."""

LOG_SHOWN: Final = 3_000
"""Characters at the end of a log that are shown when its process has ended."""

PARAMETERS: Final[dict[str, int]] = {
    "cache_bytes": 131_072,
    "delta_log_max": 64,
    "retention_s": 2,
    "publisher_ttl_s": 2,
    "staged_ttl_s": 2,
    "staged_bytes_max": 4_194_304,
    "commit_ttl_s": 2,
    "interest_grace_s": 1,
    "member_grace_s": 2,
    "ended_membership_ttl_s": 3,
    "log_hold_ttl_s": 2,
    "tombstone_ttl_s": 2,
    "attach_refresh_ms": 700,
    "attach_expiry_ms": 2_500,
    "inactive_after_s": 3,
    "member_expiry_s": 4,
    "stale_table_ttl_s": 4,
    "redial_max_ms": 500,
}
"""Short memories and small caches: what a broker keeps for a time or up to a limit is not memory left
behind, and the run must see the end of it."""

T = TypeVar("T")


class EndedError(GaplessError):
    """A process of the run has ended, or does not answer."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class MeasuredProcess:
    """A process that answers lines with lines."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def start(self, *arguments: str) -> None:
        """Start and wait until it is ready."""
        environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                limit=16 * 1024 * 1024,
            )
        await self._line(READY_S)

    async def ask(self, word: str, kind: type[T]) -> T:
        """Send a line and return the answer.

        The answer is read also if the caller is cancelled: otherwise the next one would get it.
        """
        return await asyncio.shield(asyncio.ensure_future(self._exchange(word, kind)))

    async def _exchange(self, word: str, kind: type[T]) -> T:
        assert self._process is not None
        assert self._process.stdin is not None
        async with self._lock:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(word.encode() + b"\n")
            return msgspec.json.decode(await self._line(ANSWER_S), type=kind)

    async def _line(self, timeout_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            self._process.send_signal(signal.SIGUSR1)  # it writes what it does to its log
            await asyncio.sleep(STACK_S)
            text = f"{self.name} has not answered for {timeout_s:g} s: {self.log()}"
            raise EndedError(self.name, text) from None
        if not line:
            code = await self._process.wait()
            raise EndedError(
                self.name, f"{self.name} has ended with exit code {code}: {self.log()}"
            )
        return line

    def log(self) -> str:
        """Return the end of the log."""
        return self._log.read_bytes()[-LOG_SHOWN:].decode(errors="replace").strip()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.returncode is None

    async def stop(self) -> None:
        """End the process: it ends itself when its input ends."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(15):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class ProbedBrokerProcess(MeasuredProcess):
    """A broker."""

    def __init__(self, name: str, address: Address, directory: Path) -> None:
        directory.mkdir(parents=True)
        super().__init__(name, directory / "broker.log")
        self.address = address
        self._config = directory / "broker.toml"

    async def run(self) -> None:
        """Write the configuration and start."""
        values: dict[str, Any] = {
            "name": self.name,
            "overlay": "../overlay.toml",
            "data": "store",
            "listen": str(self.address),
            "parameters": PARAMETERS,
        }
        self._config.write_text(toml_text(values))
        await self.start("gapless_lab.fuzz.probed_broker", str(self._config))

    async def measure(self, *, with_memory: bool = False) -> BrokerMeasurement:
        """Return the steps since the last measurement, and the memory after a collection."""
        return await self.ask("memory" if with_memory else "steps", BrokerMeasurement)


class PairProcess(MeasuredProcess):
    """The healthy pair."""


class AttackedOverlay:
    """The brokers and the pair; use it with ``async with``."""

    def __init__(self, directory: Path) -> None:
        names = [name for name in BROKERS if name != HOSTILE]
        self._ports = ReservedPorts(len(BROKERS))
        addresses = {
            name: Address("127.0.0.1", port)
            for name, port in zip(BROKERS, self._ports.ports, strict=True)
        }
        cells = [*BROKERS.values()]
        topology = Topology.of(
            {cell: [name] for name, cell in BROKERS.items()},
            [*itertools.pairwise(cells)],
        )
        overlay = OverlayConfig(name=OVERLAY, topology=topology, addresses=addresses)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "overlay.toml").write_text(overlay.to_toml())
        self.brokers = {
            name: ProbedBrokerProcess(name, addresses[name], directory / name) for name in names
        }
        self.pair = PairProcess("pair", directory / "pair.log")

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.TaskGroup() as starting:
                for broker in self.brokers.values():
                    starting.create_task(broker.run())
            near, far = self.brokers["b3"].address.url, self.brokers["b2"].address.url
            await self.pair.start("gapless_lab.fuzz.pair", near, far)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop all processes."""
        await self.pair.stop()
        await asyncio.gather(*(each.stop() for each in self.brokers.values()))
        self._ports.release()
