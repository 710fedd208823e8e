"""``archive``: streams into Parquet, by pubend and day, each event once; reading an archive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.content.filter import Filter
from gapless.core.errors import UsageError
from gapless.spark.columns import STANDARD
from gapless.spark.jobs.compacting import (
    SMALL_FILES_MAX,
    TARGET_BYTES,
    compact_archive,
    small_groups,
)
from gapless.spark.jobs.locations import local_uri
from gapless.spark.jobs.manifest import KEEP_S, ArchiveStore, DataFile, Manifest
from gapless.spark.jobs.reasons import as_ours
from gapless.spark.jobs.shipping import ready_executors
from gapless.spark.offsets import Offset
from gapless.spark.options import DEADLINE_S, OnRelease, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "ArchiveProgress",
    "ArchiveReport",
    "StreamReport",
    "archive",
    "read_archive",
    "report_of",
]

EVERY_S: Final = 10.0
"""The default interval of batches of a following archive."""

EVENTS_MAX: Final = 1_000_000
"""The default maximum of events in a batch: a long history is copied in parts, so that an
interrupted copy continues after the last part."""

_LOOK_S: Final = 1
"""How often the end of the query is checked, so that Ctrl-C is handled."""

_AS_NAMED: Final = "decode(encode(pubend, 'ISO-8859-1'), 'UTF-8') AS pubend"
"""A pubend's name in a path is UTF-8 with escapes, and Spark makes one character of every byte. The
expression uses only the path, so a condition on it still skips files without opening them."""


class StreamReport(msgspec.Struct, frozen=True):
    """The content of an archive for one stream."""

    pubend: str
    events: int
    days: int
    files: int
    bytes: int
    first: int
    """The first tick."""
    last: int
    """The last tick."""


class ArchiveReport(msgspec.Struct, frozen=True):
    """The content of an archive, and what this run did."""

    path: str
    version: int
    events: int
    files: int
    bytes: int
    streams: list[StreamReport]
    new_events: int
    new_batches: int
    merged_files: int
    skipped: dict[str, int]
    """Per pubend how many ticks (microseconds) the archive lacks since its start, because brokers
    had released them before they were archived. The number of events in them is unknown."""
    new_skipped: dict[str, int]
    """The same for this run."""
    released: dict[str, int]
    """Per pubend whose beginning was released before it was archived: the last released tick."""
    seconds: float


class ArchiveProgress(msgspec.Struct):
    """What a run has done so far."""

    batches: int = 0
    events: int = 0
    merged: int = 0

    def add_batch(self, events: int) -> None:
        """Count a batch that is in the archive."""
        self.batches += 1
        self.events += events

    def add_merged(self, files: int) -> None:
        """Count files that were merged."""
        self.merged += files


def archive(
    spark: SparkSession,
    servers: str,
    path: str | Path,
    *,
    pubends: Iterable[str] = (),
    filter: str = "TRUE",
    start: str = "earliest",
    reader: str = "",
    follow: bool = False,
    every_s: float = EVERY_S,
    events_max: int = EVENTS_MAX,
    partition_bytes: int | None = None,
    on_release: OnRelease = "fail",
    deadline_s: float = DEADLINE_S,
    token_file: str | Path | None = None,
    compact: bool = True,
    keep_s: float = KEEP_S,
    on_progress: Callable[[ArchiveProgress], None] | None = None,
) -> ArchiveReport:
    """Copy streams into an archive, from its last position; ``start`` applies to a new one.

    It ends when everything is copied that existed at its start. With ``follow`` it continues until
    it is interrupted (KeyboardInterrupt), which is its normal end. ``reader`` names a durable
    reader, for which brokers hold their logs until they are archived. Events that were released
    before they were archived are an error, or with ``on_release="skip"`` are skipped and counted.
    ``events_max`` limits a batch, ``partition_bytes`` what a task reads of a log, and
    ``deadline_s`` the time for which a broker may be unreachable. ``token_file`` has the token for
    brokers that require one; the driver and every executor need the file.
    """
    store = ArchiveStore(path)
    requested = Manifest(filter=str(Filter(filter)), pubends=tuple(sorted(set(pubends))))
    options = {
        "servers": servers,
        "filter": requested.filter,
        "start": start,
        "maxEventsPerTrigger": str(events_max),
        "onRelease": on_release,
        "deadline": str(deadline_s),
        **({"partitionBytes": str(partition_bytes)} if partition_bytes is not None else {}),
        **({"pubends": ",".join(requested.pubends)} if requested.pubends else {}),
        **({"reader": reader} if reader else {}),
        **({"tokenFile": str(token_file)} if token_file is not None else {}),
    }
    parse_options(options)  # report faults before anything is started
    _open(store, requested)
    ready_executors(spark)
    frame = spark.readStream.format("gapless").options(**options).load()
    run = _ArchiveRun(store, compact=compact, keep_s=keep_s, on_progress=on_progress)
    writer = frame.writeStream.foreachBatch(run.keep).option(
        "checkpointLocation", local_uri(store.checkpoint)
    )
    skipped = _skipped(store)
    started_at = time.monotonic()
    chosen = (
        writer.trigger(processingTime=f"{every_s} seconds")
        if follow
        else writer.trigger(availableNow=True)
    )
    _await(chosen.start(), follow=follow)
    if compact:
        run.merge(spark, least=SMALL_FILES_MAX)
    return report_of(store, run.progress, time.monotonic() - started_at, skipped)


def _open(store: ArchiveStore, requested: Manifest) -> None:
    """Create the archive, or check that it has the same streams."""
    store.create(requested)
    found = store.read()
    if (found.filter, found.pubends) != (requested.filter, requested.pubends):
        streams = ", ".join(found.pubends) or "all pubends"
        raise UsageError(
            f"{store.path} is an archive of {streams} with the filter {found.filter}; "
            "use the same options, or start another archive"
        )
    if found.batch >= 0 and _query_id(store) != found.query:
        raise UsageError(
            f"{store.path} has lost its checkpoint, so its last position is unknown; start another "
            "archive, or restore _checkpoint"
        )


def _query_id(store: ArchiveStore) -> str:
    """Return the id that Spark gave to the checkpoint; empty if there is none."""
    try:
        return str(json.loads((store.checkpoint / "metadata").read_text("utf-8"))["id"])
    except FileNotFoundError:
        return ""


def _skipped(store: ArchiveStore) -> dict[str, int]:
    """Return how many ticks of each pubend were skipped so far, from the checkpoint."""
    return _last_offset(store).skipped


def _last_offset(store: ArchiveStore) -> Offset:
    """Return the last offset of the checkpoint."""
    offsets = store.checkpoint / "offsets"
    numbers = [int(each.name) for each in offsets.glob("[0-9]*") if each.name.isdigit()]
    if not numbers:
        return Offset({})
    # a version, metadata of the batch, then one line per source: there is one
    last = (offsets / str(max(numbers))).read_text("utf-8").splitlines()[-1]
    return Offset.of(json.loads(last))


class _ArchiveRun:
    """One run: stores the batches of the query."""

    def __init__(
        self,
        store: ArchiveStore,
        *,
        compact: bool,
        keep_s: float,
        on_progress: Callable[[ArchiveProgress], None] | None,
    ) -> None:
        self._store = store
        self._compact = compact
        self._keep_s = keep_s
        self._on_progress = on_progress
        self.progress = ArchiveProgress()

    def keep(self, frame: DataFrame, batch: int) -> None:
        """Write a batch and add it to the archive atomically, unless it is already there."""
        store, query = self._store, _query_id(self._store)
        if store.read().batch >= batch:
            return
        files = _write(frame, store)
        if store.change(lambda now: now.with_batch(batch, files, query)) is None:
            return
        self.progress.add_batch(sum(each.rows for each in files))
        if self._compact:
            # twice the final limit, so that few batches wait for this
            self.merge(frame.sparkSession, least=2 * SMALL_FILES_MAX)
        self._report_progress()

    def merge(self, spark: SparkSession, *, least: int) -> None:
        """Merge small files if there are many."""
        if small_groups(self._store.read(), TARGET_BYTES, least):
            done = compact_archive(spark, self._store.path, least=least, keep_s=self._keep_s)
            self.progress.add_merged(done.merged)
            self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)


def _write(frame: DataFrame, store: ArchiveStore) -> list[DataFile]:
    """Let tasks write the events of a batch; only successful tasks return files."""
    from gapless.spark.jobs.parts import PART_COLUMNS, file_of_row, part_writer

    rows = frame.mapInArrow(part_writer(str(store.data)), PART_COLUMNS).collect()
    files = [file_of_row(row) for row in rows]
    store.check(files)
    return files


def _await(query: StreamingQuery, *, follow: bool) -> None:
    from pyspark.errors import StreamingQueryException

    try:
        while not query.awaitTermination(_LOOK_S):
            pass
    except KeyboardInterrupt:
        if not follow:
            raise
    except StreamingQueryException as error:
        raise as_ours(error, "the archive stopped") from error
    finally:
        query.stop()


def report_of(
    store: ArchiveStore,
    done: ArchiveProgress,
    seconds: float = 0.0,
    skipped_before: Mapping[str, int] | None = None,
) -> ArchiveReport:
    """Return what an archive has."""
    manifest = store.read()
    offset = _last_offset(store)
    skipped = offset.skipped
    before = skipped if skipped_before is None else skipped_before
    new = {name: ticks - before.get(name, 0) for name, ticks in skipped.items()}
    streams: dict[str, list[DataFile]] = {}
    for each in manifest.files:
        streams.setdefault(each.pubend, []).append(each)
    return ArchiveReport(
        path=str(store.path),
        version=manifest.version,
        events=manifest.rows,
        files=len(manifest.files),
        bytes=manifest.bytes,
        streams=[_stream(name, files) for name, files in sorted(streams.items())],
        new_events=done.events,
        new_batches=done.batches,
        merged_files=done.merged,
        skipped=skipped,
        new_skipped={name: ticks for name, ticks in new.items() if ticks},
        released=offset.released,
        seconds=round(seconds, 3),
    )


def _stream(name: str, files: list[DataFile]) -> StreamReport:
    return StreamReport(
        pubend=name,
        events=sum(each.rows for each in files),
        days=len({each.date for each in files}),
        files=len(files),
        bytes=sum(each.bytes for each in files),
        first=min(each.low for each in files),
        last=max(each.high for each in files),
    )


def read_archive(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return the current content of an archive: the columns of the source, and ``date``.

    The frame keeps the version that was the newest when it was made. Replaced files are kept for
    ``keep_s`` of the compaction, a day by default: a query that takes longer has to be made again.
    Conditions on ``pubend`` and ``date`` skip files without opening them.
    """
    from pyspark.sql.types import DateType, StructType

    from gapless.spark.source import GaplessSource

    store = ArchiveStore(path)
    files = store.read().files
    source = GaplessSource({"servers": "gapless://nowhere"}).schema()
    schema = StructType([*source.fields]).add("date", DateType())
    if not files:
        return spark.createDataFrame([], schema)
    paths = [local_uri(store.data / each.path) for each in files]
    loaded = spark.read.schema(schema).option("basePath", local_uri(store.data)).parquet(*paths)
    columns = (_AS_NAMED if name == "pubend" else name for name in (*STANDARD, "date"))
    return loaded.selectExpr(*columns)
