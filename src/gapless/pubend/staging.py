"""Staging: events that wait on disk until a commit publishes all of them, or nobody does.

Theory of operation
-------------------
A *writer* writes numbered batches to a pubend. A batch is made by several tasks, one for each
partition, and a task may fail, run again, or run twice at once. So a task only *stages*: its attempt
sends chunks, each of which is a record on disk and no event. When all tasks are done, a *commit* names
one attempt for each partition. Its chunks become rows of the log, in the order of the partitions and of
the chunks, in one write with everything that follows from it: the publisher's record, the record of the
commit, and the end of all that was staged of this batch and of earlier ones.

States of a batch of a writer::

    nothing --Stage--> STAGED --CommitBatch--> COMMITTED
    STAGED --DropBatch, staged_ttl_s without another Stage--> nothing

A record of the commit tells a repetition: a batch that is not above the last one was committed before, and
is answered without being done again. It is kept for ``commit_ttl_s``, which is longer than any writer waits
before it asks again. What is staged is counted, and above ``staged_bytes_max`` refused.

The events have the writer as their publisher, and sequences that follow each other. A commit fences the
sessions of an ordinary publisher of that name: two counts of sequences under one name would not do.

Invariants
----------
- **S1** A batch of a writer is in the log whole or not at all, and once. One write has the rows and the
  record that tells of them, so a crash leaves both or neither.
- **S2** What was staged and not committed leaves no trace: nobody gets it, and it goes from the disk.
- **S3** A later batch never overtakes an earlier commit: once a batch is committed, no batch before it is.

A commit is one step, in which the broker does nothing else, so there is little left to do in it: what is
staged is packed for the log already, and only its ticks and sequences are missing (:mod:`gapless.packed.template`). So a
commit takes about as long as it takes to copy its bytes, of which there are never more than
``staged_bytes_max``. What follows from it, telling subscribers, is done row by row, between other things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from gapless.core.ids import PubendId
from gapless.core.limits import WRITER_NAME_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import (
    CommitRecord,
    DeleteRecord,
    PutRecord,
    StagedRecord,
    StorageChange,
)
from gapless.messages.staging import CommitBatch, DropBatch, PartTuple, StageChunk
from gapless.packed.template import PackedTemplate, pack_template
from gapless.pubend.pubend import Pubend
from gapless.pubend.publishers import PublishRefusedError

__all__ = ["CHUNK_BYTES", "CommitOutcome", "Staging"]

CHUNK_BYTES: Final = 256
"""What a chunk takes beside its events."""


class _BatchId(NamedTuple):
    pubend: PubendId
    writer: str
    batch: int


class _ChunkId(NamedTuple):
    partition: int
    attempt: str
    number: int


class _Chunk(NamedTuple):
    """A part of a batch, and its key on disk."""

    key: tuple[str, ...]
    events: PackedTemplate

    @property
    def bytes(self) -> int:
        """How much it is."""
        return _size(self.events.packed)


class _Batch(msgspec.Struct):
    """What is staged of one batch."""

    chunks: dict[_ChunkId, _Chunk]
    touched: int
    """When something was last staged. After a restart that is counted anew."""

    @property
    def bytes(self) -> int:
        """How much it is."""
        return sum(chunk.bytes for chunk in self.chunks.values())

    def keep(self, chunk_id: _ChunkId, chunk: _Chunk, now: int) -> None:
        """Stage a chunk, in place of an earlier one of the same id."""
        self.chunks[chunk_id] = chunk
        self.touched = now


class CommitOutcome(msgspec.Struct, frozen=True):
    """What came of a commit; ``record`` is None if the batch is older than the last one."""

    record: CommitRecord | None
    repeated: bool


class Staging:
    """All that is staged at one broker, and the last commit of every writer."""

    def __init__(
        self,
        context: Context,
        clock_view: Callable[[], int],
        staged: Iterable[StagedRecord] = (),
        commits: Iterable[CommitRecord] = (),
    ) -> None:
        self._context = context
        self._clock_view = clock_view
        self._batches: dict[_BatchId, _Batch] = {}
        self._commits: dict[tuple[PubendId, str], CommitRecord] = {}
        self._is_planned = False
        self.bytes = 0
        """How much is staged."""
        for commit in commits:
            self._commits[commit.pubend, commit.writer] = commit
        for record in staged:
            self._keep(record)

    def start(self) -> None:
        """Forget batches and commits that are too old, from time to time."""
        self._plan_review()

    # --- what writers ask ------------------------------------------------------------------------

    def stage(self, hosted: Pubend, call: StageChunk, then: Callable[[], None]) -> None:
        """Make a chunk durable and call back; PublishRefusedError if it cannot be."""
        refuse_names(call.writer, call.attempt)
        batch = self._batches.get(_BatchId(call.pubend, call.writer, call.batch))
        is_kept = (
            batch is not None
            and _ChunkId(call.partition, call.attempt, call.number) in batch.chunks
        )
        if is_kept or self._is_over(call.pubend, call.writer, call.batch):
            self._context.mark("staged again")
            self._context.write((), then)  # behind its first copy, which may wait for the disk
            return
        if not call.events:
            raise PublishRefusedError("a chunk has at least one event")
        hosted.refuse_outside(call.events)
        record = StagedRecord(
            call.pubend,
            call.writer,
            call.batch,
            call.partition,
            call.attempt,
            call.number,
            pack_template(call.writer, call.events),
        )
        self._refuse_when_full(record)
        self._keep(record)
        self._plan_review()
        self._context.write((PutRecord(record),), then)

    def commit(
        self, hosted: Pubend, call: CommitBatch, then: Callable[[CommitOutcome], None]
    ) -> None:
        """Publish a batch whole, once, and call back; PublishRefusedError if it cannot be (S1)."""
        refuse_names(call.writer)
        last = self._commits.get((call.pubend, call.writer))
        if last is not None and self._is_over(call.pubend, call.writer, call.batch):
            self._context.mark("commit repeated")
            found = last if last.batch == call.batch else None
            over = self._forget_up_to(call.pubend, call.writer, call.batch)
            if over:
                self._context.write(tuple(over), _nothing)
            # the first commit may still wait for the disk: the answer waits behind it
            hosted.after_sent(lambda: then(CommitOutcome(found, repeated=True)))
            return
        made: list[CommitRecord] = []

        def changes(sequence: int, first: Tick, final: Tick) -> list[StorageChange]:
            # a clock that is behind, and set right later, would make it look old; ticks never fall
            clock = max(self._context.clock, final)
            made.append(_record_of(call, sequence, first, final, clock))
            self._commits[call.pubend, call.writer] = made[0]
            over = self._forget_up_to(call.pubend, call.writer, call.batch)
            return [PutRecord(made[0]), *over]

        after = 0 if last is None else last.sequence
        chunks = [chunk.events for chunk in self._chosen(call)]
        hosted.publish_whole(
            call.writer,
            after,
            chunks,
            changes,
            lambda: then(CommitOutcome(made[0], repeated=False)),
        )
        self._plan_review()

    def drop(self, call: DropBatch, then: Callable[[], None]) -> None:
        """Forget what is staged of a batch, and call back (S2)."""
        erased = self._forget(_BatchId(call.pubend, call.writer, call.batch))
        self._context.write(tuple(erased), then)

    # --- what is there ---------------------------------------------------------------------------

    def _is_over(self, pubend: PubendId, writer: str, batch: int) -> bool:
        """Say whether a batch, or one after it, is committed (S3)."""
        last = self._commits.get((pubend, writer))
        return last is not None and batch <= last.batch

    def _chosen(self, call: CommitBatch) -> list[_Chunk]:
        """Return the chunks that a commit names, in its order; all of them must be here."""
        if not call.parts:
            raise PublishRefusedError("a commit names at least one part")
        partitions = [partition for partition, _, _ in call.parts]
        if len(set(partitions)) < len(partitions):
            raise PublishRefusedError("a commit names one attempt for each partition")
        batch = self._batches.get(_BatchId(call.pubend, call.writer, call.batch))
        held = {} if batch is None else batch.chunks
        return [chunk for part in call.parts for chunk in _chunks_of(call, part, held)]

    def _refuse_when_full(self, record: StagedRecord) -> None:
        limit = self._context.parameters.staged_bytes_max
        if self.bytes + _size(record.events) > limit:
            self._context.mark("staged too much")
            raise PublishRefusedError(
                f"{self.bytes:,} bytes are staged here (limit staged_bytes_max = {limit:,}): "
                "write smaller batches, wait until others are committed, or raise the limit"
            )

    def _keep(self, record: StagedRecord) -> None:
        key = _BatchId(record.pubend, record.writer, record.batch)
        batch = self._batches.setdefault(key, _Batch({}, 0))
        chunk = _Chunk(record.key, PackedTemplate(record.events, record.writer))
        chunk_id = _ChunkId(record.partition, record.attempt, record.number)
        batch.keep(chunk_id, chunk, self._context.now)
        self.bytes += chunk.bytes

    def _forget(self, key: _BatchId) -> list[DeleteRecord]:
        """Take a batch out; return what has to be erased."""
        batch = self._batches.pop(key, None)
        if batch is None:
            return []
        self.bytes -= batch.bytes
        return [DeleteRecord(chunk.key) for chunk in batch.chunks.values()]

    def _forget_up_to(self, pubend: PubendId, writer: str, batch: int) -> list[DeleteRecord]:
        """Take out what can never be committed: batches of a writer up to one that is (S2)."""
        keys = [key for key in self._batches if key[:2] == (pubend, writer) and key.batch <= batch]
        return [erase for key in keys for erase in self._forget(key)]

    # --- what is too old -------------------------------------------------------------------------

    def _plan_review(self) -> None:
        if (self._batches or self._commits) and not self._is_planned:
            self._is_planned = True
            period = microseconds(s=self._context.parameters.staged_ttl_s) // 4
            self._context.call_later(max(1, period), self._review)

    def _review(self) -> None:
        """Erase what nobody will commit, and commits that nobody will repeat."""
        self._is_planned = False
        parameters = self._context.parameters
        staged_since = self._context.now - microseconds(s=parameters.staged_ttl_s)
        stale = [key for key, batch in self._batches.items() if batch.touched <= staged_since]
        changes = [erase for key in stale for erase in self._forget(key)]
        if stale:
            self._context.mark("staged too long ago")
        # a clock that is ahead for a while must not make it forget: the batch could be published again
        present = min(self._context.clock, self._clock_view())
        used_since = present - microseconds(s=parameters.commit_ttl_s)
        unused = [each for each in self._commits.values() if each.clock <= used_since]
        for each in unused:
            del self._commits[each.pubend, each.writer]
        changes += [DeleteRecord(each.key) for each in unused]
        if changes:
            self._context.write(tuple(changes), _nothing)
        self._plan_review()


def _nothing() -> None:
    """Nothing depends on this write."""


def refuse_names(*names: str) -> None:
    """Refuse a writer or an attempt without a name, or with one that is too long."""
    if not all(0 < len(name) <= WRITER_NAME_MAX for name in names):
        raise PublishRefusedError(
            f"the name of a writer, and of an attempt, has 1 to {WRITER_NAME_MAX} characters"
        )


def _chunks_of(call: CommitBatch, part: PartTuple, held: dict[_ChunkId, _Chunk]) -> list[_Chunk]:
    """Return the chunks of one part of a commit."""
    partition, attempt, count = part
    # looked at one by one: a count of any size must not cost more than what is there
    chunks: list[_Chunk] = []
    while len(chunks) < count:
        chunk = held.get(_ChunkId(partition, attempt, len(chunks)))
        if chunk is None:
            raise PublishRefusedError(
                f"batch {call.batch} of {call.writer!r} cannot be committed: chunk {len(chunks)} of "
                f"partition {partition}, attempt {attempt!r}, is not staged here; it was dropped, or "
                "staged too long ago (staged_ttl_s), or never; stage the batch again"
            )
        chunks.append(chunk)
    if not chunks:
        raise PublishRefusedError(f"partition {partition} is named without a chunk")
    return chunks


def _record_of(
    call: CommitBatch, sequence: int, first: Tick, final: Tick, clock: int
) -> CommitRecord:
    events = final - first + 1
    return CommitRecord(call.pubend, call.writer, call.batch, first, final, events, sequence, clock)


def _size(packed: bytes) -> int:
    return CHUNK_BYTES + len(packed)
