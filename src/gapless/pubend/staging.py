"""Staging: events on disk that one commit publishes whole, or that are deleted.

Theory of operation
-------------------
A *writer* writes numbered batches to a pubend. Several tasks make a batch, one for each partition,
and a task may fail, run again, or run twice at once. So a task only *stages*: its attempt sends
chunks, each of which is a record on disk and not yet published. When all tasks are done, a *commit*
names one attempt for each partition. Its chunks become rows of the log, in the order of the
partitions and of the chunks. The same write has the publisher's record and the record of the
commit, and deletes everything that was staged of this batch and of earlier ones.

States of a batch of a writer::

    nothing --Stage--> STAGED --CommitBatch--> COMMITTED
    STAGED --DropBatch, staged_ttl_s without another Stage--> nothing

A repeated commit is recognised by the record of the last one: a batch that is not above it was
committed before, and is answered and not done again. The record is kept for ``commit_ttl_s``, which
is longer than any writer waits before it retries. A chunk that would exceed ``staged_bytes_max`` is
refused.

The events have the writer as their publisher, and consecutive sequences. A commit fences the
sessions of an ordinary publisher of that name: one name cannot have two sequence counters.

Invariants
----------
- **S1** A batch of a writer is in the log whole and once, or not at all. One write has the rows and
  the record of the commit, so a crash leaves both or neither.
- **S2** What is staged and not committed leaves no trace: no subscriber receives it, and it is
  deleted.
- **S3** No batch is committed after a later one of the same writer.

A commit is one step, in which the broker does nothing else. To keep it short, chunks are packed for
the log when they are staged: only ticks and sequences are missing (:mod:`gapless.packed.template`).
So a commit takes about as long as copying its bytes, at most ``staged_bytes_max``. The rows are
sent to subscribers one by one, in later steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.limits import WRITER_NAME_MAX
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
from gapless.pubend.publishers import PublishRefusedError, refuse_crowds

__all__ = ["CHUNK_BYTES", "CommitOutcome", "Staging"]

CHUNK_BYTES: Final = 256
"""The size of a chunk without its events."""


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
        """The size in bytes."""
        return _size(self.events.packed)


class _Batch(msgspec.Struct):
    """The staged chunks of one batch."""

    chunks: dict[_ChunkId, _Chunk]
    touched: int
    """When a chunk was last staged; after a restart, the time of the restart."""

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return sum(chunk.bytes for chunk in self.chunks.values())

    def keep(self, chunk_id: _ChunkId, chunk: _Chunk, now: int) -> None:
        """Add a chunk, or replace the one of the same id."""
        self.chunks[chunk_id] = chunk
        self.touched = now


class CommitOutcome(msgspec.Struct, frozen=True):
    """The result of a commit; ``record`` is None if the batch is older than the last one."""

    record: CommitRecord | None
    repeated: bool


class Staging:
    """All staged batches of one broker, and the last commit of every writer."""

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
        """The size of all staged chunks."""
        for commit in commits:
            self._commits[commit.pubend, commit.writer] = commit
        for record in staged:
            self._keep(record)

    def start(self) -> None:
        """Start to delete batches and commits that are too old, at intervals."""
        self._plan_review()

    @property
    def batch_sizes(self) -> Collection[int]:
        """The size of each staged batch in bytes."""
        return [batch.bytes for batch in self._batches.values()]

    # --- requests --------------------------------------------------------------------------------

    def stage(self, hosted: Pubend, call: StageChunk, then: Callable[[], None]) -> None:
        """Store a chunk and call back; raise PublishRefusedError if it is refused."""
        refuse_names(call.writer, call.attempt)
        batch = self._batches.get(_BatchId(call.pubend, call.writer, call.batch))
        is_kept = (
            batch is not None
            and _ChunkId(call.partition, call.attempt, call.number) in batch.chunks
        )
        if is_kept or self._is_over(call.pubend, call.writer, call.batch):
            self._context.mark("staged again")
            self._context.write((), then)  # after the first copy, which may wait for the disk
            return
        hosted.refuse_when_sealed()
        if not call.events:
            raise PublishRefusedError("a chunk has at least one event")
        refuse_crowds(call.events)
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
        """Publish a batch whole and once; raise PublishRefusedError if it is refused (S1)."""
        refuse_names(call.writer)
        last = self._commits.get((call.pubend, call.writer))
        if last is not None and self._is_over(call.pubend, call.writer, call.batch):
            self._context.mark("commit repeated")
            found = last if last.batch == call.batch else None
            over = self._forget_up_to(call.pubend, call.writer, call.batch)
            if over:
                self._context.write(tuple(over))
            # the first commit may still wait for the disk: the reply waits for that write
            hosted.after_sent(lambda: then(CommitOutcome(found, repeated=True)))
            return
        made: list[CommitRecord] = []

        def changes(sequence: int, first: Tick, final: Tick) -> list[StorageChange]:
            # with a clock that is behind, the record would look old after the clock is corrected
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
        """Delete a staged batch, and call back (S2)."""
        erased = self._forget(_BatchId(call.pubend, call.writer, call.batch))
        self._context.write(tuple(erased), then)

    def erase(self, pubend: PubendId) -> list[DeleteRecord]:
        """Forget everything of a pubend that ends; return the storage changes (RS-33)."""
        keys = [key for key in self._batches if key.pubend == pubend]
        changes = [erase for key in keys for erase in self._forget(key)]
        commits = [each for each in self._commits.values() if each.pubend == pubend]
        for each in commits:
            del self._commits[each.pubend, each.writer]
        return changes + [DeleteRecord(each.key) for each in commits]

    # --- batches and chunks ----------------------------------------------------------------------

    def _is_over(self, pubend: PubendId, writer: str, batch: int) -> bool:
        """Return whether a batch, or a later one, is committed (S3)."""
        last = self._commits.get((pubend, writer))
        return last is not None and batch <= last.batch

    def _chosen(self, call: CommitBatch) -> list[_Chunk]:
        """Return the chunks that a commit names, in its order; refuse if one is missing."""
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
            self._context.mark("staged bytes at their limit")
            raise PublishRefusedError(
                f"{self.bytes:,} bytes are staged here (limit staged_bytes_max = {limit:,}); "
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
        """Remove a batch; return the storage changes."""
        batch = self._batches.pop(key, None)
        if batch is None:
            return []
        self.bytes -= batch.bytes
        return [DeleteRecord(chunk.key) for chunk in batch.chunks.values()]

    def _forget_up_to(self, pubend: PubendId, writer: str, batch: int) -> list[DeleteRecord]:
        """Remove the batches of a writer up to a committed one; return the storage changes (S2)."""
        keys = [key for key in self._batches if key[:2] == (pubend, writer) and key.batch <= batch]
        return [erase for key in keys for erase in self._forget(key)]

    # --- expiry ----------------------------------------------------------------------------------

    def _plan_review(self) -> None:
        if (self._batches or self._commits) and not self._is_planned:
            self._is_planned = True
            period = microseconds(s=self._context.parameters.staged_ttl_s) // 4
            self._context.call_later(max(1, period), self._review)

    def _review(self) -> None:
        """Delete expired batches, and the records of commits that are not repeated any more."""
        self._is_planned = False
        parameters = self._context.parameters
        staged_since = self._context.now - microseconds(s=parameters.staged_ttl_s)
        stale = [key for key, batch in self._batches.items() if batch.touched <= staged_since]
        changes = [erase for key in stale for erase in self._forget(key)]
        if stale:
            self._context.mark("staged too long ago")
        # the least of the clocks: after a wrong expiry a batch could be published again
        present = min(self._context.clock, self._clock_view())
        used_since = present - microseconds(s=parameters.commit_ttl_s)
        unused = [each for each in self._commits.values() if each.clock <= used_since]
        for each in unused:
            del self._commits[each.pubend, each.writer]
        changes += [DeleteRecord(each.key) for each in unused]
        if changes:
            self._context.write(tuple(changes))
        self._plan_review()


def refuse_names(*names: str) -> None:
    """Refuse an empty or too long name of a writer or an attempt."""
    if not all(0 < len(name) <= WRITER_NAME_MAX for name in names):
        raise PublishRefusedError(
            f"the name of a writer or an attempt must have 1 to {WRITER_NAME_MAX} characters"
        )


def _chunks_of(call: CommitBatch, part: PartTuple, held: dict[_ChunkId, _Chunk]) -> list[_Chunk]:
    """Return the chunks of one part of a commit."""
    partition, attempt, count = part
    # one by one up to the first missing chunk: a huge count must not cost anything
    chunks: list[_Chunk] = []
    while len(chunks) < count:
        chunk = held.get(_ChunkId(partition, attempt, len(chunks)))
        if chunk is None:
            raise PublishRefusedError(
                f"batch {call.batch} of {call.writer!r} cannot be committed: chunk {len(chunks)} of "
                f"partition {partition}, attempt {attempt!r}, is not staged here: it was dropped, or "
                "has expired (staged_ttl_s), or was never staged; stage the batch again"
            )
        chunks.append(chunk)
    if not chunks:
        raise PublishRefusedError(f"a commit names partition {partition} without a chunk")
    return chunks


def _record_of(
    call: CommitBatch, sequence: int, first: Tick, final: Tick, clock: int
) -> CommitRecord:
    events = final - first + 1
    return CommitRecord(call.pubend, call.writer, call.batch, first, final, events, sequence, clock)


def _size(packed: bytes) -> int:
    return CHUNK_BYTES + len(packed)
