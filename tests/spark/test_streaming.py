"""Streams: every event once, from a position on, with limits, across restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from gapless.core.parameters import Parameters
from gapless.messages.reading import ReadLog
from gapless.spark.offsets import Offset
from gapless.testing import SyncOverlay
from tests.spark.rows import COLUMNS, Sink, Stream, until


def end_of(query: Any) -> Offset:
    """Return the offset at which the last batch of a query ended."""
    return Offset.of(json.loads(query.lastProgress["sources"][0]["endOffset"]))


def sizes(query: Any) -> list[int]:
    """Return the numbers of rows in the batches of a query."""
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def test_a_stream_has_the_events_published_while_it_runs(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(10))
    sink = Sink(stream.stream(start="earliest", filter="n % 2 = 0"), tmp_path)
    query = sink.start()
    try:
        until(lambda: sink.numbers() == [0, 2, 4, 6, 8], "what was there")
        stream.publish(range(10, 20))
        until(lambda: sink.numbers() == list(range(0, 20, 2)), "what came later")
    finally:
        query.stop()


def test_a_stream_starts_at_the_latest_by_default(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(10))
    sink = Sink(stream.stream(), tmp_path)
    query = sink.start()
    try:
        until(lambda: query.lastProgress is not None, "the query has begun")
        stream.publish(range(10, 15))
        until(lambda: sink.numbers() == list(range(10, 15)), "what came later")
    finally:
        query.stop()


def looks_beyond(stream: Stream, tick: int) -> list[int]:
    """Return a list that grows with every request of the driver for what follows a tick."""
    found: list[int] = []
    reads: Any = stream.overlay._overlay.node("b1").broker.components.reads
    read: Callable[[str, ReadLog], None] = reads._read

    def note(client: str, request: ReadLog) -> None:
        if request.low > tick:
            found.append(request.low)
        read(client, request)

    reads._read = note
    return found


def test_silence_makes_no_batches(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(5))
    sink = Sink(stream.stream(start="earliest", filter="n < 5"), tmp_path)
    query = sink.start()
    try:
        until(lambda: sink.numbers() == list(range(5)), "what was there")
        commits = tmp_path / "checkpoint" / "commits"
        until(lambda: any(commits.glob("[0-9]*")), "that batch is through")
        batches = len(list(commits.glob("[0-9]*")))
        looks = looks_beyond(stream, stream.publish(range(5, 30))["quotes"])
        # Spark asks for the new offset, runs a batch if it differs, and only then asks again
        until(lambda: len(looks) >= 3, "the driver has looked at all of it, and again")
        assert len(list(commits.glob("[0-9]*"))) == batches
    finally:
        query.stop()


def test_a_stream_starts_at_a_position_or_at_a_time(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(10))
    ticks = [each.tick for each in stream.session.read("quotes")]
    start_time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=ticks[4])
    position = Sink(stream.stream(start=json.dumps({"quotes": ticks[4]})), tmp_path / "position")
    time = Sink(stream.stream(start=start_time.isoformat()), tmp_path / "time")
    position.run()
    time.run()
    # a position is the last event already read; a time is the first one
    assert position.numbers() == list(range(5, 10))
    assert time.numbers() == list(range(4, 10))


def test_available_now_ends_and_the_next_run_continues(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(20))
    sink = Sink(stream.stream(start="earliest"), tmp_path)
    sink.run()
    assert sink.numbers() == list(range(20))
    stream.publish(range(20, 30))
    stream.publish(range(100, 110), "later")
    sink.run()
    assert sink.numbers() == [*range(30), *range(100, 110)]
    sink.run()
    assert sink.numbers() == [*range(30), *range(100, 110)]


def test_a_limit_applies_to_every_batch_and_is_shared_by_all_pubends(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(100))
    stream.publish(range(1_000, 1_010), "few")
    frame = stream.stream(start="earliest", maxEventsPerTrigger=30)
    sink = Sink(frame, tmp_path)
    query = sink.run()
    assert sink.numbers() == [*range(100), *range(1_000, 1_010)]
    assert max(sizes(query)) == 30
    assert sum(sizes(query)) == 110
    assert len(sizes(query)) == 4


def test_a_limit_counts_only_matching_events(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(200))
    frame = stream.stream(start="earliest", maxEventsPerTrigger=7, filter="symbol = 'IBM'")
    sink = Sink(frame, tmp_path)
    assert sizes(sink.run()) == [7, 7, 6]
    assert sink.numbers() == list(range(0, 200, 10))


def test_a_batch_is_the_same_when_it_is_read_again(stream: Stream) -> None:
    from gapless.spark.source import GaplessSource

    stream.publish(range(50))
    source = GaplessSource({"servers": stream.servers, "columns": COLUMNS, "start": "earliest"})

    def batch(start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        reader = source.streamReader(source.schema())
        parts = reader.partitions(start, end)
        rows = [row for part in parts for each in reader.read(part) for row in each.to_pylist()]
        reader.stop()
        return rows

    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.stop()
    first = batch(start, end)
    stream.publish(range(50, 60))
    assert batch(start, end) == first
    assert [row["n"] for row in first] == list(range(50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end": "latest"}, "option end is for batches.*availableNow"),
        ({"maxEventsPerTrigger": "none"}, "option maxEventsPerTrigger: 'none' is not a number"),
        ({"pubends": "nothing"}, "there is no log of nothing"),
    ],
)
def test_an_error_of_the_user_is_readable(
    stream: Stream, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        Sink(stream.stream(**options), tmp_path).run()


def test_an_error_of_the_schema_of_a_user_is_readable(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    read = spark.readStream.format("gapless").option("servers", stream.servers)
    with pytest.raises(PySparkException, match="column 'n' cannot be DATE"):
        Sink(read.schema("n DATE").load(), tmp_path).run()


# --- released and retained ticks ----------------------------------------------------------------------

BRIEF = Parameters(retention_s=1, aet_ms=500, ack_ms=100, interest_grace_s=1)


def numbers_in(stream: Stream) -> set[object]:
    """Return the numbers of the events that the log still has."""
    return {each.attributes["n"] for each in stream.session.read("quotes")}


def test_a_stream_that_is_too_late_fails_or_counts_the_skipped_ticks(
    spark: SparkSession, tmp_path: Path
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        for each in ("failing", "skipping"):
            (tmp_path / each).mkdir()
        stream.publish(range(10))
        failing = Sink(stream.stream(start="earliest"), tmp_path / "failing")
        skipping = Sink(stream.stream(start="earliest", onRelease="skip"), tmp_path / "skipping")
        with stream.session.subscribe("TRUE", durable="keeper", start="earliest"):
            pass  # otherwise the log might be released before Spark has started
        failing.run()
        skipping.run()
        stream.publish(range(10, 20))
        stream.session.unsubscribe("keeper")
        until(lambda: not numbers_in(stream), "it is released")
        with stream.session.subscribe("TRUE", durable="keeper"):
            pass  # otherwise the rest might be released while Spark plans
        stream.publish(range(20, 25))
        with pytest.raises(StreamingQueryException, match="the log of quotes no longer has"):
            failing.run()
        query = skipping.run()
        assert end_of(query).skipped["quotes"] > 0
        assert skipping.numbers() == [*range(10), *range(20, 25)]


def test_a_stream_that_starts_at_a_released_time_fails(spark: SparkSession, tmp_path: Path) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        start_time = datetime.now(UTC).isoformat()
        stream.publish(range(10))
        until(lambda: not numbers_in(stream), "it is released")
        with pytest.raises(StreamingQueryException, match="the log of quotes no longer has"):
            Sink(stream.stream(start=start_time), tmp_path).run()


def test_a_stream_that_reads_from_the_earliest_tick_counts_a_released_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        stream.publish(range(10))
        (tmp_path / "whole").mkdir()
        with stream.session.subscribe("TRUE", durable="keeper", start="earliest"):
            pass  # otherwise the log might be released before Spark has started
        whole = Sink(stream.stream(start="earliest"), tmp_path / "whole").run()
        assert end_of(whole).released == {}
        stream.session.unsubscribe("keeper")
        until(lambda: not numbers_in(stream), "it is released")
        with stream.session.subscribe("TRUE", durable="keeper"):
            pass  # otherwise the rest might be released while Spark plans
        stream.publish(range(20, 25))
        (tmp_path / "rest").mkdir()
        rest = Sink(stream.stream(start="earliest"), tmp_path / "rest")
        query = rest.run()
        assert rest.numbers() == [*range(20, 25)]
        assert end_of(query).released["quotes"] > 0
        assert end_of(query).skipped == {}


def test_a_log_is_retained_for_a_reader_until_it_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    with SyncOverlay(parameters=BRIEF) as overlay, Stream(spark, overlay) as stream:
        stream.publish(range(1))
        options = {"start": "latest", "reader": "archive", "maxEventsPerTrigger": 10}
        sink = Sink(stream.stream(filter="kind IS NULL", **options), tmp_path)
        sink.run()
        stream.publish(range(10, 30))
        with stream.session.publisher("other", advertisement="kind = 'other'") as publisher:
            publisher.publish({"kind": "other"})
        until(lambda: not list(stream.session.read("other")), "what is not retained is released")
        assert numbers_in(stream) >= set(range(10, 30))
        sink.run()
        assert sink.numbers() == list(range(10, 30))
        stream.publish(range(30, 31))
        sink.run()  # a commit comes one batch late, or with the next one if it failed
        until(lambda: not numbers_in(stream) & set(range(20)), "what is committed is released")
        assert 30 in numbers_in(stream)


def test_an_existing_reader_determines_the_start_of_a_new_query(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(10))
    options = {"start": "earliest", "reader": "archive", "maxEventsPerTrigger": 5}
    first = Sink(stream.stream(**options), tmp_path / "first")
    first.run()
    assert first.numbers() == list(range(10))
    second = Sink(stream.stream(**options), tmp_path / "second")
    second.run()
    # a commit comes one batch late: the last batch is read again
    assert second.numbers() == list(range(5, 10))
