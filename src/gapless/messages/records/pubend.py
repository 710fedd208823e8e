"""Records of a pubend at its PHB: its properties, stream epochs, members and publishers."""

from __future__ import annotations

import msgspec

from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.closing import CloseMode
from gapless.messages.overlay import PubendProperties, Quality
from gapless.messages.pubend_requests import LogHoldId

__all__ = [
    "EndedMembershipRecord",
    "KnownHostRecord",
    "LogHoldRecord",
    "MemberRecord",
    "PubendRecord",
    "PublisherRecord",
    "StreamEpochRecord",
    "TickCeilingRecord",
    "TombstoneRecord",
]


class PubendRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend that this broker hosts."""

    pubend: PubendId
    properties: PubendProperties
    announcement_version: int
    ceiling: Tick
    """The pubend's own tick ceiling. Silence may have been sent up to it or up to that of the broker,
    so later events are above both (R29)."""
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
    logged_events: int = 0
    """How many publications were ever logged, at least up to the last deleted publisher's."""
    sealed: Tick | None = None
    """The last tick if the pubend is sealed; None if it is open (RS-32)."""
    close_mode: CloseMode = CloseMode.DRAIN
    """What the sealed pubend waits for (RS-33)."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return ("pubend", str(self.pubend))


class TombstoneRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend that this broker closed. Its id is never given again (RS-34)."""

    pubend: PubendId
    version: int
    """The announcement version of its end."""
    last: Tick
    """Its last tick; 0 under best effort."""
    quality: Quality
    last_event: Tick
    """The last tick that may have had an event."""
    closed_at: int
    """When it was closed, by the median clock of the neighbourhood."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend."""
        return self.key_of(self.pubend)

    @staticmethod
    def key_of(pubend: PubendId) -> tuple[str, ...]:
        """Return the key of a tombstone."""
        return ("tombstone", str(pubend))


class TickCeilingRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The tick ceiling of a broker. Silence of any of its pubends may have been sent up to it (R29)."""

    ceiling: Tick

    @property
    def key(self) -> tuple[str, ...]:
        """One record per broker."""
        return ("tick ceiling",)


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
    logged_events: int = 0
    """The publications ever logged by the pubend up to its last one."""

    @property
    def key(self) -> tuple[str, ...]:
        """One record per pubend and publisher."""
        return ("publisher", str(self.pubend), self.publisher)
