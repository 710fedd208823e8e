"""Columns of attributes: unambiguous names, and numbers that are not changed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from pyspark.sql.types import StructType

from gapless.core.errors import UsageError
from gapless.spark.columns import parse_columns
from gapless.spark.row_mapping import events_of, shape_of
from gapless.spark.sink_options import SinkOptions
from gapless.spark.source import columns_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Tick LONG",
            "every row has a column 'tick' already; an attribute 'Tick' is in the column",
        ),
        ("`PAYLOAD` STRING", "every row has a column 'payload' already"),
        ("price DOUBLE, Price DOUBLE", "'Price' and 'price' are one name for Spark"),
        ("price DOUBLE, price LONG", "'price' is declared twice"),
    ],
)
def test_names_that_spark_cannot_distinguish_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"option columns: {message}"):
        parse_columns(text)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("Tick", "column 'Tick' is 'tick' to Spark, which every row has"),
        ("price Price", "'Price' and 'price' are one name for Spark"),
        ("tick tick", "'tick' is declared twice"),
    ],
)
def test_a_schema_of_the_user_follows_the_same_rules(names: str, message: str) -> None:
    schema = StructType()
    for name in names.split():
        schema = schema.add(name, "long")
    with pytest.raises(UsageError, match=message):
        columns_of(schema)


def joined(attributes: str, **columns: Any) -> dict[str, Any]:
    """Return the attributes of the event of a row with these columns."""
    types = {float: "double", int: "long", bool: "boolean", str: "string"}
    schema = StructType().add("attributes", "string")
    for name, value in columns.items():
        schema = schema.add(name, types[type(value)])
    shape = shape_of(schema, SinkOptions(servers=("gapless://here",), pubend="here"))
    rows = pa.RecordBatch.from_pylist([{"attributes": attributes, **columns}])
    ((_, ((found, _),)),) = events_of(shape, rows)
    return found


@pytest.mark.parametrize(
    ("attributes", "value", "written"),
    [
        ('{"n": 1152921504606846977}', float(2**60), 2**60 + 1),
        ('{"n": 5}', 5.0, 5),
        ('{"n": 5.0}', 5, 5.0),
        ('{"n": 5}', 5.5, 5.5),
        ('{"n": 1152921504606846977}', 2**60, 2**60),
        ('{"n": true}', 1, 1),
        ('{"n": 1}', True, True),
        ('{"n": "5"}', 5, 5),
        (f'{{"n": {10**400}}}', 5.0, 5.0),
        ("{}", 5.0, 5.0),
    ],
)
def test_an_unchanged_column_keeps_the_number_of_the_event(
    attributes: str, value: Any, written: Any
) -> None:
    found = joined(attributes, n=value)["n"]
    assert (found, type(found)) == (written, type(written))
