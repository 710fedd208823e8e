"""A writer that stages and commits, and the contents of the log and the disk."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend
from gapless.messages.records import CommitRecord, StagedRecord
from gapless.messages.staging import CommitBatch, DropBatch, StageChunk
from gapless.messages.streams import Events, Publication
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import Client


class Writer(Client):
    """Writes labels as events with an attribute ``label``."""

    def __init__(
        self, world: BrokerHarness, broker: str = "p", name: str = "w", advertisement: str = "TRUE"
    ) -> None:
        super().__init__(world, broker, name)
        self.call(OpenPubend(self.number(), "P", advertisement))

    def stage(
        self, *labels: str, batch: int = 1, partition: int = 0, attempt: str = "a", number: int = 0
    ) -> Any:
        """Stage a chunk and return the answer."""
        return self.call(self.chunk(*labels, at=(batch, partition, attempt, number)))

    def chunk(self, *labels: str, at: tuple[int, int, str, int] = (1, 0, "a", 0)) -> StageChunk:
        """Return a chunk to stage."""
        events: Events = tuple(({"label": label}, label.encode()) for label in labels)
        return StageChunk(self.number(), P, self.name, *at, events)

    def commit(self, *parts: tuple[int, str, int], batch: int = 1, pubend: PubendId = P) -> Any:
        """Commit a batch and return the answer."""
        return self.call(CommitBatch(self.number(), pubend, self.name, batch, parts))

    def drop(self, batch: int = 1) -> Any:
        """Drop a batch and return the answer."""
        return self.call(DropBatch(self.number(), P, self.name, batch))


def logged(world: BrokerHarness, broker: str = "p") -> list[Publication]:
    """Return the publications in the log of P on disk."""
    rows = world.nodes[broker].disk.logs.get(P, [])
    return [each for row in rows for each in row.publications]


def labels(world: BrokerHarness, broker: str = "p") -> list[str]:
    """Return the labels of the logged events."""
    return [each.payload.decode() for each in logged(world, broker)]


def staged(world: BrokerHarness, broker: str = "p") -> list[StagedRecord]:
    """Return the staged chunks on disk."""
    found = world.nodes[broker].disk.records.values()
    return [each for each in found if isinstance(each, StagedRecord)]


def commits(world: BrokerHarness, broker: str = "p") -> list[CommitRecord]:
    """Return the commit records on disk."""
    found = world.nodes[broker].disk.records.values()
    return [each for each in found if isinstance(each, CommitRecord)]
