"""The data source ``gapless`` for Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gapless.core.errors import GaplessError, UsageError
from gapless.spark.batch import BatchReader
from gapless.spark.columns import STANDARD, TYPES, AttributeColumn, ColumnType, check_names
from gapless.spark.options import SourceOptions, parse_options
from gapless.spark.sentences import sentence_first
from gapless.spark.sink import BatchWriter, StreamWriter, check_let_in
from gapless.spark.sink_options import SinkOptions, parse_sink_options
from gapless.spark.streaming import RefusedStreamReader, StreamReader

__all__ = ["GaplessSource"]

_TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.STRING: StringType(),
    ColumnType.BIGINT: LongType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.BINARY: BinaryType(),
}


class GaplessSource(DataSource):
    """Streams of gapless as rows: ``spark.read.format("gapless")``, and ``readStream``, ``write``
    and ``writeStream`` likewise.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @cached_property
    def _chosen(self) -> SourceOptions:
        """The options of a read; a sink has options of its own."""
        return parse_options(self._given)

    @cached_property
    def _target(self) -> SinkOptions:
        """The options of a write."""
        return parse_sink_options(self._given)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "gapless"

    @sentence_first
    def schema(self) -> StructType:
        """Return the standard columns, then the declared attributes."""
        standard = [AttributeColumn(name, kind) for name, kind in STANDARD.items()]
        fields = [*standard, *self._chosen.columns]
        return StructType([StructField(each.name, _TYPES[each.kind]) for each in fields])

    @sentence_first
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch."""
        return BatchReader(self._chosen, columns_of(schema))

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> StreamReader | RefusedStreamReader:
        """Return the reader of a stream. An error is raised by the reader's methods."""
        try:
            return StreamReader(self._chosen, columns_of(schema))
        except GaplessError as error:
            return RefusedStreamReader(error)

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch."""
        made = BatchWriter(self._target, schema, overwrite)
        check_let_in(self._target)
        return made

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        made = StreamWriter(self._target, schema, overwrite)
        check_let_in(self._target)
        return made


def columns_of(schema: StructType) -> list[AttributeColumn]:
    """Return the columns of a schema: of this source, or of the user by ``.schema(…)``."""
    kinds = {each.typeName(): kind for kind, each in _TYPES.items()}
    check_names(schema.fieldNames())
    found = []
    for field in schema.fields:
        small = field.name.lower()
        if small in STANDARD and small != field.name:
            raise UsageError(
                f"column {field.name!r} is {small!r} to Spark, which every row has: write it so; an "
                f"attribute {field.name!r} is in the column 'attributes'"
            )
        kind = kinds.get(field.dataType.typeName())
        standard = STANDARD.get(field.name)
        shown = field.dataType.simpleString().upper()
        if standard is not None and kind is not standard:
            raise UsageError(f"column {field.name!r} is {standard.value}, not {shown}")
        if kind is None or (standard is None and kind not in TYPES.values()):
            raise UsageError(
                f"column {field.name!r} cannot be {shown}; an attribute is {', '.join(TYPES)}"
            )
        found.append(AttributeColumn(field.name, kind))
    return found
