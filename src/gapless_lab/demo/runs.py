"""Parts that every run with an audit needs: records, a directory, signals, draining."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from gapless.core.errors import UsageError
from gapless.runtime.broker_process import ProcessStage
from gapless.runtime.supervisor import Supervisor
from gapless_lab.demo.audit import audit_files
from gapless_lab.demo.records import RecordFile
from gapless_lab.demo.screen import Screen
from gapless_lab.demo.workload import TESTS, DemoRoles

__all__ = ["drain", "empty_directory", "keep_showing", "record_files", "until_signal"]

SETTLE_S: Final = 1.0
"""How long to wait for unexpected events after all expected ones have arrived."""

T = TypeVar("T")


def empty_directory(data: Path | None, prefix: str) -> Path:
    """Return an empty directory: the given one, or a new one."""
    if data is None:
        return Path(tempfile.mkdtemp(prefix=prefix))
    if data.exists() and any(data.iterdir()):
        raise UsageError(f"{data} is not empty; use an empty directory")
    return data


@contextlib.contextmanager
def record_files(roles: DemoRoles, directory: Path) -> Iterator[dict[str, RecordFile]]:
    """Open a record file for every publisher and subscriber."""
    suffixes = {part.name: "published" for part in roles.publishers}
    suffixes |= {part.name: "delivered" for part in roles.subscribers}
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        yield {
            name: files.enter_context(RecordFile(directory / f"{name}.{suffix}"))
            for name, suffix in suffixes.items()
        }


async def drain(records: Mapping[str, RecordFile], directory: Path, timeout_s: float) -> None:
    """Wait until every expected event has arrived, according to the records."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + timeout_s
    while loop.time() < limit:
        for record in records.values():
            record.flush()
        found = await asyncio.to_thread(audit_files, directory, TESTS)
        if not found.total.lost:
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(SETTLE_S)


async def keep_showing(screen: Screen, supervisor: Supervisor) -> None:
    """Show the progress until this is cancelled."""
    while True:
        ready = sum(each.stage is ProcessStage.READY for each in supervisor.brokers)
        screen.tick(ready, len(supervisor.brokers))
        await asyncio.sleep(0.2)


def _unwrapped(error: BaseException) -> BaseException:
    """Return the first error inside a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def until_signal(performance: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine; return None if a signal ended it."""
    loop = asyncio.get_running_loop()
    work = asyncio.create_task(performance)
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupt() -> None:
        if not work.cancelling():  # a second signal must not interrupt the stop of the brokers
            work.cancel()

    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        return await work
    except asyncio.CancelledError:
        return None
    except BaseExceptionGroup as group:
        raise _unwrapped(group) from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
