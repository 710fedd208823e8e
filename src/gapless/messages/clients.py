"""Messages between a broker and its clients.

The client numbers its requests, and the reply contains the number. A client may repeat a request
under the same number after a reconnect, because requests are idempotent.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from gapless.core import numbers
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.numbers import ClientCount, ClientSigned, ComposedName, Count, Epoch, Name
from gapless.core.ticks import Tick
from gapless.messages.overlay import Quality
from gapless.messages.streams import Events, Publication

__all__ = [
    "Ack",
    "Closed",
    "Credit",
    "Delivery",
    "DurableFound",
    "FilterChanged",
    "FilterSet",
    "FindDurable",
    "Gap",
    "HostTime",
    "HostingReference",
    "LeaveSubscription",
    "OpenPubend",
    "OpenPublisher",
    "Order",
    "PastFilter",
    "PendingStart",
    "PositionTuple",
    "Progress",
    "PubendOpened",
    "Publish",
    "Published",
    "PublisherOpened",
    "RefusalCause",
    "Refused",
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

PositionTuple = tuple[tuple[PubendId, ClientSigned], ...]
"""An encoded position: a tick for each pubend."""


# --- refusing and ending -----------------------------------------------------------------------


class RefusalCause(IntEnum):
    """The cause of a refusal or an end, for the client program. The reason text is for people."""

    OTHER = 0
    """Only the reason text explains it."""
    NOT_OPEN = 1
    """The publisher is not open at this broker. Open it to continue."""
    WRONG_BROKER = 2
    """Another broker has the requested object; the refusal names the broker."""
    FENCED = 3
    """A newer connection has the subscription or the publisher name."""
    UNAVAILABLE = 4
    """Something is unreachable or not complete yet. Retry later."""
    SLOW_CONSUMER = 5
    """Too many events waited for the subscription. Read faster or use a durable one."""
    FILTER_REQUIRED = 7
    """No durable subscription of that name exists, and the request has no filter to create one."""
    HOST_UNKNOWN = 6
    """Some broker that may host the durable subscription did not answer. Retry later."""
    NOT_AUTHORISED = 8
    """The request needs an operator token, and the client has another one."""
    CLOSED = 9
    """The pubend is closed: it accepts nothing any more."""


# --- publishing ---------------------------------------------------------------------------------


class OpenPubend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Creates a pubend at this broker, or opens the existing one."""

    request: ClientCount
    name: str
    advertisement: str = "TRUE"
    quality: Quality = Quality.GUARANTEED


class PubendOpened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The pubend exists and is on disk."""

    request: Count
    pubend: PubendId


class OpenPublisher(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Opens a publisher under a name and fences older sessions of that name (R28)."""

    request: ClientCount
    pubend: PubendId
    publisher: str


class PublisherOpened(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The publisher continues after this sequence and repeats what was not answered above it."""

    request: Count
    session: Count
    last_sequence: Count
    window: Count = 1
    """How many batches may be unanswered at once: the broker can still report their outcome."""


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Events with consecutive sequences from ``first`` (R27)."""

    request: ClientCount
    pubend: PubendId
    publisher: str
    session: ClientCount
    first: ClientSigned
    events: Events


class Published(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The events are on disk, at these ticks."""

    request: Count
    ticks: tuple[Tick, ...]


# --- subscribing --------------------------------------------------------------------------------


class Order(IntEnum):
    """The delivery order across pubends."""

    PUBLISHER = 0
    TOTAL = 1


class StartKind(IntEnum):
    """How a subscription starts."""

    LATEST = 0
    EARLIEST = 1
    POSITION = 2
    TIME = 3


class StartPoint(msgspec.Struct, frozen=True, array_like=True):
    """Where a subscription starts; ``clock`` is in microseconds."""

    kind: StartKind = StartKind.LATEST
    position: PositionTuple = ()
    clock: ClientSigned = 0
    unnamed: StartKind = StartKind.LATEST
    """With a position: how it starts on pubends that the position does not contain."""
    merged: ClientSigned | None = None
    """With a position in total order: the tick of the last event received. The position may be
    greater on a silent pubend and less on an excluded one. None: its greatest tick."""
    excluded: tuple[PubendId, ...] = ()
    """With a position in total order: excluded pubends whose gap was not reported yet."""
    closed: tuple[PubendId, ...] = ()
    """Pubends of which the client was notified that they are closed."""

    def on(self, pubend: PubendId) -> StartKind:
        """Return how it starts on one pubend."""
        if self.kind is not StartKind.POSITION:
            return self.kind
        return self.kind if any(each == pubend for each, _ in self.position) else self.unnamed

    def for_unnamed(self) -> StartPoint:
        """Return how it starts on pubends that the position does not contain."""
        kind = self.unnamed if self.kind is StartKind.POSITION else self.kind
        return StartPoint(kind, clock=self.clock)


class HostingReference(msgspec.Struct, frozen=True, array_like=True):
    """The hosting broker of a durable subscription, which a client presents to resume (MV-13)."""

    incarnation_key: ComposedName
    """Identifies the subscription. Unlike a name it is never used twice."""
    epoch: Epoch
    """Grows with every attempt to change the hosting broker, answered or not."""
    broker: BrokerId

    def next_epoch(self) -> HostingReference:
        """Return the reference that a client presents after an attempt at another broker.

        A broker that created the subscription for an unanswered attempt must not win over the
        hosting broker later, because the hosting broker has continued, perhaps with another filter.
        """
        return HostingReference(self.incarnation_key, numbers.next_epoch(self.epoch), self.broker)


class PastFilter(msgspec.Struct, frozen=True, array_like=True):
    """A replaced filter and the last tick per pubend to which it applies (R47)."""

    filter: str
    ends: PositionTuple


class HostTime(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A virtual time of an SHB. A PHB knows from which tick on its tables had it."""

    host: ShbId
    time: VirtualTime


class StartGuarantees(msgspec.Struct, frozen=True, array_like=True):
    """From when on a durable subscription must get pubends without a position (R46)."""

    default: tuple[HostTime, ...]
    """Host times of its hosting brokers for the last confirmed filter, oldest first. The
    subscription must get all events published after the PHB knew one of them. Empty: a pubend not
    in ``by_pubend`` starts with the latest."""
    by_pubend: tuple[tuple[PubendId, tuple[HostTime, ...]], ...] = ()
    """Pubends known to the hosting broker that have host times of their own. Without host times the
    pubend is older than the subscription and starts with the latest."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Subscribes with a filter. A durable subscription of that name continues (R46, R50)."""

    request: ClientCount
    subscription: str
    filter: str | None
    """None: a durable subscription continues with the filter that it has."""
    durable: bool = False
    start: StartPoint = StartPoint()
    order: Order = Order.PUBLISHER
    credit: ClientSigned = 0
    """How many events the client accepts before it grants more credit."""
    expiry_s: ClientCount = 604_800
    seek_count: ClientCount = 0
    """The last received ``Subscribed.seek_count``: a position from before a seek is ignored."""
    hosting: HostingReference | None = None
    """If it is durable: the last known reference. At another broker ``start`` applies."""
    acked: PositionTuple = ()
    """With ``hosting``: the acknowledged position, above which logs are held."""
    past_filters: tuple[PastFilter, ...] = ()
    """With ``hosting``: the past filters that apply to ticks that are not acknowledged."""
    start_guarantees: StartGuarantees | None = None
    """With ``hosting``: the start guarantees that the client received last."""
    take_over: bool = True
    """Whether a durable subscription that another client has is taken from that client."""
    create: bool = False
    """Without ``hosting``: create it also if some broker that may host it does not answer."""
    wait_ms: ClientCount = 0
    """How long the other brokers are waited for at most; 0: ``find_timeout_ms``."""


class PendingStart(msgspec.Struct, frozen=True, array_like=True):
    """A pubend on which a subscription has not started yet, and why."""

    pubend: PubendId
    reason: str
    after: Tick | None = None
    """Where a durable one that had started before continues, also after a failover."""


class Subscribed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Started: everything after the position is delivered. Pubends without a start are pending."""

    request: Count
    position: PositionTuple
    pending: tuple[PendingStart, ...] = ()
    seek_count: Count = 0
    """The number of operator seeks. A client that reconnects with a position repeats it."""
    hosting: HostingReference | None = None
    """If it is durable: its hosting reference from now on."""
    filter: str = ""
    """If it is durable: its filter, which may differ from the requested one."""
    past_filters: tuple[PastFilter, ...] = ()
    """If it is durable: the filters before it, which its client presents after a failover."""
    start: StartPoint = StartPoint()
    """If it is durable, for a failover: how it starts on pubends without a position."""
    start_guarantees: StartGuarantees | None = None
    """If it is durable, for a failover: its start guarantees if it starts with the latest."""
    is_new: bool = False
    """If it is durable: whether no client was sent a reply for it before."""
    order: Order | None = None
    """If it is durable: its order, which its client presents after a failover."""


class SubscriptionStarted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscription has started on a pending pubend."""

    subscription: str
    pubend: PubendId
    after: Tick


class Stalled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A subscription is stalled on a pubend, for a reason other than the route. It resumes by
    itself.

    Sent once per connection while it lasts. An empty reason means that the subscription continues.
    """

    subscription: str
    pubend: PubendId
    reason: str
    excluded: bool = False
    """In total order: the merge continues without the pubend because its PHB was retired. If the
    pubend returns, the range between is a gap."""


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Matching events in order, as runs of one pubend each."""

    subscription: str
    runs: tuple[tuple[PubendId, tuple[Publication, ...]], ...]

    @property
    def count(self) -> int:
        """The number of events."""
        return sum([len(run) for _, run in self.runs])

    @property
    def events(self) -> list[tuple[PubendId, Publication]]:
        """The single events, each with its pubend."""
        return [(pubend, each) for pubend, run in self.runs for each in run]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything up to the position was sent, on pubends without an event for a while.

    A client that reconnects continues from there, because no event before it is missing.
    """

    subscription: str
    position: PositionTuple


class Gap(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The log no longer has these ticks. Whether events in them matched is not known."""

    subscription: str
    pubend: PubendId
    low: Tick
    high: Tick


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A pubend is closed, and the subscription was sent everything of it (RS-32).

    It is acknowledged by the tick above the last one. A client that has acknowledged it, or names the
    pubend when it subscribes again, is not notified again.
    """

    subscription: str
    pubend: PubendId
    last: Tick
    """The last tick of the pubend; 0 under best effort, where a client has no position."""


class SubscriptionEnded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The subscription has ended on this connection; nothing more is delivered."""

    subscription: str
    reason: str
    cause: RefusalCause = RefusalCause.FENCED
    hosting: HostingReference | None = None
    """If it is durable and has moved: the hosting reference from now on."""


class Credit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The client accepts so many more events."""

    subscription: str
    events: ClientSigned


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The client of a durable subscription needs nothing up to the position."""

    subscription: str
    position: PositionTuple


class SetFilter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Changes the filter: the old one applies up to a position, the new one after it (R47)."""

    request: ClientCount
    subscription: Name
    filter: str


class FilterSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The position of the change."""

    request: Count
    position: PositionTuple
    pending: tuple[PubendId, ...] = ()
    """Pubends without a position yet, which start with the earliest event by the new filter."""
    start_guarantees: StartGuarantees | None = None
    """If it is durable: the start guarantees of the new filter."""


class FilterChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An operator has changed the filter: the new one applies after the position."""

    subscription: str
    filter: str
    position: PositionTuple
    start_guarantees: StartGuarantees | None = None
    """The start guarantees of the new filter."""


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Continues from another position."""

    request: ClientCount
    subscription: Name
    start: StartPoint


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends a subscription, durable or not."""

    request: ClientCount
    subscription: Name
    hosting: HostingReference | None = None
    """If it is durable: its last known hosting reference. It ends at that broker too (MV-14)."""
    durable: bool = False
    """Without ``hosting``: it is durable, and ends wherever it is hosted (MV-15)."""


class LeaveSubscription(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The client leaves a durable subscription, which stays as if the client had disconnected (R50)."""

    subscription: Name


class FindDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the broker that hosts a durable subscription, wherever it is (MV-15)."""

    request: ClientCount
    subscription: Name
    wait_ms: ClientCount = 0
    """How long the other brokers are waited for at most; 0: ``find_timeout_ms``."""


class DurableFound(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker that hosts the subscription; an empty name if no broker does."""

    request: Count
    broker: BrokerId
    addresses: tuple[str, ...] = ()
    """Of the broker, for clients."""


class Unsubscribed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The subscription has ended, and its record is deleted."""

    request: Count


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request is refused and had no effect."""

    request: Count
    reason: str
    cause: RefusalCause = RefusalCause.OTHER
    broker: str = ""
    """The broker that has the requested object, if the cause is WRONG_BROKER."""
    hosting: HostingReference | None = None
    """Of a durable subscription that has moved: the hosting reference to present from now on."""
    addresses: tuple[str, ...] = ()
    """The addresses of ``broker`` for clients."""
    silent: tuple[BrokerId, ...] = ()
    """If the cause is HOST_UNKNOWN: brokers that did not answer; of many only some."""
