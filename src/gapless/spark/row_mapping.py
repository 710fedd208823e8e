"""Rows to events: which columns are attributes, which is the payload, and which are not valid.

Columns of Spark have types, so nearly all faults are found before a row is read, and the message
names the column. An attribute that is NULL is omitted from an event: NULL means that in a filter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from gapless.content.values import Value
from gapless.core.errors import UsageError, shortened
from gapless.core.limits import INT_MAX, INT_MIN
from gapless.spark.columns import STANDARD
from gapless.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowMapping", "events_of", "shape_of"]

RowEvent: TypeAlias = tuple[dict[str, Value], bytes]

_VALUES: Final = (
    StringType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
)
"""The Spark types whose values an attribute can have."""

_HINT: Final = (
    "an attribute is STRING, BOOLEAN, a whole number, FLOAT or DOUBLE; cast it, or drop it"
)


class RowMapping(msgspec.Struct, frozen=True):
    """Which columns make up an event."""

    pubend: str | None
    """The pubend of all events; None: the column ``pubend``."""
    columns: tuple[str, ...]
    """The names of the columns that are attributes."""
    mapped: str | None
    """The form of the column ``attributes``, if it is used: ``map`` or ``json``."""
    has_payload: bool


def shape_of(schema: StructType, options: SinkOptions) -> RowMapping:
    """Return how rows become events; raise if a column is not valid."""
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) < len(schema.fields):
        raise UsageError("two columns have the same name; an event has each attribute only once")
    if options.pubend is None:
        _check_pubend(types)
    names = _attribute_names(types, options)
    mapped = _mapped(types["attributes"]) if "attributes" in names else None
    columns = tuple(name for name in names if name != "attributes")
    for name in columns:
        if not isinstance(types[name], _VALUES):
            shown = types[name].simpleString().upper()
            raise UsageError(f"column {name!r} is {shown}: {_HINT}")
    if "payload" in types and not isinstance(types["payload"], BinaryType | StringType):
        shown = types["payload"].simpleString().upper()
        raise UsageError(f"column 'payload' is {shown}: a payload is BINARY or STRING")
    return RowMapping(options.pubend, columns, mapped, "payload" in types)


def _check_pubend(types: dict[str, DataType]) -> None:
    if "pubend" not in types:
        raise UsageError(
            "no pubend: name the stream with the option pubend, or in each row with a column "
            "'pubend'"
        )
    if not isinstance(types["pubend"], StringType):
        shown = types["pubend"].simpleString().upper()
        raise UsageError(f"column 'pubend' is {shown}: the name of a stream is STRING")


def _attribute_names(types: dict[str, DataType], options: SinkOptions) -> list[str]:
    if options.attributes is not None:
        missing = [name for name in options.attributes if name not in types]
        if missing:
            raise UsageError(
                f"option attributes: there is no column {missing[0]!r}; there are {', '.join(types)}"
            )
        return [*options.attributes]
    aside = {"payload"}
    if options.pubend is None:
        aside.add("pubend")
    if types.keys() >= STANDARD.keys() - {"attributes", "payload"}:
        # these rows came from the source: their former positions are not attributes
        aside |= STANDARD.keys() - {"attributes"}
    return [name for name in types if name not in aside]


def _mapped(found: DataType) -> str:
    if isinstance(found, StringType):
        return "json"
    if (
        isinstance(found, MapType)
        and isinstance(found.keyType, StringType)
        and isinstance(found.valueType, _VALUES)
    ):
        return "map"
    shown = found.simpleString().upper()
    raise UsageError(
        f"column 'attributes' is {shown}: it is a MAP from STRING to values, or STRING with JSON; "
        f"{_HINT}"
    )


def events_of(shape: RowMapping, batch: pa.RecordBatch) -> Iterator[tuple[str, list[RowEvent]]]:
    """Yield the events of some rows by their pubend, each in the order of the rows."""
    count = batch.num_rows
    payloads = _payloads(batch.column("payload")) if shape.has_payload else [b""] * count
    values = [batch.column(name).to_pylist() for name in shape.columns]
    rows: Any = zip(*values, strict=True) if values else [()] * count
    names = shape.columns
    attributes: list[dict[str, Value]] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in rows
    ]
    if shape.mapped is not None:
        others = map(_READERS[shape.mapped], batch.column("attributes").to_pylist())
        attributes = [_merged(other, own) for other, own in zip(others, attributes, strict=True)]
    events = [*zip(attributes, payloads, strict=True)]
    if shape.pubend is not None:
        yield shape.pubend, events
        return
    by_pubend: dict[str, list[RowEvent]] = {}
    for pubend, event in zip(batch.column("pubend").to_pylist(), events, strict=True):
        if not pubend:
            raise UsageError(
                "column 'pubend' is NULL or empty in a row: it needs the name of a stream"
            )
        by_pubend.setdefault(pubend, []).append(event)
    yield from by_pubend.items()


def _merged(other: dict[str, Value], own: dict[str, Value]) -> dict[str, Value]:
    """Return the attributes of a row: its columns override the column ``attributes``.

    A column of the source may have the same number in another type: DOUBLE, for an integer of the
    event that no DOUBLE can represent. If the source would have made the same value of it, the
    value is unchanged, and the integer of the event is kept.
    """
    for name, value in own.items():
        known = other.get(name)
        if type(known) is type(value) or not _is_same_number(known, value):
            other[name] = value
    return other


def _is_same_number(known: Value | None, value: Value) -> bool:
    if isinstance(known, bool) or isinstance(value, bool):
        return False
    if isinstance(known, int) and isinstance(value, float):
        return INT_MIN <= known <= INT_MAX and float(known) == value
    return isinstance(known, float) and isinstance(value, int) and known == value


def _payloads(column: Any) -> list[bytes]:
    found = column.to_pylist()
    return [
        each.encode() if isinstance(each, str) else b"" if each is None else each for each in found
    ]


def _of_map(pairs: list[tuple[str, Value | None]] | None) -> dict[str, Value]:
    return {name: value for name, value in pairs or () if value is not None}


def _of_json(text: str | None) -> dict[str, Value]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"column 'attributes': {shortened(text)!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"column 'attributes': {shortened(text)!r} is not a JSON object")
    for name, value in found.items():
        if isinstance(value, list | dict):
            raise UsageError(f"column 'attributes': {name!r} is not a single value: {_HINT}")
    return {name: value for name, value in found.items() if value is not None}


_READERS: Final[dict[str, Callable[[Any], dict[str, Value]]]] = {"map": _of_map, "json": _of_json}
