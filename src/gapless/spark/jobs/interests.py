"""Interests: which cells have subscriptions, and how many events of each cell match their filters.

Brokers record their subscriptions and filters. An event is *wanted* in a cell if it matches a
filter that any subscription there has had at any time of the log. So it is also wanted if it was
not delivered, because the subscription had not started yet, or had ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.audit.facts import Control
from gapless.audit.records import AuditFilterChanged, AuditOpened
from gapless.spark.jobs.expected_deliveries import attributes_in, described, index_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame

__all__ = ["CellInterest", "interests_of", "wanted_in"]

WANTED: Final = "source string, target string, events long"
"""The rows that a task returns, as a Spark schema."""


class CellInterest(msgspec.Struct, frozen=True):
    """The filters of a cell's subscriptions."""

    cell: str
    subscriptions: int
    filters: list[str]
    """Each once, in the order of their texts."""


class _CellFilters(msgspec.Struct, frozen=True):
    """The interests, in the form for tasks."""

    texts: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """The cells that have each filter."""


def interests_of(controls: Iterable[Control]) -> list[CellInterest]:
    """Return the interests of each cell, in the order of their names."""
    names: dict[str, set[tuple[str, str]]] = {}
    filters: dict[str, set[str]] = {}
    for each in controls:
        header, record = each.header, each.record
        if header.side == "broker" and isinstance(record, AuditOpened | AuditFilterChanged):
            names.setdefault(header.cell, set()).add((header.name, record.subscription))
            filters.setdefault(header.cell, set()).add(record.filter)
    return [CellInterest(cell, len(names[cell]), sorted(filters[cell])) for cell in sorted(names)]


def wanted_in(
    published: DataFrame, interests: Iterable[CellInterest]
) -> dict[tuple[str, str], int] | None:
    """Return how many events of each cell are wanted in each cell; None if logs have no attributes.

    ``published`` has the columns of facts, and the ``cell`` of each.
    """
    from pyspark.sql import functions as f

    if published.where("attributes IS NULL").limit(1).count():
        return None
    by_text: dict[str, list[str]] = {}
    for each in interests:
        for text in each.filters:
            by_text.setdefault(text, []).append(each.cell)
    context = published.sparkSession.sparkContext
    shared = context.broadcast(_CellFilters(tuple(by_text), tuple(map(tuple, by_text.values()))))
    try:
        found = (
            published.select(
                "cell", "attributes", f.lit(None).cast("string").alias("given_attributes")
            )
            .mapInArrow(_wanted_writer(shared), WANTED)
            .groupBy("source", "target")
            .agg(f.sum("events").alias("events"))
            .collect()
        )
    finally:
        shared.destroy()
    return {(row["source"], row["target"]): row["events"] for row in found}


def _wanted_writer(
    shared: Broadcast[_CellFilters],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[tuple[str, str]] = Counter()
        for batch in batches:
            if len(batch):
                counts.update(_wanted(shared.value, described(batch)))
        if counts:
            yield _batch(counts)

    return write


def _wanted(cell_filters: _CellFilters, batch: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    """Yield the source cell of each event with each cell that wants it."""
    found = index_of(cell_filters.texts).match_batch(attributes_in(batch))
    for source, filters in zip(batch.column("cell").to_pylist(), found, strict=True):
        for target in {cell for each in filters for cell in cell_filters.cells[each]}:
            yield source, target


def _batch(counts: Mapping[tuple[str, str], int]) -> pa.RecordBatch:
    import pyarrow as pa

    sources, targets = zip(*counts, strict=True)
    columns = {"source": sources, "target": targets, "events": [*counts.values()]}
    return pa.RecordBatch.from_pydict(columns)
