"""The interface for Spark to read a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as Predicate

from gapless.content.filter import Filter
from gapless.spark.batches import ArrowBatches
from gapless.spark.columns import STANDARD, AttributeColumn
from gapless.spark.network import LOG, OverlayClient
from gapless.spark.options import SourceOptions
from gapless.spark.planning import (
    Range,
    after,
    check_end,
    check_released,
    note_released_beginnings,
    ranges,
)
from gapless.spark.pushing import ReadBounds, push
from gapless.spark.reading import read_range
from gapless.spark.sentences import sentence_first

__all__ = ["BatchReader", "LogPartition", "read_part"]


class LogPartition(InputPartition):
    """A range of a log that Spark passes to a task."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


@sentence_first
def read_part(
    partition: InputPartition,
    columns: Sequence[AttributeColumn],
    filter_text: str,
    options: SourceOptions,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition; an empty query has one partition without a range."""
    if not isinstance(partition, LogPartition):
        return
    part = partition.part
    replies = read_range(
        part, filter_text, options.on_release, options.deadline_s, options.credentials
    )
    yield from ArrowBatches(columns).of(part.pubend, replies)


def _warn_of_skipped(skipped: Mapping[str, int]) -> None:
    """Log what a batch skips. Unlike a stream it has no offset that could count it."""
    if skipped:
        each = ", ".join(f"{name} {count}" for name, count in sorted(skipped.items()))
        LOG.warning("this batch skips %d released ticks: %s", sum(skipped.values()), each)


class _Pushing:
    """Takes the predicates of a query for a reader.

    While push-down is disabled, which is Spark's default, Spark refuses every reader whose class
    overrides ``pushFilters``. It checks the function behind the method; here that is the function
    of the base class, so this reader works with and without push-down.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Predicate]) -> Iterable[Predicate]:
        return self._reader.push(filters)


class BatchReader(DataSourceReader):
    """Reads logs between two positions, once."""

    def __init__(self, options: SourceOptions, columns: Sequence[AttributeColumn]) -> None:
        options.refuse_for("batch")
        self._options = options
        self._columns = tuple(columns)
        self._filter_text = options.filter
        self._bounds = ReadBounds()
        self.pushFilters: Any = _Pushing(self)

    @sentence_first
    def push(self, predicates: list[Predicate]) -> Iterable[Predicate]:
        """Let brokers evaluate what they can; return the predicates that Spark has to evaluate.

        Only if the user requests it (option ``pushDown``). Spark (4.1 to 4.3) keeps the last pushed
        predicates with a DataFrame, for all its uses in a query and for later queries:
        ``a.where(x).union(a.where(y))`` would read the rows for ``y`` twice, and ``a.count()``
        after it only those.
        """
        if not self._options.push_down:
            return predicates
        kinds = {each.name: each.kind for each in self._columns if each.name not in STANDARD}
        found = push(Filter(self._filter_text), predicates, kinds)
        self._filter_text, self._bounds = str(found.filter), found.bounds
        return found.rest

    @sentence_first
    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges for tasks, fixed when the query is planned."""
        options, bounds = self._options, self._bounds
        network = OverlayClient(options.servers, options.deadline_s, options.credentials)
        try:
            names = network.chosen(options.pubends)
            extents = {each: network.extent(each, self._filter_text) for each in names}
            start = options.start or "earliest"
            starts = after(start, extents)
            if start == "earliest":
                note_released_beginnings(extents)
            ends = after(options.end or "latest", extents)
            check_end(options.end, extents)
            skipped = {}
            for name, extent in extents.items():
                first = max(starts[name], bounds.low - 1)
                end = min(ends[name], bounds.high, extent.top)
                if bounds.pubends is not None and name not in bounds.pubends:
                    end = first
                starts[name] = check_released(name, first, extent, end, options.on_release)
                ends[name] = end
                if starts[name] > first:
                    skipped[name] = starts[name] - first
            _warn_of_skipped(skipped)
            return [
                LogPartition(each)
                for each in ranges(network, starts, ends, options.partition_bytes)
            ]
        finally:
            network.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in a task."""
        return read_part(partition, self._columns, self._filter_text, self._options)
