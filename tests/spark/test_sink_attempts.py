"""Attempts of the tasks of the sink, one by one: two copies of a task, a restarted driver.

The writers run as in Spark, but in this process, so that a test decides which one finishes first.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from gapless.client.sync import connect_sync
from gapless.core.errors import RefusedError, UsageError
from gapless.spark import sink
from gapless.spark.sink import BATCH_ID, QUERY_ID, BatchWriter, StagedMessage, StreamWriter
from gapless.spark.sink_options import SinkOptions
from gapless.testing import SyncOverlay

SCHEMA = StructType([StructField("n", LongType())])


class Task:
    """The context of a task."""

    def __init__(self, partition: int, batch: int | None, query: str | None) -> None:
        self._partition = partition
        self._properties = {BATCH_ID: None if batch is None else str(batch), QUERY_ID: query}

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties[name]


class Job:
    """Runs tasks and commits as Spark would."""

    def __init__(self, overlay: SyncOverlay, patch: pytest.MonkeyPatch) -> None:
        self.url = overlay.url()
        self.options = SinkOptions(servers=(self.url,), pubend="copies", deadline_s=10.0)
        self._patch = patch

    @property
    def writer(self) -> StreamWriter:
        """Return a writer as it comes from the driver."""
        made = StreamWriter(self.options, SCHEMA, overwrite=False)
        copied: StreamWriter = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
        return copied

    def run(
        self, partition: int, *numbers: int, batch: int | None = 7, query: str | None = "q"
    ) -> StagedMessage:
        """Run an attempt of a task to its end."""
        self._patch.setattr(sink, "_task", lambda: Task(partition, batch, query))
        rows = [pa.record_batch({"n": pa.array([n], pa.int64())}) for n in numbers]
        return self.writer.write(iter(rows))

    def commit(self, *messages: StagedMessage | None, batch: int = 7) -> None:
        """Commit as the driver does, in its own process."""
        copied: list[Any] = pickle.loads(pickle.dumps([*messages]))  # noqa: S301 - our own bytes
        self.writer.commit(copied, batch)

    def written(self) -> list[Any]:
        with connect_sync(self.url) as session:
            return [each.attributes["n"] for each in session.read("copies")]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with SyncOverlay() as overlay:
        yield Job(overlay, monkeypatch)


def test_of_two_finished_attempts_the_one_that_spark_commits_counts(job: Job) -> None:
    slow, quick = job.run(0, 1, 2), job.run(0, 1, 2)
    other = job.run(1, 3)
    assert slow.parts[0].attempt != quick.parts[0].attempt
    job.commit(quick, other)
    assert job.written() == [1, 2, 3]


def test_an_attempt_that_finishes_after_the_commit_writes_nothing(job: Job) -> None:
    job.commit(job.run(0, 1))
    late = job.run(0, 1)
    job.commit(late)
    assert job.written() == [1]


def test_a_restarted_driver_does_not_mix_its_attempt_with_an_older_one(
    job: Job,
) -> None:
    job.run(0, 1, 2, 3)  # then the driver dies
    again = job.run(0, 3, 1, 2)  # after a shuffle rows have any order
    job.commit(again)
    assert job.written() == [3, 1, 2]


def test_a_batch_repeated_after_its_commit_writes_nothing(job: Job) -> None:
    job.commit(job.run(0, 1, 2), job.run(1, 3))
    job.commit(job.run(0, 3, 2), job.run(1, 1))
    job.commit(job.run(0, 4, batch=8), batch=8)
    assert job.written() == [1, 2, 3, 4]


def test_another_query_has_separate_batches(job: Job) -> None:
    job.commit(job.run(0, 1))
    job.commit(job.run(0, 2, query="another"))
    assert job.written() == [1, 2]


def test_tasks_without_rows_need_no_broker_and_commit_nothing(job: Job) -> None:
    assert job.run(0) == StagedMessage(())
    job.commit(job.run(0), None)
    job.commit(job.run(0), job.run(1, 5))
    assert job.written() == [5]


def test_an_aborted_batch_cannot_be_committed(job: Job) -> None:
    message = job.run(0, 1)
    job.writer.abort([message, None], 7)
    with pytest.raises(RefusedError, match="stage the batch again"):
        job.commit(message)


def test_an_abort_without_a_broker_does_not_fail(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    message = job.run(0, 1)
    monkeypatch.setattr(sink, "DROP_S", 0.2)
    gone = SinkOptions(servers=("gapless://127.0.0.1:1",), pubend="copies")
    StreamWriter(gone, SCHEMA, overwrite=False).abort([message], 7)
    BatchWriter(gone, SCHEMA, overwrite=False).abort([None])


def test_a_message_of_another_batch_is_refused(job: Job) -> None:
    with pytest.raises(UsageError, match="batch 8 has a message of batch 7"):
        job.commit(job.run(0, 1), batch=8)


def test_a_task_that_does_not_know_its_batch_is_refused(job: Job) -> None:
    with pytest.raises(UsageError, match="has no query id and batch id"):
        job.run(0, 1, batch=None)
