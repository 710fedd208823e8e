"""The whole path: Spark writes, brokers deliver, Spark reads, archives, backtests and audits; all agree.

Two streams are at two brokers of a line of three. An ordinary publisher and Spark fill one; a query of
Spark copies part of it to the other. Subscribers are at the third broker. While Spark works, the broker in the
middle, through which everything passes, is killed and restarted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from gapless.client.event import Event
from gapless.client.sync import connect_sync
from gapless.client.sync_subscription import SyncSubscription
from gapless.content.filter import Filter
from gapless.spark.jobs import archive, audit, backtest, read_archive
from gapless.spark.jobs.auditing import AuditReport
from gapless.spark.jobs.backtesting import Backtest
from gapless.spark.jobs.filters import NamedFilter
from gapless.testing import SyncOverlay
from tests.spark.rows import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDINARY, WRITTEN = 50, 600
COLUMNS = "symbol STRING, price DOUBLE, n LONG"
COPIED = "symbol = 'IBM'"
FILTERS = {"everything": "TRUE", "ibm": "symbol = 'IBM'", "dear": "price > 250 AND symbol <> 'S3'"}

EventKey = tuple[str, int]
"""A pubend and a tick, which identify an event everywhere."""


class Found(NamedTuple):
    """What each consumer has of the same events."""

    got: dict[str, list[Event]]
    """By subscription."""
    streamed: list[EventKey]
    archived: dict[EventKey, dict[str, Any]]
    backtest: Backtest
    audit: AuditReport


class Trip:
    """The overlay and the steps of the test."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._log = directory / "audit"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        made = SyncOverlay("line:3", audit=self._log)
        self._overlay = self._stack.enter_context(made)
        self._servers = self._overlay.url("b1", "b2", "b3")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def subscribe(self) -> dict[str, SyncSubscription]:
        session = connect_sync(self._overlay.url("b3"), name="desk", audit=self._log)
        desk = self._stack.enter_context(session)
        return {
            name: self._stack.enter_context(desk.subscribe(text, durable=name, start="earliest"))
            for name, text in FILTERS.items()
        }

    def publish(self) -> None:
        url = self._overlay.url("b1")
        with (
            connect_sync(url, name="feed", audit=self._log) as session,
            session.publisher("quotes") as publisher,
        ):
            publisher.publish_many(event(n) for n in range(ORDINARY))

    def write(self, numbers: range) -> None:
        """Let Spark write some of the events, in three tasks."""
        rows = [(n, event(n)[0]["symbol"], n / 2, event(n)[1]) for n in numbers]
        schema = "n LONG, symbol STRING, price DOUBLE, payload BINARY"
        frame = self._spark.createDataFrame(rows, schema).repartition(3)
        options = {"servers": self._overlay.url("b1"), "pubend": "quotes"}
        frame.write.format("gapless").options(**options).mode("append").save()

    def kill_the_middle(self) -> None:
        self._overlay.kill("b2")
        self._overlay.restart("b2")

    def copy(self) -> None:
        """Let a query of Spark copy part of the stream to one at another broker."""
        options = {"filter": COPIED, "pubends": "quotes"}
        writer = self._reading(**options).writeStream.format("gapless")
        writer = writer.option("servers", self._overlay.url("b2")).option("pubend", "copies")
        self._run(writer, "copies")

    def stream(self) -> list[EventKey]:
        """Let Spark read both streams; return the keys of the events."""
        target = str(self._directory / "rows")
        frame = self._reading()
        self._run(frame.writeStream.format("parquet").option("path", target), "rows")
        return event_keys(self._spark.read.schema(frame.schema).parquet(target))

    def _reading(self, **options: str) -> DataFrame:
        chosen = {"servers": self._servers, "columns": COLUMNS, "start": "earliest", **options}
        return self._spark.readStream.format("gapless").options(**chosen).load()

    def _run(self, writer: Any, name: str) -> None:
        checkpoint = str(self._directory / f"{name}.checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    def archive(self) -> DataFrame:
        archive(self._spark, self._servers, self._directory / "history")
        return read_archive(self._spark, self._directory / "history")

    def audit(self) -> AuditReport:
        """Close everything, so that the logs are complete, and audit them."""
        self._stack.close()
        return audit(self._spark, [self._log])


def event_keys(frame: DataFrame) -> list[EventKey]:
    return sorted((row.pubend, row.tick) for row in frame.select("pubend", "tick").collect())


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    filters = [NamedFilter(name, Filter(text)) for name, text in FILTERS.items()]
    with Trip(spark, tmp_path_factory.mktemp("trip")) as trip:
        trip.publish()
        subscriptions = trip.subscribe()
        trip.write(range(ORDINARY, WRITTEN // 2))
        trip.kill_the_middle()
        trip.write(range(WRITTEN // 2, WRITTEN))
        trip.copy()
        streamed = trip.stream()
        history = trip.archive()
        tested = backtest(spark, history, filters)
        got = {
            name: [events.get() for _ in range(matching(name))]
            for name, events in subscriptions.items()
        }
        rows = history.select("pubend", "tick", "attributes").collect()
        archived = {(row.pubend, row.tick): json.loads(row.attributes) for row in rows}
        assert len(archived) == len(rows), "an event is in the archive twice"
        yield Found(got, streamed, archived, tested, trip.audit())


def matching(name: str) -> int:
    """Return how many of the generated events a filter matches."""
    wanted, copied = Filter(FILTERS[name]), Filter(COPIED)
    originals = [event(n)[0] for n in range(WRITTEN)]
    return sum(wanted.matches(each) * (1 + copied.matches(each)) for each in originals)


def test_every_row_that_was_written_is_in_the_archive_once(found: Found) -> None:
    numbers = {
        pubend: sorted(each["n"] for (name, _), each in found.archived.items() if name == pubend)
        for pubend in ("quotes", "copies")
    }
    assert numbers["quotes"] == [*range(WRITTEN)]
    assert numbers["copies"] == [*range(0, WRITTEN, 10)]


def test_a_stream_of_spark_has_the_events_of_the_archive(found: Found) -> None:
    assert found.streamed == sorted(found.archived)


@pytest.mark.parametrize("name", FILTERS)
def test_subscriber_backtest_and_audit_agree_to_the_event(found: Found, name: str) -> None:
    wanted = Filter(FILTERS[name])
    expected = sorted(key for key, each in found.archived.items() if wanted.matches(each))
    assert len(expected) == matching(name)
    assert sorted((str(each.run.pubend), each.tick) for each in found.got[name]) == expected
    (tested,) = [each for each in found.backtest.filters if each.name == name]
    assert tested.count == len(expected)
    (judged,) = [each for each in found.audit.rows if each.subscription == f"{name}@b3"]
    assert (judged.expected, judged.delivered, judged.in_flight) == (
        len(expected),
        len(expected),
        0,
    )
    assert judged.is_clean


def test_the_audit_counts_the_rows_of_spark_as_published(found: Found) -> None:
    assert found.audit.published == len(found.archived) == found.backtest.events
    assert (found.audit.unsure, found.audit.unlogged, found.audit.is_clean) == (0, 0, True)
