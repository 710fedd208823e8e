"""Records of staged batches and their commits."""

from __future__ import annotations

import msgspec

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick

__all__ = [
    "CommitRecord",
    "StagedRecord",
]


class StagedRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A chunk of staged events. No subscription receives them before the commit (S1, S2)."""

    pubend: PubendId
    writer: str
    batch: int
    partition: int
    attempt: str
    number: int
    events: bytes
    """Packed events in the format of the log, with placeholders for ticks and sequences."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per chunk."""
        numbers = (f"{each:020}" for each in (self.batch, self.partition, self.number))
        batch, partition, number = numbers
        return ("staged", str(self.pubend), self.writer, batch, partition, self.attempt, number)


class CommitRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last batch that a writer committed, by which a repeated commit is recognized (S1, S3)."""

    pubend: PubendId
    writer: str
    batch: int
    first: Tick
    last: Tick
    events: int
    sequence: int
    """The last sequence. The next batch continues after it, also if the publisher's record is
    gone."""
    clock: int

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and writer."""
        return ("commit", str(self.pubend), self.writer)
