"""The durable records of a broker, each with a key, and the changes to them.

A change is applied completely or not at all. A record replaces the record of the same key. Log rows
have no key: they are appended, read by range, and trimmed from the low end.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gapless.core.ids import (
    BrokerId,
    CellId,
    MembershipId,
    PubendId,
    ShbId,
    VectorEntry,
    VirtualTime,
)
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime, Order, PositionTuple, StartPoint
from gapless.messages.overlay import CellInfo, PubendProperties
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.streams import Publication

__all__ = [
    "AppendPackedRow",
    "AppendRow",
    "CommitRecord",
    "ConfigurationRecord",
    "DeleteRecord",
    "EndedMembershipRecord",
    "FilterSegmentRecord",
    "IncarnationRecord",
    "JoinedPubendRecord",
    "KnownHostRecord",
    "LogHoldRecord",
    "LogRow",
    "MemberRecord",
    "MergeExclusionRecord",
    "NeighbourhoodRecord",
    "PackedRow",
    "PubendLocationRecord",
    "PubendRecord",
    "PublisherRecord",
    "PutRecord",
    "Record",
    "RetirementRecord",
    "StagedRecord",
    "StorageChange",
    "StreamEpochRecord",
    "SubscriptionRecord",
    "TrimLog",
]


class IncarnationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker's incarnation. It grows with every start, independent of the clock (A9)."""

    incarnation: int

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("incarnation",)


class ConfigurationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker that owns the data directory and its tree, as configured at the first start."""

    broker: BrokerId
    cell: CellId
    delta: int
    """How many consecutive unreachable cells are bypassed."""
    version: int
    cells: tuple[CellInfo, ...]
    """The neighbourhood, nearest first."""

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("configuration",)


class NeighbourhoodRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The neighbourhood after the last reshape; there is no record before the first one (R13)."""

    own: CellId
    version: int
    cells: tuple[CellInfo, ...]
    """Nearest first."""

    @property
    def key(self) -> tuple[str, ...]:
        """The only key of this kind."""
        return ("neighbourhood",)


class PubendRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend that this broker hosts."""

    pubend: PubendId
    properties: PubendProperties
    announcement_version: int
    ceiling: Tick
    """The tick ceiling. Silence may have been sent up to it, so later events are above it (R29)."""
    released: Tick
    """Ticks up to this one are no longer in the log (R56)."""
    log_size_marks: tuple[tuple[Tick, int], ...] = ()
    """For some ticks, lowest first, the total bytes ever logged up to the tick (R58)."""
    last_released_event: Tick = 0
    """The last released tick that may have been an event. Released ticks above it were silence."""
    last_event: Tick = 0
    """At least the tick of the last event of every publisher whose record was deleted."""
    past_advertisements: tuple[tuple[Tick, str], ...] = ()
    """Former narrower advertisements, oldest first, each with a tick up to which all events
    match it."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return ("pubend", str(self.pubend))


class StreamEpochRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stream epoch of a hosted pubend. The vector of an epoch number never changes (R31)."""

    pubend: PubendId
    number: int
    start: Tick
    announcement_version: int
    entries: tuple[tuple[ShbId, VectorEntry], ...]

    @property
    def key(self) -> tuple[str, ...]:
        """One record per stream epoch."""
        return ("stream epoch", str(self.pubend), f"{self.number:020}")


class MemberRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A member of a hosted pubend. The log is retained above its ack floor (R53)."""

    pubend: PubendId
    shb: ShbId
    membership: MembershipId
    time: VirtualTime
    durable: bool
    inactive: bool
    ack_floor: Tick

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and SHB."""
        return self.key_of(self.pubend, self.shb)

    @staticmethod
    def key_of(pubend: PubendId, shb: ShbId) -> tuple[str, ...]:
        """Return the key of an SHB's membership."""
        return ("member", str(pubend), str(shb))


class EndedMembershipRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last ended membership of an SHB. Reports of it that arrive later are ignored (R55)."""

    pubend: PubendId
    shb: ShbId
    membership: MembershipId

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and SHB."""
        return self.key_of(self.pubend, self.shb)

    @staticmethod
    def key_of(pubend: PubendId, shb: ShbId) -> tuple[str, ...]:
        """Return the key of an SHB's last ended membership."""
        return ("ended membership", str(pubend), str(shb))


class LogHoldRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A log hold: the log above its tick is retained for a subscription (R49)."""

    pubend: PubendId
    log_hold: LogHoldId
    tick: Tick
    refreshed: int

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and log hold."""
        return ("log hold", str(self.pubend), str(self.log_hold.shb), self.log_hold.subscription)


class KnownHostRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A known host: an SHB whose subscriptions a PHB knows before it is a member (R46)."""

    pubend: PubendId
    shb: ShbId
    known: tuple[tuple[VirtualTime, Tick], ...]
    """Virtual times of the SHB, each with the tick from which on the PHB's tables had it. Both
    grow."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and SHB."""
        return ("known host", str(self.pubend), str(self.shb))


class PublisherRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last sequences of a publisher, by which a repeated publication is recognized (R27)."""

    pubend: PubendId
    publisher: str
    session: int
    last_sequence: int
    window: tuple[tuple[int, Tick, int], ...]
    """The last published batches, ascending: first sequence, its tick, number of events. The
    sequences and the ticks of a batch are consecutive."""
    used: int
    logged_bytes: int = 0
    """The total bytes ever logged by the pubend up to its last publication (R58)."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and publisher."""
        return ("publisher", str(self.pubend), self.publisher)


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


class JoinedPubendRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This SHB's membership with a pubend (R43)."""

    pubend: PubendId
    membership: MembershipId
    abandoned: bool = False
    """Whether the PHB was retired and no broker has fed the pubend since (R26)."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return ("joined pubend", str(self.pubend))


class PubendLocationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Another broker has a pubend, so this broker creates none of that name."""

    pubend: PubendId
    broker: BrokerId
    host_retired: bool = False
    """Whether that broker was retired: the name is free and no broker waits for the pubend."""
    lost: bool = False
    """Whether that broker returned without the pubend. True until a broker feeds it again."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return ("pubend location", str(self.pubend))


class RetirementRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last retirement of a broker, or its return after it (R26)."""

    shb: ShbId
    version: int
    returned_at: Tick
    """0 if it is retired. Else none of its pubends had a tick above this one at its return."""
    without_pubends: bool = False
    """Whether it returned without any pubend."""
    heard_at: int = 0
    """When this broker received it, by the median clock of the neighbourhood; 0 if not noted."""
    late: bool = False
    """Whether it was too old to be acted on when it was received."""
    previously_returned_at: Tick = 0
    """The previous ``returned_at``; 0 if there was no return before."""
    pubends: tuple[PubendId, ...] | None = None
    """The pubends that it returned with; None if it named none."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per broker."""
        return self.key_of(self.shb)

    @staticmethod
    def key_of(shb: ShbId) -> tuple[str, ...]:
        """Return the key of a broker's retirement."""
        return ("retirement", str(shb))


class FilterSegmentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A filter of a durable subscription and the last tick per pubend to which it applies (R47)."""

    filter: str
    time: VirtualTime
    """The virtual start time. A stream whose vector has reached it serves the filter."""
    ends: PositionTuple
    since: tuple[HostTime, ...] = ()
    """Host times at which former hosting brokers had the filter (R46)."""


class MergeExclusionRecord(msgspec.Struct, frozen=True, array_like=True):
    """In total order: the merge continues without a pubend whose PHB was retired (R26, R51)."""

    pubend: PubendId
    excluded_after: Tick
    """The tick up to which the subscription had received everything of the pubend."""
    merged: Tick
    """The tick merged at that time; 0 if the client may have been sent an event since."""
    skipped_up_to: Tick
    """0 during the exclusion. Afterwards the ticks above ``excluded_after`` up to this one are a
    gap."""


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A durable subscription: its filters, starts and acknowledged position (R50)."""

    subscription: str
    segments: tuple[FilterSegmentRecord, ...]
    """Oldest first. The last one applies to all ticks to which no other applies."""
    acked: PositionTuple
    started_after: PositionTuple
    """The tick before its start on each pubend; on disk before the client is sent the start."""
    order: Order
    start: StartPoint
    """Where it starts on pubends on which it has not started."""
    log_holds: tuple[tuple[PubendId, str], ...]
    """The names of its log holds; of one pubend the newest is the last (R49)."""
    expiry_s: int
    """It ends when its client was disconnected for this time. A broker restart resets the count."""
    merged: Tick = 0
    """In total order: the tick of the last event sent to the client."""
    unconfirmed_starts: tuple[PubendId, ...] = ()
    """Pubends on which it started while its client was disconnected, not yet sent to the client."""
    seek_count: int = 0
    """How many seeks of an operator changed its position."""
    unconfirmed_seeks: tuple[tuple[PubendId, int], ...] = ()
    """Pubends with a seek that the client may not know, each with the number of the seek."""
    from_earliest: tuple[PubendId, ...] = ()
    """Pubends on which it continues with the oldest event of the log, whose tick is not known
    yet."""
    incarnation_key: str = ""
    """Identifies the subscription at every hosting broker."""
    epoch: int = 0
    """How many times it has changed its hosting broker."""
    host_guarantees: tuple[tuple[PubendId, VirtualTime], ...] = ()
    """Pubends created later than the subscription on which it has not started, each with the
    virtual time of the filter that its client knew when this SHB learned of the pubend (R46)."""
    confirmed_filter: tuple[str, VirtualTime] | None = None
    """The filter that its client knows and its virtual start time; None if it is the newest
    filter."""
    confirmed_filter_times: tuple[HostTime, ...] = ()
    """Host times at which former hosting brokers had the confirmed filter."""
    former_host_guarantees: tuple[tuple[PubendId, tuple[HostTime, ...]], ...] = ()
    """Pubends on which it has not started, with the host times of former hosting brokers (R46). A
    pubend without host times here and in ``host_guarantees`` has no start guarantee."""
    merge_exclusions: tuple[MergeExclusionRecord, ...] = ()
    """In total order: pubends that the merge excludes, or excluded with a gap not yet
    acknowledged."""
    previous_confirmed_filter: tuple[str, VirtualTime, tuple[HostTime, ...]] | None = None
    """The filter that its client knew when an earlier incarnation joined pubends that were not
    announced since; None if it is ``confirmed_filter``."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per subscription."""
        return self.key_of(self.subscription)

    @staticmethod
    def key_of(subscription: str) -> tuple[str, ...]:
        """Return the key of a subscription's record."""
        return ("subscription", subscription)


Record: TypeAlias = (
    IncarnationRecord
    | ConfigurationRecord
    | NeighbourhoodRecord
    | PubendRecord
    | StreamEpochRecord
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
)


class LogRow(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A batch of publications in a log. All other ticks from first to last are silence."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    control_version: int
    clock: int
    publications: tuple[Publication, ...]


class PackedRow(msgspec.Struct, frozen=True):
    """A log row with its publications undecoded: an array in msgpack."""

    first: Tick
    last: Tick
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
