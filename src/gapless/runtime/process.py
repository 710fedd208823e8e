"""A broker as a process: signals, exit codes and its supervisor.

Exit codes: 0 stopped on request, 1 the broker failed (a bug; its log has the event), 2 the
configuration or an address cannot be used, 3 the disk failed.

A *supervised* broker reports on its standard output that it is ready, in one line of JSON. It stops
when its standard input ends, because then its supervisor has ended.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import stat
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gapless.core.errors import GaplessError, StorageError, UsageError
from gapless.runtime.config import BrokerConfig, LogConfig, load_config
from gapless.runtime.logfile import LogFile
from gapless.runtime.logs import LOG, set_up_logs
from gapless.runtime.node import Node

__all__ = [
    "EXIT_BROKEN",
    "EXIT_DISK",
    "EXIT_STOPPED",
    "EXIT_WRONG_INPUT",
    "Ready",
    "keep_freed_memory",
    "run_broker",
    "run_loop",
    "serve",
    "settle_down",
]

EXIT_STOPPED: Final = 0
EXIT_BROKEN: Final = 1
EXIT_WRONG_INPUT: Final = 2
EXIT_DISK: Final = 3

GC_THRESHOLDS: Final = (50_000, 50, 100)
"""Objects that are made before a collection. Frames are made and freed by the thousands, without
cycles; a collection every 700 objects costs a tenth of the time."""

SWITCH_S: Final = 0.0005
"""How long a busy event loop may keep the storage's threads from running. The default is ten times
as long, and every commit would wait for it several times."""

KEPT_BYTES: Final = 64 * 1024 * 1024
LARGE_BYTES: Final = 32 * 1024 * 1024
"""Memory that the C library keeps when it is freed, and the size from which on it returns it at
once. By default it returns the rows of every read; getting the memory back, page by page, takes a
quarter of the time of reads."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The values of ``malloc.h`` of glibc."""

_JOINED: Final = "the broker has joined a tree"
"""Why a node stops and another one follows in this process."""

_STANDARD_INPUT: Final = 0

T = TypeVar("T")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a supervised broker that it is ready."""

    broker: str
    url: str
    metrics: str | None
    incarnation: int
    pid: int


def run_broker(path: Path, *, supervised: bool = False, restarts: int = 0) -> int:
    """Run the broker of a configuration file until it is stopped; return the exit code.

    Raises UsageError if the file cannot be used.
    """
    try:
        config = load_config(path, restarts=restarts)
        set_up_logs(config.log.level, config.log.format, _log_file(config.log))
        _allow_many_connections()
        keep_freed_memory()
        return run_loop(serve(config, supervised=supervised))
    except KeyboardInterrupt:  # the event loop handles signals from now on
        sys.stderr.write("broker stops before it is ready: signal SIGINT\n")
        return EXIT_STOPPED


def _log_file(log: LogConfig) -> LogFile | None:
    if not log.file:
        return None
    return LogFile(Path(log.file), log.bytes_max, log.files_kept, takes_errors=True)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop, uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def serve(config: BrokerConfig, *, supervised: bool = False) -> int:
    """Run a broker in this loop until a signal, the end of its supervisor or a failure."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def stop_because(reason: str) -> None:
        if not stop.done():
            stop.set_result(reason)

    def new_node() -> Node:
        return Node(
            config.settings,
            on_failure=lambda error: stop_because(str(error)),
            on_start_again=lambda: stop_because(_JOINED),
        )

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_because, f"signal {number.name}")
    watch: asyncio.BaseTransport | None = None
    node = new_node()
    try:
        watch = await _watch_input(stop_because) if supervised else None
        if not await _started(node, stop):
            return EXIT_STOPPED
        if supervised:
            _report_ready(node)
        settle_down()
        while await stop == _JOINED:
            stop = loop.create_future()
            await node.stop(_JOINED)
            node = new_node()
            if not await _started(node, stop):
                return EXIT_STOPPED
        await node.stop(stop.result())
    except Exception as error:  # noqa: BLE001 - every error has its exit code
        return _cannot_start(error) if not node.was_started else _exit_code(error)
    finally:
        if watch is not None:
            watch.close()
    return _exit_code(node.failure)


async def _started(node: Node, stop: asyncio.Future[str]) -> bool:
    """Start a node; return False if a signal came first. The node has ended then."""
    gc.disable()  # all that the start makes is kept
    starting = asyncio.ensure_future(node.start())
    either: set[asyncio.Future[Any]] = {starting, stop}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() and node.failure is None:
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        LOG.info("broker stops before it is ready: %s", stop.result())
        return False
    finally:
        gc.enable()
    return True


def _cannot_start(error: Exception) -> int:
    """Log in one line why the broker cannot start; return the exit code."""
    if isinstance(error, OSError):
        error = StorageError(f"{error.strerror or error} ({error.filename or 'no file'})")
    if isinstance(error, GaplessError):
        code = EXIT_WRONG_INPUT if isinstance(error, UsageError) else _exit_code(error)
        cause = error.__cause__ if code == EXIT_BROKEN else None  # a traceback is for a bug
        LOG.error("broker cannot start: %s", " ".join(str(error).split()), exc_info=cause)
        return code
    LOG.error("broker cannot start, because of a bug: %r", error, exc_info=error)
    return EXIT_BROKEN


def _exit_code(failure: BaseException | None) -> int:
    if failure is None:
        return EXIT_STOPPED
    return EXIT_DISK if isinstance(failure, StorageError) else EXIT_BROKEN


def _report_ready(node: Node) -> None:
    metrics = node.metrics_address
    ready = Ready(
        broker=node.name,
        url=node.url,
        metrics=f"http://{metrics}" if metrics else None,
        incarnation=node.broker.context.identity.incarnation,
        pid=os.getpid(),
    )
    with suppress(BrokenPipeError):  # the supervisor has ended: the end of input follows
        sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
        sys.stdout.flush()


class _InputEnds(asyncio.Protocol):
    """Reports the end of the standard input."""

    def __init__(self, stop_because: Any) -> None:
        self._stop_because = stop_because

    def eof_received(self) -> None:
        self._stop_because("the supervisor has ended")

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._stop_because("the supervisor has ended")


async def _watch_input(stop_because: Any) -> asyncio.BaseTransport:
    loop = asyncio.get_running_loop()
    if not _is_pipe(_STANDARD_INPUT):
        raise UsageError(
            "--supervised needs a pipe as standard input, which ends with its supervisor; "
            "to run a broker without one use gapless broker"
        )
    transport, _ = await loop.connect_read_pipe(lambda: _InputEnds(stop_because), sys.stdin)
    return transport


def _is_pipe(descriptor: int) -> bool:
    """Return whether a loop can wait for the end of a descriptor."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # it is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def settle_down() -> None:
    """Exclude the objects of the start from garbage collection, and set its thresholds."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _allow_many_connections() -> None:
    """Raise the limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Keep freed memory for reuse instead of returning it to the system; only with glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
