"""Batches: the rows are the published events between two positions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual
from pyspark.sql.datasource import Filter as Predicate
from pyspark.sql.functions import col, lit

from gapless.core.parameters import Parameters
from gapless.packed.pick import unpack
from gapless.spark import reading
from gapless.spark.batch import LogPartition
from gapless.spark.read_connection import ReadConnection, UncopiedReadPart
from gapless.spark.source import GaplessSource
from gapless.testing import SyncOverlay
from tests.spark.rows import COLUMNS, Stream, event, numbers, until


@pytest.fixture(scope="module")
def filled(spark: SparkSession) -> Iterator[Stream]:
    """Return a line of two brokers with a pubend at each; these tests only read them."""
    with (
        SyncOverlay("line:2") as overlay,
        Stream(spark, overlay) as made,
        Stream(spark, overlay, "b2") as other,
    ):
        made.publish(range(300))
        other.publish(range(1_000, 1_100), "orders")
        both = overlay.url("b1", "b2")
        made.servers = both
        until(lambda: knows_both(both), "both pubends are known at the first broker")
        yield made


def knows_both(servers: str) -> bool:
    from gapless.spark.network import OverlayClient

    network = OverlayClient(tuple(f"gapless://{each}" for each in servers[10:].split(",")), 10.0)
    try:
        return len(network.pubends()) == 2
    finally:
        network.close()


def test_a_row_is_an_event(filled: Stream) -> None:
    row = filled.load(pubends="quotes").where("n = 7").collect()[0]
    assert json.loads(row.attributes) == event(7)[0]
    assert bytes(row.payload) == event(7)[1]
    assert (row.pubend, row.symbol, row.price, row.sequence) == ("quotes", "S7", 3.5, 8)
    published = next(filled.session.read("quotes", filter="n = 7"))
    assert (row.tick, row.publisher) == (published.tick, published.publisher)
    start_time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row.tick)
    assert row.timestamp == start_time.replace(tzinfo=None)


def test_all_pubends_of_the_overlay_are_read_by_default(filled: Stream) -> None:
    assert numbers(filled.load()) == [*range(300), *range(1_000, 1_100)]


def test_pubends_can_be_chosen(filled: Stream) -> None:
    assert numbers(filled.load(pubends="orders")) == list(range(1_000, 1_100))


def test_a_filter_is_evaluated_at_the_brokers(filled: Stream) -> None:
    assert numbers(filled.load(filter="symbol = 'IBM' AND n < 50")) == [0, 10, 20, 30, 40]


def test_a_pubend_is_read_from_its_own_broker(filled: Stream) -> None:
    source = GaplessSource({"servers": filled.servers})
    parts = source.reader(source.schema()).partitions()
    where = {each.part.pubend: each.part.where for each in parts}  # type: ignore[attr-defined]
    first, second = filled.overlay.url("b1"), filled.overlay.url("b2")
    # the other server only knows the route
    assert where == {"quotes": (first, second), "orders": (second, first)}


def test_a_pubend_whose_broker_is_no_server_is_read_through_another(filled: Stream) -> None:
    servers = filled.overlay.url("b1")
    assert numbers(filled.load(servers=servers, pubends="orders")) == list(range(1_000, 1_100))


class Tap(ReadConnection):
    """A connection of a task that records what it receives."""

    came: ClassVar[list[UncopiedReadPart]] = []

    def answer(self) -> UncopiedReadPart:
        self.came.append(super().answer())
        return self.came[-1]

    @classmethod
    def events(cls) -> int:
        """Return the number of received events, used or not."""
        return sum(len(unpack(each.rows)) + len(each.publications) for each in cls.came)


def test_events_that_do_not_match_are_not_sent(
    filled: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tap, "came", [])
    monkeypatch.setattr(reading, "ReadConnection", Tap)
    options = {"servers": filled.servers, "columns": COLUMNS, "pubends": "quotes"}
    source = GaplessSource({**options, "pushDown": "true"})
    reader = source.reader(source.schema())
    pushed: list[Predicate] = [EqualTo(("symbol",), "IBM")]
    assert list(reader.pushFilters(pushed)) == []
    rows = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert (sum(rows), Tap.events()) == (30, 30)


def test_a_busy_pubend_is_read_in_parallel(stream: Stream) -> None:
    stream.publish_all([({"n": n}, b"x" * 2_000) for n in range(1_000)])
    frame = stream.load(partitionBytes=400_000)
    # divided by an estimate: the density of events depends on how fast they were published
    assert 3 <= frame.rdd.getNumPartitions() <= 100
    assert numbers(frame) == list(range(1_000))


def test_a_batch_is_between_two_positions_and_repeatable(filled: Stream) -> None:
    ticks = [each.tick for each in filled.session.read("quotes")]
    start, end = json.dumps({"quotes": ticks[99]}), json.dumps({"quotes": ticks[199]})
    frames = [filled.load(pubends="quotes", start=start, end=end) for _ in range(2)]
    found = [sorted(frame.collect()) for frame in frames]
    assert found[0] == found[1]
    assert [row.n for row in found[0]] == list(range(100, 200))


def test_a_pubend_that_the_end_does_not_name_is_not_read(filled: Stream) -> None:
    ticks = [each.tick for each in filled.session.read("quotes")]
    assert numbers(filled.load(end=f"quotes:{ticks[4]}")) == [0, 1, 2, 3, 4]


def test_a_batch_can_start_and_end_at_a_time(filled: Stream) -> None:
    ticks = [each.tick for each in filled.session.read("quotes")]
    start_time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=ticks[150])
    later = filled.load(pubends="quotes", start=start_time.isoformat())
    earlier = filled.load(pubends="quotes", end=start_time.isoformat())
    assert numbers(later) == list(range(150, 300))
    assert numbers(earlier) == list(range(150))


def test_a_batch_from_latest_is_empty(filled: Stream) -> None:
    assert filled.load(start="latest").count() == 0


def test_predicates_on_pubend_and_tick_narrow_the_read(filled: Stream) -> None:
    ticks = [each.tick for each in filled.session.read("quotes")]
    source = GaplessSource({"servers": filled.servers, "columns": COLUMNS, "pushDown": "true"})
    reader = source.reader(source.schema())
    pushed: list[Predicate] = [
        EqualTo(("pubend",), "quotes"),
        GreaterThan(("tick",), ticks[9]),
        LessThanOrEqual(("tick",), ticks[12]),
    ]
    reader.pushFilters(pushed)
    (part,) = reader.partitions()
    assert isinstance(part, LogPartition)
    assert (part.part.pubend, part.part.low, part.part.high) == ("quotes", ticks[9] + 1, ticks[12])
    assert [n for batch in reader.read(part) for n in batch["n"].to_pylist()] == [10, 11, 12]


def test_a_timestamp_is_its_tick_in_every_time_zone(filled: Stream) -> None:
    ticks = [each.tick for each in filled.session.read("quotes")]
    start_time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=ticks[150])
    with settings(
        filled.spark,
        {
            "spark.sql.session.timeZone": "Asia/Tokyo",
            "spark.sql.python.filterPushdown.enabled": "true",
        },
    ):
        rows = filled.load(pubends="quotes").selectExpr(
            "unix_micros(timestamp)", "string(timestamp)"
        )
        found = sorted(tuple(row) for row in rows.collect())
        late = filled.load(pubends="quotes", pushDown="true").where(
            col("timestamp") >= lit(start_time)
        )
        output = numbers(late)
    assert [tick for tick, _ in found] == ticks
    there = start_time.astimezone(timezone(timedelta(hours=9))).replace(tzinfo=None)
    assert datetime.fromisoformat(found[150][1]) == there
    assert output == list(range(150, 300))


@contextmanager
def settings(spark: SparkSession, chosen: dict[str, str]) -> Iterator[None]:
    """Change the settings of a session inside the block."""
    before = {name: spark.conf.get(name, None) for name in chosen}
    try:
        for name, value in chosen.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def test_a_schema_of_the_user_has_only_its_columns(filled: Stream) -> None:
    reader = filled.spark.read.format("gapless").option("servers", filled.servers)
    frame = reader.schema("n LONG, tick LONG, missing STRING").load()
    assert frame.columns == ["n", "tick", "missing"]
    assert frame.where("n < 3 AND missing IS NULL").count() == 3


def test_sql_reads_the_source_without_registration(filled: Stream) -> None:
    filled.spark.sql(
        f"CREATE TEMPORARY VIEW quotes USING gapless OPTIONS (servers '{filled.servers}', "
        "columns 'n LONG', pubends 'quotes')"
    )
    try:
        assert filled.spark.sql("SELECT max(n) FROM quotes").collect()[0][0] == 299
    finally:
        filled.spark.catalog.dropTempView("quotes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filters": "x"}, "there is no option 'filters'; there are columns"),
        ({"user": "x"}, "there is no option 'user': brokers authenticate users"),
        ({"filter": "price >"}, "option filter: expected a value after '>'"),
        ({"columns": "price DECIMAL"}, "option columns: 'price' cannot be 'DECIMAL'"),
        ({"pubends": "nothing"}, "there is no log of nothing; the overlay has orders, quotes"),
        ({"start": '{"trades": 5}'}, "a position names trades, but the query reads orders"),
        ({"end": f'{{"quotes": {2**61}}}'}, "option end: 23058430092136939.. is ahead of quotes"),
        (
            {"end": "2999-01-01T00:00:00Z"},
            "option end: 2999-01-01T00:00:00.00:00 is ahead of orders",
        ),
        ({"columns": "Tick LONG"}, "every row has a column 'tick' already"),
        ({"reader": "desk"}, "option reader is for streaming"),
        (
            {"servers": "gapless://127.0.0.1:1", "deadline": "0.5"},
            "no handshake with a broker within 0.5 s",
        ),
    ],
)
def test_an_error_of_the_user_is_readable(
    filled: Stream, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        filled.load(**options).count()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("tick STRING", "column 'tick' is BIGINT, not STRING"),
        ("price DECIMAL(5,2)", r"column 'price' cannot be DECIMAL\(5,2\); an attribute is STRING"),
        ("at TIMESTAMP", "column 'at' cannot be TIMESTAMP"),
    ],
)
def test_an_invalid_schema_is_refused(filled: Stream, schema: str, message: str) -> None:
    reader = filled.spark.read.format("gapless").option("servers", filled.servers)
    with pytest.raises(PySparkException, match=message):
        reader.schema(schema).load().count()


# --- released ticks ------------------------------------------------------------------------------------

BRIEF = Parameters(retention_s=1, aet_ms=500)


def released(stream: Stream) -> int:
    """Publish, wait until that is released, publish more that is retained; return the last released tick."""
    stream.publish(range(50))
    until(
        lambda: released_up_to(stream) > 0 and not list(stream.session.read("quotes")),
        "it is released",
    )
    with stream.session.subscribe("TRUE", durable="keeper"):
        pass  # otherwise the rest might be released while Spark plans
    stream.publish(range(50, 60))
    return released_up_to(stream)


def released_up_to(stream: Stream) -> int:
    from gapless.spark.network import OverlayClient

    network = OverlayClient((stream.servers,), 10.0)
    try:
        return network.extent("quotes", "TRUE").released
    finally:
        network.close()


def test_released_ticks_are_an_error_or_skipped_by_option(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        start_time = datetime.now(UTC)
        released(stream)
        tick = round(start_time.timestamp() * 1_000_000)
        # the same start, as a tick and as a time
        for start in (f'{{"quotes": {tick - 1}}}', start_time.isoformat()):
            reason = f"the log of quotes no longer has the ticks from {tick} to"
            with pytest.raises(PySparkException, match=reason):
                stream.load(start=start).count()
            assert numbers(stream.load(start=start, onRelease="skip")) == list(range(50, 60))
        assert numbers(stream.load(start="earliest")) == list(range(50, 60))
        source = GaplessSource({"servers": stream.servers, "start": "earliest"})
        source.reader(source.schema()).partitions()
        assert caplog.messages[-1].startswith(
            f"quotes: its beginning is released, so the read starts after the tick "
            f"{released_up_to(stream)} (20"
        )
        source = GaplessSource(
            {"servers": stream.servers, "start": start_time.isoformat(), "onRelease": "skip"}
        )
        skipped = released_up_to(stream) - tick + 1
        source.reader(source.schema()).partitions()
        assert caplog.messages[-1] == (
            f"this batch skips {skipped} released ticks: quotes {skipped}"
        )
