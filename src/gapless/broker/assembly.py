"""Assembly: the components of a broker, their connections, and the order in which they start.

Each constructor receives only components that were created before, and has no effects;
:func:`start` acts. Timers with equal deadlines run in the order in which they were set, so the
order in :func:`start` affects the behaviour of a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from gapless.broker.cell_contents import LeavingCell
from gapless.broker.notifications import Notifications
from gapless.broker.stream_messages import StreamMessages
from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.directory.announcements import Announcements
from gapless.directory.hosted import HostedPubends
from gapless.directory.locations import PubendLocations
from gapless.directory.name_query import NameQueries
from gapless.directory.names import PubendNames
from gapless.directory.status import PubendStatuses
from gapless.directory.tombstones import Tombstones
from gapless.feeds.candidates import FeedCandidates
from gapless.inspection.lag import LagMeter
from gapless.inspection.show import InspectionCalls
from gapless.inspection.subscriptions import SubscriptionInspection
from gapless.inspection.tree import TreeCalls
from gapless.messages.overlay import RecordList, RecordPush, RecordWant
from gapless.messages.stored import StoredState
from gapless.messages.unicast import UnicastReply, UnicastRequest
from gapless.mobility import (
    ForcedMoves,
    HostingBrokers,
    Lookups,
    SubscriptionCollector,
    SubscriptionFinder,
    Walks,
)
from gapless.mobility.find import ClientAddresses
from gapless.overlay.control_sessions import ControlSessions
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.partitions import Partitions
from gapless.overlay.record_exchange import RecordExchange
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import Tree
from gapless.propagation.exchange import TableExchange
from gapless.propagation.filtering import TableFiltering
from gapless.pubend.closings import PubendClosings
from gapless.pubend.pubends import AnyPubend, Pubends
from gapless.pubend.publisher_calls import PublisherCalls
from gapless.pubend.refusals import PubendRefusals
from gapless.pubend.staging import Staging
from gapless.pubend.writer_calls import WriterCalls
from gapless.requests.carrier import PubendRequests
from gapless.requests.reads import ReadCalls
from gapless.requests.tree_walk import TreeWalks
from gapless.requests.unicast import UnicastHandler, UnicastRequests
from gapless.reshape.leader_requests import LeaderRequests
from gapless.reshape.operations import OPERATION_MESSAGES, Operations
from gapless.reshape.plan_calls import PlanCalls
from gapless.reshape.plan_parts import LeaderOperations, SettledEdges, WalkedRecords
from gapless.reshape.plans import PlanExecutor
from gapless.reshape.step import TreeStep
from gapless.reshape.tree_calls import OperatorTreeCalls
from gapless.retirement.consequences import Retirement
from gapless.retirement.retire_calls import RetireCalls
from gapless.routing.reports import ReportAggregator
from gapless.routing.router import Router
from gapless.subscribers import (
    CorruptSubscriptions,
    Filters,
    Maintenance,
    OperatorCalls,
    Registry,
    Subends,
    SubscriberCalls,
)

__all__ = ["CONTROL_MESSAGES", "Calls", "Components", "UnicastServer", "assemble", "start"]

CONTROL_MESSAGES: Final = frozenset(
    {RecordPush, RecordList, RecordWant, UnicastRequest, UnicastReply, *OPERATION_MESSAGES}
)
"""The messages that control sessions carry (RS-35)."""


class Calls(Protocol):
    """A component that answers requests of clients."""

    @property
    def handlers(self) -> Mapping[type, Callable[[str, Any], None]]:
        """The requests, each with its handler."""


class UnicastServer(Protocol):
    """A component that serves unicast requests (D9)."""

    @property
    def unicast_handlers(self) -> Mapping[type, UnicastHandler]:
        """The bodies of requests, each with its handler."""


class Components(NamedTuple):
    """The components of a running broker."""

    tree: Tree
    sessions: PeerSessions
    control_sessions: ControlSessions
    record_exchange: RecordExchange
    partitions: Partitions
    hosted: HostedPubends[AnyPubend]
    retirements: Retirements
    locations: PubendLocations
    announcements: Announcements
    status: PubendStatuses
    names: PubendNames
    name_queries: NameQueries
    exchange: TableExchange
    candidates: FeedCandidates
    filtering: TableFiltering
    router: Router
    reports: ReportAggregator
    pubends: Pubends
    staging: Staging
    closings: PubendClosings
    requests: PubendRequests
    unicast: UnicastRequests
    tree_walks: TreeWalks
    reads: ReadCalls
    filters: Filters
    subends: Subends
    registry: Registry
    maintenance: Maintenance
    hosting: HostingBrokers
    walks: Walks
    finder: SubscriptionFinder
    lookups: Lookups
    collector: SubscriptionCollector
    retirement: Retirement
    stream_messages: StreamMessages
    step: TreeStep
    operations: Operations
    plans: PlanExecutor
    inspection: InspectionCalls
    calls: tuple[Calls, ...]
    """The components that answer requests of clients."""
    unicast_servers: tuple[UnicastServer, ...]
    """The components that serve unicast requests."""


def assemble(
    context: Context,
    notifications: Notifications,
    tree: Tree,
    stored: StoredState,
    corrupt_pubends: Mapping[PubendId, str],
    corrupt_subscriptions: Mapping[str, str],
    addresses: ClientAddresses,
    *,
    may_join: bool = False,
) -> Components:
    """Create all components from the stored state. With ``may_join`` the broker waits to be appended."""
    identity = context.identity
    sessions = PeerSessions(context, tree.neighbourhood, notifications)
    control = ControlSessions(context, tree, sessions, CONTROL_MESSAGES, notifications)
    record_exchange = RecordExchange(context, tree, sessions, notifications)
    partitions = Partitions(context, tree, sessions)
    hosted = HostedPubends[AnyPubend](corrupt_pubends)
    retirements = Retirements(context, sessions, stored.retirements, hosted, notifications)
    locations = PubendLocations(context, stored.locations)
    tombstones = Tombstones(context, stored.tombstones)
    announcements = Announcements(context, tree, sessions, locations, notifications)
    status = PubendStatuses(
        identity,
        sessions,
        partitions,
        hosted,
        retirements,
        announcements,
        locations,
        tombstones,
    )
    names = PubendNames(identity, hosted, announcements, locations, status, tombstones)
    name_queries = NameQueries(context, tree, sessions, retirements, names)
    exchange = TableExchange(context, tree, sessions, notifications)
    candidates = FeedCandidates(identity, tree, sessions, announcements)
    filtering = TableFiltering(exchange)
    router = Router(context, filtering, candidates, record_exchange)
    reports = ReportAggregator(context, router, hosted)
    pubends = Pubends(
        context,
        hosted,
        sessions,
        announcements,
        exchange.table_store,
        router,
        reports,
        notifications,
        stored.tick_ceiling,
    )
    refusals = PubendRefusals(context, hosted, announcements, status)
    staging = Staging(context, sessions.clock_view, stored.staged, stored.commits)
    requests = PubendRequests(context, pubends, candidates, router)
    unicast = UnicastRequests(context, tree, sessions, exchange.table_store, notifications)
    tree_walks = TreeWalks(context, tree, unicast)
    reads = ReadCalls(context, requests, hosted, announcements)
    filters = Filters(context, exchange)
    subends = Subends(context, filters, requests, status, candidates, stored.memberships)
    registry = Registry(context, filters, subends, requests, status)
    corrupt = CorruptSubscriptions(context, corrupt_subscriptions)
    hosting = HostingBrokers(context, sessions, registry)
    moves = ForcedMoves(context, filters, registry)
    walks = Walks(context, tree, sessions, retirements)
    finder = SubscriptionFinder(context, walks, registry, hosting, corrupt, addresses)
    collector = SubscriptionCollector(context, walks, registry, corrupt, finder)
    restored = (each.subscription for each in stored.subscriptions)
    lookups = Lookups(context, finder, registry, restored)
    closings = PubendClosings(
        context,
        hosted,
        tombstones,
        announcements,
        status,
        pubends,
        staging,
        sessions,
        notifications,
        finder.addresses_of,
    )
    retirement = Retirement(
        retirements,
        announcements,
        locations,
        status,
        pubends,
        subends,
    )
    lag = LagMeter(context, requests)
    listings = SubscriptionInspection(context, registry, corrupt, lag, lookups)
    inspection = InspectionCalls(
        context,
        tree,
        sessions,
        partitions,
        hosted,
        announcements,
        candidates,
        router,
        registry,
        subends,
    )
    step = TreeStep(
        context,
        tree,
        stored.neighbourhood,
        record_exchange,
        (partitions, exchange, announcements, router, name_queries, walks, sessions, control),
        (announcements, exchange, router, subends, pubends),
        may_join=may_join,
    )
    operations = Operations(
        context,
        step,
        control,
        LeavingCell(context, tree, hosted, staging, registry, subends),
        stored.operations,
        stored.locks,
        stored.promises,
    )
    leaders = LeaderRequests(context, step.records, tree_walks, unicast, operations.calls)
    settling = SettledEdges(context, unicast, leaders, exchange.table_store)
    plans = PlanExecutor(
        context,
        stored.plans[0] if stored.plans else None,
        WalkedRecords(tree_walks),
        LeaderOperations(leaders),
        settling,
    )
    return Components(
        tree,
        sessions,
        control,
        record_exchange,
        partitions,
        hosted,
        retirements,
        locations,
        announcements,
        status,
        names,
        name_queries,
        exchange,
        candidates,
        filtering,
        router,
        reports,
        pubends,
        staging,
        closings,
        requests,
        unicast,
        tree_walks,
        reads,
        filters,
        subends,
        registry,
        Maintenance(context, subends, registry),
        hosting,
        walks,
        finder,
        lookups,
        collector,
        retirement,
        StreamMessages(context, router, reports, subends),
        step,
        operations,
        plans,
        inspection,
        calls=(
            PublisherCalls(
                context, sessions, hosted, status, names, name_queries, pubends, refusals
            ),
            RetireCalls(context, tree, sessions, retirements, (exchange.table_store, pubends)),
            SubscriberCalls(context, filters, registry, corrupt, hosting, moves, lookups),
            lookups,
            collector,
            reads,
            inspection,
            listings,
            OperatorCalls(context, registry, corrupt, hosting, lookups),
            WriterCalls(context, hosted, staging, refusals),
            TreeCalls(context, tree_walks, unicast),
            OperatorTreeCalls(context, leaders),
            PlanCalls(context, plans),
            closings,
        ),
        unicast_servers=(tree_walks, leaders, settling),
    )


def start(components: Components, stored: StoredState, configured: Neighbourhood) -> None:
    """Start all components, and restore subscriptions and pubends."""
    each = components
    each.sessions.start()
    each.announcements.start()
    each.retirements.start()
    each.partitions.start()
    each.router.start()
    each.reports.start()
    each.maintenance.start()
    each.hosting.start()
    for record in stored.subscriptions:
        each.registry.restore(record)
    each.exchange.start()
    each.pubends.restore(stored.pubends)
    each.closings.start()
    each.retirement.start()
    each.staging.start()
    each.operations.start()
    each.plans.start()
    if each.tree.neighbourhood is not configured:
        each.control_sessions.update_links()  # the driver knows only the configured peers
