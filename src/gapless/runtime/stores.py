"""Opening what a broker keeps, on disk or in memory, and bringing its answers into the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gapless.core.ids import PubendId
from gapless.core.machine import Fetch, Write, Written
from gapless.messages.records import Record
from gapless.runtime.memory import MemoryStore
from gapless.storage import Loaded, Storage

__all__ = ["BrokerStore", "OpenedStore", "open_store"]


class BrokerStore(Protocol):
    """Where a broker keeps what it must not forget."""

    @property
    def pending_bytes(self) -> int:
        """How much waits to be written."""

    def gather(self, write: Write) -> int:
        """Take changes that are to be durable, in the order of asking, when they are flushed.

        Returns about how many bytes they are.
        """

    def flush(self, *, here: bool) -> list[Written]:
        """Have what was gathered made durable, by a thread, or ``here`` and now if that is quick.

        Returns what was made durable here; else Written comes later. Who allows it waits for no
        other Written.
        """

    @property
    def may_commit_inline(self) -> bool:
        """Whether what was gathered can be made durable here and now without a long wait."""

    def fetch(self, fetch: Fetch) -> None:
        """Read rows of a log; answered by Fetched."""

    def close(self) -> None:
        """Write what waits, and end."""


class OpenedStore(NamedTuple):
    """A store, and what was in it."""

    store: BrokerStore
    records: tuple[Record, ...]
    pubends: dict[PubendId, str]
    """Pubends that are damaged, and how."""
    subscriptions: dict[str, str]
    """Durable subscriptions that are damaged, and how."""
    refused: dict[str, str]
    """All that is damaged, for people."""


async def open_store(
    data: Path | None,
    loop: asyncio.AbstractEventLoop,
    on_done: Callable[[list[Any]], None],
    on_failure: Callable[[BaseException], None],
) -> OpenedStore:
    """Open the store of a broker; its answers come in the loop's thread."""
    if data is None:
        return OpenedStore(MemoryStore(on_done), (), {}, {}, {})

    def call_in_loop(action: Callable[[Any], None], what: Any) -> None:
        """Bring what a thread of the storage has to say into the loop."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            loop.call_soon_threadsafe(action, what)

    def opened() -> tuple[Storage, Loaded]:
        storage = Storage.open(
            data,
            on_done=partial(call_in_loop, on_done),
            on_failure=partial(call_in_loop, on_failure),
        )
        try:
            return storage, storage.load()
        except BaseException:
            storage.close()
            raise

    storage, loaded = await loop.run_in_executor(None, opened)
    refused = {
        **{f"pubend {pubend}": why for pubend, why in loaded.corrupt.items()},
        **{f"subscription {name}": why for name, why in loaded.subscriptions.items()},
    }
    return OpenedStore(
        storage, tuple(loaded.records), loaded.corrupt, loaded.subscriptions, refused
    )
