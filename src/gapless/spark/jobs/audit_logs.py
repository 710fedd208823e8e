"""Audit logs as a DataFrame of facts: read at once, or segment by segment as they are closed.

A log that is read at once includes the open segments. A log that is followed is read by Structured
Streaming, which takes each segment once, when it was closed and renamed. The facts are stored as
Parquet by batch, and a repeated batch overwrites itself with the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob  # a pattern may begin at the root, which Path.glob does not take
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gapless.audit.facts import Fact, facts_of
from gapless.audit.segments import CLOSED, segments_of
from gapless.core.errors import UsageError
from gapless.spark.jobs.locations import local_path, local_uri

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FACTS", "NoClosedSegmentError", "directories_of", "facts_at", "kept_facts"]

FACTS: Final = (
    "kind string, run string, offset long, client_session string, pubend string, tick long, "
    "publisher string, sequence long, attributes binary, control binary, principal string"
)
"""The columns of :class:`~gapless.audit.facts.Fact`, as a Spark schema."""

_ROWS: Final = 20_000
"""Facts in one record batch of a task."""

_SEGMENTS_EACH: Final = 4
"""The minimum of segments per task."""

Batches = Iterator["pa.RecordBatch"]


class NoClosedSegmentError(UsageError):
    """All segments are still open, and only closed ones are used; later there will be some."""


def directories_of(paths: Sequence[str | Path]) -> list[Path]:
    """Return the named directories, also by patterns, and their subdirectories."""
    named = [str(path) for path in paths]
    found = [Path(each) for text in named for each in sorted(glob(text)) or [text]]  # noqa: PTH207
    for text in named:
        local_path(text, "an audit log")
    for path in found:
        if not path.is_dir():
            raise UsageError(f"{path} is not a directory of an audit log")
    inside = (each for path in found for each in (path, *path.rglob("*")) if each.is_dir())
    return [*dict.fromkeys(each.resolve() for each in inside)]


def facts_at(spark: SparkSession, paths: Sequence[str | Path]) -> DataFrame:
    """Return the facts of all segments of directories, including open ones."""
    segments = [str(path) for each in directories_of(paths) for path in segments_of(each)]
    if not segments:
        named = ", ".join(map(str, paths))
        raise UsageError(f"there are no segments of audit logs in {named}")
    tasks = max(1, len(segments) // _SEGMENTS_EACH)
    tasks = max(min(len(segments), spark.sparkContext.defaultParallelism), tasks)
    listed = spark.createDataFrame([(each,) for each in segments], "path string")
    return listed.repartition(tasks, "path").mapInArrow(_read_paths, FACTS)


def kept_facts(spark: SparkSession, paths: Sequence[str | Path], state: str | Path) -> DataFrame:
    """Add newly closed segments to ``state``, each once; return all its facts."""
    state = local_path(state, "the state of an audit").resolve()
    facts = state / "facts"
    for path in directories_of(paths):
        # each costs a stream: skip directories without closed segments, and the state itself
        if not path.is_relative_to(state) and any(path.glob(f"*{CLOSED}")):
            _take(spark, path, state)
    if not facts.exists():
        raise NoClosedSegmentError(
            f"no segment of an audit log is closed in {', '.join(map(str, paths))}: "
            "a segment is closed when it is large or old (segment_bytes, segment_s), or when its writer ends"
        )
    return spark.read.schema(FACTS).option("recursiveFileLookup", "true").parquet(local_uri(facts))


def _take(spark: SparkSession, path: Path, state: Path) -> None:
    """Add the segments of a directory that were closed since the last time."""
    columns = "path string, modificationTime timestamp, length long, content binary"
    source = (
        spark.readStream.format("binaryFile")
        .schema(columns)
        .option("pathGlobFilter", f"*{CLOSED}")
        .option("maxFileAge", "36500d")
        .load(local_uri(path))
    )
    name = str(path).strip("/").replace("/", "%")
    query = (
        source.select("path", "content")
        .mapInArrow(_read_contents, FACTS)
        .writeStream.foreachBatch(_batch_writer(state / "facts" / name))
        .option("checkpointLocation", local_uri(state / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _batch_writer(directory: Path) -> Callable[[DataFrame, int], None]:
    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(local_uri(directory / f"batch-{number:08}"))

    return keep


# --- in tasks -------------------------------------------------------------------------------------


def _read_paths(batches: Batches) -> Batches:
    names = (name for batch in batches for name in batch.column("path").to_pylist())
    yield from _batches(chain.from_iterable(map(_facts_in, names)))


def _read_contents(batches: Batches) -> Batches:
    pairs = (
        pair
        for batch in batches
        for pair in zip(
            batch.column("content").to_pylist(), batch.column("path").to_pylist(), strict=True
        )
    )
    yield from _batches(chain.from_iterable(facts_of(data, name) for data, name in pairs))


def _facts_in(name: str) -> Iterator[Fact]:
    """Read a segment that may be renamed or removed meanwhile."""
    for path in (Path(name), Path(name).with_suffix(CLOSED)):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        return facts_of(data, name)
    return iter(())


def _batches(facts: Iterable[Fact]) -> Batches:
    import pyarrow as pa

    kinds: list[Any] = [
        *(pa.string(), pa.string(), pa.int64(), pa.string(), pa.string(), pa.int64()),
        *(pa.string(), pa.int64(), pa.binary(), pa.binary(), pa.string()),
    ]
    source = iter(facts)
    while rows := [*islice(source, _ROWS)]:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(Fact._fields))
