"""The sink: rows become events, each exactly once, whatever fails.

Theory of operation
-------------------
A task may fail and run again, two copies of it may run at once, and a driver may crash at any time
and repeat the same batch. So tasks publish nothing. Each attempt *stages* its rows at the broker of
their pubend, under a name that no other attempt has, and returns a message about the staged rows to
the driver. When all tasks are done, the driver *commits* the messages that Spark passes to it, one
attempt per partition. For each pubend one step at the broker appends them to the log and stores the
number of the batch (:mod:`gapless.pubend.staging`). A committed batch is not committed again, so
the repeated batch of a driver that crashed between this commit and Spark's own has no effect.

The writer is identified by the query: its id is in the checkpoint, and batch numbers restart with
every checkpoint. A name that the user gives is only a prefix of the id. Otherwise a new checkpoint
with an old name would start with batch numbers that are already committed, and its rows would be
lost. A batch write has no checkpoint; it is a writer of its own, unless the user numbers it (option
``batch``).

Staged rows that are not committed are dropped by the next commit, by ``abort``, or by the broker
after some time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gapless.client import Backoff, Session, StagedPart, StagedWriter, connect
from gapless.client.loop_thread import EventLoopThread
from gapless.core.errors import AuthenticationError, GaplessError, UsageError
from gapless.spark.row_mapping import RowMapping, events_of, shape_of
from gapless.spark.sentences import sentence_first
from gapless.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StagedMessage", "StreamWriter", "check_let_in"]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

LOOK_S: Final = 2.0
"""How long the check of a writer's credentials may take, before anything is written."""

DROP_S: Final = 5.0
"""How long an abort may take to drop staged rows; the broker drops them after some time."""

_BACKOFF: Final = Backoff(first_s=0.05, longest_s=2.0)


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What a task has staged, one part per pubend."""

    parts: tuple[StagedPart, ...]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_for_streams()
        _refuse_overwriting(overwrite, 'outputMode("append") or ("update")')
        self._options = options
        self._shape = shape_of(schema, options)

    @sentence_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a partition, in a task."""
        context = _task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise UsageError("this task has no query id and batch id, which identify the batch")
        writer = f"{self._options.writer}-{query}" if self._options.writer else query
        return _stage(self._options, self._shape, iterator, writer, int(batch))

    @sentence_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch, in the driver."""
        parts = _parts(messages)
        wrong = [part.batch for part in parts if part.batch != batchId]
        if wrong:
            raise UsageError(f"batch {batchId} has a message of batch {wrong[0]}")
        _commit(self._options, parts)

    @sentence_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the staged rows of a batch, in the driver."""
        del batchId
        _drop(self._options, {(each.pubend, each.writer, each.batch) for each in _parts(messages)})


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        _refuse_overwriting(overwrite, 'mode("append")')
        self._options = options
        self._shape = shape_of(schema, options)
        self._batch = options.batch or 0
        self._writer = options.writer
        if options.batch is None:
            # this object goes to all tasks and to the commit, so they have one writer
            self._writer = f"{options.writer or 'spark'}-{uuid4().hex}"

    @sentence_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a partition, in a task."""
        return _stage(self._options, self._shape, iterator, self._writer, self._batch)

    @sentence_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows, in the driver."""
        _commit(self._options, _parts(messages))

    @sentence_first
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the staged rows, in the driver."""
        pubends = {part.pubend for part in _parts(messages)}
        if self._options.pubend is not None:
            pubends.add(self._options.pubend)
        _drop(self._options, {(pubend, self._writer, self._batch) for pubend in pubends})


def _refuse_overwriting(overwrite: bool, instead: str) -> None:
    if overwrite:
        raise UsageError(f"a log cannot be overwritten: write with {instead}")


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise UsageError("rows are written only by Spark tasks")
    return context


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    return [part for each in messages if isinstance(each, StagedMessage) for part in each.parts]


# --- calls to brokers -----------------------------------------------------------------------------


@contextlib.contextmanager
def _session(options: SinkOptions, deadline_s: float) -> Iterator[tuple[EventLoopThread, Session]]:
    """Open a session in a thread of its own."""
    loop_thread = EventLoopThread()
    try:
        session = connect(
            options.servers,
            name=f"spark-{uuid4().hex[:8]}",
            deadline_s=deadline_s,
            connect_deadline_s=deadline_s,
            backoff=_BACKOFF,
            token=options.credentials.token or None,
            token_file=options.credentials.token_file or None,
        )
        loop_thread.run(session.open())
        try:
            yield loop_thread, session
        finally:
            loop_thread.run(session.close())
    finally:
        loop_thread.stop()


def check_let_in(options: SinkOptions) -> None:
    """Raise if brokers do not authenticate this writer, before every task fails.

    An unreachable broker is not an error: tasks wait for it.
    """
    options.credentials.check()
    try:
        with _session(options, min(LOOK_S, options.deadline_s)):
            pass
    except AuthenticationError:
        raise
    except GaplessError:
        return


def _stage(
    options: SinkOptions,
    shape: RowMapping,
    batches: Iterator[pa.RecordBatch],
    writer: str,
    batch: int,
) -> StagedMessage:
    """Stage all rows of a task; return the message for the driver."""
    partition = _task().partitionId()
    staged_writers: dict[str, StagedWriter] = {}
    with contextlib.ExitStack() as stack:
        # a partition without rows needs no broker
        loop_thread: EventLoopThread | None = None
        session: Session | None = None
        for rows in batches:
            for pubend, events in events_of(shape, rows):
                if not events:
                    continue
                if loop_thread is None or session is None:
                    loop_thread, session = stack.enter_context(
                        _session(options, options.deadline_s)
                    )
                staged = staged_writers.get(pubend)
                if staged is None:
                    staged = session.staged_writer(
                        pubend,
                        writer=writer,
                        batch=batch,
                        partition=partition,
                        advertisement=options.advertisement,
                    )
                    loop_thread.run(staged.open())
                    stack.callback(
                        lambda loop_thread, staged: loop_thread.run(staged.close()),
                        loop_thread,
                        staged,
                    )
                    staged_writers[pubend] = staged
                loop_thread.run(staged.add(events))
        if loop_thread is None:
            return StagedMessage(())
        return StagedMessage(
            tuple(loop_thread.run(each.finish()) for each in staged_writers.values())
        )


def _commit(options: SinkOptions, parts: list[StagedPart]) -> None:
    """Publish the staged rows, pubend by pubend; repeated after a failure, it continues."""
    by_pubend: dict[str, list[StagedPart]] = {}
    for part in parts:
        by_pubend.setdefault(part.pubend, []).append(part)
    if not by_pubend:
        return
    with _session(options, options.deadline_s) as (loop_thread, session):
        for pubend in sorted(by_pubend):
            loop_thread.run(session.commit_staged(by_pubend[pubend]))


def _drop(options: SinkOptions, batches: set[tuple[str, str, int]]) -> None:
    """Drop staged rows at brokers; if that fails, brokers drop them after some time."""
    if not batches:
        return
    with contextlib.suppress(GaplessError), _session(options, DROP_S) as (loop_thread, session):
        for pubend, writer, batch in sorted(batches):
            with contextlib.suppress(GaplessError):
                loop_thread.run(session.drop_staged(pubend, writer, batch))
