"""Runs a line of relays or brokers on this machine, and its two ends."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.streams import ends
from benchmarks.streams.ends import Saw
from benchmarks.streams.relay import run_relay
from benchmarks.streams.workload import SYMBOLS
from gapless.runtime import Supervisor, generate

__all__ = ["Ends", "brokers", "cpu_seconds", "free_port", "relays", "resident_bytes", "sync_ms"]

TIMEOUT_S: Final = 120.0
_SPAWN = multiprocessing.get_context("spawn")


class Ends:
    """Processes at the ends of a line."""

    def __init__(self) -> None:
        self._go = _SPAWN.Event()
        self._started: list[tuple[Any, Any]] = []

    async def start(self, role: Callable[..., Coroutine[Any, Any, Saw]], *args: Any) -> int:
        """Start a process and wait until it is ready; return its index."""
        reports = _SPAWN.Queue()
        target = _SPAWN.Process(target=ends.run, args=(role, reports, self._go, *args), daemon=True)
        target.start()
        self._started.append((target, reports))
        assert await self._report(reports) == "ready"
        return len(self._started) - 1

    def go(self) -> None:
        """Send the start signal."""
        self._go.set()

    async def saw(self, number: int) -> Saw:
        """Wait until a process is done and return its results."""
        found: Saw = await self._report(self._started[number][1])
        return found

    async def _report(self, reports: Any) -> Any:
        return await asyncio.to_thread(reports.get, timeout=TIMEOUT_S)

    def pid(self, number: int) -> int:
        """Return the process id."""
        return int(self._started[number][0].pid)

    def stop(self) -> None:
        """End all processes."""
        for process, _ in self._started:
            process.kill()
            process.join()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def relays(hops: int) -> Iterator[tuple[list[int], list[int]]]:
    """Run a line of bare relays; yield their ports and process ids."""
    ports = [free_port() for _ in range(hops)]
    processes = []
    for index, port in enumerate(ports):
        upstream = ports[index - 1] if index else None
        process = _SPAWN.Process(
            target=run_relay, args=(port, upstream, frozenset(SYMBOLS)), daemon=True
        )
        process.start()
        processes.append(process)
        _await_listener(port)
    try:
        yield ports, [int(process.pid or 0) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _await_listener(port: int) -> None:
    for _ in range(1_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise TimeoutError(f"no relay listens on {port}")


@contextlib.asynccontextmanager
async def brokers(hops: int) -> AsyncIterator[tuple[list[str], list[int]]]:
    """Run a line of brokers; yield their URLs and process ids."""
    with tempfile.TemporaryDirectory() as folder:
        async with Supervisor(generate(f"line:{hops}"), Path(folder), port=0) as line:
            yield line.urls, [int(broker.pid or 0) for broker in line.brokers]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sync_ms(count: int = 200) -> float:
    """Return the median time of a small synced write on the disk that brokers use."""
    found = []
    with tempfile.TemporaryFile() as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(bytes(4_096))
            file.flush()
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - began) * 1e3)
    return sorted(found)[count // 2]
