"""Messages of staging: events that are sent before it is known whether they will be published.

For programs that write a batch in several tasks, some of which fail or run twice, as Spark does. Each
attempt of a task stages what it has; at the end one commit names the attempts that count, and these
are published together. How that works is in :mod:`gapless.pubend.staging`.
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
"""A number that begins at 0."""

PartTuple: TypeAlias = tuple[Count, str, Count]
"""A part of a commit: a partition, the attempt of it that counts, and how many chunks that has."""


class StageChunk(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Keep a chunk of events until it is committed, dropped or too old; asked twice, kept once.

    A chunk of a batch that is committed already is not kept: nothing can come of it.
    """

    request: int
    pubend: PubendId
    writer: str
    """Who commits. Its events have it as their publisher."""
    batch: Count
    """Batches of a writer are committed in the order of their numbers."""
    partition: Count
    attempt: str
    """Who stages a partition once more takes a name that no attempt of this batch had, also not before
    a restart: the same rows may come in another order, and chunks of two attempts must not mix."""
    number: Count
    """The place of the chunk among those of its attempt, from 0 on."""
    events: tuple[tuple[dict[str, Value], bytes], ...]


class ChunkStaged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chunk is on disk."""

    request: int


class CommitBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Publish what these attempts have staged, all of it in one step; forget the rest of the batch."""

    request: int
    pubend: PubendId
    writer: str
    batch: Count
    parts: tuple[PartTuple, ...]
    """In this order they are published. A partition has one attempt."""


class BatchCommitted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The batch is in the log, whole, from the first of these ticks to the last."""

    request: int
    first: Tick
    last: Tick
    events: int
    repeated: bool = False
    """Whether this batch, or one after it, was committed before. Then nothing was done now; of a batch
    before the last one the ticks are no longer known, and are 0."""


class DropBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget what is staged of a batch."""

    request: int
    pubend: PubendId
    writer: str
    batch: Count


class BatchDropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Nothing is staged of that batch, also not on disk."""

    request: int
