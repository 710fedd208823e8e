"""A storage whose completions a test can await, and functions that corrupt its files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from gapless.core.effects import Fetch, Write
from gapless.core.errors import StorageError
from gapless.core.events import Fetched, Written
from gapless.core.ids import PubendId
from gapless.messages.records import AppendRow, LogRow, StorageChange
from gapless.messages.streams import Publication
from gapless.storage import Storage
from gapless.storage.codec import label_of

TRADES = PubendId("trades")
QUOTES = PubendId("quotes", 2)
TIMEOUT_S = 60
"""The deadline of every wait; no test fails because it waited for less."""
ALL = 2**62


class StorageHarness:
    """Sends requests to a storage and collects its completions."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        before_report: Callable[[list[Written | Fetched]], None] = lambda _: None,
        after_report: Callable[[list[Written | Fetched]], None] = lambda _: None,
    ) -> None:
        self._before_report = before_report
        self._after_report = after_report
        self._answers: SimpleQueue[Written | Fetched | StorageError] = SimpleQueue()
        self._last_id = 0
        self.failures: SimpleQueue[StorageError] = SimpleQueue()
        self.calls: list[int] = []
        """How many completions came with each call."""
        self.written: list[int] = []
        """Write ids, in the order in which they were reported."""
        self._fetched: dict[int, Fetched] = {}
        self.storage = Storage.open(
            directory, on_done=self._done, on_failure=self._failed, durable=durable
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.storage.close()

    def _done(self, events: list[Written | Fetched]) -> None:
        self._before_report(events)
        self.calls.append(len(events))
        for event in events:
            self._answers.put(event)
        self._after_report(events)

    def _failed(self, error: StorageError) -> None:
        self.failures.put(error)
        self._answers.put(error)

    def request_write(self, *changes: StorageChange) -> int:
        """Request a write."""
        self._last_id += 1
        self.storage.write(Write(self._last_id, changes))
        return self._last_id

    def write(self, *changes: StorageChange) -> None:
        """Request a write and wait until it is durable."""
        self.wait_for(self.request_write(*changes))

    def write_here(self, *changes: StorageChange) -> bool:
        """Commit a write inline if possible, and wait; return whether it was inline."""
        self._last_id += 1
        self.storage.gather(Write(self._last_id, changes))
        with self.storage._writing:
            pass  # the writer has finished its work after the last report
        done = self.storage.flush(here=True)
        self.written += [each.write_id for each in done]
        self.wait_for(self._last_id)
        return bool(done)

    def request_fetch(
        self,
        pubend: PubendId,
        low: int,
        high: int,
        bytes_max: int = ALL,
        *,
        packed: bool = False,
    ) -> int:
        self._last_id += 1
        self.storage.fetch(Fetch(self._last_id, pubend, low, high, bytes_max, packed))
        return self._last_id

    def fetch(
        self,
        pubend: PubendId,
        low: int = 0,
        high: int = ALL,
        bytes_max: int = ALL,
        *,
        packed: bool = False,
    ) -> Fetched:
        """Request rows and wait for them."""
        return self.answer(self.request_fetch(pubend, low, high, bytes_max, packed=packed))

    def answer(self, fetch_id: int) -> Fetched:
        """Wait for the completion of a fetch."""
        while fetch_id not in self._fetched:
            self._take()
        return self._fetched[fetch_id]

    def is_answered(self, fetch_id: int, within_s: float) -> bool:
        """Return whether a fetch is answered within a time."""
        with suppress(Empty):
            self._take(within_s)
        return fetch_id in self._fetched

    def wait_for(self, write_id: int) -> None:
        """Wait until a write is durable; raise the failure if there is one."""
        while write_id not in self.written:
            self._take()

    def collect(self) -> None:
        """Collect the completions that have arrived."""
        while not self._answers.empty():
            with suppress(StorageError):
                self._take()

    def failure(self) -> StorageError:
        """Wait for the failure."""
        return self.failures.get(timeout=TIMEOUT_S)

    def _take(self, timeout_s: float = TIMEOUT_S) -> None:
        event = self._answers.get(timeout=timeout_s)
        if isinstance(event, StorageError):
            raise event
        if isinstance(event, Written):
            self.written.append(event.write_id)
        else:
            self._fetched[event.fetch_id] = event


def row(first: int, last: int | None = None, pubend: PubendId = TRADES, size: int = 20) -> LogRow:
    """Return a row with two events, or one if it has a single tick."""
    last = first if last is None else last
    publications = tuple(
        Publication(tick, "p", tick, {"price": tick / 2, "open": True, "name": "né"}, b"x" * size)
        for tick in sorted({first, last})
    )
    return LogRow(pubend, first, last, 3, 1, 1_000 + first, first, publications)


def append(
    first: int, last: int | None = None, pubend: PubendId = TRADES, size: int = 20
) -> AppendRow:
    return AppendRow(row(first, last, pubend, size))


def firsts(fetched: Fetched) -> list[int]:
    return [each.first for each in fetched.rows]


def execute(directory: Path, sql: str, *values: object) -> None:
    """Change a database without its storage."""
    with closing(sqlite3.connect(directory / "broker.db", isolation_level=None)) as connection:
        changed = connection.execute(sql, values).rowcount
        assert changed != 0, "nothing was corrupted"


def flip_row(directory: Path, pubend: PubendId, first: int) -> None:
    """Flip one bit in the middle of a row's frame."""
    where = "pubend=? AND first=?", (label_of(pubend), first)
    _flip(directory, "log", "frame", *where)


def flip_record(directory: Path, key: str, column: str = "body") -> None:
    """Flip one bit in the last byte of a record's body, or of its key."""
    _flip(directory, "records", column, "key=?", (key,))


def _flip(directory: Path, table: str, column: str, where: str, values: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(directory / "broker.db", isolation_level=None)) as connection:
        query = f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {where}"  # noqa: S608
        content = bytearray(connection.execute(query, values).fetchone()[0])
        content[len(content) // 2] ^= 1
        flipped: object = bytes(content) if column in {"frame", "body"} else content.decode()
        update = f"UPDATE {table} SET {column}=? WHERE {where}"  # noqa: S608
        connection.execute(update, (flipped, *values))
