"""Records of an SHB: its memberships and its durable subscriptions."""

from __future__ import annotations

import msgspec

from gapless.core.ids import MembershipId, PubendId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime, Order, PositionTuple, StartPoint

__all__ = [
    "FilterSegmentRecord",
    "JoinedPubendRecord",
    "MergeExclusionRecord",
    "SubscriptionRecord",
]


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
    ended: tuple[tuple[PubendId, Tick, Tick], ...] = ()
    """Pubends that are tombstones, each with its last tick and that of its last event, of which the client was not sent
    everything or has not acknowledged the end (RS-34)."""
    known_ends: tuple[PubendId, ...] = ()
    """Sealed pubends of which the client has acknowledged the end (RS-32)."""
    settled: PositionTuple = ()
    """Pubends on which its client needs nothing up to a tick above the acknowledged one. Operators
    see its lag from there; no log is released because of it."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per subscription."""
        return self.key_of(self.subscription)

    @staticmethod
    def key_of(subscription: str) -> tuple[str, ...]:
        """Return the key of a subscription's record."""
        return ("subscription", subscription)
