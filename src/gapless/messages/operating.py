"""Messages between a broker and its operators: inspection, retirement, durable subscriptions.

They use the form of client messages (:mod:`.clients`): a request has a number, the reply contains
it, and a request that cannot be done is refused. Lists are paged: a reply states whether there is
more, and a request states the name after which it continues. The inspection messages are not part
of the delivery guarantees; the calls that change state are
(:mod:`gapless.subscribers.operator_calls`).
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.numbers import ClientCount, ClientSigned, Count, Name, Signed
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, PastFilter, PendingStart, PositionTuple, StartPoint
from gapless.messages.mobility import DurableEntry
from gapless.messages.overlay import CellRecord, Partition, Quality

__all__ = [
    "AllDurableList",
    "BrokerReply",
    "BrokerRetired",
    "CellState",
    "CursorState",
    "DurableSeekDone",
    "GetBroker",
    "GetLag",
    "GetSubscription",
    "GetTopology",
    "HostedState",
    "LagReply",
    "ListAllDurable",
    "ListPartitions",
    "ListPubends",
    "ListSubscriptions",
    "MemberState",
    "PartitionTable",
    "PeerState",
    "PubendList",
    "PubendState",
    "RemoveDurable",
    "RetireBroker",
    "SeekDurable",
    "SetDurableFilter",
    "StreamLagState",
    "SubscriptionList",
    "SubscriptionReply",
    "SubscriptionState",
    "TopologyReply",
    "TreeWalked",
    "WalkTree",
]


# --- the broker ---------------------------------------------------------------------------------


class GetBroker(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the state of this broker."""

    request: ClientCount


class PeerState(msgspec.Struct, frozen=True, array_like=True):
    """A broker of the neighbourhood, as seen by this one."""

    broker: BrokerId
    cell: CellId
    open: bool
    """Whether a peer session with it is open."""
    incarnation: Count = 0
    """The peer's incarnation while a session is open."""
    congested: bool = False
    """Whether its send queue is over the limit, so that it is sent less."""
    via: tuple[BrokerId, ...] = ()
    """The brokers that relay the session while the link to the peer is down."""


class BrokerReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The state of this broker."""

    request: Count
    broker: BrokerId
    cell: CellId
    incarnation: Count
    clock: Signed
    """Its wall clock, in microseconds."""
    peers: tuple[PeerState, ...]
    """Nearest cells first."""
    peers_omitted: Count
    pubends_hosted: Count
    pubends_known: Count
    streams_joined: Count
    """How many guaranteed pubends it has joined."""
    subscriptions: Count
    durable: Count
    connected: Count
    clients: Count
    log_bytes: Count
    """The size of the logs of all its pubends."""
    cache_bytes: Count
    """The size of the router's cache from which it answers nacks."""
    coverage_marks: tuple[tuple[str, Count], ...] = ()
    """How often rare branches were taken in this incarnation."""
    sessions_relayed: Count = 0
    """The number of peer sessions that are relayed because the link is down."""
    feeds_bypassing: Count = 0
    """How many feeds come from a farther cell because no broker of the next cell is reached."""
    feeds_relayed: Count = 0
    """How many feeds come over a relayed session."""
    partitions: Count = 0
    """How many partitions it knows, detected by itself or received."""
    streams_cut_off: Count = 0
    """How many pubends its subscriptions need that no reachable broker feeds."""
    version: str = ""
    """The version of gapless that it runs."""
    protocols: tuple[Count, ...] = ()
    """The versions of the protocol that it supports."""
    retention_s: Count = 0
    """How long its logs keep events for replay, in seconds."""
    log_bytes_max: Count = 0
    """The greatest size of each log."""


# --- the tree -----------------------------------------------------------------------------------


class GetTopology(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the neighbourhood of this broker."""

    request: ClientCount
    skip: ClientSigned = 0
    """How many cells the previous pages contained."""


class CellState(msgspec.Struct, frozen=True, array_like=True):
    """A cell of the neighbourhood."""

    cell: CellId
    distance: Count
    """The number of edges to it."""
    brokers: tuple[BrokerId, ...]
    reached: tuple[BrokerId, ...]
    """Its brokers with an open session to this one, and this broker itself."""
    neighbours: tuple[CellId, ...]
    relayed: tuple[tuple[BrokerId, tuple[BrokerId, ...]], ...] = ()
    """Its brokers with a relayed session, each with the brokers that relay it."""


class TopologyReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The cells of the neighbourhood, nearest first."""

    request: Count
    broker: BrokerId
    cell: CellId
    version: Count
    """Of the neighbourhood. It changes only when the tree changes."""
    cells: tuple[CellState, ...]
    more: bool = False


class WalkTree(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the cells of the whole tree, page by page. The broker asks others for them."""

    request: ClientCount
    after: CellId = ""
    """The page starts after this cell, in the order of names."""


class TreeWalked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The cells of the tree, in the order of their names."""

    request: Count
    records: tuple[CellRecord, ...]
    silent: tuple[CellId, ...] = ()
    """Empty if the tree is complete. Else the cells that did not answer and the missing cells behind
    them; of many only some."""
    more: bool = False


# --- pubends ------------------------------------------------------------------------------------


class ListPubends(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the pubends that this broker knows."""

    request: ClientCount
    after: PubendId | None = None
    hosted: bool = False
    """Only pubends that this broker hosts."""
    closed: bool = False
    """Also tombstones, as long as this broker remembers them."""


class MemberState(msgspec.Struct, frozen=True, array_like=True):
    """A member for which a log is retained."""

    shb: ShbId
    ack_floor: Tick
    """The tick up to which it needs nothing."""
    durable: bool
    inactive: bool


class HostedState(msgspec.Struct, frozen=True, array_like=True):
    """The part of a pubend's state that only its PHB has."""

    top: Tick
    """The tick up to which its stream is known."""
    released: Tick
    """Ticks up to this one are no longer in the log."""
    log_bytes: Count
    stream_epoch: Count
    members: tuple[MemberState, ...]
    """Lowest ack floor first."""
    members_omitted: Count
    retained_from: Tick | None
    """The log above this tick is retained for members and log holds; None if for none."""
    corruption: str | None = None
    """The log row that could not be read."""


class PubendState(msgspec.Struct, frozen=True, array_like=True):
    """A pubend as this broker knows it."""

    pubend: PubendId
    broker: BrokerId
    cell: CellId
    quality: Quality
    advertisement: str
    version: Count
    path: tuple[CellId, ...]
    """The next cells towards it; empty in its own cell."""
    hosted: HostedState | None = None
    feeder: BrokerId | None = None
    """The broker that feeds it to this one; None if it is hosted here, or not needed here, or no
    broker that has it can be reached."""
    sealed: Tick | None = None
    """The last tick if it is sealed or closed; None if it is open."""
    closed: bool = False
    """Whether it is a tombstone."""


class PubendList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Pubends in the order of their names."""

    request: Count
    entries: tuple[PubendState, ...]
    more: bool = False


# --- subscriptions ------------------------------------------------------------------------------


class ListSubscriptions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the subscriptions of this broker."""

    request: ClientCount
    after: str = ""
    durable: bool = False
    """Only durable subscriptions."""
    pattern: str = ""
    """Only names that match it: ``*`` stands for any characters, ``?`` for one; empty: all names."""
    most: ClientSigned = 0
    """At most so many; 0: as many as fit."""
    lag: bool = False
    """Whether lags are determined. The reply then waits for PHBs, for some seconds at most."""


class GetSubscription(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the state of one subscription."""

    request: ClientCount
    subscription: Name
    after: PubendId | None = None
    """The page starts after this pubend."""
    lag: bool = False
    """Whether lags are determined, as in a list."""
    durable: bool = False
    """Whether it is durable and may be hosted by another broker, which the refusal then names."""


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a subscription on one pubend."""

    pubend: PubendId
    state: str
    buffered_up_to: Tick
    """The tick up to which it has everything."""
    acked: Tick
    """The tick up to which its client needs nothing."""
    horizon: Tick | None
    """The doubt horizon of the subend; None if it is not known yet."""
    lag_events: Count | None
    """How many publications the log has above the tick up to which the client needs nothing,
    whether or not the filter matches them; None if not requested or not known."""
    lag_s: float | None
    """The age of the oldest of them in seconds, by the broker's wall clock; 0 if there is none."""
    buffered: Count
    """How many events wait for credit."""
    pending_reason: str | None = None
    """Why it has not started or cannot continue; None if it can."""


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """A subscription and as many of its cursors as one reply can contain."""

    name: str
    durable: bool
    filter: str
    order: Order
    client: str | None
    """The client session that has it; None while it is disconnected."""
    disconnected_since: Signed | None
    """By the broker's wall clock, in microseconds; None while it is connected."""
    expiry_s: Count
    changing: bool
    """Whether a filter change is not complete on all pubends."""
    credit: Count
    cursors: tuple[CursorState, ...]
    cursors_omitted: Count = 0
    streams: Count = 0
    """How many cursors it has, on all pages."""
    streams_pending: Count = 0
    """How many of them have not started or cannot continue."""
    lag_events: Count | None = None
    """The sum over all streams that have started; None if not requested, or one is not known."""
    lag_s: float | None = None
    """The greatest of these streams; None like the sum."""


class SubscriptionList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Subscriptions in the order of their names."""

    request: Count
    entries: tuple[SubscriptionState, ...]
    more: bool = False


class SubscriptionReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One subscription; ``cursors_omitted`` is the number of cursors on later pages."""

    request: Count
    entry: SubscriptionState
    past_filters: tuple[PastFilter, ...] = ()
    """Filters before the present one that apply to events that are not acknowledged."""


class ListAllDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the durable subscriptions of all brokers of the overlay."""

    request: ClientCount
    after: tuple[Name, BrokerId] = ("", "")
    """The page starts after this name and broker."""


class AllDurableList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Durable subscriptions of the overlay, in the order of their names and brokers."""

    request: Count
    entries: tuple[DurableEntry, ...]
    more: bool = False
    silent: tuple[BrokerId, ...] = ()
    """Brokers that did not answer, so theirs are missing; of many only some."""


class GetLag(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests how far the durable subscriptions of this broker are behind, for metrics."""

    request: ClientCount


class StreamLagState(msgspec.Struct, frozen=True, array_like=True):
    """How far a durable subscription is behind on a stream; zeros if it is caught up."""

    subscription: str
    pubend: PubendId
    events: Count
    seconds: float


class LagReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How far the durable subscriptions of this broker are behind."""

    request: Count
    durable: Count
    """How many there are."""
    behind: Count
    """How many are behind on some stream."""
    unknown: Count
    """How many have a stream whose lag is not known."""
    events_max: Count
    """The greatest lag of a subscription, over its streams with a known lag."""
    seconds_max: float
    entries: tuple[StreamLagState, ...]
    """The streams that are farthest behind in time, at most ``SHOWN_LAGS_MAX``."""


# --- calls on durable subscriptions -------------------------------------------------------------


class SeekDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Changes the position of a durable subscription."""

    request: ClientCount
    subscription: Name
    start: StartPoint
    force: bool = False
    """Also if it is connected. Then it ends for its client, which may subscribe again."""


class DurableSeekDone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The subscription continues after this position when its client connects. This is on disk."""

    request: Count
    position: PositionTuple
    pending: tuple[PendingStart, ...] = ()
    """Pubends whose log hold is not confirmed yet, or whose position did not change."""


class SetDurableFilter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Changes the filter of a durable subscription, connected or not; answered by FilterSet."""

    request: ClientCount
    subscription: Name
    filter: str


class RemoveDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends a durable subscription; answered by Unsubscribed."""

    request: ClientCount
    subscription: Name
    force: bool = False
    """Also if it is connected. Then it ends for its client."""
    here: bool = False
    """Only the one that this broker hosts, also if another broker hosts one of that name."""


# --- retirement and partitions -------------------------------------------------------------------


class RetireBroker(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Retires a broker that will not return: nothing is kept for its subscribers (R26)."""

    request: ClientCount
    broker: BrokerId
    cell: CellId


class BrokerRetired(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All reachable brokers were sent the retirement; the others receive it later."""

    request: Count


class ListPartitions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the partitions that this broker knows (R12)."""

    request: ClientCount


class PartitionTable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The partitions that this broker knows: its own first, then in the order received."""

    request: Count
    entries: tuple[Partition, ...]
    since: tuple[Signed, ...] = ()
    """When this broker detected or received each one, by its wall clock, in microseconds."""
