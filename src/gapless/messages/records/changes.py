"""Log rows, and the changes that one write applies to records and logs."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.records.directory import PubendLocationRecord
from gapless.messages.records.overlay import (
    ConfigurationRecord,
    IncarnationRecord,
    NeighbourhoodRecord,
    RetirementRecord,
)
from gapless.messages.records.plans import PlanRecord
from gapless.messages.records.pubend import (
    EndedMembershipRecord,
    KnownHostRecord,
    LogHoldRecord,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    StreamEpochRecord,
    TickCeilingRecord,
    TombstoneRecord,
)
from gapless.messages.records.reshape import LockRecord, OperationRecord, PromiseRecord
from gapless.messages.records.staging import CommitRecord, StagedRecord
from gapless.messages.records.subscribers import JoinedPubendRecord, SubscriptionRecord
from gapless.messages.streams import Publication

__all__ = [
    "AppendPackedRow",
    "AppendRow",
    "DeleteRecord",
    "LogRow",
    "PackedRow",
    "PutRecord",
    "Record",
    "StorageChange",
    "TrimLog",
]


Record: TypeAlias = (
    IncarnationRecord
    | ConfigurationRecord
    | NeighbourhoodRecord
    | PubendRecord
    | StreamEpochRecord
    | TickCeilingRecord
    | TombstoneRecord
    | MemberRecord
    | LogHoldRecord
    | KnownHostRecord
    | EndedMembershipRecord
    | PublisherRecord
    | StagedRecord
    | CommitRecord
    | JoinedPubendRecord
    | PubendLocationRecord
    | RetirementRecord
    | SubscriptionRecord
    | PlanRecord
    | OperationRecord
    | LockRecord
    | PromiseRecord
)


class LogRow(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A batch of publications in a log. All other ticks from first to last are silence."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    control_version: int
    clock: int
    before: int
    """How many publications were ever logged before those of this row."""
    publications: tuple[Publication, ...]


class PackedRow(msgspec.Struct, frozen=True):
    """A log row with its publications undecoded: an array in msgpack."""

    first: Tick
    last: Tick
    before: int
    publications: bytes | memoryview


class PutRecord(msgspec.Struct, frozen=True):
    """Write a record; it replaces the one of the same key."""

    record: Record


class DeleteRecord(msgspec.Struct, frozen=True):
    """Delete the record of a key."""

    key: tuple[str, ...]


class AppendRow(msgspec.Struct, frozen=True):
    """Append a row to a pubend's log."""

    row: LogRow
    packed_events: bytes = b""
    """Its publications in encoded form; empty if they are not encoded yet."""


class AppendPackedRow(msgspec.Struct, frozen=True):
    """Append a row of packed events with consecutive ticks."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    clock: int
    before: int
    publications: bytes

    @property
    def events(self) -> int:
        """The number of events."""
        return self.last - self.first + 1


class TrimLog(msgspec.Struct, frozen=True):
    """Delete the rows that end at or below a tick."""

    pubend: PubendId
    up_to: Tick


StorageChange: TypeAlias = PutRecord | DeleteRecord | AppendRow | AppendPackedRow | TrimLog
