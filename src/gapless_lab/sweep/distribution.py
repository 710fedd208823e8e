"""Distributes points to executors one by one, and yields the outcomes in the order of the points.

One Spark job has a task for every few points. Spark gives tasks to free executors, so uneven costs
balance. The outcome of a task reaches the driver when the task ends, through an accumulator: Spark
counts the update of a task once, however often the task was tried. Closing the iterator cancels the
job.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.spark.jobs.reasons import as_ours
from gapless_lab.lab.points import PointOutcome, run_point
from gapless_lab.sweep.experiments import Experiment, Point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PointOutcome", "deal"]

TASKS_MAX: Final = 50_000
"""Tasks of one job; with more points some share a task, because the driver stores every task."""

_CANCEL_S: Final = 20.0
"""How long to wait for a cancelled job to end."""


class _Ended(msgspec.Struct, frozen=True):
    """The job is over."""

    error: Exception | None


_Update = Sequence[PointOutcome] | _Ended


class _Mailbox:
    """Concatenates lists in a task, and delivers them at the driver; has the form of Spark's
    AccumulatorParam.
    """

    def __init__(self, deliver: Callable[[Sequence[PointOutcome]], None] | None = None) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[type[_Mailbox], tuple[()]]:
        return _Mailbox, ()  # in a task nothing is delivered

    def zero(self, value: list[PointOutcome]) -> list[PointOutcome]:
        """Return the initial value of a task."""
        del value
        return []

    def addInPlace(self, held: list[PointOutcome], more: list[PointOutcome]) -> list[PointOutcome]:  # noqa: N802
        """Add outcomes."""
        if self._deliver is None:
            return held + more
        self._deliver(more)
        return held


def deal(
    spark: SparkSession, experiment: Experiment, points: Sequence[Point]
) -> Iterator[PointOutcome]:
    """Run an experiment at all points; yield the outcomes in the order of the points."""
    updates: SimpleQueue[_Update] = SimpleQueue()
    tag = f"gapless-{uuid.uuid4().hex}"
    context = spark.sparkContext
    worker = Thread(
        target=_run_job, args=(spark, experiment, points, tag, updates), name=tag, daemon=True
    )
    worker.start()
    try:
        yield from _in_order(updates, len(points))
    finally:
        if worker.is_alive():
            context.cancelJobsWithTag(tag)
        worker.join(_CANCEL_S)


def _in_order(updates: SimpleQueue[_Update], total: int) -> Iterator[PointOutcome]:
    """Yield outcomes in order; early ones wait."""
    pending: dict[int, PointOutcome] = {}
    following = 0
    while following < total:
        update = updates.get()
        if isinstance(update, _Ended):
            if update.error is not None:
                raise update.error
            break
        pending |= {each.index: each for each in update}
        while following in pending:
            yield pending.pop(following)
            following += 1
    assert following == total, f"{total - following} results never came"


def _run_job(
    spark: SparkSession,
    experiment: Experiment,
    points: Sequence[Point],
    tag: str,
    updates: SimpleQueue[_Update],
) -> None:
    """Run the job in a thread of its own, because Spark keeps the tags of a job by thread."""
    context = spark.sparkContext
    error: Exception | None = None
    try:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        box: Any = _Mailbox(updates.put)
        gathered: Any = context.accumulator([], box)

        def task(dealt: Iterable[tuple[int, Point]]) -> None:
            for index, point in dealt:
                gathered.add([run_point(experiment, index, point)])

        tasks = min(len(points), TASKS_MAX)
        context.parallelize(list(enumerate(points)), max(tasks, 1)).foreachPartition(task)
    except Exception as failed:  # noqa: BLE001 - raised again at the consumer
        error = as_ours(failed, "Spark ended the sweep")
    updates.put(_Ended(error))
