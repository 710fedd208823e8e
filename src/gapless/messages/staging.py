"""Messages of staging: events that are stored first and published by a commit.

They serve programs that write a batch in several tasks, some of which fail or run twice, such as
Spark. Each attempt of a task stages its events. One commit names the attempts that count, and their
events are published together. :mod:`gapless.pubend.staging` describes the implementation.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gapless.core.ids import PubendId
from gapless.core.numbers import ClientCount, Count
from gapless.core.ticks import Tick
from gapless.messages.streams import Events

__all__ = [
    "BatchCommitted",
    "BatchDropped",
    "ChunkStaged",
    "CommitBatch",
    "DropBatch",
    "PartTuple",
    "StageChunk",
]

PartTuple: TypeAlias = tuple[ClientCount, str, ClientCount]
"""A part of a commit: a partition, its attempt that counts, and the number of chunks of that."""


class StageChunk(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stores a chunk of events until it is committed, dropped or expired. Idempotent.

    A chunk of a batch that is already committed is not stored.
    """

    request: ClientCount
    pubend: PubendId
    writer: str
    """The name of the writer that commits, which is the publisher of the events."""
    batch: ClientCount
    """The batches of a writer are committed in the order of their numbers."""
    partition: ClientCount
    attempt: str
    """A name that no other attempt of this batch had, also not before a restart. The rows of a
    second attempt may have another order, and chunks of two attempts must not mix."""
    number: ClientCount
    """The index of the chunk in its attempt, from 0."""
    events: Events


class ChunkStaged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chunk is on disk."""

    request: Count


class CommitBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Publishes the chunks of these attempts in one step and drops the rest of the batch."""

    request: ClientCount
    pubend: PubendId
    writer: str
    batch: ClientCount
    parts: tuple[PartTuple, ...]
    """In the order of publication, one attempt per partition."""


class BatchCommitted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The whole batch is in the log, from tick ``first`` to ``last``."""

    request: Count
    first: Tick
    last: Tick
    events: Count
    repeated: bool = False
    """Whether this batch or a later one was committed before. Then the commit had no effect. The
    ticks are known only of the last committed batch and are 0 for earlier ones."""


class DropBatch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drops all chunks of a batch."""

    request: ClientCount
    pubend: PubendId
    writer: str
    batch: ClientCount


class BatchDropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """No chunk of the batch is stored any more."""

    request: Count
