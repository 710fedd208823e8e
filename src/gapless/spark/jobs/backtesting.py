"""``backtest``: what filters would have matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gapless.core.errors import UsageError
from gapless.spark.jobs.archiving import read_archive
from gapless.spark.jobs.filters import NamedFilter
from gapless.spark.jobs.locations import local_uri, spark_uri
from gapless.spark.jobs.manifest import ArchiveStore
from gapless.spark.jobs.overlaps import SKETCH_MIN, Overlap, most_alike
from gapless.spark.jobs.shipping import ready_executors
from gapless.spark.jobs.tallies import ALL, MATCHED, TALLY_COLUMNS, tally_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Alike", "Backtest", "FilterReport", "backtest", "events_at"]

SKETCH: Final = (512, 16_384)
"""Minimum and maximum of events in the sketch of a filter: the fewer filters, the more. Pairs with
no more matches are compared exactly; for others the Jaccard index has a standard error of at most
0.022."""

HASHES: Final = 5_000_000
"""The approximate total of hashes in all sketches that are longer than the minimum."""

HASHES_MAX: Final = 20_000_000
"""The maximal total of hashes; with very many filters each sketch is shorter than the minimum."""

TOP: Final = 20
"""Pairs of filters that are reported."""

_TASKS_EACH: Final = 4
"""Tasks per core: enough to balance the load, few enough that their results are small."""

_NEEDED: Final = ("pubend", "tick", "attributes")
_SECOND: Final = 1_000_000


class FilterReport(msgspec.Struct, frozen=True):
    """What a filter would have matched."""

    name: str
    filter: str
    count: int
    share: float
    """As a share of all events."""
    per_second: float
    """Over the time that the events span."""
    per_hour: float
    first: int | None
    """The tick of the first matching event."""
    last: int | None


class Alike(msgspec.Struct, frozen=True):
    """Two filters that match similar sets of events."""

    left: str
    right: str
    jaccard: float
    shared: int
    exact: bool
    """Whether both numbers are counted; otherwise they are estimated."""


class Backtest(msgspec.Struct, frozen=True):
    """What all filters would have matched."""

    events: int
    matched: int
    """How many events matched at least one filter."""
    coverage: float
    first: int | None
    last: int | None
    seconds: float
    """The time that the events span."""
    filters: list[FilterReport]
    """In the order in which they were given."""
    equal: list[list[str]]
    """Equivalent filters."""
    alike: list[Alike]
    """Pairs of different filters, the most similar first; equivalent filters count as one."""
    looked_at: int
    """Pairs were searched among so many filters, those that match most."""
    exact_up_to: int
    """Pairs of filters with no more matches than this are compared exactly."""

    def save(self, directory: Path) -> list[Path]:
        """Write the filters and the pairs as Parquet; return the files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        directory.mkdir(parents=True, exist_ok=True)
        found = []
        for name, rows, kind in (
            ("filters", self.filters, FilterReport),
            ("alike", self.alike, Alike),
        ):
            found.append(directory / f"{name}.parquet")
            saved = [msgspec.to_builtins(row) for row in rows]
            pq.write_table(pa.Table.from_pylist(saved, _schema_of(kind)), found[-1])
        return found


def _schema_of(kind: type[msgspec.Struct]) -> pa.Schema:
    """Return the columns of a table of structs, because there may be no rows to infer them from."""
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    kinds[int | None] = pa.int64()  # type: ignore[index]  # a type, too
    return pa.schema([(each.name, kinds[each.type]) for each in msgspec.structs.fields(kind)])


def events_at(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return the events of an archive, or of any Parquet with the columns of the source.

    A URI of another file system reaches Spark as it is written; there is no archive at one.
    """
    uri = spark_uri(path)
    if not uri.startswith("file:"):
        return spark.read.parquet(uri)
    store = ArchiveStore(path)
    if store.exists():
        return read_archive(spark, path)
    if not store.path.exists():
        raise UsageError(f"{store.path} is neither an archive nor Parquet: it does not exist")
    return spark.read.parquet(local_uri(store.path))


def backtest(
    spark: SparkSession,
    events: DataFrame,
    filters: Sequence[NamedFilter],
    *,
    top: int = TOP,
    sketch: int | None = None,
) -> Backtest:
    """Return which filters would have matched how many events, and which match the same ones.

    ``events`` needs the columns ``pubend``, ``tick`` and ``attributes`` (JSON) of the source. With
    ``top=0`` pairs are not searched. ``sketch`` is how many matches of a filter are kept to compare
    it; pairs with no more are compared exactly. By default it is 512 or more, by the number of
    filters.
    """
    missing = [name for name in _NEEDED if name not in events.columns]
    if missing:
        raise UsageError(f"the events have no column {', '.join(missing)}")
    ready_executors(spark)
    indices: dict[Any, int] = {}
    chosen = [indices.setdefault(each.filter, len(indices)) for each in filters]
    texts = tuple(str(each) for each in indices)
    size = sketch_size(len(texts), sketch)
    table = _tallied(spark, events, texts, size if top else 0)
    return _report(table, filters, chosen, len(indices), top, size)


def sketch_size(filters: int, wanted: int | None) -> int:
    """Return how many hashes a sketch has.

    >>> [sketch_size(filters, None) for filters in (10, 1_000, 10_000, 100_000)]
    [16384, 5000, 512, 200]
    """
    least, most = SKETCH
    filters = max(filters, 1)
    size = wanted or min(max(HASHES // filters, least), most)
    return max(min(size, HASHES_MAX // filters), SKETCH_MIN)


def _tallied(
    spark: SparkSession, events: DataFrame, texts: tuple[str, ...], sketch: int
) -> pa.Table:
    """Match on executors, and add up their results by filter."""
    from pyspark.sql import functions as f

    context = spark.sparkContext
    shared = context.broadcast(texts)
    tasks = _TASKS_EACH * context.defaultParallelism
    reported = (
        events.select(*_NEEDED)
        .coalesce(tasks)
        .mapInArrow(tally_writer(shared, sketch), TALLY_COLUMNS)
    )
    smallest = f.slice(f.array_sort(f.flatten(f.collect_list("hashes"))), 1, max(sketch, 1))
    try:
        return (
            reported.groupBy("filter")
            .agg(
                f.sum("count").alias("count"),
                f.min("first").alias("first"),
                f.max("last").alias("last"),
                smallest.alias("hashes"),
            )
            .orderBy("filter")
            .toArrow()
        )
    finally:
        shared.destroy()


def _report(
    table: pa.Table,
    filters: Sequence[NamedFilter],
    chosen: Sequence[int],
    distinct: int,
    top: int,
    sketch: int,
) -> Backtest:
    table = table.combine_chunks()
    numbers = table.column("filter").to_numpy()
    facts = {
        int(key): (int(count), int(first), int(last))
        for key, count, first, last in zip(
            numbers,
            table.column("count").to_numpy(),
            table.column("first").to_numpy(),
            table.column("last").to_numpy(),
            strict=True,
        )
    }
    events, first, last = facts.get(ALL, (0, 0, 0))
    seconds = (last - first) / _SECOND
    matched = facts.get(MATCHED, (0, 0, 0))[0]
    names: dict[int, list[str]] = {}
    for each, index in zip(filters, chosen, strict=True):
        names.setdefault(index, []).append(each.name)
    overlap = _overlap(table, distinct, top, sketch)
    return Backtest(
        events=events,
        matched=matched,
        coverage=matched / events if events else 0.0,
        first=first if events else None,
        last=last if events else None,
        seconds=seconds,
        filters=[
            _filter_report(each, facts.get(place), events, seconds)
            for each, place in zip(filters, chosen, strict=True)
        ],
        equal=[each for each in names.values() if len(each) > 1],
        alike=_named(overlap, names),
        looked_at=overlap.looked_at,
        exact_up_to=sketch if top else 0,
    )


def _filter_report(
    named: NamedFilter, facts: tuple[int, int, int] | None, events: int, seconds: float
) -> FilterReport:
    count, first, last = facts or (0, 0, 0)
    rate = count / seconds if seconds else 0.0
    return FilterReport(
        name=named.name,
        filter=str(named.filter),
        count=count,
        share=count / events if events else 0.0,
        per_second=rate,
        per_hour=rate * 3_600,
        first=first if count else None,
        last=last if count else None,
    )


def _overlap(table: pa.Table, distinct: int, top: int, sketch: int) -> Overlap:
    if not top:
        return Overlap([], 0, 0)
    numbers = table.column("filter").to_numpy()
    lists = table.column("hashes").combine_chunks()
    keys = np.repeat(numbers, lists.value_lengths().to_numpy())
    hashes = lists.flatten().to_numpy()
    counts = np.zeros(distinct, np.int64)
    real = numbers >= 0
    counts[numbers[real]] = table.column("count").to_numpy()[real]
    return most_alike(counts, keys, hashes, sketch, top)


def _named(overlap: Overlap, names: Mapping[int, Sequence[str]]) -> list[Alike]:
    return [
        Alike(names[each.left][0], names[each.right][0], each.jaccard, each.shared, each.exact)
        for each in overlap.pairs
    ]
