"""The sink: every row becomes an event once under failures; an unsupported column is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gapless.client import Event
from gapless.core.parameters import Parameters
from gapless.errors import GaplessError
from gapless.messages.records import StagedRecord
from gapless.testing import SyncOverlay
from tests.spark.chaos import Chaos, slowly
from tests.spark.rows import TIMEOUT_S, Stream, numbers, until

if TYPE_CHECKING:
    import pyarrow as pa


def events(stream: Stream, pubend: str = "copies") -> list[Event]:
    """Return the events of a log."""
    return list(stream.session.read(pubend))


def values(stream: Stream, name: str = "n", pubend: str = "copies") -> list[Any]:
    """Return an attribute of all events of a log, in order."""
    return [each.attributes[name] for each in events(stream, pubend)]


def write(stream: Stream, frame: DataFrame, **options: Any) -> None:
    """Write a frame once."""
    chosen = {"servers": stream.servers, "pubend": "copies", "deadline": 30, **options}
    given = {name: value for name, value in chosen.items() if value is not None}
    frame.write.format("gapless").options(**given).mode("append").save()


class Copy:
    """A query that copies quotes to copies."""

    def __init__(self, stream: Stream, directory: Path, **options: Any) -> None:
        self.stream = stream
        self.checkpoint = directory / "checkpoint"
        self.frame = stream.stream(start="earliest", pubends="quotes", maxEventsPerTrigger=50)
        self.options = {"servers": stream.servers, "pubend": "copies", "deadline": 30, **options}

    def run(self) -> Any:
        """Copy what is published now."""
        writer = self.frame.writeStream.format("gapless").options(**self.options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        return query


def staged_at(stream: Stream) -> list[StagedRecord]:
    """Return the staged batches of the broker."""
    overlay: Any = stream.overlay
    batches = overlay._overlay.node("b1").broker.components.staging._batches.values()
    return [chunk for batch in batches for chunk in batch.chunks.values()]


# --- rows to events ----------------------------------------------------------------------------------


def test_columns_become_attributes_and_null_is_omitted(stream: Stream) -> None:
    rows = [("IBM", 91.5, 7, True, "text"), (None, None, None, None, None)]
    schema = "symbol STRING, price DOUBLE, n INT, hot BOOLEAN, payload STRING"
    write(stream, stream.spark.createDataFrame(rows, schema).coalesce(1))
    found = [(each.attributes, each.payload) for each in events(stream)]
    assert found == [({"symbol": "IBM", "price": 91.5, "n": 7, "hot": True}, b"text"), ({}, b"")]
    (writer,) = {each.publisher for each in events(stream)}
    assert writer.startswith("spark-")


def test_rows_of_the_source_can_be_written_unchanged(stream: Stream) -> None:
    stream.publish(range(20))
    write(stream, stream.load(columns="n LONG").drop("n"))
    originals = [(each.attributes, each.payload) for each in events(stream, "quotes")]
    assert [(each.attributes, each.payload) for each in events(stream)] == originals


def test_an_int_that_is_no_double_is_written_back_unchanged(stream: Stream) -> None:
    stream.publish_all([({"n": 2**60 + 1, "price": 5}, b"")])
    write(stream, stream.load(columns="n DOUBLE, price DOUBLE"))
    changed = stream.load(columns="n DOUBLE, price DOUBLE", pubends="quotes")
    write(stream, changed.withColumn("price", changed.price + 0.5), pubend="dearer")
    (copied,), (dearer,) = events(stream), events(stream, "dearer")
    assert copied.attributes == {"n": 2**60 + 1, "price": 5}
    assert dearer.attributes == {"n": 2**60 + 1, "price": 5.5}


def test_a_column_may_select_the_pubend_of_a_row(stream: Stream) -> None:
    rows = [("one" if n % 3 else "other", n) for n in range(30)]
    frame = stream.spark.createDataFrame(rows, "pubend STRING, n INT").coalesce(1)
    write(stream, frame, pubend=None)
    assert values(stream, pubend="one") == [n for n in range(30) if n % 3]
    assert values(stream, pubend="other") == [n for n in range(30) if not n % 3]


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        ("n DATE", {}, "column 'n' is DATE"),
        ("n INT", {"password": "x"}, "no option 'password': brokers authenticate users"),
        ("n INT", {"advertisement": "n > 10"}, "does not match the pubend's advertisement"),
    ],
)
def test_an_invalid_write_is_refused_through_spark(
    stream: Stream, schema: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        write(stream, stream.spark.createDataFrame([(None,)], schema), **options)


def test_a_log_is_not_overwritten(stream: Stream) -> None:
    frame = stream.spark.createDataFrame([(1,)], "n INT")
    chosen = {"servers": stream.servers, "pubend": "copies"}
    with pytest.raises(PySparkException, match="a log cannot be overwritten"):
        frame.write.format("gapless").options(**chosen).mode("overwrite").save()


# --- batches -----------------------------------------------------------------------------------------


def test_partitions_are_written_in_order_each_in_the_order_of_its_rows(stream: Stream) -> None:
    write(stream, stream.spark.range(0, 5_000, numPartitions=4))
    assert values(stream, "id") == [*range(5_000)]
    assert [each.sequence for each in events(stream)] == [*range(1, 5_001)]


def test_a_repeated_numbered_write_is_done_once(stream: Stream) -> None:
    for _ in range(2):
        write(stream, stream.spark.range(10), writer="daily", batch="20260131")
    write(stream, stream.spark.range(10, 12), writer="daily", batch="20260201")
    assert sorted(values(stream, "id")) == [*range(12)]


def test_writes_without_a_number_are_separate_writes(stream: Stream) -> None:
    for _ in range(2):
        write(stream, stream.spark.range(2), writer="daily")
    assert sorted(values(stream, "id")) == [0, 0, 1, 1]


def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a partition; the first attempt of the second one fails after them."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise ValueError("planned")


def failing_always(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a partition; the second one fails after them."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1:
        sleep(0.5)  # the other one has finished by then
        raise ValueError("planned")


def test_a_task_that_fails_and_runs_again_writes_its_rows_once(stream: Stream) -> None:
    frame = stream.spark.range(0, 6_000, numPartitions=2)
    write(stream, frame.mapInArrow(failing_once, frame.schema))
    assert values(stream, "id") == [*range(6_000)]
    assert staged_at(stream) == []


def test_a_failed_write_leaves_no_events_and_no_staged_batch(stream: Stream) -> None:
    frame = stream.spark.range(0, 6_000, numPartitions=2)
    with pytest.raises(PySparkException, match="planned"):
        write(stream, frame.mapInArrow(failing_always, frame.schema))
    assert events(stream) == []
    until(lambda: staged_at(stream) == [], "what was staged is dropped")


def test_an_abandoned_batch_is_dropped_by_the_broker_after_its_ttl(spark: SparkSession) -> None:
    brief = Parameters(staged_ttl_s=1)
    with SyncOverlay(parameters=brief) as overlay, Stream(spark, overlay) as stream:
        # no task with rows finishes, so the driver does not learn where the rows went; they are more than
        # Spark collects before it starts to write
        frame = spark.range(0, 60_000, numPartitions=2).selectExpr("'copies' AS pubend", "id")
        frame = frame.where("id >= 30000")
        with pytest.raises(PySparkException, match="planned"):
            write(stream, frame.mapInArrow(failing_always, frame.schema), pubend=None)
        marks = overlay._overlay.node("b1").broker.context.coverage_marks
        until(lambda: "staged too long ago" in marks, "a staged batch has expired")
        until(lambda: staged_at(stream) == [], "nothing is left")
        assert events(stream) == []


# --- streams -----------------------------------------------------------------------------------------


def test_a_stream_is_copied_in_order_and_continues_with_its_checkpoint(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(120))
    copy = Copy(stream, tmp_path, writer="copier")
    query = copy.run()
    assert sorted(values(stream)) == [*range(120)]
    assert {each.publisher for each in events(stream)} == {f"copier-{query.id}"}
    stream.publish(range(120, 150))
    copy.run()
    assert values(stream) == [*range(150)]


def test_a_driver_that_dies_before_the_commit_of_spark_writes_the_batch_once(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(120))
    copy = Copy(stream, tmp_path)
    copy.run()
    last = max((copy.checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
    last.unlink()  # Spark does not know that this batch was written
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    stream.publish(range(120, 130))
    copy.run()
    assert values(stream) == [*range(130)]
    assert staged_at(stream) == []


def test_a_new_checkpoint_starts_again_also_under_the_same_name(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(10))
    for name in ("one", "other"):
        Copy(stream, tmp_path / name, writer="copier").run()
    assert sorted(values(stream)) == sorted([*range(10)] * 2)


def test_a_stream_with_an_option_of_batches_is_refused(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(3))
    with pytest.raises(PySparkException, match="option batch is for batch writes"):
        Copy(stream, tmp_path, writer="w", batch=1).run()


# --- drivers that die --------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = """
import sys
from gapless.spark.session import spark_session

servers, directory = sys.argv[1:]
spark = spark_session("local[2]", settings={"spark.log.level": "OFF"})
frame = spark.readStream.format("gapless").option("servers", servers).option("pubends", "quotes")
frame = frame.option("start", "earliest").option("maxEventsPerTrigger", "20").load()
writer = frame.writeStream.format("gapless").option("servers", servers).option("pubend", "copies")
writer.option("checkpointLocation", directory + "/checkpoint").start().awaitTermination()
"""


def start_driver(servers: str, directory: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, servers, str(directory)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_killing_a_driver_during_a_batch_writes_every_row_once(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(600))
    commits = tmp_path / "checkpoint" / "commits"
    driver = start_driver(stream.servers, tmp_path)
    try:
        until(lambda: len([*commits.glob("[0-9]*")]) >= 2, "some batches")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(events(stream)) < 600, "the driver was quicker than the kill"
    copy = Copy(stream, tmp_path)
    copy.run()
    assert values(stream) == [*range(600)]


# --- brokers that die --------------------------------------------------------------------------------


def test_every_row_is_written_once_while_the_broker_is_killed_repeatedly(stream: Stream) -> None:
    frame = stream.spark.range(0, 20_000, numPartitions=2)
    with Chaos(stream, every_s=0.25) as chaos:
        write(stream, frame.mapInArrow(slowly, frame.schema))
    assert chaos.kills >= 3
    assert values(stream, "id") == [*range(20_000)]


def test_every_batch_is_committed_once_while_the_broker_is_killed_repeatedly(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(400))
    copy = Copy(stream, tmp_path)
    with Chaos(stream, every_s=0.4) as chaos:
        for _ in range(3):
            try:
                copy.run()
                break
            except (PySparkException, GaplessError):
                continue  # a query may fail; it continues from its checkpoint
    assert chaos.kills >= 3
    copy.run()
    assert values(stream) == [*range(400)]
    assert numbers(stream.load(pubends="copies")) == [*range(400)]
