"""What a broker keeps on disk, as records with a key, and the changes to them.

A change is applied whole or not at all. A record replaces the one with its kind and key. Log rows
are apart: they are appended, read by range, and trimmed from the low end.
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
    """The broker's life: grows with every start, whatever the clock says (A9)."""

    incarnation: int

    @property
    def key(self) -> tuple[str, ...]:
        """There is one."""
        return ("incarnation",)


class ConfigurationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Whose data this is, and in which tree it was made, as configured at the first start."""

    broker: BrokerId
    cell: CellId
    delta: int
    """How many unreachable cells in a row were to be bypassed."""
    version: int
    cells: tuple[CellInfo, ...]
    """The neighbourhood, nearest first."""

    @property
    def key(self) -> tuple[str, ...]:
        """There is one."""
        return ("configuration",)


class NeighbourhoodRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The tree around this broker since it was last reshaped; before that, as configured (R13)."""

    own: CellId
    version: int
    cells: tuple[CellInfo, ...]
    """Nearest first."""

    @property
    def key(self) -> tuple[str, ...]:
        """There is one."""
        return ("neighbourhood",)


class PubendRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend that this broker hosts."""

    pubend: PubendId
    properties: PubendProperties
    announcement_version: int
    ceiling: Tick
    """Silence may have been told up to here: no event may come below it after a crash (R29)."""
    released: Tick
    """What is not above this is no longer in the log (R56)."""
    log_size_marks: tuple[tuple[Tick, int], ...] = ()
    """How many bytes were ever logged up to some ticks, lowest first (R58)."""
    last_released_event: Tick = 0
    """The last tick that may have held an event and is released; what is above it was silence."""
    last_event: Tick = 0
    """Not below the last event of every publisher that was forgotten."""
    past_advertisements: tuple[tuple[Tick, str], ...] = ()
    """Narrower advertisements, oldest first, each with a tick up to which no wider one was used."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a pubend."""
        return ("pubend", str(self.pubend))


class StreamEpochRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A regime of a hosted pubend: its number means this vector for ever (R31)."""

    pubend: PubendId
    number: int
    start: Tick
    announcement_version: int
    entries: tuple[tuple[ShbId, VectorEntry], ...]

    @property
    def key(self) -> tuple[str, ...]:
        """One a number."""
        return ("stream epoch", str(self.pubend), f"{self.number:020}")


class MemberRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscriber host that wants a hosted pubend; the log is kept above its floor (R53)."""

    pubend: PubendId
    shb: ShbId
    membership: MembershipId
    time: VirtualTime
    durable: bool
    inactive: bool
    ack_floor: Tick

    @property
    def key(self) -> tuple[str, ...]:
        """One a subscriber host."""
        return self.key_of(self.pubend, self.shb)

    @staticmethod
    def key_of(pubend: PubendId, shb: ShbId) -> tuple[str, ...]:
        """Return the key of a host's row."""
        return ("member", str(pubend), str(shb))


class EndedMembershipRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stay of a subscriber host with a hosted pubend that has ended: what is still on its way of it
    does not count (R55).
    """

    pubend: PubendId
    shb: ShbId
    membership: MembershipId

    @property
    def key(self) -> tuple[str, ...]:
        """One a subscriber host."""
        return self.key_of(self.pubend, self.shb)

    @staticmethod
    def key_of(pubend: PubendId, shb: ShbId) -> tuple[str, ...]:
        """Return the key of a host's last stay."""
        return ("ended membership", str(pubend), str(shb))


class LogHoldRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Part of a log that a catch-up still needs (R49)."""

    pubend: PubendId
    log_hold: LogHoldId
    tick: Tick
    refreshed: int

    @property
    def key(self) -> tuple[str, ...]:
        """One a subscription."""
        return ("log hold", str(self.pubend), str(self.log_hold.shb), self.log_hold.subscription)


class KnownHostRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What was known of a subscriber host before it came to a hosted pubend, and since when (R46)."""

    pubend: PubendId
    shb: ShbId
    known: tuple[tuple[VirtualTime, Tick], ...]
    """Up to which virtual time its news was here, each with the tick from which on; both grow."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a subscriber host."""
        return ("known host", str(self.pubend), str(self.shb))


class PublisherRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How far a publisher has come, so that a repeated publication is known again (R27)."""

    pubend: PubendId
    publisher: str
    session: int
    last_sequence: int
    window: tuple[tuple[int, Tick, int], ...]
    """The last batches that were published, ascending: the first sequence, its tick, how many. The
    sequences of a batch and their ticks follow each other without a gap."""
    used: int
    logged_bytes: int = 0
    """How many bytes the pubend had ever logged with its last publication (R58)."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a publisher and pubend."""
        return ("publisher", str(self.pubend), self.publisher)


class StagedRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A chunk of events that wait for a commit (S1, S2); nobody sees them before that."""

    pubend: PubendId
    writer: str
    batch: int
    partition: int
    attempt: str
    number: int
    events: bytes
    """Packed as the log will have them, with blanks for their ticks and sequences."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a chunk."""
        numbers = (f"{each:020}" for each in (self.batch, self.partition, self.number))
        batch, partition, number = numbers
        return ("staged", str(self.pubend), self.writer, batch, partition, self.attempt, number)


class CommitRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last batch that a writer has committed, so that a repeated commit is known again (S1, S3)."""

    pubend: PubendId
    writer: str
    batch: int
    first: Tick
    last: Tick
    events: int
    sequence: int
    """The last one; the next batch goes on after it, also when the publisher is forgotten."""
    clock: int

    @property
    def key(self) -> tuple[str, ...]:
        """One a writer and pubend."""
        return ("commit", str(self.pubend), self.writer)


class JoinedPubendRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This broker's stay with a pubend, as a host of subscribers (R43)."""

    pubend: PubendId
    membership: MembershipId
    abandoned: bool = False
    """Whether the pubend's broker was retired, and nobody has fed this one since (R26)."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a pubend."""
        return ("joined pubend", str(self.pubend))


class PubendLocationRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Another broker has a pubend, as this one has heard: so none of that name is made here."""

    pubend: PubendId
    broker: BrokerId
    host_retired: bool = False
    """Whether that broker was retired: the name is free, and nobody waits for the pubend."""
    lost: bool = False
    """Whether that broker was back without it: so it stays, until somebody feeds it."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a pubend."""
        return ("pubend location", str(self.pubend))


class RetirementRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker will never return, as was said of it last; or it was retired, and is back (R26)."""

    shb: ShbId
    version: int
    returned_at: Tick
    """0: it is retired. Else none of its pubends had a tick above this when it was back."""
    without_pubends: bool = False
    """Whether it was back without any pubend."""
    heard_at: int = 0
    """When this broker heard of it, by the clocks around it; 0 if that was not noted."""
    late: bool = False
    """Whether it was too old by then to count."""
    previously_returned_at: Tick = 0
    """What ``returned_at`` was before; 0 if it was not back before."""
    pubends: tuple[PubendId, ...] | None = None
    """The pubends that it was back with, as it has named them."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a broker."""
        return self.key_of(self.shb)

    @staticmethod
    def key_of(shb: ShbId) -> tuple[str, ...]:
        """Return the key of what was said of a broker."""
        return ("retirement", str(shb))


class FilterSegmentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A filter of a durable subscription, and up to where it governs each pubend (R47)."""

    filter: str
    time: VirtualTime
    """Its virtual start time when it was made: a stream that has reached it owes it events."""
    ends: PositionTuple
    since: tuple[HostTime, ...] = ()
    """When other hosts had it, before the subscription came here (R46)."""


class MergeExclusionRecord(msgspec.Struct, frozen=True, array_like=True):
    """A pubend without which the others go on in total order, as its broker was retired (R26, R51)."""

    pubend: PubendId
    excluded_after: Tick
    """Up to where the subscription had taken everything of it."""
    merged: Tick
    """What was merged then; 0 if its client may have been given something since."""
    skipped_up_to: Tick
    """0 while they go on without it. Then: what it has above where it stood and up to here comes too late."""


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A durable subscription: what it asks for and how far its client has acknowledged (R50)."""

    subscription: str
    segments: tuple[FilterSegmentRecord, ...]
    """Oldest first; the last one governs wherever no other does."""
    acked: PositionTuple
    started_after: PositionTuple
    """After which tick it began on each pubend; on disk before its client is told."""
    order: Order
    start: StartPoint
    """Where it begins on pubends that it has not begun on."""
    log_holds: tuple[tuple[PubendId, str], ...]
    """The names under which logs are held for it, of each pubend the newest last (R49)."""
    expiry_s: int
    """It ends when its client was away for so long, counted anew when its broker restarts."""
    merged: Tick = 0
    """In total order: the tick of the last event that its client was sent."""
    unconfirmed_starts: tuple[PubendId, ...] = ()
    """Pubends on which it began while its client was away, and of which that has not heard."""
    seek_count: int = 0
    """How often an operator has moved it."""
    unconfirmed_seeks: tuple[tuple[PubendId, int], ...] = ()
    """Pubends on which a seek moved it that its client may not have seen, with that seek's number."""
    from_earliest: tuple[PubendId, ...] = ()
    """Pubends on which it goes on with the oldest that the log has, which is not known yet."""
    incarnation_key: str = ""
    """Which subscription it is, wherever it moves."""
    epoch: int = 0
    """How often it has moved."""
    host_guarantees: tuple[tuple[PubendId, VirtualTime], ...] = ()
    """Pubends that were made later than it and that it has not begun on, each with the virtual time of the
    filter that its client knew of when its host heard of the pubend (R46)."""
    confirmed_filter: tuple[str, VirtualTime] | None = None
    """What its client was told of its filter, and since when that was wanted, if it is not the newest."""
    confirmed_filter_times: tuple[HostTime, ...] = ()
    """Of the same filter: when other hosts had it."""
    former_host_guarantees: tuple[tuple[PubendId, tuple[HostTime, ...]], ...] = ()
    """Pubends that it has not begun on and is owed by moments of other hosts too, or not at all (R46)."""
    merge_exclusions: tuple[MergeExclusionRecord, ...] = ()
    """In total order: pubends without which the others go on, or went on."""
    previous_confirmed_filter: tuple[str, VirtualTime, tuple[HostTime, ...]] | None = None
    """What its client knew when an earlier life joined pubends that were not heard of since, if it is not ``confirmed_filter``."""

    @property
    def key(self) -> tuple[str, ...]:
        """One a subscription."""
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
    """A batch of publications, logged as one: nothing else was published from first to last."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    control_version: int
    clock: int
    publications: tuple[Publication, ...]


class PackedRow(msgspec.Struct, frozen=True):
    """A row whose publications stay as they were written: an array in msgpack."""

    first: Tick
    last: Tick
    publications: bytes | memoryview


class PutRecord(msgspec.Struct, frozen=True):
    """Write a record over the one with its key."""

    record: Record


class DeleteRecord(msgspec.Struct, frozen=True):
    """Take the record with a key away."""

    key: tuple[str, ...]


class AppendRow(msgspec.Struct, frozen=True):
    """Add a row at the end of a pubend's log."""

    row: LogRow
    packed_events: bytes = b""
    """Its publications as they are written, if whoever appends them knows that already."""


class AppendPackedRow(msgspec.Struct, frozen=True):
    """Add a row whose publications are packed already; their ticks follow each other without a gap."""

    pubend: PubendId
    first: Tick
    last: Tick
    stream_epoch: int
    clock: int
    publications: bytes

    @property
    def events(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


class TrimLog(msgspec.Struct, frozen=True):
    """Take the rows away that end at or below a tick."""

    pubend: PubendId
    up_to: Tick


StorageChange: TypeAlias = PutRecord | DeleteRecord | AppendRow | AppendPackedRow | TrimLog
