"""Messages between a broker and those who operate it: what is here, and calls on durable
subscriptions by name.

They travel like those of clients (:mod:`.clients`): a request has a number, its answer names it, and
what cannot be done is refused. Lists come in pages: an answer says whether there is more, and a
request says after which name it goes on. Nothing here is part of a promise of delivery; the calls that
change something are (:mod:`gapless.subscribers.operator_calls`).
"""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.clients import Order, PendingStart, PositionTuple, StartPoint
from gapless.messages.overlay import Quality

__all__ = [
    "BrokerReply",
    "CellState",
    "CursorState",
    "DurableSeekDone",
    "GetBroker",
    "GetSubscription",
    "GetTopology",
    "HostedState",
    "ListPubends",
    "ListSubscriptions",
    "MemberState",
    "PeerState",
    "PubendList",
    "PubendState",
    "RemoveDurable",
    "SeekDurable",
    "SetDurableFilter",
    "SubscriptionList",
    "SubscriptionReply",
    "SubscriptionState",
    "TopologyReply",
]


# --- the broker ---------------------------------------------------------------------------------


class GetBroker(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How is this broker?"""

    request: int


class PeerState(msgspec.Struct, frozen=True, array_like=True):
    """Another broker of the neighbourhood, as this one sees it."""

    broker: BrokerId
    cell: CellId
    open: bool
    """Whether there is a session with it."""
    incarnation: int = 0
    """The peer's, while there is a session."""
    congested: bool = False
    """Whether more waits to be sent to it than a queue takes, so that it is sent less."""
    via: tuple[BrokerId, ...] = ()
    """Over which brokers the session goes, while the link to it is cut."""


class BrokerReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How this broker is."""

    request: int
    broker: BrokerId
    cell: CellId
    incarnation: int
    clock: int
    """Its wall clock, in microseconds."""
    peers: tuple[PeerState, ...]
    """Nearest cells first."""
    peers_omitted: int
    pubends_hosted: int
    pubends_known: int
    streams_joined: int
    """How many guaranteed streams its subscribers are fed from."""
    subscriptions: int
    durable: int
    connected: int
    clients: int
    log_bytes: int
    """What the logs of all its pubends hold."""
    cache_bytes: int
    """What its router keeps of streams to answer from."""
    coverage_marks: tuple[tuple[str, int], ...] = ()
    """How often rare branches were taken in this life."""
    sessions_relayed: int = 0
    """With how many peers it talks over others, because the link to them is cut."""
    feeds_bypassing: int = 0
    """How many streams come from a cell farther on, because none of the next cell is reached."""
    feeds_relayed: int = 0
    """How many streams come over such a session."""
    partitions: int = 0
    """How many partitions it knows of, found by itself or heard of."""
    streams_cut_off: int = 0
    """How many streams its subscriptions want of which nothing can come now."""


# --- the tree -----------------------------------------------------------------------------------


class GetTopology(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What does this broker know of the tree?"""

    request: int
    skip: int = 0
    """How many cells were shown before."""


class CellState(msgspec.Struct, frozen=True, array_like=True):
    """A cell of the neighbourhood."""

    cell: CellId
    distance: int
    """How many edges away it is."""
    brokers: tuple[BrokerId, ...]
    reached: tuple[BrokerId, ...]
    """Those of its brokers with a session to this one; this broker itself counts."""
    neighbours: tuple[CellId, ...]
    relayed: tuple[tuple[BrokerId, tuple[BrokerId, ...]], ...] = ()
    """Those that are reached over other brokers, and over which: the links to them are cut."""


class TopologyReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The cells within reach of this broker's own, nearest first."""

    request: int
    broker: BrokerId
    cell: CellId
    version: int
    """Of the neighbourhood; it changes only when the tree does."""
    cells: tuple[CellState, ...]
    more: bool = False


# --- pubends ------------------------------------------------------------------------------------


class ListPubends(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Which pubends are there?"""

    request: int
    after: PubendId | None = None
    hosted: bool = False
    """Only those of this broker."""


class MemberState(msgspec.Struct, frozen=True, array_like=True):
    """A subscriber host for which a log is kept."""

    shb: ShbId
    ack_floor: Tick
    """It needs nothing more up to here."""
    durable: bool
    inactive: bool


class HostedState(msgspec.Struct, frozen=True, array_like=True):
    """What only the broker of a pubend knows of it."""

    top: Tick
    """How far its stream was told."""
    released: Tick
    """What is not above this is no longer in the log."""
    log_bytes: int
    stream_epoch: int
    members: tuple[MemberState, ...]
    """Those that keep most of the log first."""
    members_omitted: int
    retained_from: Tick | None
    """What lies above this is kept for members and for reads; None if nobody needs anything."""
    corruption: str | None = None
    """Which row of the log could not be read."""


class PubendState(msgspec.Struct, frozen=True, array_like=True):
    """A pubend as this broker knows it."""

    pubend: PubendId
    broker: BrokerId
    cell: CellId
    quality: Quality
    advertisement: str
    version: int
    path: tuple[CellId, ...]
    """The next cells on the way there; empty in its own cell."""
    hosted: HostedState | None = None
    feeder: BrokerId | None = None
    """Who sends its stream here now; None if it is hosted here, or nobody here wants it, or nobody
    can be reached who has it."""


class PubendList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Pubends in the order of their names."""

    request: int
    entries: tuple[PubendState, ...]
    more: bool = False


# --- subscriptions ------------------------------------------------------------------------------


class ListSubscriptions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Which subscriptions does this broker have?"""

    request: int
    after: str = ""
    durable: bool = False
    """Only those that are durable."""


class GetSubscription(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How is one subscription?"""

    request: int
    subscription: str
    after: PubendId | None = None
    """Show its streams after this one."""


class CursorState(msgspec.Struct, frozen=True, array_like=True):
    """A subscription on one pubend."""

    pubend: PubendId
    state: str
    buffered_up_to: Tick
    """Up to where it has everything."""
    acked: Tick
    """Up to where its client needs nothing more."""
    horizon: Tick | None
    """Up to where this broker has the stream without doubt; None if it does not know yet."""
    lag: int
    """How many ticks, which are microseconds, it is behind that: its acknowledgements if it is
    durable, else what it has."""
    buffered: int
    """How many events wait for its client's credit."""
    pending_reason: str | None = None
    """Why it has not begun, or cannot go on, if that is so."""


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """A subscription, and as many of its streams as an answer takes."""

    name: str
    durable: bool
    filter: str
    order: Order
    client: str | None
    """The connection that has it; None while nobody does."""
    disconnected_since: int | None
    """By the broker's wall clock, in microseconds; None while it is connected."""
    expiry_s: int
    changing: bool
    """Whether a new filter is on its way and has not taken over everywhere."""
    credit: int
    cursors: tuple[CursorState, ...]
    cursors_omitted: int = 0


class SubscriptionList(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Subscriptions in the order of their names."""

    request: int
    entries: tuple[SubscriptionState, ...]
    more: bool = False


class SubscriptionReply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One subscription; ``cursors_omitted`` says how many of its streams are still to be shown."""

    request: int
    entry: SubscriptionState


# --- calls on durable subscriptions -------------------------------------------------------------


class SeekDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Let a durable subscription go on from another place."""

    request: int
    subscription: str
    start: StartPoint
    force: bool = False
    """Also if it is connected: then its client is told that it ended, and may subscribe again."""


class DurableSeekDone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It goes on after this position when its client comes; that is on disk."""

    request: int
    position: PositionTuple
    pending: tuple[PendingStart, ...] = ()
    """Pubends that have not confirmed that they keep their log from there on, or did not move."""


class SetDurableFilter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Change the filter of a durable subscription, connected or not; answered by FilterSet."""

    request: int
    subscription: str
    filter: str


class RemoveDurable(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End a durable subscription for good; answered by Unsubscribed."""

    request: int
    subscription: str
    force: bool = False
    """Also if it is connected: then its client is told that it ended."""
