"""The broker: all rooms behind one door, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gapless.broker.configuration import configuration_of, refuse_other_configuration
from gapless.broker.inspection import InspectionCalls
from gapless.broker.naming import PubendNaming
from gapless.broker.pubends import HostedPubends
from gapless.broker.readers import ReadCalls
from gapless.broker.reshaping import NeighbourhoodChange, newest
from gapless.broker.routing import BrokerRouting
from gapless.broker.stagers import StagingCalls
from gapless.content.filter import EVERYTHING, Filter
from gapless.core.errors import FilterError
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.limits import SHOWN_CUTS_MAX
from gapless.core.machine import (
    ClientDown,
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    Context,
    Effect,
    Fetched,
    Identity,
    LinkDown,
    LinkDrained,
    LinkFull,
    LinkUp,
    MachineEvent,
    Received,
    StepTime,
    Stopping,
    Written,
)
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.directory.announcements import Announcements
from gapless.directory.locations import PubendLocations
from gapless.feeds.feed import is_leaf_number
from gapless.messages.clients import (
    BrokerRetired,
    ListPartitions,
    PartitionTable,
    Refused,
    RetireBroker,
    Subscribe,
)
from gapless.messages.mobility import Superseded
from gapless.messages.overlay import (
    Announce,
    NameQuery,
    NameReply,
    PartitionInfo,
    Quality,
    Retire,
    TableState,
)
from gapless.messages.records import (
    IncarnationRecord,
    JoinedPubendRecord,
    PutRecord,
    Record,
    SubscriptionRecord,
)
from gapless.messages.streams import (
    AckExpected,
    AckReport,
    AdvanceRequest,
    Attach,
    Attached,
    DefineMemberSet,
    Detach,
    FeedUnavailable,
    ForgetMemberSet,
    KnowledgeRange,
    Nack,
    Released,
    StreamData,
    StreamEpoch,
    StreamEpochRequest,
    StreamSilence,
    Unreadable,
)
from gapless.mobility import HostingBrokers
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.partitions import Partitions
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import PeerSessions
from gapless.propagation.exchange import TableExchange
from gapless.propagation.sources import TableSources
from gapless.requests.carrier import PubendRequests
from gapless.routing.reports import ReportAggregator
from gapless.routing.router import Router
from gapless.stream.ranges import invalid_reason
from gapless.subscribers import AckReporter, OperatorCalls, SubscriberCalls, SubscriberHost, restore

__all__ = ["Broker"]


def next_incarnation(records: Iterable[Record], clock: int) -> int:
    """Return the number of the life that begins now.

    Never the clock alone: it may have been set back, and then old promises would seem to cover
    subscriptions that are new (A9).
    """
    stored = [record.incarnation for record in records if isinstance(record, IncarnationRecord)]
    return max([1, clock, *(incarnation + 1 for incarnation in stored)])


def _nothing() -> None:
    """Nobody waits."""


class Broker:
    """One life of a broker, from what its disk holds."""

    def __init__(
        self,
        broker: BrokerId,
        cell: CellId,
        parameters: Parameters,
        neighbourhood: Neighbourhood,
        records: Iterable[Record],
        now: StepTime,
        refused: Mapping[PubendId, str] | None = None,
        refused_subscriptions: Mapping[str, str] | None = None,
    ) -> None:
        """Begin a life. What is ``refused`` cannot be brought back, each with the reason (P8).

        Raises UsageError if the records were made by another broker, or in another tree.
        """
        records = tuple(records)
        configuration = configuration_of(broker, parameters.delta, neighbourhood)
        first = (
            (PutRecord(configuration),)
            if refuse_other_configuration(configuration, records)
            else ()
        )
        incarnation = next_incarnation(records, now.clock)
        self.context = Context(Identity(broker, cell, incarnation), parameters)
        self.context.now, self.context.clock = now
        self._me = broker
        self._configured = neighbourhood
        self._reshaping = NeighbourhoodChange(self, newest(neighbourhood, records))
        self._records = records
        self.refused = dict(refused or {})
        self.refused_subscriptions = dict(refused_subscriptions or {})
        self._early_events: list[MachineEvent] | None = []
        """What happens before the new life is on disk waits; nothing is sent before that (R1)."""
        self._posted: list[Any] = []
        self.context.write((PutRecord(IncarnationRecord(incarnation)), *first), self._start)

    # --- the door ------------------------------------------------------------------------------

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Take an event, or None if only time has passed; return what is to be done."""
        return self.step_all((event,), now)

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        """Take events that happened together; what follows from all of them goes out together.

        For writes that became durable at once, and for publications that came at once.
        """
        context = self.context
        context.now, context.clock = now
        for event in events:
            if self._early_events is None:
                self._handle(event)
            elif isinstance(event, Written):
                context.resume(event)
            elif event is not None:
                self._early_events.append(event)
        context.run_timers()
        if self._early_events is None:
            self._settle()
        effects, context.effects = context.effects, []
        return effects

    def next_timer(self) -> int | None:
        """Return when a step is due without an event."""
        return self.context.next_timer()

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""
        return self.context.coverage_marks

    @property
    def neighbourhood(self) -> Neighbourhood:
        """What this broker knows of the tree."""
        return self._reshaping.neighbourhood

    # --- beginning -----------------------------------------------------------------------------

    def _start(self) -> None:
        """The new life is on disk: make the rooms and bring back what they had."""
        context, records, neighbourhood = self.context, self._records, self.neighbourhood
        self.sessions = PeerSessions(context, neighbourhood, self)
        self.announcements = Announcements(context, neighbourhood, self.sessions)
        self.retirements = Retirements(
            context,
            self.sessions,
            records,
            self._retirement_changed,
            lambda: self.pubends.last_tick,
            lambda: self.pubends.on_disk,
        )
        self.partitions = Partitions(context, neighbourhood, self.sessions)
        self.tables = TableExchange(
            context,
            neighbourhood,
            self._incarnation_of,
            TableSources(self._me, neighbourhood, self.sessions),
            self._tables_changed,
        )
        self.routing = BrokerRouting(
            context,
            neighbourhood,
            self.sessions,
            self.announcements,
            self.tables.table_store,
        )
        self.router = Router(context, self.routing, self.tables.set_fed)
        self.pubend_locations = PubendLocations(context, records)
        self.naming = PubendNaming(self)
        self.pubends = HostedPubends(self)
        self.reports = ReportAggregator(context, self.router.feeder, self.pubends.report)
        self.requests = PubendRequests(
            context,
            self.pubends.serving,
            lambda pubend, request: self.routing.next_hop(
                pubend, request, self.router.feeder(pubend)
            ),
        )
        joined = [record for record in records if isinstance(record, JoinedPubendRecord)]
        self.host = SubscriberHost(
            context, self.tables, self.requests, self.routing.leaf_candidates, joined
        )
        self.host.obstacle = self._obstacle
        self.host.abandonment.is_retired = self._is_retired
        self.host.abandonment.returned_at = self._returned_at
        self.host.abandonment.found = self.pubend_locations.mark_found
        self.calls = SubscriberCalls(self.host)
        self.reporting = AckReporter(self.host, self.calls.expire)
        self.operators = OperatorCalls(self.host, self.calls)
        self.read_calls = ReadCalls(self)
        self.inspection = InspectionCalls(self)
        self.hosting = HostingBrokers(context, self.sessions, self.calls)
        for record in records:
            if isinstance(record, SubscriptionRecord):
                self.calls.start_interest_grace(restore(self.host, record))
        self.tables.start()
        self.pubends.restore(records)
        for shb in (*self.retirements.all(), *self.retirements.returned()):
            self._retirement_changed(shb)  # the crash may have come before that was through
        self.staging_calls = StagingCalls(self, records)
        if neighbourhood is not self._configured:
            self._reshaping.update_peers()  # the driver knows only what is configured
        early, self._early_events, self._records = self._early_events or [], None, ()
        for event in early:
            self._handle(event)

    def _incarnation_of(self, peer: BrokerId) -> int:
        return (
            self.context.identity.incarnation
            if peer == self._me
            else self.sessions.incarnation_of(peer)
        )

    # --- the tree around -----------------------------------------------------------------------

    def reshape(
        self,
        neighbourhood: Neighbourhood,
        *,
        unused: Collection[CellId] = (),
        then: Callable[[], None] = _nothing,
    ) -> None:
        """Live in another neighbourhood, in one durable step; then go on (R13).

        For the rooms that change the tree: one call is one operation, at this broker. ``unused``
        are new neighbours behind which there never was a subscriber host.
        """
        assert self._early_events is None, "a broker must have begun before it is reshaped"
        self._reshaping.reshape(neighbourhood, unused, then)

    # --- what happens --------------------------------------------------------------------------

    def _handle(self, event: MachineEvent) -> None:
        match event:
            case Received(peer, packet):
                self.sessions.received(peer, packet)
            case Written() | Fetched():
                self.context.resume(event)
            case ClientRequest(client, request):
                self._handle_request(client, request)
            case LinkUp(peer):
                self.sessions.link_up(peer)
            case LinkDown(peer):
                self.sessions.link_down(peer)
            case LinkFull(peer):
                self.sessions.link_full(peer)
            case LinkDrained(peer):
                self.sessions.link_free(peer)
            case ClientFull(client):
                self.host.pause_client(client)
            case ClientDrained(client):
                self.host.resume_client(client)
            case ClientDown(client):
                self.calls.client_down(client)
                self.read_calls.client_down(client)
            case ClientUp(client):
                self.calls.client_up(client)
            case Stopping():
                self.reporting.save_acknowledgements()
            case None:
                pass

    def _handle_request(self, client: str, request: Any) -> None:
        if self.pubends.handle(client, request):
            return
        if isinstance(request, RetireBroker):
            self._retire(client, request)
            return
        corruption = self._corruption_of(request)
        if corruption is not None:
            self.context.notify(client, Refused(request.request, corruption))
            return
        if isinstance(request, ListPartitions):
            self.context.notify(client, self._list_partitions(request))
            return
        components = (
            self.calls,
            self.read_calls,
            self.inspection,
            self.operators,
            self.staging_calls,
        )
        if not any(component.handle(client, request) for component in components):
            number = getattr(request, "request", 0)
            self.context.notify(client, Refused(number, f"{type(request).__name__} is no request"))

    def _list_partitions(self, call: ListPartitions) -> PartitionTable:
        dated = self.partitions.dated()
        clock_less_now = self.context.clock - self.context.now
        return PartitionTable(
            call.request,
            tuple(partition for partition, _ in dated),
            tuple(since + clock_less_now for _, since in dated),
        )

    def _corruption_of(self, request: Any) -> str | None:
        """Say why a durable subscription cannot go on: to make it anew would write over it (P8)."""
        if not isinstance(request, Subscribe) or not self.refused_subscriptions:
            return None
        corruption = self.refused_subscriptions.get(request.subscription)
        if corruption is None:
            return None
        return f"the subscription {request.subscription} could not be brought back: {corruption}"

    def _retire(self, client: str, call: RetireBroker) -> None:
        """Retire a broker that an operator says will never return (R26)."""
        if call.broker == self._me or self.sessions.is_open(call.broker):
            reason = f"the broker {call.broker} is alive; stop it before it is retired"
            self.context.notify(client, Refused(call.request, reason))
            return
        shb = ShbId(call.broker, call.cell)
        unknown_reason = (
            None if shb in self.retirements else self.inspection.unknown_host_reason(shb)
        )
        if unknown_reason is not None:
            self.context.notify(client, Refused(call.request, unknown_reason))
            return
        self.retirements.retire(shb)
        self.context.write((), lambda: self.context.notify(client, BrokerRetired(call.request)))

    def _retirement_changed(self, shb: ShbId) -> None:
        """A broker will never return: wait for nothing of it, and while that is fresh, keep nothing for it.

        Or it is forgotten, or the broker is back.
        """
        if self.retirements.is_recent(shb):
            self.pubends.retire(shb)
        else:
            self.pubends.readmit(shb)
        if shb in self.retirements:
            self._leave_pubends_of(shb.broker)
        elif self.retirements.is_back(shb):
            self._take_back_pubends_of(shb)

    def _leave_pubends_of(self, broker: BrokerId) -> None:
        for pubend in self._pubends_of(broker):
            self.host.abandonment.look_at(pubend)
        for pubend in self.pubend_locations.pubends_at(broker):
            # of one that is fed it has to be known, also after a crash, whose it was when it is not any more
            if pubend not in self.host.memberships or pubend in self.host.abandonment:
                self.pubend_locations.mark_host_retired(pubend)

    def _take_back_pubends_of(self, shb: ShbId) -> None:
        """A broker is back: it has its pubends again, but those that it has lost with its disk."""
        locations, abandonment = self.pubend_locations, self.host.abandonment
        for pubend in self._pubends_of(shb.broker):
            # what it has made since was never left; that may be known here before it is heard that the broker is back
            was_left = locations.former_broker_of(pubend) == shb.broker or pubend in abandonment
            if was_left and self.retirements.returned_without(shb, pubend):
                if not locations.is_lost(pubend):
                    locations.mark_lost(pubend, shb.broker)
                abandonment.look_at(pubend)
            elif not locations.is_lost(pubend) or self.retirements.returned_with(shb, pubend):
                locations.add(pubend, shb.broker)  # its name was free meanwhile
                abandonment.end(pubend)

    def _pubends_of(self, broker: BrokerId) -> list[PubendId]:
        """Return which pubends a broker has, by the news, or as is remembered, or had when it was retired."""
        locations = self.pubend_locations
        known = {
            *self.announcements.pubends(),
            *locations.pubends_at(broker),
            *locations.pubends_of_retired(broker),
        }
        return sorted(each for each in known if self._broker_of(each) in {None, broker})

    def _broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return which broker has a pubend, by the news, or as is remembered."""
        known = self.announcements.get(pubend)
        return self.pubend_locations.broker_of(pubend) if known is None else known.properties.broker

    def _is_retired(self, pubend: PubendId) -> bool:
        """Say whether the broker of a pubend was retired, and is not back, or is back without it."""
        if self.pubend_locations.is_lost(pubend):
            return True
        broker = self._broker_of(pubend) or self.pubend_locations.former_broker_of(pubend)
        return broker is not None and self.retirements.has(broker)

    def _returned_at(self, pubend: PubendId) -> Tick:
        """Return above which tick nobody has gone on without a pubend whose broker was retired and is back."""
        broker = self._broker_of(pubend)
        return 0 if broker is None else self.retirements.returned_at(broker)

    def _settle(self) -> None:
        """Let everything follow that this step has caused, here first, then send the rest."""
        while True:
            self.host.flush(self.calls.disconnect)
            self.reports.flush()
            posted = self.context.take_messages_to(self._me)
            if not posted:
                break
            for message in posted:
                self.received(self._me, message)
        self.sessions.flush()

    # --- sessions ------------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A session has begun (R2)."""
        self.announcements.session_opened(peer, cell)
        self.retirements.session_opened(peer)
        self.hosting.session_opened(peer)
        self.naming.session_opened()
        self.partitions.session_opened(peer, cell)
        self.tables.session_opened(peer, cell)
        self.reports.session_opened(peer)
        self.router.session_opened(peer, cell)
        self.host.session_opened()
        self.requests.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """A session is over, and what belonged to it."""
        cell = self.neighbourhood.cell_of(peer)
        if cell is not None:
            self.partitions.session_closed(peer, cell)
        self.naming.session_closed(peer)
        self.tables.session_closed(peer)
        self.reports.session_closed(peer)
        self.router.session_closed(peer)
        self.host.session_closed(peer)

    def peer_congested(self, peer: BrokerId) -> None:
        """Too much waits on the way to a peer (R40)."""
        self.router.pause_peer(peer)

    def peer_drained(self, peer: BrokerId) -> None:
        """A peer takes what is sent again."""
        self.router.resume_peer(peer)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return which tables are sent to a peer."""
        return self.tables.states(peer)

    def table_states_received(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """A peer says which tables it sends."""
        self.tables.compare_states(peer, states)

    def _tables_changed(self) -> None:
        self.pubends.update_stream_epochs()

    # --- messages ------------------------------------------------------------------------------

    def received(self, peer: BrokerId, message: Any) -> None:
        """Take a message of a session, or of this broker to itself."""
        match message:
            case StreamData(pubend, number, knowledge, first):
                if self._refuses(peer, knowledge):
                    return
                if is_leaf_number(number):
                    self._to_leaf(pubend, knowledge)
                else:
                    self.router.receive(pubend, number, knowledge, first)
            case StreamSilence(ranges):
                for pubend, number, knowledge, first in ranges:
                    if self._refuses(peer, knowledge):
                        continue
                    if is_leaf_number(number):
                        self._to_leaf(pubend, knowledge)
                    else:
                        self.router.receive(pubend, number, knowledge, first)
            case Nack():
                self.router.nack(peer, message)
            case Attach():
                self.router.attach(peer, message)
            case Detach():
                self.router.detach(peer, message)
            case Attached() | FeedUnavailable():
                self._feed_reply_received(peer, message)
            case StreamEpoch() | Released() | Unreadable() | AckExpected():
                self._stream_message_received(peer, message)
            case StreamEpochRequest():
                self.router.stream_epoch_requested(peer, message)
            case AdvanceRequest():
                self.router.advance(peer, message)
            case DefineMemberSet():
                self.reports.define(peer, message)
            case ForgetMemberSet():
                self.reports.forget(peer, message)
            case AckReport():
                self.reports.report(peer, message)
            case Announce():
                self._announcement(peer, message)
            case Retire():
                self.retirements.received(peer, message)
            case NameQuery():
                self.naming.query_received(peer, message)
            case NameReply():
                self.naming.reply_received(peer, message)
            case Superseded():
                self.hosting.received(peer, message)
            case PartitionInfo():
                self.partitions.received(peer, message)
            case _:
                if not (
                    self.tables.received(peer, message) or self.requests.received(peer, message)
                ):
                    self.context.mark("message of no component")

    def _refuses(self, peer: BrokerId, knowledge: KnowledgeRange) -> bool:
        """Examine what a peer tells, once, before any room relies on it; what is our own is sound.

        What is refused is as if it was lost: its ticks stay Q, and who needs them asks again.
        """
        if peer == self._me or invalid_reason(knowledge) is None:
            return False
        self.context.mark("invalid knowledge range")
        return True

    def _to_leaf(self, pubend: PubendId, knowledge: KnowledgeRange) -> None:
        end = self.host.subends.get(pubend) or self.host.best_effort_subends.get(pubend)
        if end is not None:
            end.receive(knowledge)

    def _feed_reply_received(self, peer: BrokerId, message: Attached | FeedUnavailable) -> None:
        if not is_leaf_number(message.number):
            if isinstance(message, Attached):
                self.router.attached(peer, message)
            else:
                self.router.feed_unavailable(peer, message)
            return
        end = self.host.subends.get(message.pubend) or self.host.best_effort_subends.get(
            message.pubend
        )
        if end is None:
            if isinstance(message, Attached):
                self.context.send(peer, Detach(message.pubend, message.number))
        elif isinstance(message, Attached):
            end.take_attached(peer, message)
        else:
            end.take_feed_unavailable(peer, message)

    def _stream_message_received(
        self, peer: BrokerId, message: StreamEpoch | Released | Unreadable | AckExpected
    ) -> None:
        """Take what has no attach number: it may be for the leaf, for the router, or for both."""
        subend = self.host.subends.get(message.pubend)
        match message:
            case StreamEpoch():
                if subend is not None:
                    subend.stream_epoch(message)
                if peer != self._me:
                    self.router.stream_epoch_received(message)
            case Released():
                if subend is not None:
                    subend.released(message)
                if peer != self._me:
                    self.router.released(message)
            case Unreadable():
                if subend is not None and subend.feeder == peer:
                    subend.unreadable(message)
                if peer != self._me:
                    self.router.unreadable(peer, message)
            case AckExpected():
                if subend is not None and subend.feeder == peer:
                    subend.ack_expected(message)
                self.router.ack_expected(peer, message)
                self.reports.ack_expected(peer, message)

    # --- pubends -------------------------------------------------------------------------------

    def _announcement(self, peer: BrokerId, message: Announce) -> None:
        cell = self.neighbourhood.cell_of(peer)
        if cell is None:
            return
        if not message.tombstone:
            self.tables.peer_knows(peer, cell, message.pubend, message.version)
        before = self.announcements.get(message.pubend)
        if not self.announcements.received(cell, message):
            return
        if message.tombstone:
            self.pubend_locations.forget(message.pubend)
        self.announced(message.pubend)
        known = self.announcements.get(message.pubend)
        if known is not None and before is not None and known.direction != before.direction:
            self.router.turn(message.pubend)

    def announced(self, pubend: PubendId) -> None:
        """There is news of a pubend: tell the rooms that look at its properties."""
        known = self.announcements.get(pubend)
        if known is None:
            self.tables.withdrawn(pubend)
            return
        self._note_location(pubend, ShbId(known.properties.broker, known.properties.cell))
        advertisement = self._advertisement(known.properties.advertisement)
        self.tables.announced(pubend, known.version, advertisement, known.direction)
        best_effort = known.properties.quality is Quality.BEST_EFFORT
        self.host.announced(pubend, advertisement, known.version, best_effort=best_effort)

    def _note_location(self, pubend: PubendId, shb: ShbId) -> None:
        """Remember whose a pubend is; if that one is retired and has left it, others only repeat old news."""
        locations, retirements = self.pubend_locations, self.retirements
        if locations.former_broker_of(pubend) == shb.broker and (
            shb in retirements or retirements.returned_without(shb, pubend)
        ):
            return
        locations.add(pubend, shb.broker)

    def _advertisement(self, text: str) -> Filter:
        """Return what a pubend advertises; everything, if that is said in words that only newer brokers know."""
        try:
            return Filter(text)
        except FilterError:
            self.context.mark("unreadable advertisement")
            return EVERYTHING

    def _obstacle(self, pubend: PubendId) -> str:
        """Name a broker that feeds do not come from, and the partitions on the way to it, for people (R11, R12)."""
        known = self.announcements.get(pubend)
        if known is None:
            return "no broker has told of this pubend yet"
        path = dict.fromkeys((*known.path, known.properties.cell))
        found = dict.fromkeys(
            each for cell in path for each in self.partitions.partitions_before(cell)
        )
        cuts = "; ".join(str(each) for each in [*found][:SHOWN_CUTS_MAX])
        named = f" (partition {cuts})" if cuts else ""
        properties = known.properties
        where = f"its broker {properties.broker} in cell {properties.cell}"
        if properties.broker == self._me or self.sessions.is_open(properties.broker):
            return f"{where} can be reached, and does not have it, or not yet"
        if self.retirements.has(properties.broker):
            return f"{where} was retired, and its log is lost with it"
        return f"there is no route to {where} now{named}"
