"""The contenders: a scan of compiled Python functions, two databases, and our index.

All of them get the filters of one workload when they are made, and then match its first events.
Each is used in the way that suits it best:

- the **linear scan** calls one compiled lambda per filter, and knows the types of an event;
- **SQLite** has a table in memory with a covering index, and one prepared query per event;
- **DuckDB** has a table in memory and joins it with a frame of events at a time (one query per event
  would cost it ten times as much); its events are in a table already, and its result remains in
  columns;
- **ours** is :class:`gapless.MatchIndex`, one call of ``match`` per event.
"""

from __future__ import annotations

import csv
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb

from benchmarks.workloads import Event, Table, Workload
from gapless import Filter, MatchIndex

__all__ = [
    "COMPILED",
    "DUCKDB",
    "FALLBACK",
    "LINEAR",
    "NAMES",
    "SQLITE",
    "Contender",
    "index_contenders",
    "rivals",
]

LINEAR: Final = "linear scan"
SQLITE: Final = "SQLite"
DUCKDB: Final = "DuckDB"
FALLBACK: Final = "gapless, fallback"
COMPILED: Final = "gapless, compiled"
NAMES: Final = (LINEAR, SQLITE, DUCKDB, FALLBACK, COMPILED)

FRAME: Final = 100
"""Events that DuckDB joins at a time: a full frame between two brokers."""

_LAMBDAS_AT_ONCE: Final = 2_000


class Contender(Protocol):
    """An engine that holds the filters of a workload and can match its events."""

    name: str

    def run(self, count: int) -> None:
        """Match the first events and discard the results."""

    def results(self, count: int) -> list[frozenset[int]]:
        """Match the first events and return the filters' numbers."""


class Looped:
    """A contender that matches event by event."""

    def __init__(
        self, name: str, match: Callable[[Event], Collection[int]], workload: Workload
    ) -> None:
        self.name = name
        self._match = match
        self._events = workload.events

    def run(self, count: int) -> None:
        """Match the first events and discard the results."""
        match = self._match
        for event in self._events[:count]:
            match(event)

    def results(self, count: int) -> list[frozenset[int]]:
        """Match the first events and return the filters' numbers."""
        return [frozenset(self._match(event)) for event in self._events[:count]]


def linear_scan(workload: Workload) -> Contender:
    """One compiled lambda per filter, called in turn."""
    sources = workload.sources()
    functions: list[Callable[[Event], bool]] = []
    while block := list(islice(sources, _LAMBDAS_AT_ONCE)):
        functions += eval("[" + ",".join(f"lambda d: {source}" for source in block) + "]")
    numbered = list(enumerate(functions))
    return Looped(LINEAR, lambda d: [key for key, holds in numbered if holds(d)], workload)


# --- the databases ------------------------------------------------------------------------------


def _create_table(table: Table) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
    return f"CREATE TABLE filter (number INTEGER PRIMARY KEY, {columns})"


def _numbered(table: Table) -> Iterator[tuple[Any, ...]]:
    return ((number, *row) for number, row in enumerate(table.rows()))


def sqlite_table(workload: Workload, table: Table) -> Contender:
    """Filters as rows of SQLite, with an index if an index can help."""
    database = sqlite3.connect(":memory:")
    database.execute(_create_table(table))
    marks = ", ".join("?" * (1 + len(table.columns)))
    database.executemany(f"INSERT INTO filter VALUES ({marks})", _numbered(table))
    if table.indexed:
        database.execute(f"CREATE INDEX way_in ON filter ({', '.join(table.indexed)})")
    database.execute("ANALYZE")
    condition = table.condition.format_map({name: f":{name}" for name in workload.events[0]})
    query = f"SELECT number FROM filter WHERE {condition}"
    execute = database.cursor().execute

    def match(event: Event) -> list[int]:
        return [number for (number,) in execute(query, event)]

    return Looped(SQLITE, match, workload)


class DuckTable:
    """Filters as a table of DuckDB, joined with a frame of events at a time."""

    name = DUCKDB

    def __init__(self, workload: Workload, table: Table) -> None:
        self._database = duckdb.connect(":memory:", config={"threads": 1})
        self._database.execute(_create_table(table).replace(" PRIMARY KEY", ""))
        self._load("filter", _numbered(table))
        names = list(workload.events[0])
        kinds = ["VARCHAR" if isinstance(v, str) else "DOUBLE" for v in workload.events[0].values()]
        columns = ", ".join(f"event_{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        self._database.execute(f"CREATE TABLE event (place INTEGER, {columns})")
        self._load("event", ((at, *event.values()) for at, event in enumerate(workload.events)))
        condition = table.condition.format_map({name: f"event_{name}" for name in names})
        self._query = (
            "SELECT event.place, filter.number FROM filter, event "
            f"WHERE event.place >= ? AND event.place < ? AND {condition}"
        )

    def _load(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.csv")
            with path.open("w", newline="") as file:
                csv.writer(file).writerows(rows)
            self._database.execute(f"COPY {table} FROM '{path}' (FORMAT csv, HEADER false)")

    def _frames(self, count: int) -> Iterator[dict[str, Any]]:
        for at in range(0, count, FRAME):
            bounds = [at, min(at + FRAME, count)]
            yield self._database.execute(self._query, bounds).fetchnumpy()

    def run(self, count: int) -> None:
        """Match the first events and discard the results."""
        for _ in self._frames(count):
            pass

    def results(self, count: int) -> list[frozenset[int]]:
        """Match the first events and return the filters' numbers."""
        found: list[set[int]] = [set() for _ in range(count)]
        for frame in self._frames(count):
            pairs = zip(frame["place"].tolist(), frame["number"].tolist(), strict=True)
            for index, number in pairs:
                found[index].add(number)
        return [frozenset(numbers) for numbers in found]


def rivals(workload: Workload) -> Iterator[Callable[[], Contender]]:
    """The contenders that are not ours, to be made one after the other."""
    yield lambda: linear_scan(workload)
    if (table := workload.table) is not None:
        yield lambda: sqlite_table(workload, table)
        yield lambda: DuckTable(workload, table)


# --- ours ---------------------------------------------------------------------------------------


def index_contenders(workload: Workload, names: Collection[str]) -> list[Contender]:
    """Our index with each of the named engines, filled in one pass over the texts."""
    indexes = {name: MatchIndex(kernel=name.removeprefix("gapless, ")) for name in names}
    for number, text in enumerate(workload.texts()):
        parsed = Filter(text)
        for index in indexes.values():
            index.add(number, parsed)
    return [Looped(name, index.match, workload) for name, index in indexes.items()]
