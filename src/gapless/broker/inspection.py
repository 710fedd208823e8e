"""What operators ask to see of a broker: facts as they are now, in pages of bounded size.

Nothing here changes anything, and no rule reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gapless.core.ids import PubendId, ShbId
from gapless.core.limits import (
    SHOWN_CURSORS_LISTED_MAX,
    SHOWN_CURSORS_MAX,
    SHOWN_ENTRIES_MAX,
    SHOWN_HOSTS_NAMED_MAX,
    SHOWN_MEMBERS_MAX,
    SHOWN_PEERS_MAX,
    SHOWN_TEXT_MAX,
)
from gapless.messages.clients import Refused
from gapless.messages.operating import (
    BrokerReply,
    CellState,
    CursorState,
    GetBroker,
    GetSubscription,
    GetTopology,
    HostedState,
    ListPubends,
    ListSubscriptions,
    MemberState,
    PeerState,
    PubendList,
    PubendState,
    SubscriptionList,
    SubscriptionReply,
    SubscriptionState,
    TopologyReply,
)
from gapless.pubend.pubend import Pubend
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.subscription import HostedSubscription

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["InspectionCalls"]

T = TypeVar("T")


def page(found: Iterable[T], size_of: Callable[[T], int]) -> tuple[tuple[T, ...], bool]:
    """Return as many as fit into an answer, at least one, and whether there are more.

    >>> page(["short"] * 300, len)[1], len(page(["long" * 100_000] * 300, len)[0])
    (True, 3)
    """
    taken: list[T] = []
    remaining = SHOWN_TEXT_MAX
    for each in found:
        if len(taken) >= SHOWN_ENTRIES_MAX or remaining <= 0:
            return tuple(taken), True
        taken.append(each)
        remaining -= size_of(each)
    return tuple(taken), False


class RerouteCounts(NamedTuple):
    """How much goes another way than it should, because something is cut or down."""

    sessions_relayed: int
    feeds_bypassing: int
    feeds_relayed: int
    partitions: int
    streams_cut_off: int


class InspectionCalls:
    """Answers what operators ask to see."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._context = broker.context
        self._handlers: dict[type, Callable[[Any], Any]] = {
            GetBroker: self._show_broker,
            GetTopology: self._show_topology,
            ListPubends: self._list_pubends,
            ListSubscriptions: self._list_subscriptions,
            GetSubscription: self._show_subscription,
        }

    def handle(self, client: str, request: Any) -> bool:
        """Take a request to see something; False for others."""
        handler = self._handlers.get(type(request))
        if handler is not None:
            self._context.notify(client, handler(request))
        return handler is not None

    # --- the broker ----------------------------------------------------------------------------

    def _show_broker(self, call: GetBroker) -> BrokerReply:
        broker, identity = self._broker, self._context.identity
        peers = self._peers()
        subscriptions = broker.host.subscriptions.values()
        clients = {each.client for each in subscriptions if each.client is not None}
        hosted = broker.pubends.hosted
        return BrokerReply(
            call.request,
            identity.broker,
            identity.cell,
            identity.incarnation,
            self._context.clock,
            tuple(peers[:SHOWN_PEERS_MAX]),
            max(0, len(peers) - SHOWN_PEERS_MAX),
            pubends_hosted=len(hosted),
            pubends_known=len(broker.announcements.pubends()),
            streams_joined=len(broker.host.subends),
            subscriptions=len(subscriptions),
            durable=sum(each.durable for each in subscriptions),
            connected=sum(each.client is not None for each in subscriptions),
            clients=len(clients),
            log_bytes=sum(each.log_bytes for each in hosted.values() if isinstance(each, Pubend)),
            cache_bytes=broker.router.cached_bytes,
            coverage_marks=tuple(sorted(self._context.coverage_marks.items())),
            **self.reroute_counts()._asdict(),
        )

    def reroute_counts(self) -> RerouteCounts:
        """Count what goes around something."""
        broker = self._broker
        feeders = {each: broker.router.feeder(each) for each in broker.announcements.pubends()}
        fed = [(pubend, feeder) for pubend, feeder in feeders.items() if feeder is not None]
        return RerouteCounts(
            sum(bool(broker.sessions.route(peer)) for peer in broker.sessions.open_peers()),
            sum(broker.routing.is_bypass(pubend, feeder) for pubend, feeder in fed),
            sum(not broker.sessions.is_direct(feeder) for _, feeder in fed),
            len(broker.partitions.table()),
            sum(each.is_cut_off for each in broker.host.subends.values()),
        )

    def _peers(self) -> list[PeerState]:
        broker = self._broker
        found = []
        for info in broker.neighbourhood.cells:
            for peer in info.brokers:
                if peer == self._context.identity.broker:
                    continue
                is_open = broker.sessions.is_open(peer)
                incarnation = broker.sessions.incarnation_of(peer) if is_open else 0
                slow = broker.router.is_paused(peer)
                via = broker.sessions.route(peer)
                found.append(PeerState(peer, info.name, is_open, incarnation, slow, via))
        return found

    def _show_topology(self, call: GetTopology) -> TopologyReply:
        identity, neighbourhood = self._context.identity, self._broker.neighbourhood
        skipped = neighbourhood.cells[max(0, call.skip) :]
        shown = skipped[:SHOWN_ENTRIES_MAX]
        cells = tuple(
            CellState(
                each.name,
                neighbourhood.distance(each.name),
                each.brokers,
                tuple(broker for broker in each.brokers if self._reaches(broker)),
                each.neighbours,
                self._relayed(each.brokers),
            )
            for each in shown
        )
        more = len(skipped) > len(shown)
        return TopologyReply(
            call.request, identity.broker, identity.cell, neighbourhood.version, cells, more
        )

    def _reaches(self, broker: str) -> bool:
        return broker == self._context.identity.broker or self._broker.sessions.is_open(broker)

    def _relayed(self, brokers: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        routes = ((broker, self._broker.sessions.route(broker)) for broker in brokers)
        return tuple((broker, route) for broker, route in routes if route)

    # --- hosts of subscribers ------------------------------------------------------------------

    def unknown_host_reason(self, shb: ShbId) -> str | None:
        """Say that nothing is known of a host, and of which something is; None if it is known.

        Known are the cells near this broker, the hosts that its logs are kept for, and those whose
        filters have come here.
        """
        known = self._known_hosts()
        if shb in known:
            return None
        others = sorted(known - {self._context.identity.shb})
        shown = ", ".join(
            f"{each.broker} in {each.cell}" for each in others[:SHOWN_HOSTS_NAMED_MAX]
        )
        more = len(others) - SHOWN_HOSTS_NAMED_MAX
        rest = f" and {more:,} more" if more > 0 else ""
        return (
            f"no broker {shb.broker} in the cell {shb.cell} is known here; known are "
            f"{shown or 'no others'}{rest}; ask a broker that is nearer to it if it is none of these"
        )

    def _known_hosts(self) -> set[ShbId]:
        broker = self._broker
        known = {
            ShbId(each, info.name) for info in broker.neighbourhood.cells for each in info.brokers
        }
        for edge in broker.tables.table_store.edges.values():
            known.update(edge.hosts)
        for pubend in broker.pubends.hosted.values():
            if isinstance(pubend, Pubend):
                known.update(pubend.members.hosts())
        return known

    # --- pubends -------------------------------------------------------------------------------

    def _list_pubends(self, call: ListPubends) -> PubendList:
        broker = self._broker
        names = sorted(broker.pubends.hosted) if call.hosted else broker.announcements.pubends()
        after = call.after
        states = (self._pubend(each) for each in names if after is None or each > after)
        known = (each for each in states if each is not None)
        entries, more = page(known, lambda each: len(each.advertisement))
        return PubendList(call.request, entries, more)

    def _pubend(self, pubend: PubendId) -> PubendState | None:
        known = self._broker.announcements.get(pubend)
        if known is None:
            return None
        properties = known.properties
        hosted = self._broker.pubends.hosted.get(pubend)
        return PubendState(
            pubend,
            properties.broker,
            properties.cell,
            properties.quality,
            properties.advertisement,
            known.version,
            known.path,
            _hosted(hosted) if isinstance(hosted, Pubend) else None,
            self._broker.router.feeder(pubend),
        )

    # --- subscriptions -------------------------------------------------------------------------

    def _list_subscriptions(self, call: ListSubscriptions) -> SubscriptionList:
        found = self._broker.host.subscriptions
        states = (
            self._subscription(found[name], None, SHOWN_CURSORS_LISTED_MAX)
            for name in sorted(found)
            if name > call.after and (found[name].durable or not call.durable)
        )
        entries, more = page(states, lambda each: len(each.filter))
        return SubscriptionList(call.request, entries, more)

    def _show_subscription(self, call: GetSubscription) -> SubscriptionReply | Refused:
        found = self._broker.host.subscriptions.get(call.subscription)
        if found is None:
            reason = f"there is no subscription {call.subscription!r} at this broker"
            return Refused(call.request, reason)
        return SubscriptionReply(
            call.request, self._subscription(found, call.after, SHOWN_CURSORS_MAX)
        )

    def _subscription(
        self, subscription: HostedSubscription, after: PubendId | None, most: int
    ) -> SubscriptionState:
        cursors = subscription.cursors
        names = [each for each in sorted(cursors) if after is None or each > after]
        disconnected_for = self._context.now - subscription.disconnected_since
        return SubscriptionState(
            subscription.name,
            subscription.durable,
            subscription.newest.text,
            subscription.order,
            subscription.client,
            None if subscription.client is not None else self._context.clock - disconnected_for,
            subscription.expiry_s,
            subscription.change is not None,
            subscription.credit,
            tuple(_cursor(cursors[each]) for each in names[:most]),
            max(0, len(names) - most),
        )


def _hosted(pubend: Pubend) -> HostedState:
    rows = sorted(pubend.members.rows(), key=lambda row: (row.ack_floor, row.shb))
    members = tuple(MemberState(row.shb, row.ack_floor, row.durable, row.inactive) for row in rows)
    return HostedState(
        pubend.top,
        pubend.record.released,
        pubend.log_bytes,
        pubend.stream_epoch,
        members[:SHOWN_MEMBERS_MAX],
        max(0, len(members) - SHOWN_MEMBERS_MAX),
        pubend.members.ack_floor(),
        pubend.corruption,
    )


def _cursor(cursor: Cursor) -> CursorState:
    subscription, horizon = cursor.subscription, cursor.subend.horizon
    reached = cursor.acked if subscription.durable else cursor.buffered_up_to
    has_started = cursor.started_after is not None
    is_waiting = cursor.fault or not has_started or cursor.subend.feeder is None
    return CursorState(
        cursor.pubend,
        cursor.phase.value,
        cursor.buffered_up_to,
        cursor.acked,
        horizon,
        max(0, (horizon or 0) - reached) if has_started else 0,
        len(cursor.buffer),
        subscription.reason(cursor) if is_waiting else None,
    )
