"""A pushed predicate means the same at the brokers, or Spark evaluates it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.datasource import (
    Filter as Predicate,
)

from gapless.content.filter import Filter
from gapless.messages.streams import Publication
from gapless.packed.pick import pack
from gapless.spark.batches import ArrowBatches
from gapless.spark.columns import AttributeColumn, ColumnType
from gapless.spark.pushing import push
from gapless.spark.session import PUSH_DOWN
from tests.spark.rows import Stream, event, numbers

KINDS = {
    "s": ColumnType.STRING,
    "i": ColumnType.BIGINT,
    "d": ColumnType.DOUBLE,
    "b": ColumnType.BOOLEAN,
}
COLUMNS = [AttributeColumn(name, kind) for name, kind in KINDS.items()]

TEXTS = st.sampled_from(["", "a", "ab", "b", "10%", "a_c", "é", "!", "'"])
INTS = st.sampled_from([-1, 0, 1, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
FLOATS = st.sampled_from([-0.0, 0.5, 1.0, 5.0, 2.0**53, 1e300, float("inf"), float("nan")])
VALUES = st.one_of(TEXTS, INTS, FLOATS, st.booleans())
EVENTS = st.fixed_dictionaries({}, optional=dict.fromkeys(KINDS, VALUES))

COMPARED = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "s": TEXTS,
    "i": INTS,
    "d": FLOATS,
    "b": st.booleans(),
}


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(KINDS)))
    literal = LITERALS[name]
    options = [
        st.builds(lambda kind, value: kind((name,), value), st.sampled_from(COMPARED), literal),
        st.lists(st.one_of(literal, st.none()), max_size=3).map(
            lambda each: In((name,), tuple(each))
        ),
        st.sampled_from([IsNull((name,)), IsNotNull((name,))]),
    ]
    if name == "s":
        kinds = st.sampled_from([StringStartsWith, StringEndsWith, StringContains])
        options.append(st.builds(lambda kind, value: kind((name,), value), kinds, TEXTS))
    made = draw(st.one_of(options))
    return Not(made) if draw(st.booleans()) else made


def expected_value(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """Return what Spark finds for a row: true, false or NULL. For Spark NaN equals itself and is above all
    numbers; there is no NaN in a column, only in literals.
    """
    if isinstance(predicate, Not):
        found = expected_value(predicate.child, row)
        return None if found is None else not found
    value = row[predicate.attribute[0]]  # type: ignore[attr-defined]
    match predicate:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe():
            return bool(value is not None and _order(value) == _order(predicate.value))
    if value is None:
        return None
    match predicate:
        case In():
            if any(_order(value) == _order(each) for each in predicate.value if each is not None):
                return True
            return None if None in predicate.value else False
        case StringStartsWith():
            return bool(value.startswith(predicate.value))
        case StringEndsWith():
            return bool(value.endswith(predicate.value))
        case StringContains():
            return predicate.value in value
    left, right = _order(value), _order(predicate.value)  # type: ignore[attr-defined]
    match predicate:
        case EqualTo():
            return bool(left == right)
        case GreaterThan():
            return bool(left > right)
        case GreaterThanOrEqual():
            return bool(left >= right)
        case LessThan():
            return bool(left < right)
    return bool(left <= right)


def _order(value: Any) -> Any:
    return (1, 0) if isinstance(value, float) and value != value else (0, value)


def row_of(attributes: dict[str, Any]) -> dict[str, Any]:
    publication = Publication(1, "p", 1, attributes, b"")
    (batch,) = ArrowBatches(COLUMNS).of("quotes", [[pack([publication])]])
    assert isinstance(batch, pa.RecordBatch)
    return dict(batch.to_pylist()[0])


@given(EVENTS, st.lists(predicates(), min_size=1, max_size=3))
def test_pushing_loses_no_row_and_pushed_predicates_are_exact(
    attributes: dict[str, Any], given_predicates: list[Predicate]
) -> None:
    pushed = push(Filter(""), given_predicates, KINDS)
    row = row_of(attributes)
    wanted = all(expected_value(each, row) is True for each in given_predicates)
    matches = Filter(str(pushed.filter)).matches(attributes)
    assert (matches and all(expected_value(each, row) is True for each in pushed.rest)) == wanted


def test_predicates_on_declared_columns_are_pushed() -> None:
    given_predicates: list[Predicate] = [EqualTo(("s",), "IBM"), GreaterThan(("d",), 90.0)]
    pushed = push(Filter("n > 1"), given_predicates, KINDS)
    assert pushed.filter == Filter("n > 1 AND s = 'IBM' AND d > 90")
    assert pushed.rest == []


def test_special_characters_of_patterns_are_escaped() -> None:
    pushed = push(Filter(""), [StringContains(("s",), "10%_!")], KINDS)
    assert pushed.filter.matches({"s": "a 10%_! b"})
    assert not pushed.filter.matches({"s": "a 10xx! b"})


def test_a_list_that_is_too_long_is_left_to_spark() -> None:
    predicate = In(("i",), tuple(range(5_000)))
    assert push(Filter(""), [predicate], KINDS).rest == [predicate]


def test_predicates_on_pubend_and_tick_bound_the_read() -> None:
    given_predicates: list[Predicate] = [
        EqualTo(("pubend",), "quotes"),
        In(("pubend",), ("quotes", "orders")),
        GreaterThan(("tick",), 100),
        LessThan(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ]
    pushed = push(Filter(""), given_predicates, KINDS)
    assert (pushed.bounds.pubends, pushed.bounds.low, pushed.bounds.high) == (
        {"quotes"},
        101,
        999_999,
    )
    assert pushed.rest == given_predicates


# --- with a real Spark ---------------------------------------------------------------------------------

ODD: list[dict[str, Any]] = [
    {"n": 0},
    {"n": 1, "s": "IBM", "i": 5, "d": 5, "b": True},
    {"n": 2, "s": 5, "i": "5", "d": "5", "b": 1},
    {"n": 3, "s": "", "i": 5.0, "d": 5.0, "b": False},
    {"n": 4, "s": "é%_!", "i": 5.5, "d": float("nan")},
    {"n": 5, "s": "IBM ", "i": 2**53 + 1, "d": 2**53 + 1},
    {"n": 6, "i": -(2**63), "d": float("inf")},
    {"n": 7, "s": "zzz", "i": 1e300, "d": -0.0},
]
CONDITIONS = [
    "s = 'IBM'",
    "s <> 'IBM'",
    "NOT (s = 'IBM')",
    "s IS NULL",
    "s IS NOT NULL",
    "s IN ('IBM', '', NULL)",
    "NOT (s IN ('IBM', ''))",
    "s > 'IBM'",
    "s LIKE '%!'",
    "s LIKE 'IBM%'",
    "contains(s, '%_')",
    "i = 5",
    "i <> 5",
    "i > 4",
    "i <= 5",
    "i <=> 5",
    "NOT (i <=> 5)",
    "i IS NULL",
    "i >= 9007199254740993",
    "d = 5",
    "d <> 5",
    "d > 4.5",
    "d >= 0",
    "d = 0",
    "d >= 9007199254740992D",
    "d IS NULL",
    "d <=> NULL",
    "b",
    "NOT b",
    "b = false",
    "b IS NOT NULL",
    "s = 'IBM' AND d > 1 AND i < 9",
    "s = 'IBM' OR i = 5",
]


@contextmanager
def switched(spark: SparkSession, switch: str = "true") -> Iterator[None]:
    """Switch the push-down of a session."""
    spark.conf.set(PUSH_DOWN, switch)
    try:
        yield
    finally:
        spark.conf.unset(PUSH_DOWN)


def test_push_down_changes_no_result(stream: Stream) -> None:
    stream.publish_all((each, b"") for each in ODD)
    reader = stream.spark.read.format("gapless").option("servers", stream.servers)
    reader = reader.option("pushDown", "true").schema(
        "n LONG, s STRING, i LONG, d DOUBLE, b BOOLEAN"
    )
    judged = reader.load().selectExpr("n", *CONDITIONS).collect()
    query = reduce(
        DataFrame.union,
        (
            reader.load().where(each).selectExpr("n", f"{place} AS place")
            for place, each in enumerate(CONDITIONS)
        ),
    )
    with switched(stream.spark):
        pushed = query.collect()
    for place, condition in enumerate(CONDITIONS):
        expected = sorted(row[0] for row in judged if row[place + 1] is True)
        assert sorted(row.n for row in pushed if row.place == place) == expected, condition


def test_pushed_predicates_are_not_evaluated_again_by_spark(stream: Stream) -> None:
    stream.publish(range(100))
    query = stream.load(pushDown="true").where("symbol = 'IBM' AND price > 10")
    with switched(stream.spark):
        plan = query._jdf.queryExecution().executedPlan().toString()
        found = numbers(query)
    assert "isnotnull(symbol" in plan
    assert "IBM" not in plan
    assert found == [30, 40, 50, 60, 70, 80, 90]


@pytest.mark.parametrize("switch", ["true", "false"])
def test_a_query_runs_whether_or_not_push_down_is_switched_on(stream: Stream, switch: str) -> None:
    stream.publish(range(20))
    with switched(stream.spark, switch):
        for push_down in ("true", "false"):
            assert numbers(stream.load(pushDown=push_down).where("symbol = 'IBM'")) == [0, 10]
            assert numbers(stream.load(pushDown=push_down)) == list(range(20))


@pytest.mark.parametrize("switch", ["true", "false"])
def test_a_frame_may_be_used_repeatedly_and_twice_in_a_query(stream: Stream, switch: str) -> None:
    stream.publish(range(20))
    with switched(stream.spark, switch):
        frame = stream.load()
        assert numbers(frame.where("symbol = 'IBM'")) == [0, 10]
        assert numbers(frame) == list(range(20))
        both = frame.where("symbol = 'S1'").union(frame.where("symbol = 'S2'"))
        assert numbers(both) == [1, 2, 11, 12]


def test_a_frame_has_the_same_rows_in_all_queries(stream: Stream) -> None:
    stream.publish(range(20))
    frame = stream.load()
    assert numbers(frame) == list(range(20))
    stream.publish(range(20, 30))
    assert numbers(frame.where("n >= 15")) == list(range(15, 20))
    assert numbers(stream.load().where("n >= 15")) == list(range(15, 30))


def test_the_events_of_the_tests_have_the_expected_attributes() -> None:
    assert event(10)[0] == {"symbol": "IBM", "price": 5.0, "n": 10}
