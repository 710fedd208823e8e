"""Messages between a broker and its clients.

Every request has a number of the client's choice; the answer names it. A request may be repeated
under the same number after a reconnect: what is done twice has the effect of once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

from gapless.content.values import Value
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.limits import INT_MAX, SEQUENCE_MAX
from gapless.core.ticks import Tick
from gapless.messages.overlay import Partition, Quality
from gapless.messages.streams import Publication, ReadForm

__all__ = [
    "Ack",
    "BrokerRetired",
    "Credit",
    "Delivery",
    "FilterChanged",
    "FilterSet",
    "Gap",
    "HostTime",
    "HostingReference",
    "ListPartitions",
    "OpenPubend",
    "OpenPublisher",
    "Order",
    "PartitionTable",
    "PastFilter",
    "PendingStart",
    "PositionTuple",
    "Progress",
    "PubendOpened",
    "Publish",
    "Published",
    "PublisherOpened",
    "ReadLog",
    "ReadPart",
    "RefusalCause",
    "Refused",
    "RetireBroker",
    "Seek",
    "SetFilter",
    "Stalled",
    "StartGuarantees",
    "StartKind",
    "StartPoint",
    "Subscribe",
    "Subscribed",
    "SubscriptionEnded",
    "SubscriptionStarted",
    "Unsubscribe",
    "Unsubscribed",
]

PositionTuple = tuple[tuple[PubendId, Tick], ...]
"""A position as it travels: up to which tick of each pubend."""


# --- refusing and ending -----------------------------------------------------------------------


class RefusalCause(IntEnum):
    """What a client's program can do about a refusal or an end; the reason is for people."""

    OTHER = 0
    """Nothing but to read the reason."""
    NOT_OPEN = 1
    """The publisher is not open here, or no more: open it to go on."""
    WRONG_BROKER = 2
    """Another broker has what is asked for; the refusal names it."""
    FENCED = 3
    """A newer connection has the subscription, or the name of the publisher."""
    UNAVAILABLE = 4
    """Something is not in reach or not through yet."""
    SLOW_CONSUMER = 5
    """Too much waited for the subscription: read faster, or be durable."""


# --- publishing ---------------------------------------------------------------------------------


class OpenPubend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Make a pubend at this broker, or find the one that is there."""

    request: int
    name: str
    advertisement: str = "TRUE"
    quality: Quality = Quality.GUARANTEED


class PubendOpened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The pubend is there, and on disk."""

    request: int
    pubend: PubendId


class OpenPublisher(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Begin to publish under a name; older sessions of that name are fenced off (R28)."""

    request: int
    pubend: PubendId
    publisher: str


class PublisherOpened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Publish on after this sequence; what was sent above it and not answered must be sent again."""

    request: int
    session: int
    last_sequence: int
    window: int = 1
    """So many batches may be unanswered at once: their outcome can surely be told."""


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Events with the sequences from ``first`` on (R27)."""

    request: int
    pubend: PubendId
    publisher: str
    session: int
    first: Annotated[int, msgspec.Meta(le=SEQUENCE_MAX)]
    events: tuple[tuple[dict[str, Value], bytes], ...]


class Published(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """They are on disk, at these ticks."""

    request: int
    ticks: tuple[Tick, ...]


# --- subscribing --------------------------------------------------------------------------------


class Order(IntEnum):
    """In which order events of several pubends come."""

    PUBLISHER = 0
    TOTAL = 1


class StartKind(IntEnum):
    """Where a subscription begins."""

    LATEST = 0
    EARLIEST = 1
    POSITION = 2
    TIME = 3


class StartPoint(msgspec.Struct, frozen=True, array_like=True):
    """Where a subscription begins; ``clock`` is in microseconds."""

    kind: StartKind = StartKind.LATEST
    position: PositionTuple = ()
    clock: int = 0
    unnamed: StartKind = StartKind.LATEST
    """Of a position: how it begins on streams of which that names no place."""
    merged: Tick | None = None
    """Of a position in total order: the tick of the last event that came. A stream in which nothing comes may be
    farther, and one that was passed by is not as far. None: as far as the position is."""
    excluded: tuple[PubendId, ...] = ()
    """Of the same: streams that the others went on without, and of which the gap was not told yet."""

    def on(self, pubend: PubendId) -> StartKind:
        """Say how it begins on one stream."""
        if self.kind is not StartKind.POSITION:
            return self.kind
        return self.kind if any(each == pubend for each, _ in self.position) else self.unnamed

    def for_unnamed(self) -> StartPoint:
        """Return how it begins on streams of which it names no place."""
        kind = self.unnamed if self.kind is StartKind.POSITION else self.kind
        return StartPoint(kind, clock=self.clock)


class HostingReference(msgspec.Struct, frozen=True, array_like=True):
    """Where a durable subscription lives; its client shows it at another broker if it has to (MV-13)."""

    incarnation_key: str
    """Which subscription: names may be used twice, this is not."""
    epoch: Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
    """How often it has moved, or may have. The next one can be written too."""
    broker: BrokerId

    def next_epoch(self) -> HostingReference:
        """Return what a client shows from now on that has asked another broker, answered or not.

        Whoever made the subscription for it then, and was left, is not to win over its home later:
        that has gone on, perhaps with another filter.
        """
        return HostingReference(self.incarnation_key, self.epoch + 1, self.broker)


class PastFilter(msgspec.Struct, frozen=True, array_like=True):
    """A filter that another one has followed, and up to where it governs each pubend (R47)."""

    filter: str
    ends: PositionTuple


class HostTime(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A moment of a subscriber host, by its virtual time: brokers know since when its news is there."""

    host: ShbId
    time: VirtualTime


class StartGuarantees(msgspec.Struct, frozen=True, array_like=True):
    """Since when a durable subscription is owed pubends of which its client has no place (R46)."""

    default: tuple[HostTime, ...]
    """When its homes had it, with the filter that its client was told of last, the oldest first. It is owed
    what was published where one of them was known by then. None: every pubend that is not named begins with what
    comes."""
    by_pubend: tuple[tuple[PubendId, tuple[HostTime, ...]], ...] = ()
    """Pubends for which that does not hold, as its home has heard of them, each with its own moments. None:
    the pubend was there before, so it begins with what comes."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Deliver what matches the filter. A durable one of that name goes on where it was (R46, R50)."""

    request: int
    subscription: str
    filter: str
    durable: bool = False
    start: StartPoint = StartPoint()
    order: Order = Order.PUBLISHER
    credit: int = 0
    """How many events the client takes before it gives more credit."""
    expiry_s: int = 604_800
    seek_count: int = 0
    """What the client was told last by ``Subscribed.seek_count``: positions from before an operator's
    seek do not count."""
    hosting: HostingReference | None = None
    """Where a durable one lives, as far as its client knows; elsewhere it goes on from ``start``."""
    acked: PositionTuple = ()
    """Of one with a home: what its client has acknowledged, above which a new home keeps the logs."""
    past_filters: tuple[PastFilter, ...] = ()
    """Of one with a home: the filters before this one that govern some of what is not acknowledged."""
    start_guarantees: StartGuarantees | None = None
    """Of one with a home: what it was told last of what it is owed."""


class PendingStart(msgspec.Struct, frozen=True, array_like=True):
    """A pubend on which a subscription has not started yet, and why."""

    pubend: PubendId
    reason: str
    after: Tick | None = None
    """Where a durable one goes on that had started before, and has to elsewhere if it flees."""


class Subscribed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Started: everything after the position comes. The pubends that still wait are named."""

    request: int
    position: PositionTuple
    pending: tuple[PendingStart, ...] = ()
    seek_count: int = 0
    """How often an operator has moved it; a client says so when it comes back with a position."""
    hosting: HostingReference | None = None
    """Of a durable one: where it lives from now on."""
    filter: str = ""
    """Of a durable one: its filter, which may be another than was asked with."""
    past_filters: tuple[PastFilter, ...] = ()
    """Of a durable one: the filters before that, which its client takes along if it has to flee."""
    start: StartPoint = StartPoint()
    """Of a durable one: how it begins on streams of which it has no place, for the same."""
    start_guarantees: StartGuarantees | None = None
    """Of a durable one: since when it is owed such streams if it begins with the latest, for the same."""
    is_new: bool = False
    """Of a durable one: whether nobody was told of it before; else it goes on."""


class SubscriptionStarted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscription has started on a pubend that it waited for."""

    subscription: str
    pubend: PubendId
    after: Tick


class Stalled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscription stands still on a pubend, not because of the way there, and why; it goes on by itself.

    Told once in a connection while it lasts. With an empty reason: it goes on.
    """

    subscription: str
    pubend: PubendId
    reason: str
    excluded: bool = False
    """In total order: the others go on without it, as its broker was retired. Should it be back, what lies between
    is a gap."""


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Matching events, in order: runs of one pubend each."""

    subscription: str
    runs: tuple[tuple[PubendId, tuple[Publication, ...]], ...]

    @property
    def count(self) -> int:
        """How many events there are."""
        return sum([len(run) for _, run in self.runs])

    @property
    def events(self) -> list[tuple[PubendId, Publication]]:
        """The events one by one, each with its pubend."""
        return [(pubend, each) for pubend, run in self.runs for each in run]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything up to the position was sent, on streams of which nothing came for a while.

    A client that comes back goes on from there: what lies before held nothing for it.
    """

    subscription: str
    position: PositionTuple


class Gap(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The log no longer has these ticks: what they held for this subscription is not known."""

    subscription: str
    pubend: PubendId
    low: Tick
    high: Tick


class SubscriptionEnded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This connection has the subscription no more; nothing more comes of it here."""

    subscription: str
    reason: str
    cause: RefusalCause = RefusalCause.FENCED
    hosting: HostingReference | None = None
    """Of a durable one that has moved on: what its client shows from now on."""


class Credit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The client takes so many more events."""

    subscription: str
    events: int


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A durable subscription no longer needs what is up to the position."""

    subscription: str
    position: PositionTuple


class SetFilter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Change the filter: the old one holds up to a position, the new one after it (R47)."""

    request: int
    subscription: str
    filter: str


class FilterSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The position of the change."""

    request: int
    position: PositionTuple
    pending: tuple[PubendId, ...] = ()
    """Streams that have no place yet and still begin with the oldest, by the new filter."""
    start_guarantees: StartGuarantees | None = None
    """Of a durable one: since when it is owed streams of which it has no place, by the new filter."""


class FilterChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An operator has changed the filter of a subscription: the new one governs after a position."""

    subscription: str
    filter: str
    position: PositionTuple
    start_guarantees: StartGuarantees | None = None
    """Since when it is owed streams of which it has no place, by the new filter."""


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Go on from another place."""

    request: int
    subscription: str
    start: StartPoint


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End a subscription, durable or not."""

    request: int
    subscription: str
    hosting: HostingReference | None = None
    """Of a durable one: where it lives, as far as its client knows; it ends there too (MV-14)."""


class Unsubscribed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is gone, also from disk."""

    request: int


# --- reading a log ------------------------------------------------------------------------------


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Read what matches a filter between two ticks of a pubend."""

    request: int
    pubend: PubendId
    filter: str
    low: Tick
    high: Tick
    bytes_max: int = 0
    """About how much of the log one answer may cover; 0 leaves that to the broker, which has a limit."""
    form: ReadForm = ReadForm.EVENTS


class ReadPart(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What matches up to ``done``; ask on from there until it reaches what was asked for."""

    request: int
    publications: tuple[Publication, ...]
    done: Tick
    top: Tick
    released: Tick
    """Up to here events may be gone from the log."""
    rows: tuple[bytes, ...] = ()
    """In place of the publications, if another form was asked for; a broker may still give those."""


# --- operating ----------------------------------------------------------------------------------


class RetireBroker(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker will never return: nobody has to keep anything for its subscribers (R26)."""

    request: int
    broker: str
    cell: str


class BrokerRetired(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All brokers in reach are told, and the others will be."""

    request: int


class ListPartitions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Which cells cannot be reached, as far as this broker has heard (R12)?"""

    request: int


class PartitionTable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The partitions that this broker knows of, its own first, then as it heard of them."""

    request: int
    entries: tuple[Partition, ...]
    since: tuple[int, ...] = ()
    """When this broker found or heard of each, by its wall clock, in microseconds."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request cannot be done; nothing of it was."""

    request: int
    reason: str
    cause: RefusalCause = RefusalCause.OTHER
    broker: str = ""
    """Which broker has it, if it is elsewhere."""
    hosting: HostingReference | None = None
    """Of a durable subscription that has moved on: what its client shows from now on."""
