"""Events become rows with the values of their attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gapless.content.values import Value
from gapless.messages.streams import Publication
from gapless.packed.pick import pack
from gapless.packed.scan import COMPILED, fallback
from gapless.spark import batches
from gapless.spark.batches import BATCH_BYTES, ArrowBatches
from gapless.spark.columns import STANDARD, AttributeColumn, ColumnType

ALL = [AttributeColumn(name, kind) for name, kind in STANDARD.items()]
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5)
)


def table(events: list[Publication], columns: list[AttributeColumn]) -> pa.Table:
    """Return the rows of events; the compiled column scan and its fallback give the same."""
    found = pa.Table.from_batches(ArrowBatches(columns).of("quotes", [[pack(events)]]))
    found.validate(full=True)
    if COMPILED is not None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(batches, "ColumnScan", fallback.ColumnScan)
            assert found.equals(
                pa.Table.from_batches(ArrowBatches(columns).of("quotes", [[pack(events)]]))
            )
    return found


def events_of(attributes: list[dict[str, Any]]) -> list[Publication]:
    return [
        Publication(1_000 + n, "desk", n + 1, each, b"\0" * n) for n, each in enumerate(attributes)
    ]


def test_every_row_has_the_columns_of_every_event() -> None:
    rows = table(events_of([{"a": 1}, {}]), ALL).to_pylist()
    assert [row["tick"] for row in rows] == [1_000, 1_001]
    assert [row["timestamp"].timestamp() for row in rows] == [0.001, 0.001001]
    assert [row["sequence"] for row in rows] == [1, 2]
    assert [row["payload"] for row in rows] == [b"", b"\0"]
    assert [row["attributes"] for row in rows] == ['{"a":1}', "{}"]
    assert {(row["pubend"], row["publisher"]) for row in rows} == {("quotes", "desk")}


@given(st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), min_size=1, max_size=8))
def test_attributes_survive_their_json(attributes: list[dict[str, Value]]) -> None:
    texts = table(events_of(attributes), ALL)["attributes"].to_pylist()
    back = [json.loads(each) for each in texts]
    assert repr(back) == repr(attributes)


def test_a_number_that_is_not_finite_is_still_a_number() -> None:
    events = events_of([{"a": float("nan"), "b": float("-inf"), "c": "null", "d": 1e300}])
    (text,) = table(events, ALL)["attributes"].to_pylist()
    assert text == '{"a":NaN,"b":-Infinity,"c":"null","d":1e300}'


@given(st.lists(st.dictionaries(st.just("x"), VALUES), min_size=1, max_size=5))
def test_a_column_has_the_values_of_its_type_and_null_otherwise(
    attributes: list[dict[str, Value]],
) -> None:
    def found(kind: ColumnType) -> list[Any]:
        return list(table(events_of(attributes), [AttributeColumn("x", kind)])["x"].to_pylist())

    for place, each in enumerate(attributes):
        x = each.get("x")
        is_number = isinstance(x, int | float) and not isinstance(x, bool) and x == x
        assert found(ColumnType.STRING)[place] == (x if isinstance(x, str) else None)
        assert found(ColumnType.BOOLEAN)[place] is (x if isinstance(x, bool) else None)
        assert found(ColumnType.DOUBLE)[place] == (
            float(x) if is_number and x is not None else None
        )
        whole = found(ColumnType.BIGINT)[place]
        assert whole == x if isinstance(x, int) and not isinstance(x, bool) else whole in {None, x}


def test_columns_of_attributes_and_of_every_event_are_combined() -> None:
    events = events_of([{"x": 1}, {"x": 2.0}, {"x": 2.5}, {"y": 1}, {"x": "1"}, {"x": True}])
    columns = [
        AttributeColumn("x", ColumnType.BIGINT),
        AttributeColumn("y", ColumnType.DOUBLE),
        AttributeColumn("tick", ColumnType.BIGINT),
    ]
    rows = table(events, columns).to_pylist()
    assert [row["x"] for row in rows] == [1, 2, None, None, None, None]
    assert [row["y"] for row in rows] == [None, None, None, 1.0, None, None]
    assert [row["tick"] for row in rows] == list(range(1_000, 1_006))


def test_small_replies_share_a_batch_and_large_ones_do_not_wait() -> None:
    reply = [pack(events_of([{"x": "x" * (BATCH_BYTES // 40)}] * 10))]
    sizes = [len(each) for each in ArrowBatches(ALL).of("quotes", [reply] * 9)]
    assert sizes == [40, 40, 10]
