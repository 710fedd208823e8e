"""Expected deliveries: published events, matched with the applicable filters by the brokers' own
index.

The attributes of an event are in the given events (``given_attributes``, as JSON), or else in the log of its
broker (``attributes``, as msgpack). If they are in neither, the deliveries of the event are
unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.audit.timelines import FOREVER, AuditedSubscription
from gapless.audit.writer_runs import AuditWriterRun
from gapless.content.filter import Filter
from gapless.content.matching import MatchIndex
from gapless.spark.jobs.tallies import attributes_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.core.broadcast import Broadcast

__all__ = [
    "EXPECTED",
    "ExpectedDeliveries",
    "attributes_in",
    "described",
    "expected_deliveries_of",
    "expected_writer",
    "index_of",
]

EXPECTED: Final = (
    "sub long, pubend string, tick long, publisher string, number long, settled boolean, "
    "sure boolean"
)
"""An event that a subscription must receive, as a Spark schema."""

_ROWS: Final = 50_000

_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class ExpectedDeliveries(msgspec.Struct, frozen=True):
    """The data of all subscriptions for tasks."""

    texts: tuple[str, ...]
    """Filters, each once."""
    spans: dict[tuple[int, str], list[tuple[int, int, bool, int]]]
    """By filter and pubend: above which tick, up to which, whether settled, which subscription."""
    sure: dict[tuple[str, str], int]
    """By run and pubend, the tick up to which events are known to be on disk."""
    closed: frozenset[str]
    """Runs that ended in order: all their events are on disk."""


def expected_deliveries_of(
    subscriptions: Sequence[AuditedSubscription], logs: dict[str, AuditWriterRun]
) -> ExpectedDeliveries:
    """Return the expected deliveries by filter."""
    texts: dict[str, int] = {}
    spans: dict[tuple[int, str], list[tuple[int, int, bool, int]]] = {}
    for index, each in enumerate(subscriptions):
        for pubend, low, high, text, settled in each.intervals:
            number = texts.setdefault(text, len(texts))
            spans.setdefault((number, pubend), []).append((low, high, settled, index))
    sure = {(run, pubend): tick for run, log in logs.items() for pubend, tick in log.stored.items()}
    closed = frozenset(run for run, log in logs.items() if log.is_closed)
    return ExpectedDeliveries(tuple(texts), spans, sure, closed)


@functools.lru_cache(maxsize=1)
def index_of(texts: tuple[str, ...]) -> MatchIndex:
    """Build the index of a process; later tasks of the process reuse it."""
    index = MatchIndex()
    for place, text in enumerate(texts):
        index.add(place, Filter(text))
    return index


def expected_writer(
    shared: Broadcast[ExpectedDeliveries],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that maps published events to expected deliveries."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            described_ones = described(batch)
            if len(described_ones):
                yield from _expected(shared.value, described_ones)

    return write


def _expected(deliveries: ExpectedDeliveries, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    found = index_of(deliveries.texts).match_batch(attributes_in(batch))
    names = ("run", "pubend", "tick", "publisher", "sequence")
    events = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    rows: list[tuple[Any, ...]] = []
    for filters, (run, pubend, tick, publisher, number) in zip(found, events, strict=True):
        known = FOREVER if run in deliveries.closed else deliveries.sure.get((run, pubend), -1)
        for each in filters:
            for low, high, settled, sub in deliveries.spans.get((each, pubend), ()):
                if low < tick <= high:
                    rows.append((sub, pubend, tick, publisher, number, settled, tick <= known))
        if len(rows) >= _ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def described(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events with known attributes."""
    import pyarrow.compute as pc

    given, logged = (
        batch.column("given_attributes").is_valid(),
        batch.column("attributes").is_valid(),
    )
    return batch.filter(pc.or_(given, logged))


def attributes_in(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the attributes of such events."""
    given = batch.column("given_attributes").to_pylist()
    logged = batch.column("attributes").to_pylist()
    if None not in given:
        return attributes_of(given)
    pairs = zip(given, logged, strict=True)
    return [_decode(packed) if text is None else attributes_of([text])[0] for text, packed in pairs]


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds: list[Any] = [
        *(pa.int64(), pa.string(), pa.int64(), pa.string(), pa.int64(), pa.bool_(), pa.bool_()),
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    names = ["sub", "pubend", "tick", "publisher", "number", "settled", "sure"]
    return pa.RecordBatch.from_arrays(arrays, names=names)
