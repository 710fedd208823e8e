"""The death of a broker or a driver costs time and no event."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gapless.core.errors import RefusedError
from gapless.core.parameters import Parameters
from gapless.packed.pick import unpack
from gapless.spark import reading
from gapless.spark.planning import Range
from gapless.spark.reading import read_range
from gapless.testing import SyncOverlay
from tests.spark.chaos import Chaos, slowly
from tests.spark.rows import Sink, Stream, numbers, until

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = """
import sys
from gapless.spark.session import spark_session

servers, directory = sys.argv[1:]
spark = spark_session("local[2]", settings={"spark.log.level": "OFF"})
frame = (
    spark.readStream.format("gapless")
    .option("servers", servers)
    .option("columns", "n LONG")
    .option("start", "earliest")
    .option("maxEventsPerTrigger", "50")
    .load()
)
query = (
    frame.writeStream.format("parquet")
    .option("path", directory + "/rows")
    .option("checkpointLocation", directory + "/checkpoint")
    .start()
)
query.awaitTermination()
"""


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make read replies short, so that a read takes several."""
    monkeypatch.setattr(reading, "READ_BYTES", 1_000_000)


def payload_of(n: int) -> tuple[dict[str, int], bytes]:
    return {"n": n}, b"x" * 1_000


def whole(stream: Stream) -> Range:
    ticks = [each.tick for each in stream.session.read("quotes")]
    return Range("quotes", 1, ticks[-1], (stream.servers,))


def test_a_read_waits_for_a_broker_that_was_killed(stream: Stream) -> None:
    stream.publish_all([payload_of(n) for n in range(3_000)])
    replies = read_range(whole(stream), "TRUE", "fail", 30.0)
    found = [each.attributes["n"] for each in unpack(next(replies))]
    assert 0 < len(found) < 3_000
    stream.overlay.kill("b1")
    back = threading.Timer(1.0, lambda: stream.overlay.restart("b1"))
    back.start()
    for reply in replies:
        found += [each.attributes["n"] for each in unpack(reply)]
    back.join()
    assert found == list(range(3_000))


def test_a_read_fails_at_the_deadline_without_its_broker(stream: Stream) -> None:
    stream.publish_all([payload_of(n) for n in range(3_000)])
    replies = read_range(whole(stream), "TRUE", "fail", 0.5)
    next(replies)
    stream.overlay.kill("b1")
    with pytest.raises(TimeoutError, match=r"the log of quotes was not read from tick \d+"):
        list(replies)


def test_a_task_that_was_disconnected_as_silent_continues(spark: SparkSession) -> None:
    brief = Parameters(keepalive_ms=100)
    with SyncOverlay(parameters=brief) as overlay, Stream(spark, overlay) as stream:
        stream.publish_all([payload_of(n) for n in range(3_000)])
        replies = read_range(whole(stream), "TRUE", "fail", 30.0)
        found = [each.attributes["n"] for each in unpack(next(replies))]
        clients = overlay._overlay.node("b1").clients
        until(lambda: len(clients) == 1, "only the session of the test is left")
        for reply in replies:
            found += [each.attributes["n"] for each in unpack(reply)]
        assert found == list(range(3_000))


def test_a_missing_log_is_refused_at_the_deadline(stream: Stream) -> None:
    part = Range("nothing", 1, 10, (stream.servers,))
    with pytest.raises(RefusedError, match="the pubend nothing is not known"):
        list(read_range(part, "TRUE", "fail", 0.3))


def with_attempts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows slowly, with the attempt number of their task."""
    context = TaskContext.get()
    assert context is not None
    for batch in slowly(batches):
        attempts = pa.array([context.attemptNumber()] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("n"), attempts], ["n", "attempt"])


def test_killing_a_broker_repeatedly_during_a_read_loses_no_row_and_fails_no_task(
    stream: Stream,
) -> None:
    stream.publish_all([payload_of(n) for n in range(20_000)])
    frame = stream.load(deadline=120, partitionBytes=2_000_000).select("n", "payload")
    with Chaos(stream, every_s=0.25) as chaos:
        found = frame.mapInArrow(with_attempts, "n LONG, attempt LONG").collect()
    assert chaos.kills >= 3
    assert sorted(row.n for row in found) == list(range(20_000))
    assert {row.attempt for row in found} == {0}


def test_a_query_continues_after_a_restart_of_its_broker(stream: Stream, tmp_path: Path) -> None:
    stream.publish(range(100))
    sink = Sink(stream.stream(start="earliest"), tmp_path)
    query = sink.start()
    try:
        until(lambda: sink.numbers() == list(range(100)), "what was there")
        stream.overlay.kill("b1")
        stream.overlay.restart("b1")
        stream.publish(range(100, 200))
        until(lambda: sink.numbers() == list(range(200)), "what came after the restart")
        assert query.isActive
    finally:
        query.stop()


def test_a_batch_without_any_broker_fails_with_a_reason(stream: Stream) -> None:
    stream.publish(range(5))
    frame = stream.load(deadline=1)
    assert numbers(frame) == list(range(5))
    stream.overlay.kill("b1")
    with pytest.raises(PySparkException, match="no handshake with a broker within 1 s"):
        stream.load(deadline=1).count()


def start_driver(servers: str, directory: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, servers, str(directory)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver and all its children at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def batches(directory: Path, kind: str) -> int:
    return len(list((directory / "checkpoint" / kind).glob("[0-9]*")))


@pytest.mark.slow
def test_killing_a_driver_during_a_batch_loses_and_repeats_no_row(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(range(1_000))
    driver = start_driver(stream.servers, tmp_path)
    try:
        until(lambda: batches(tmp_path, "commits") >= 3, "some batches are done")
        # a batch is being processed while it has an offset and no commit
        until(lambda: batches(tmp_path, "offsets") > batches(tmp_path, "commits"), "one is started")
    finally:
        kill(driver)
    assert batches(tmp_path, "commits") < 20, "the driver finished before the kill"
    sink = Sink(stream.stream(start="earliest", columns="n LONG"), tmp_path)
    sink.run()
    assert sink.numbers() == list(range(1_000))
