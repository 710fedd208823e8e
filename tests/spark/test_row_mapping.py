"""The mapping of rows to events: columns, types and errors, without a running Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gapless.core.errors import UsageError
from gapless.spark.row_mapping import events_of, shape_of
from gapless.spark.sink_options import SinkOptions, parse_sink_options

HERE = SinkOptions(servers=("gapless://here",), pubend="here")
ANYWHERE = SinkOptions(servers=("gapless://here",))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def shaped(
    options: SinkOptions, types: StructType, *rows: dict[str, Any]
) -> dict[str, list[tuple[dict[str, Any], bytes]]]:
    """Return the events of rows, by pubend."""
    shape = shape_of(types, options)
    return dict(events_of(shape, pa.RecordBatch.from_pylist([*rows])))


def test_columns_are_attributes_and_null_is_omitted() -> None:
    types = schema(a=StringType(), b=LongType(), c=DoubleType(), d=BooleanType())
    found = shaped(
        HERE, types, {"a": "x", "b": 1, "c": 1.5, "d": True}, dict.fromkeys("abcd", None)
    )
    assert found == {"here": [({"a": "x", "b": 1, "c": 1.5, "d": True}, b""), ({}, b"")]}
    assert [type(each) for each in found["here"][0][0].values()] == [str, int, float, bool]


def test_a_payload_is_bytes_or_text() -> None:
    assert shaped(HERE, schema(payload=BinaryType()), {"payload": b"x"}) == {"here": [({}, b"x")]}
    found = shaped(HERE, schema(payload=StringType()), {"payload": "é"}, {"payload": None})
    assert found == {"here": [({}, "é".encode()), ({}, b"")]}


def test_attributes_may_be_json() -> None:
    found = shaped(
        HERE,
        schema(attributes=StringType(), n=LongType()),
        {"attributes": '{"a": 1, "b": null, "n": 2}', "n": 3},
        {"attributes": None, "n": 4},
    )
    assert found == {"here": [({"a": 1, "n": 3}, b""), ({"n": 4}, b"")]}


def test_a_map_is_attributes_and_columns_override_it() -> None:
    types = schema(attributes=MapType(StringType(), LongType()), n=LongType())
    batch = pa.record_batch(
        {
            "attributes": pa.array([[("a", 1), ("n", 2)], None], pa.map_(pa.string(), pa.int64())),
            "n": pa.array([3, None], pa.int64()),
        }
    )
    assert dict(events_of(shape_of(types, HERE), batch)) == {
        "here": [({"a": 1, "n": 3}, b""), ({}, b"")]
    }


def test_the_source_columns_of_a_row_are_not_written() -> None:
    types = schema(
        pubend=StringType(),
        tick=LongType(),
        timestamp=TimestampType(),
        publisher=StringType(),
        sequence=LongType(),
        attributes=StringType(),
        payload=BinaryType(),
        n=LongType(),
    )
    assert shape_of(types, HERE).columns == ("n",)
    assert shape_of(types, ANYWHERE).columns == ("n",)


def test_a_source_column_without_the_other_source_columns_is_an_attribute() -> None:
    types = schema(tick=LongType(), pubend=StringType())
    assert shape_of(types, HERE).columns == ("tick", "pubend")
    assert shape_of(types, ANYWHERE).columns == ("tick",)


def test_the_pubend_column_selects_the_pubend_of_a_row() -> None:
    types = schema(pubend=StringType(), n=LongType())
    rows = [{"pubend": "ab"[n % 2], "n": n} for n in range(4)]
    found = shaped(ANYWHERE, types, *rows)
    assert {name: [row["n"] for row, _ in events] for name, events in found.items()} == {
        "a": [0, 2],
        "b": [1, 3],
    }
    with pytest.raises(UsageError, match="column 'pubend' is NULL or empty"):
        shaped(ANYWHERE, types, {"pubend": "", "n": 1})


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        (schema(day=TimestampType()), "column 'day' is TIMESTAMP: an attribute is STRING"),
        (schema(list=ArrayType(IntegerType())), "column 'list' is ARRAY<INT>"),
        (schema(raw=BinaryType()), "column 'raw' is BINARY"),
        (schema(price=DecimalType(9, 2)), r"column 'price' is DECIMAL\(9,2\)"),
        (schema(payload=LongType()), "column 'payload' is BIGINT: a payload is BINARY or STRING"),
        (schema(attributes=LongType()), "column 'attributes' is BIGINT"),
        (schema(attributes=MapType(StringType(), BinaryType())), "column 'attributes' is MAP"),
        (
            StructType([StructField("n", LongType()), StructField("n", LongType())]),
            "two columns have the same name",
        ),
    ],
)
def test_an_unsupported_type_is_refused_with_its_column(types: StructType, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        shape_of(types, HERE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "is not a JSON object"),
        ("{", "is not JSON"),
        ('{"a": [1]}', "'a' is not a single value"),
    ],
)
def test_invalid_json_attributes_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        shaped(HERE, schema(attributes=StringType()), {"attributes": text})


def test_a_write_without_a_pubend_is_refused() -> None:
    with pytest.raises(UsageError, match="no pubend"):
        shape_of(schema(n=LongType()), ANYWHERE)
    with pytest.raises(UsageError, match="column 'pubend' is BIGINT"):
        shape_of(schema(pubend=LongType()), ANYWHERE)


def test_listed_columns_are_attributes_and_no_others() -> None:
    types = schema(n=LongType(), secret=LongType(), attributes=StringType())
    listed = SinkOptions(servers=("gapless://here",), pubend="here", attributes=("n",))
    assert shape_of(types, listed) == shape_of(schema(n=LongType()), HERE)
    missing = SinkOptions(servers=("gapless://here",), pubend="here", attributes=("m",))
    with pytest.raises(UsageError, match="there is no column 'm'; there are n, secret"):
        shape_of(types, missing)


# --- options -----------------------------------------------------------------------------------------


def test_options_of_a_write_ignore_case_and_options_of_spark() -> None:
    given = {"SERVERS": "h:7400", "Pubend": "p", "checkpointLocation": "/x", "Deadline": "5"}
    found = parse_sink_options(given)
    assert (found.servers, found.pubend, found.deadline_s) == (("gapless://h:7400",), "p", 5.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "option servers is missing"),
        ({"servers": "h", "Tokens": "x"}, "no option 'Tokens': brokers authenticate users"),
        ({"servers": "h", "attribute": "n"}, "there is no option 'attribute' of a write"),
        ({"servers": "h", "filter": "n > 1"}, "there is no option 'filter' of a write"),
        ({"servers": "h", "path": "x"}, "has no path"),
        ({"servers": "h", "pubends": "x"}, "name one with the option pubend"),
        ({"servers": "h", "pubend": ""}, "option pubend"),
        ({"servers": "h", "pubend": "a\nb"}, "option pubend: pubend has the control character"),
        ({"servers": "h", "writer": "a\nb"}, "option writer: writer has the control character"),
        ({"servers": "h", "writer": "w", "batch": str(2**62)}, "is not a number of at least 0"),
        ({"servers": "h", "writer": "w", "batch": "9" * 5_000}, "is not a number of at least 0"),
        ({"servers": "h", "batch": "1"}, "option batch needs the option writer"),
        ({"servers": "h", "writer": "w", "batch": "x"}, "'x' is not a number"),
        ({"servers": "h", "writer": ""}, "a writer has a name"),
        ({"servers": "h", "advertisement": "n >"}, "option advertisement"),
    ],
)
def test_an_invalid_option_is_named_with_the_valid_values(
    options: dict[str, str], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_sink_options(options)
