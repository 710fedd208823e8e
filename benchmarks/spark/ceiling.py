"""A source that does no work: it yields the same batch again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gapless.content.values import Value
from gapless.messages.streams import Publication
from gapless.packed.pick import pack
from gapless.spark.batches import ArrowBatches
from gapless.spark.source import GaplessSource, columns_of

__all__ = ["CeilingSource"]

BATCH = 8_192
EVENT: dict[str, Value] = {"symbol": "S7", "price": 45.25, "size": 500, "n": 123_456}


class CeilingSource(DataSource):
    """Yields ``rows`` rows in ``parts`` partitions."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "ceiling"

    def schema(self) -> StructType:
        """Return the columns of the real source."""
        return GaplessSource({"servers": "gapless://nowhere"}).schema()

    def reader(self, schema: StructType) -> CeilingReader:
        """Return the reader of a batch query."""
        return CeilingReader(schema, int(self.options["rows"]), int(self.options["parts"]))


class CeilingReader(DataSourceReader):
    """Makes one batch and yields it as often as needed."""

    def __init__(self, schema: StructType, rows: int, parts: int) -> None:
        self._schema = schema
        self._rows = rows
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        """Return as many partitions as the real source has."""
        return [InputPartition(index) for index in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batch."""
        del partition
        event = Publication(1_700_000_000_000_000, "desk", 1, {**EVENT}, b"x" * 250)
        (batch,) = ArrowBatches(columns_of(self._schema)).of("quotes", [[pack([event] * BATCH)]])
        left = self._rows // self._parts
        while left > 0:
            yield batch.slice(0, min(left, BATCH))
            left -= BATCH
