"""The interface for Spark to read a stream, one micro-batch after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gapless.core.errors import GaplessError, PubendClosedError
from gapless.core.ticks import Tick
from gapless.spark.batch import LogPartition, read_part
from gapless.spark.columns import AttributeColumn
from gapless.spark.durable_reader import DurableReader
from gapless.spark.lookahead import Lookahead
from gapless.spark.network import Extent, OverlayClient
from gapless.spark.offsets import Offset
from gapless.spark.options import SourceOptions
from gapless.spark.planning import after, check_released, note_released_beginnings, ranges
from gapless.spark.sentences import sentence_first

__all__ = ["RefusedStreamReader", "StreamReader"]

LOG = logging.getLogger("gapless.spark")

_IDLE_S: Final = 0.1
"""Spark polls again at once if nothing is new; it is delayed for so long."""

_LIST_S: Final = 1.0
"""How often the driver queries new pubends."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs from a position on. It runs in the driver; only ``read`` runs in tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[AttributeColumn]) -> None:
        options.refuse_for("streaming")
        self._options = options
        self._columns = tuple(columns)
        self._network: OverlayClient | None = None
        self._lookahead: Lookahead | None = None
        self._durable_reader: DurableReader | None = None
        self._names: list[str] = []
        self._closed: set[str] = set()
        """Pubends that were closed: the query stays at its position on them."""
        self._listed: float | None = None
        self._target: dict[str, Tick] | None = None
        """The end of a run with ``availableNow``."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks: connections remain in the driver."""
        return {"_options": self._options, "_columns": self._columns}

    # --- the driver's connections --------------------------------------------------------------

    def _overlay(self) -> tuple[OverlayClient, Lookahead]:
        if self._network is None or self._lookahead is None:
            options = self._options
            self._network = OverlayClient(options.servers, options.deadline_s, options.credentials)
            self._lookahead = Lookahead(self._network, options.filter)
            if options.reader:
                server = options.servers[0]
                self._durable_reader = DurableReader(
                    self._network, server, options.reader, options.filter, options.pubends
                )
        return self._network, self._lookahead

    def stop(self) -> None:
        """Close the connections of the driver."""
        if self._network is not None:
            self._network.close()
            self._network = None

    def _extents(self, *, anew: bool = False) -> dict[str, Extent]:
        """Return the extents of the logs that the query reads, including new pubends."""
        network, _ = self._overlay()
        now, names = time.monotonic(), self._options.pubends
        is_due = self._listed is None or (not names and now - self._listed >= _LIST_S)
        if anew or is_due:
            # a broker that was just started may not list all pubends: keep the known ones
            self._names = sorted({*self._names, *network.chosen(names, settle=anew)})
            self._listed = now
        return {
            each: extent
            for each in self._names
            if each not in self._closed and (extent := self._extent(network, each)) is not None
        }

    def _extent(self, network: OverlayClient, name: str) -> Extent | None:
        """Return the extent of a log; None if it was closed: the query stays at its position."""
        try:
            return network.extent(name, self._options.filter)
        except PubendClosedError:
            LOG.warning("the pubend %s was closed: nothing more of it is read", name)
            self._closed.add(name)
            return None

    # --- offsets -------------------------------------------------------------------------------

    @sentence_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        extents = self._extents(anew=True)
        start = self._options.start or "latest"
        starts = after(start, extents)
        if self._durable_reader is not None:
            starts |= {
                name: tick
                for name, tick in (self._durable_reader.position() or {}).items()
                if name in extents
            }
            self._durable_reader.keep(starts)
        read = {name: each for name, each in extents.items() if starts[name] == each.released}
        released = note_released_beginnings(read) if start == "earliest" else {}
        return Offset(starts, released=released).stored()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch."""
        most = self._options.events_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the end of the run."""
        self._target = {name: each.top for name, each in self._extents(anew=True).items()}

    @sentence_first
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` itself if nothing is new."""
        offset = Offset.of(start)
        _, lookahead = self._overlay()
        extents = self._extents()
        if self._durable_reader is not None:
            self._durable_reader.keep(offset.positions)
        new = self._new_pubends(offset, extents)
        starts = {name: tick for name, tick in offset.positions.items() if name in extents}
        skipped = dict(offset.skipped)
        goals = {name: self._goal(name, extents[name]) for name in starts}
        for name, first in starts.items():
            seen = lookahead.seen(name, first)
            reach = check_released(name, seen, extents[name], goals[name], self._options.on_release)
            if reach > seen:
                lookahead.skip(name, first, reach)
                skipped[name] = skipped.get(name, 0) + reach - seen
        always = self._target is not None or skipped != offset.skipped or bool(new)
        if isinstance(limit, ReadMaxRows):
            ends = lookahead.some_new(starts, goals, limit.max_rows, always=always)
        else:
            ends = lookahead.all_new(starts, goals, always=always)
        if ends == starts and not new:
            time.sleep(_IDLE_S)
            return offset.stored()
        released = offset.released
        if new:
            released = released | note_released_beginnings({name: extents[name] for name in new})
        return Offset({**offset.positions, **ends, **new}, skipped, released).stored()

    def _goal(self, name: str, extent: Extent) -> Tick:
        top = extent.top
        return top if self._target is None else min(top, self._target.get(name, 0))

    def _new_pubends(self, offset: Offset, extents: dict[str, Extent]) -> dict[str, Tick]:
        """Return the start positions of pubends that the offset does not contain.

        From the next offset on they belong to the query, with everything in their logs. Their start
        is in the checkpoint before anything of them is read, so it does not change.
        """
        unknown = [name for name in extents if name not in offset.positions]
        if self._target is not None:
            unknown = [name for name in unknown if name in self._target]
        return {name: extents[name].released for name in unknown}

    @sentence_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a micro-batch for tasks."""
        network, lookahead = self._overlay()
        starts, ends = Offset.of(start).positions, Offset.of(end).positions
        for name in starts.keys() & ends.keys():
            if starts[name] < ends[name]:
                first = min(lookahead.seen(name, starts[name]), ends[name])
                extent = network.extent(name, self._options.filter)
                starts[name] = check_released(
                    name, first, extent, ends[name], self._options.on_release
                )
        return [
            LogPartition(each)
            for each in ranges(network, starts, ends, self._options.partition_bytes)
        ]

    @sentence_first
    def commit(self, end: dict[str, Any]) -> None:
        """Release the logs up to this position, which the query has processed."""
        self._overlay()
        if self._durable_reader is not None:
            self._durable_reader.commit(Offset.of(end).positions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in a task."""
        return read_part(partition, self._columns, self._options.filter, self._options)


class RefusedStreamReader(DataSourceStreamReader):
    """In place of a reader whose options are wrong: its methods raise the error.

    If Spark gets no reader, it reports that it cannot stop one, and not the error.
    """

    def __init__(self, error: GaplessError) -> None:
        self._error = error

    @sentence_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error, for a query without a checkpoint."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return any limit: an error here would not be shown."""
        return ReadAllAvailable()

    @sentence_first
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Raise the error, for a query with a checkpoint."""
        del start, limit
        raise self._error

    @sentence_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error, for a query that repeats its last batch."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        del partition
        raise self._error
