"""The sink: rows become events, each exactly once, whatever fails.

Theory of operation
-------------------
A task may fail and run again, two copies of it may run at once, and a driver may die at any moment and
make the same batch again. So tasks publish nothing. Each attempt *stages* its rows at the broker of their
pubend, under a name that no other attempt has, and hands the driver a message of what it has staged. When
all tasks are through, the driver *commits* the messages that Spark gives it, which are of one attempt for
each partition: one step at the broker, for each pubend, puts them into the log and remembers the batch
(:mod:`gapless.pubend.staging`). A batch that was committed is not committed again, so a driver that
died between this commit and Spark's own makes the batch again in vain.

Who writes is known by the query: its id is in the checkpoint, and numbers of batches begin anew with every
checkpoint. A name that the user gives is only put before it. Otherwise a new checkpoint under an old name
would begin with batches that seem to be committed, and its rows would be lost. A batch write has no
checkpoint; it is a writer of its own, unless the user numbers it (option ``batch``).

What was staged in vain is dropped with the next commit, by ``abort``, or by the broker in time.
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
from gapless.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter", "StagedMessage", "StreamWriter", "check_let_in"]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

LOOK_S: Final = 2.0
"""How long a broker may take to say whether it lets a writer in, before anything is written."""

DROP_S: Final = 5.0
"""How long an abort may take to drop what is staged; the broker drops it by itself in time."""

_BACKOFF: Final = Backoff(first_s=0.05, longest_s=2.0)


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What a task has staged, one part for each pubend."""

    parts: tuple[StagedPart, ...]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        options.refuse_for_streams()
        _refuse_overwriting(overwrite, 'outputMode("append") or ("update")')
        self._options = options
        self._shape = shape_of(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a partition, in a task."""
        context = _task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise UsageError(
                "this task does not know its query and batch, by which it is known again"
            )
        writer = f"{self._options.writer}-{query}" if self._options.writer else query
        return _stage(self._options, self._shape, iterator, writer, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch, in the driver."""
        parts = _parts(messages)
        wrong = [part.batch for part in parts if part.batch != batchId]
        if wrong:
            raise UsageError(f"batch {batchId} has a message of batch {wrong[0]}")
        _commit(self._options, parts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what is staged of a batch, in the driver."""
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
            # this object goes to all tasks and to the commit: it makes them one write
            self._writer = f"{options.writer or 'spark'}-{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of a partition, in a task."""
        return _stage(self._options, self._shape, iterator, self._writer, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows, in the driver."""
        _commit(self._options, _parts(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what is staged, in the driver."""
        pubends = {part.pubend for part in _parts(messages)}
        if self._options.pubend is not None:
            pubends.add(self._options.pubend)
        _drop(self._options, {(pubend, self._writer, self._batch) for pubend in pubends})


def _refuse_overwriting(overwrite: bool, instead: str) -> None:
    if overwrite:
        raise UsageError(f"what is in a log stays there: write with {instead}")


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise UsageError("rows are written by tasks of Spark's only")
    return context


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    return [part for each in messages if isinstance(each, StagedMessage) for part in each.parts]


# --- talking to brokers -----------------------------------------------------------------------------


@contextlib.contextmanager
def _session(options: SinkOptions, deadline_s: float) -> Iterator[tuple[EventLoopThread, Session]]:
    """Have a session in a thread of its own, for as long as it is needed."""
    portal = EventLoopThread()
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
        portal.run(session.open())
        try:
            yield portal, session
        finally:
            portal.run(session.close())
    finally:
        portal.stop()


def check_let_in(options: SinkOptions) -> None:
    """Raise if brokers will not let this writer in: better now than in every task.

    Who is away now may be there when tasks are, which wait for it.
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
    """Stage all rows of a task; return what the driver has to commit."""
    partition = _task().partitionId()
    stagers: dict[str, StagedWriter] = {}
    with contextlib.ExitStack() as stack:
        # a partition without rows needs no broker
        portal: EventLoopThread | None = None
        session: Session | None = None
        for rows in batches:
            for pubend, events in events_of(shape, rows):
                if not events:
                    continue
                if portal is None or session is None:
                    portal, session = stack.enter_context(_session(options, options.deadline_s))
                stager = stagers.get(pubend)
                if stager is None:
                    stager = session.staged_writer(
                        pubend,
                        writer=writer,
                        batch=batch,
                        partition=partition,
                        advertisement=options.advertisement,
                    )
                    portal.run(stager.open())
                    stack.callback(
                        lambda portal, stager: portal.run(stager.close()), portal, stager
                    )
                    stagers[pubend] = stager
                portal.run(stager.add(events))
        if portal is None:
            return StagedMessage(())
        return StagedMessage(tuple(portal.run(each.finish()) for each in stagers.values()))


def _commit(options: SinkOptions, parts: list[StagedPart]) -> None:
    """Publish what was staged, pubend by pubend; asked again after a failure, it goes on."""
    by_pubend: dict[str, list[StagedPart]] = {}
    for part in parts:
        by_pubend.setdefault(part.pubend, []).append(part)
    if not by_pubend:
        return
    with _session(options, options.deadline_s) as (portal, session):
        for pubend in sorted(by_pubend):
            portal.run(session.commit_staged(by_pubend[pubend]))


def _drop(options: SinkOptions, batches: set[tuple[str, str, int]]) -> None:
    """Have brokers forget what was staged; where that fails, they forget it in time."""
    if not batches:
        return
    with contextlib.suppress(GaplessError), _session(options, DROP_S) as (portal, session):
        for pubend, writer, batch in sorted(batches):
            with contextlib.suppress(GaplessError):
                portal.run(session.drop_staged(pubend, writer, batch))
