"""Replies to operators: the current state of a broker, in pages of bounded size.

This module only reads, and no component depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.limits import (
    SHOWN_ENTRIES_MAX,
    SHOWN_MEMBERS_MAX,
    SHOWN_PEERS_MAX,
    SHOWN_TEXT_MAX,
)
from gapless.core.version import PROTOCOL_VERSIONS, VERSION
from gapless.directory.announcements import Announcements
from gapless.directory.hosted import HostedPubends
from gapless.feeds.candidates import FeedCandidates
from gapless.messages.operating import (
    BrokerReply,
    CellState,
    GetBroker,
    GetTopology,
    HostedState,
    ListPartitions,
    ListPubends,
    MemberState,
    PartitionTable,
    PeerState,
    PubendList,
    PubendState,
    TopologyReply,
)
from gapless.overlay.partitions import Partitions
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import Tree
from gapless.pubend.pubend import Pubend
from gapless.pubend.pubends import AnyPubend
from gapless.routing.router import Router
from gapless.subscribers import Registry, Subends

__all__ = ["InspectionCalls", "page"]

T = TypeVar("T")


def page(found: Iterable[T], size_of: Callable[[T], int]) -> tuple[tuple[T, ...], bool]:
    """Return the entries that fit into a reply, at least one, and whether there are more.

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
    """Counts of sessions, feeds and streams that are relayed, bypassing or cut off."""

    sessions_relayed: int
    feeds_bypassing: int
    feeds_relayed: int
    partitions: int
    streams_cut_off: int


class InspectionCalls:
    """Answers the read-only requests of operators."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        sessions: PeerSessions,
        partitions: Partitions,
        hosted: HostedPubends[AnyPubend],
        announcements: Announcements,
        candidates: FeedCandidates,
        router: Router,
        registry: Registry,
        subends: Subends,
    ) -> None:
        self._context = context
        self._tree = tree
        self._sessions = sessions
        self._partitions = partitions
        self._hosted = hosted
        self._announcements = announcements
        self._candidates = candidates
        self._router = router
        self._registry = registry
        self._subends = subends
        replies: dict[type, Callable[[Any], Any]] = {
            GetBroker: self._show_broker,
            GetTopology: self._show_topology,
            ListPartitions: self._list_partitions,
            ListPubends: self._list_pubends,
        }
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            request: partial(self._reply, reply) for request, reply in replies.items()
        }

    def _reply(self, reply: Callable[[Any], Any], client: str, request: Any) -> None:
        self._context.notify(client, reply(request))

    # --- the broker ----------------------------------------------------------------------------

    def _show_broker(self, call: GetBroker) -> BrokerReply:
        identity = self._context.identity
        peers = self._peers()
        subscriptions = self._registry.subscriptions.values()
        clients = {each.client for each in subscriptions if each.client is not None}
        return BrokerReply(
            call.request,
            identity.broker,
            identity.cell,
            identity.incarnation,
            self._context.clock,
            tuple(peers[:SHOWN_PEERS_MAX]),
            max(0, len(peers) - SHOWN_PEERS_MAX),
            pubends_hosted=len(self._hosted),
            pubends_known=len(self._announcements.pubends()),
            streams_joined=len(self._subends.guaranteed),
            subscriptions=len(subscriptions),
            durable=sum(each.durable for each in subscriptions),
            connected=sum(each.client is not None for each in subscriptions),
            clients=len(clients),
            log_bytes=sum(
                each.log_bytes for each in self._hosted.values() if isinstance(each, Pubend)
            ),
            cache_bytes=self._router.cached_bytes,
            coverage_marks=tuple(sorted(self._context.coverage_marks.items())),
            **self.reroute_counts()._asdict(),
            version=VERSION,
            protocols=PROTOCOL_VERSIONS,
            retention_s=self._context.parameters.retention_s,
            log_bytes_max=self._context.parameters.log_bytes_max,
        )

    def reroute_counts(self) -> RerouteCounts:
        """Count relayed sessions and feeds, bypassing feeds, partitions, and streams without a feed."""
        feeders = {each: self._router.feeder(each) for each in self._announcements.pubends()}
        fed = [(pubend, feeder) for pubend, feeder in feeders.items() if feeder is not None]
        return RerouteCounts(
            sum(bool(self._sessions.route(peer)) for peer in self._sessions.open_peers()),
            sum(self._candidates.is_bypass(pubend, feeder) for pubend, feeder in fed),
            sum(not self._sessions.is_direct(feeder) for _, feeder in fed),
            len(self._partitions.table()),
            sum(each.is_cut_off for each in self._subends.guaranteed.values()),
        )

    def _peers(self) -> list[PeerState]:
        found = []
        for info in self._tree.neighbourhood.cells:
            for peer in info.brokers:
                if peer == self._context.identity.broker:
                    continue
                is_open = self._sessions.is_open(peer)
                incarnation = self._sessions.incarnation_of(peer) if is_open else 0
                slow = self._router.is_paused(peer)
                via = self._sessions.route(peer)
                found.append(PeerState(peer, info.name, is_open, incarnation, slow, via))
        return found

    def _show_topology(self, call: GetTopology) -> TopologyReply:
        identity, neighbourhood = self._context.identity, self._tree.neighbourhood
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
        return broker == self._context.identity.broker or self._sessions.is_open(broker)

    def _relayed(self, brokers: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        routes = ((broker, self._sessions.route(broker)) for broker in brokers)
        return tuple((broker, route) for broker, route in routes if route)

    def _list_partitions(self, call: ListPartitions) -> PartitionTable:
        dated = self._partitions.dated()
        clock_less_now = self._context.clock - self._context.now
        return PartitionTable(
            call.request,
            tuple(partition for partition, _ in dated),
            tuple(since + clock_less_now for _, since in dated),
        )

    # --- pubends -------------------------------------------------------------------------------

    def _list_pubends(self, call: ListPubends) -> PubendList:
        names = sorted(self._hosted) if call.hosted else self._announcements.pubends()
        if call.closed:
            tombstones = (each for each in self._announcements.known if each not in names)
            names = sorted({*names, *filter(self._announcements.is_closed, tombstones)})
        after = call.after
        states = (self._pubend(each) for each in names if after is None or each > after)
        known = (each for each in states if each is not None)
        entries, more = page(known, lambda each: len(each.advertisement))
        return PubendList(call.request, entries, more)

    def _pubend(self, pubend: PubendId) -> PubendState | None:
        known = self._announcements.known.get(pubend)
        if known is None:
            return None
        properties = known.properties
        hosted = self._hosted.get(pubend)
        return PubendState(
            pubend,
            properties.broker,
            properties.cell,
            properties.quality,
            properties.advertisement,
            known.version,
            known.path,
            _hosted(hosted) if isinstance(hosted, Pubend) else None,
            self._router.feeder(pubend),
            known.sealed,
            known.tombstone,
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
