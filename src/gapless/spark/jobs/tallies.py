"""Tallies: what a task counts while it matches.

A task builds the index of all filters once in its process. It returns one row per filter that
matched anything, however many matches there were.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gapless.content.matching import MatchIndex
from gapless.spark.jobs.filters import index_of
from gapless.spark.jobs.sketches import LARGEST, Longs, Sketches, event_hashes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.core.broadcast import Broadcast

__all__ = ["ALL", "MATCHED", "TALLY_COLUMNS", "tally_writer"]

TALLY_COLUMNS: Final = "filter long, count long, first long, last long, hashes array<long>"
"""The rows that a task returns, as a Spark schema."""

ALL: Final = -1
"""Instead of a filter, in the row that counts all events."""

MATCHED: Final = -2
"""Instead of a filter, in the row that counts events that matched any filter."""

_BATCH_ROWS: Final = 1_024
"""Rows of a returned batch; with long sketches more would need much memory."""

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def tally_writer(
    texts: Broadcast[tuple[str, ...]], sketch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that matches the events of a task and returns its counts."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally: MatchTally | None = None
        for batch in batches:
            # only now: a task without events needs no index
            tally = tally or MatchTally(index_of(texts.value), sketch)
            tally.take(batch)
        if tally is not None:
            yield from tally.batches()

    return write


class MatchTally:
    """Counts matches of all filters."""

    def __init__(self, index: MatchIndex, sketch: int) -> None:
        filters = len(index)
        self._index = index
        self._counts = np.zeros(filters, np.int64)
        self._firsts = np.full(filters, LARGEST, np.int64)
        self._lasts = np.full(filters, -1, np.int64)
        self._sketches = Sketches(filters, sketch)
        self._all = (0, LARGEST, -1)
        self._matched = (0, LARGEST, -1)

    def take(self, batch: pa.RecordBatch) -> None:
        """Match the events of a batch."""
        if not len(batch):
            return
        ticks = batch.column("tick").to_numpy(zero_copy_only=False).astype(np.int64)
        found = self._index.match_batch(attributes_of(batch.column("attributes").to_pylist()))
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        self._all = _added(self._all, ticks)
        self._matched = _added(self._matched, ticks[sizes > 0])
        keys = np.fromiter(chain.from_iterable(found), np.int64, int(sizes.sum()))
        when = np.repeat(ticks, sizes)
        self._counts += np.bincount(keys, minlength=len(self._counts))
        np.minimum.at(self._firsts, keys, when)
        np.maximum.at(self._lasts, keys, when)
        hashes = event_hashes(_numbers(batch.column("pubend")), ticks)
        self._sketches.add(keys, np.repeat(hashes, sizes))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, sums first."""
        import pyarrow as pa

        keys, hashes = self._sketches.squeezed()
        sums = [(ALL, *self._all), (MATCHED, *self._matched)]
        yield _batch(np.array(sums, np.int64), np.zeros(3, np.int32), pa.array([], pa.int64()))
        (matched,) = np.nonzero(self._counts)
        for first in range(0, len(matched), _BATCH_ROWS):
            chosen = matched[first : first + _BATCH_ROWS]
            facts = (chosen, self._counts[chosen], self._firsts[chosen], self._lasts[chosen])
            bounds = np.searchsorted(keys, [*chosen, chosen[-1] + 1])
            inside = pa.array(hashes[bounds[0] : bounds[-1]], pa.int64())
            yield _batch(np.column_stack(facts), (bounds - bounds[0]).astype(np.int32), inside)


def _numbers(names: pa.Array) -> Longs:
    """Return a number for each name, the same in every process."""
    coded = names.dictionary_encode()
    numbers = [zlib.crc32(name.encode()) for name in coded.dictionary.to_pylist()]
    chosen: Longs = np.array(numbers, np.int64)[coded.indices.to_numpy()]
    return chosen


def _added(sums: tuple[int, int, int], ticks: Longs) -> tuple[int, int, int]:
    """Return a count with its first and last tick after some more events."""
    count, first, last = sums
    if not len(ticks):
        return sums
    return count + len(ticks), min(first, int(ticks.min())), max(last, int(ticks.max()))


def _batch(facts: Longs, bounds: Any, hashes: pa.Array) -> pa.RecordBatch:
    import pyarrow as pa

    lists = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), hashes)
    columns = [pa.array(facts[:, index], pa.int64()) for index in range(4)]
    names = ["filter", "count", "first", "last", "hashes"]
    return pa.RecordBatch.from_arrays([*columns, lists], names=names)


def attributes_of(texts: Sequence[str | None]) -> list[dict[str, Any]]:
    """Return the attributes of a column with JSON."""
    try:
        return [_decode(text) if text else {} for text in texts]
    except msgspec.DecodeError:
        # NaN and Infinity are attributes, but not strict JSON
        return [json.loads(text) if text else {} for text in texts]
