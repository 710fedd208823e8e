"""Files of an archive, as tasks write them: events of one pubend and one day, as Parquet.

A file has a unique name and is synced before it is reported. So a task that is repeated, or that
crashes, leaves only files that are not reported.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gapless.spark.jobs.manifest import DataFile, partition_path, sync_directory

__all__ = ["PART_COLUMNS", "file_of_row", "merged", "part_writer"]

FILE: Final = pa.schema(
    [
        ("tick", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("attributes", pa.string()),
        ("payload", pa.binary()),
    ]
)
"""The columns of a file; the pubend and the day are in its path."""

PART_COLUMNS: Final = (
    "path string, pubend string, date string, rows long, bytes long, low long, high long"
)
"""What a task reports of a file, as a Spark schema."""

OPEN_MAX: Final = 32
"""Open files of a task. Events come by pubend and in order, so one is nearly always enough."""

BATCH_ROWS: Final = 65_536
"""Rows that are in memory at once while files are merged."""

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Part:
    """A file that is being written."""

    def __init__(self, data: Path, pubend: str, date: str) -> None:
        self._data = data
        self._key = (pubend, date)
        self._path = data / partition_path(pubend, date) / f"{uuid.uuid4().hex}.parquet"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self._path.open("xb")
        self._writer = pq.ParquetWriter(self._file, FILE, compression="zstd")
        self._rows = 0
        self._low, self._high = 2**63 - 1, 0

    def write(self, rows: pa.Table) -> None:
        ticks = rows.column("tick").to_numpy()
        self._low = min(self._low, int(ticks.min()))
        self._high = max(self._high, int(ticks.max()))
        self._rows += len(rows)
        self._writer.write_table(rows)

    def close(self) -> DataFile:
        """Finish and sync the file, and return its description."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        self._sync_directories()
        path = self._path.relative_to(self._data).as_posix()
        return DataFile(path, *self._key, self._rows, size, self._low, self._high)

    def _sync_directories(self) -> None:
        """Sync the directories of the file, which may be new too."""
        for each in self._path.parents:
            sync_directory(each)
            if each == self._data:
                break


def part_writer(data: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes the events of a task to files and reports them."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = list(_written(Path(data), batches))
        if files:
            names = DataFile.__struct_fields__
            columns = {name: [getattr(each, name) for each in files] for name in names}
            yield pa.RecordBatch.from_pydict(columns)

    return write


def _written(data: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    parts: dict[tuple[str, int], _Part] = {}
    for batch in batches:
        for pubend, day, rows in _by_part(batch):
            part = parts.get((pubend, day))
            if part is None:
                if len(parts) >= OPEN_MAX:
                    yield parts.pop(next(iter(parts))).close()
                part = parts[pubend, day] = _Part(data, pubend, date_of(day))
            part.write(rows)
    for part in parts.values():
        yield part.close()


def _by_part(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.Table]]:
    """Split a batch by pubend and day."""
    if not len(batch):
        return
    table = pa.Table.from_batches([batch])
    rows = table.select(FILE.names).cast(FILE)
    days = table.column("tick").to_numpy() // _DAY_US
    pubends = table.column("pubend").combine_chunks().dictionary_encode()
    codes = pubends.indices.to_numpy()
    names = pubends.dictionary.to_pylist()
    for code, day in np.unique(np.column_stack([codes, days]), axis=0).tolist():
        chosen = (codes == code) & (days == day)
        yield names[code], day, rows if chosen.all() else rows.filter(pa.array(chosen))


def date_of(day: int) -> str:
    """Return a day, counted from the start of 1970, as a date.

    >>> date_of(20_000)
    '2024-10-04'
    """
    return (_EPOCH + timedelta(days=day)).date().isoformat()


def merged(data: str, files: Sequence[DataFile]) -> DataFile:
    """Write one file with the events of several, which are kept; raise if a row is missing."""
    part = _Part(Path(data), files[0].pubend, files[0].date)
    for each in files:
        with pq.ParquetFile(Path(data) / each.path) as source:
            for batch in source.iter_batches(BATCH_ROWS):
                part.write(pa.Table.from_batches([batch]).cast(FILE))
    made = part.close()
    expected = sum(each.rows for each in files)
    assert made.rows == expected, f"{made.path} has {made.rows} events, not {expected}"
    return made


def file_of_row(row: Sequence[object]) -> DataFile:
    """Return the file that a row describes."""
    return DataFile(*row)  # type: ignore[arg-type]  # in the order of PART_COLUMNS
