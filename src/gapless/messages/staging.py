"""Messages of staging: events that are stored first and published by a commit.

They serve programs that write a batch in several tasks, some of which fail or run twice, such as
Spark. Each attempt of a task stages its events. One commit names the attempts that count, and their
events are published together. :mod:`gapless.pubend.staging` describes the implementation.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.core.limits import SEQUENCE_MAX
from gapless.core.ticks import Tick

__all__ = [
    "BatchCommitted",
    "BatchDropped",
    "ChunkStaged",
    "CommitBatch",
    "Count",
    "DropBatch",
    "PartTuple",
    "StageChunk",
]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]
"""A number from 0."""

PartTuple: TypeAlias = tuple[Count, str, Count]
"""A part of a commit: a partition, its attempt that counts, and the number of chunks of that."""


class StageChunk(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stores a chunk of events until it is committed, dropped or expired. Idempotent.

    A chunk of a batch that is already committed is not stored.
    """

    request: int
    pubend: PubendId
    writer: str
    """The name of the writer that commits, which is the publisher of the events."""
    batch: Count
    """The batches of a writer are committed in the order of their numbers."""
    partition: Count
    attempt: str
    """A name that no other attempt of this batch had, also not before a restart. The rows of a
    second attempt may have another order, and chunks of two attempts must not mix."""
    number: Count
    """The index of the chunk in its attempt, from 0."""
    events: tuple[tuple[dict[str, Value], bytes], ...]


class ChunkStaged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chunk is on disk."""

    request: int


class CommitBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Publishes the chunks of these attempts in one step and drops the rest of the batch."""

    request: int
    pubend: PubendId
    writer: str
    batch: Count
    parts: tuple[PartTuple, ...]
    """In the order of publication, one attempt per partition."""


class BatchCommitted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The whole batch is in the log, from tick ``first`` to ``last``."""

    request: int
    first: Tick
    last: Tick
    events: int
    repeated: bool = False
    """Whether this batch or a later one was committed before. Then the commit had no effect. The
    ticks are known only of the last committed batch and are 0 for earlier ones."""


class DropBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drops all chunks of a batch."""

    request: int
    pubend: PubendId
    writer: str
    batch: Count


class BatchDropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """No chunk of the batch is stored any more."""

    request: int
