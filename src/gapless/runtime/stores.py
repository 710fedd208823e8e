"""Opening the store of a broker, on disk or in memory; its completions come in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gapless.core.effects import Fetch, Write
from gapless.core.events import Written
from gapless.core.ids import PubendId
from gapless.messages.records import Record
from gapless.runtime.memory import MemoryStore
from gapless.storage import Loaded, Storage

__all__ = ["BrokerStore", "OpenedStore", "open_store"]


class BrokerStore(Protocol):
    """The durable state of a broker: records and logs."""

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait to be written."""

    def gather(self, write: Write) -> int:
        """Collect changes that the next flush makes durable, in the order of the calls.

        Returns their approximate size in bytes.
        """

    def flush(self, *, here: bool) -> list[Written]:
        """Make the collected changes durable by a thread, or ``here`` in the caller if that is
        quick.

        Returns the completions of writes that were committed here; the others come later. A caller
        allows ``here`` only while no other Written is pending.
        """

    @property
    def may_commit_inline(self) -> bool:
        """Whether the collected changes can be committed in the caller without a long wait."""

    def fetch(self, fetch: Fetch) -> None:
        """Read rows of a log; the reply is Fetched."""

    def close(self) -> None:
        """Write what is pending and close."""


class OpenedStore(NamedTuple):
    """A store and its content."""

    store: BrokerStore
    records: tuple[Record, ...]
    pubends: dict[PubendId, str]
    """Corrupt pubends and what is wrong with them."""
    subscriptions: dict[str, str]
    """Corrupt durable subscriptions and what is wrong with them."""
    refused: dict[str, str]
    """Everything corrupt, for operators."""


async def _opened_by_thread(
    opened: Callable[[], tuple[Storage, Loaded]], loop: asyncio.AbstractEventLoop
) -> tuple[Storage, Loaded]:
    """Open a store in a thread for which neither a cancelled caller nor the process waits.

    A long log takes long to check. If the caller was cancelled, the thread closes the store.
    """
    done: asyncio.Future[tuple[Storage, Loaded]] = loop.create_future()

    def deliver(found: tuple[Storage, Loaded] | None, error: BaseException | None) -> None:
        if done.cancelled():
            if found is not None:
                found[0].close()
        elif error is not None:
            done.set_exception(error)
        elif found is not None:
            done.set_result(found)

    def work() -> None:
        found, problem = None, None
        try:
            found = opened()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            problem = error
        try:
            loop.call_soon_threadsafe(deliver, found, problem)
        except RuntimeError:  # the loop is closed: the process ends
            if found is not None:
                found[0].close()

    threading.Thread(target=work, name="gapless-opening", daemon=True).start()
    return await done


async def open_store(
    data: Path | None,
    loop: asyncio.AbstractEventLoop,
    on_done: Callable[[list[Any]], None],
    on_failure: Callable[[BaseException], None],
) -> OpenedStore:
    """Open the store of a broker; its completions come in the loop's thread."""
    if data is None:
        return OpenedStore(MemoryStore(on_done), (), {}, {}, {})

    def call_in_loop(action: Callable[[Any], None], what: Any) -> None:
        """Pass a report of a storage thread to the loop."""
        with suppress(RuntimeError):  # the loop is closed: nothing handles the report
            loop.call_soon_threadsafe(action, what)

    def opened() -> tuple[Storage, Loaded]:
        storage = Storage.open(
            data,
            on_done=partial(call_in_loop, on_done),
            on_failure=partial(call_in_loop, on_failure),
        )
        try:
            loaded = storage.load()
            storage.make_reserve()
            return storage, loaded
        except BaseException:
            storage.close()
            raise

    storage, loaded = await _opened_by_thread(opened, loop)
    refused = {
        **{f"pubend {pubend}": why for pubend, why in loaded.corrupt.items()},
        **{f"subscription {name}": why for name, why in loaded.subscriptions.items()},
    }
    return OpenedStore(
        storage, tuple(loaded.records), loaded.corrupt, loaded.subscriptions, refused
    )
