"""The broker: all rooms behind one door, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gapless.broker.configuration import home_of, refuse_another_home
from gapless.broker.inspection import Inspection
from gapless.broker.naming import Naming
from gapless.broker.pubends import Pubends
from gapless.broker.readers import Readers
from gapless.broker.reshaping import Reshaping, newest
from gapless.broker.routing import Routing
from gapless.broker.stagers import Stagers
from gapless.content.filter import EVERYTHING, Filter
from gapless.core.errors import FilterError
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.limits import SHOWN_CUTS_MAX
from gapless.core.machine import (
    Asked,
    ClientDown,
    ClientFree,
    ClientFull,
    ClientUp,
    Context,
    Effect,
    Event,
    Fetched,
    Identity,
    LinkDown,
    LinkFree,
    LinkFull,
    LinkUp,
    Moment,
    Received,
    Stopping,
    Written,
)
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.directory.announcements import Announcements
from gapless.directory.locations import Whereabouts
from gapless.feeds.feed import is_leaf_number
from gapless.messages.clients import (
    HostRetired,
    ListPartitions,
    PartitionTable,
    Refused,
    RetireHost,
    Subscribe,
)
from gapless.messages.mobility import Superseded
from gapless.messages.overlay import (
    Announce,
    NameAnswer,
    NameAsk,
    PartitionInfo,
    Quality,
    Retire,
    TableState,
)
from gapless.messages.records import (
    JoinRecord,
    LifeRecord,
    Record,
    Store,
    SubscriptionRecord,
)
from gapless.messages.streams import (
    AckExpected,
    Advance,
    Attach,
    Attached,
    Detach,
    Frame,
    Nack,
    Piece,
    Regime,
    RegimeWant,
    Released,
    Report,
    SetDefine,
    SetForget,
    Silence,
    Unfed,
    Unreadable,
)
from gapless.mobility import Homes
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.partitions import Partitions
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import Sessions
from gapless.propagation.exchange import Tables
from gapless.propagation.sources import Sources
from gapless.requests.carrier import Requests
from gapless.routing.reports import Reports
from gapless.routing.router import Router
from gapless.stream.ranges import fault_of
from gapless.subscribers import Calls, Operators, Reporting, SubscriberHost, restore

__all__ = ["Broker"]


def next_life(records: Iterable[Record], clock: int) -> int:
    """Return the number of the life that begins now.

    Never the clock alone: it may have been set back, and then old promises would seem to cover
    subscriptions that are new (A9).
    """
    stored = [record.life for record in records if isinstance(record, LifeRecord)]
    return max([1, clock, *(life + 1 for life in stored)])


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
        moment: Moment,
        refused: Mapping[PubendId, str] | None = None,
        refused_subscriptions: Mapping[str, str] | None = None,
    ) -> None:
        """Begin a life. What is ``refused`` cannot be brought back, each with the reason (P8).

        Raises UsageError if the records were made by another broker, or in another tree.
        """
        records = tuple(records)
        home = home_of(broker, parameters.delta, neighbourhood)
        first = (Store(home),) if refuse_another_home(home, records) else ()
        life = next_life(records, moment.clock)
        self.context = Context(Identity(broker, cell, life), parameters)
        self.context.now, self.context.clock = moment
        self._me = broker
        self._configured = neighbourhood
        self._reshaping = Reshaping(self, newest(neighbourhood, records))
        self._records = records
        self.refused = dict(refused or {})
        self.refused_subscriptions = dict(refused_subscriptions or {})
        self._early: list[Event] | None = []
        """What happens before the new life is on disk waits; nothing is sent before that (R1)."""
        self._posted: list[Any] = []
        self.context.write((Store(LifeRecord(life)), *first), self._begin)

    # --- the door ------------------------------------------------------------------------------

    def step(self, event: Event, moment: Moment) -> list[Effect]:
        """Take an event, or None if only time has passed; return what is to be done."""
        return self.step_all((event,), moment)

    def step_all(self, events: Iterable[Event], moment: Moment) -> list[Effect]:
        """Take events that happened together; what follows from all of them goes out together.

        For writes that became durable at once, and for publications that came at once.
        """
        context = self.context
        context.now, context.clock = moment
        for event in events:
            if self._early is None:
                self._happen(event)
            elif isinstance(event, Written):
                context.resume(event)
            elif event is not None:
                self._early.append(event)
        context.run_timers()
        if self._early is None:
            self._settle()
        effects, context.effects = context.effects, []
        return effects

    def next_timer(self) -> int | None:
        """Return when a step is due without an event."""
        return self.context.next_timer()

    @property
    def marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""
        return self.context.marks

    @property
    def neighbourhood(self) -> Neighbourhood:
        """What this broker knows of the tree."""
        return self._reshaping.neighbourhood

    # --- beginning -----------------------------------------------------------------------------

    def _begin(self) -> None:
        """The new life is on disk: make the rooms and bring back what they had."""
        context, records, around = self.context, self._records, self.neighbourhood
        self.sessions = Sessions(context, around, self)
        self.announcements = Announcements(context, around, self.sessions)
        self.retirements = Retirements(
            context,
            self.sessions,
            records,
            self._retirement_changed,
            lambda: self.pubends.last_tick,
            lambda: self.pubends.on_disk,
        )
        self.partitions = Partitions(context, around, self.sessions)
        self.tables = Tables(
            context,
            around,
            self._life_of,
            Sources(self._me, around, self.sessions),
            self._tables_changed,
        )
        self.routing = Routing(
            context,
            around,
            self.sessions,
            self.announcements,
            self.tables.holdings,
        )
        self.router = Router(context, self.routing, self.tables.set_fed)
        self.whereabouts = Whereabouts(context, records)
        self.naming = Naming(self)
        self.pubends = Pubends(self)
        self.reports = Reports(context, self.router.feeder, self.pubends.report)
        self.requests = Requests(
            context,
            self.pubends.serving,
            lambda pubend, request: self.routing.next_hop(
                pubend, request, self.router.feeder(pubend)
            ),
        )
        joins = [record for record in records if isinstance(record, JoinRecord)]
        self.host = SubscriberHost(
            context, self.tables, self.requests, self.routing.leaf_candidates, joins
        )
        self.host.obstacle = self._obstacle
        self.host.abandonment.is_retired = self._is_retired
        self.host.abandonment.back_at = self._back_at
        self.host.abandonment.found = self.whereabouts.find
        self.calls = Calls(self.host)
        self.reporting = Reporting(self.host, self.calls.expire)
        self.operators = Operators(self.host, self.calls)
        self.readers = Readers(self)
        self.inspection = Inspection(self)
        self.homes = Homes(context, self.sessions, self.calls)
        for record in records:
            if isinstance(record, SubscriptionRecord):
                self.calls.linger(restore(self.host, record))
        self.tables.begin()
        self.pubends.restore(records)
        for shb in (*self.retirements.all(), *self.retirements.returned()):
            self._retirement_changed(shb)  # the crash may have come before that was through
        self.stagers = Stagers(self, records)
        if around is not self._configured:
            self._reshaping.relink()  # the driver knows only what is configured
        early, self._early, self._records = self._early or [], None, ()
        for event in early:
            self._happen(event)

    def _life_of(self, peer: BrokerId) -> int:
        return self.context.identity.life if peer == self._me else self.sessions.life_of(peer)

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
        assert self._early is None, "a broker must have begun before it is reshaped"
        self._reshaping.reshape(neighbourhood, unused, then)

    # --- what happens --------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        match event:
            case Received(peer, packet):
                self.sessions.received(peer, packet)
            case Written() | Fetched():
                self.context.resume(event)
            case Asked(client, request):
                self._asked(client, request)
            case LinkUp(peer):
                self.sessions.link_up(peer)
            case LinkDown(peer):
                self.sessions.link_down(peer)
            case LinkFull(peer):
                self.sessions.link_full(peer)
            case LinkFree(peer):
                self.sessions.link_free(peer)
            case ClientFull(client):
                self.host.hold_back(client)
            case ClientFree(client):
                self.host.go_on(client)
            case ClientDown(client):
                self.calls.client_down(client)
                self.readers.client_down(client)
            case ClientUp(client):
                self.calls.client_up(client)
            case Stopping():
                self.reporting.save_acknowledgements()
            case None:
                pass

    def _asked(self, client: str, request: Any) -> None:
        if self.pubends.asked(client, request):
            return
        if isinstance(request, RetireHost):
            self._retire(client, request)
            return
        damage = self._damage_of(request)
        if damage is not None:
            self.context.tell(client, Refused(request.request, damage))
            return
        if isinstance(request, ListPartitions):
            self.context.tell(client, self._list_partitions(request))
            return
        rooms = (
            self.calls,
            self.readers,
            self.inspection,
            self.operators,
            self.stagers,
        )
        if not any(room.asked(client, request) for room in rooms):
            number = getattr(request, "request", 0)
            self.context.tell(client, Refused(number, f"{type(request).__name__} is no request"))

    def _list_partitions(self, call: ListPartitions) -> PartitionTable:
        dated = self.partitions.dated()
        clock_less_now = self.context.clock - self.context.now
        return PartitionTable(
            call.request,
            tuple(partition for partition, _ in dated),
            tuple(since + clock_less_now for _, since in dated),
        )

    def _damage_of(self, request: Any) -> str | None:
        """Say why a durable subscription cannot go on: to make it anew would write over it (P8)."""
        if not isinstance(request, Subscribe) or not self.refused_subscriptions:
            return None
        damage = self.refused_subscriptions.get(request.subscription)
        if damage is None:
            return None
        return f"the subscription {request.subscription} could not be brought back: {damage}"

    def _retire(self, client: str, call: RetireHost) -> None:
        """Retire a broker that an operator says will never return (R26)."""
        if call.broker == self._me or self.sessions.is_open(call.broker):
            reason = f"the broker {call.broker} is alive; stop it before it is retired"
            self.context.tell(client, Refused(call.request, reason))
            return
        shb = ShbId(call.broker, call.cell)
        stranger = None if shb in self.retirements else self.inspection.stranger(shb)
        if stranger is not None:
            self.context.tell(client, Refused(call.request, stranger))
            return
        self.retirements.retire(shb)
        self.context.write((), lambda: self.context.tell(client, HostRetired(call.request)))

    def _retirement_changed(self, shb: ShbId) -> None:
        """A broker will never return: wait for nothing of it, and while that is fresh, keep nothing for it.

        Or it is forgotten, or the broker is back.
        """
        if self.retirements.is_fresh(shb):
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
        for pubend in self.whereabouts.pubends_at(broker):
            # of one that is fed it has to be known, also after a crash, whose it was when it is not any more
            if pubend not in self.host.joins or pubend in self.host.abandonment:
                self.whereabouts.leave(pubend)

    def _take_back_pubends_of(self, shb: ShbId) -> None:
        """A broker is back: it has its pubends again, but those that it has lost with its disk."""
        places, abandonment = self.whereabouts, self.host.abandonment
        for pubend in self._pubends_of(shb.broker):
            # what it has made since was never left; that may be known here before it is heard that the broker is back
            was_left = places.was_at(pubend) == shb.broker or pubend in abandonment
            if was_left and self.retirements.lacks(shb, pubend):
                if not places.is_lost(pubend):
                    places.lose(pubend, shb.broker)
                abandonment.look_at(pubend)
            elif not places.is_lost(pubend) or self.retirements.brings(shb, pubend):
                places.note(pubend, shb.broker)  # its name was free meanwhile
                abandonment.end(pubend)

    def _pubends_of(self, broker: BrokerId) -> list[PubendId]:
        """Return which pubends a broker has, by the news, or as is remembered, or had when it was retired."""
        places = self.whereabouts
        known = {*self.announcements.pubends(), *places.pubends_at(broker), *places.left_by(broker)}
        return sorted(each for each in known if self._home_of(each) in {None, broker})

    def _home_of(self, pubend: PubendId) -> BrokerId | None:
        """Return which broker has a pubend, by the news, or as is remembered."""
        known = self.announcements.get(pubend)
        return self.whereabouts.broker_of(pubend) if known is None else known.properties.broker

    def _is_retired(self, pubend: PubendId) -> bool:
        """Say whether the broker of a pubend was retired, and is not back, or is back without it."""
        if self.whereabouts.is_lost(pubend):
            return True
        home = self._home_of(pubend) or self.whereabouts.was_at(pubend)
        return home is not None and self.retirements.has(home)

    def _back_at(self, pubend: PubendId) -> Tick:
        """Return above which tick nobody has gone on without a pubend whose broker was retired and is back."""
        home = self._home_of(pubend)
        return 0 if home is None else self.retirements.back_at(home)

    def _settle(self) -> None:
        """Let everything follow that this step has caused, here first, then send the rest."""
        while True:
            self.host.flush(self.calls.disconnect)
            self.reports.flush()
            posted = self.context.take_posted_to(self._me)
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
        self.homes.session_opened(peer)
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

    def way_full(self, peer: BrokerId) -> None:
        """Too much waits on the way to a peer (R40)."""
        self.router.hold_back(peer)

    def way_free(self, peer: BrokerId) -> None:
        """A peer takes what is sent again."""
        self.router.go_on(peer)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return which tables are sent to a peer."""
        return self.tables.states(peer)

    def tables_heard(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """A peer says which tables it sends."""
        self.tables.heard(peer, states)

    def _tables_changed(self) -> None:
        self.pubends.review_regimes()

    # --- messages ------------------------------------------------------------------------------

    def received(self, peer: BrokerId, message: Any) -> None:
        """Take a message of a session, or of this broker to itself."""
        match message:
            case Frame(pubend, number, piece, first):
                if self._refuses(peer, piece):
                    return
                if is_leaf_number(number):
                    self._to_leaf(pubend, piece)
                else:
                    self.router.receive(pubend, number, piece, first)
            case Silence(pieces):
                for pubend, number, piece, first in pieces:
                    if self._refuses(peer, piece):
                        continue
                    if is_leaf_number(number):
                        self._to_leaf(pubend, piece)
                    else:
                        self.router.receive(pubend, number, piece, first)
            case Nack():
                self.router.nack(peer, message)
            case Attach():
                self.router.attach(peer, message)
            case Detach():
                self.router.detach(peer, message)
            case Attached() | Unfed():
                self._feed_answered(peer, message)
            case Regime() | Released() | Unreadable() | AckExpected():
                self._stream_told(peer, message)
            case RegimeWant():
                self.router.regime_want(peer, message)
            case Advance():
                self.router.advance(peer, message)
            case SetDefine():
                self.reports.define(peer, message)
            case SetForget():
                self.reports.forget(peer, message)
            case Report():
                self.reports.report(peer, message)
            case Announce():
                self._announcement(peer, message)
            case Retire():
                self.retirements.received(peer, message)
            case NameAsk():
                self.naming.asked(peer, message)
            case NameAnswer():
                self.naming.answered(peer, message)
            case Superseded():
                self.homes.received(peer, message)
            case PartitionInfo():
                self.partitions.received(peer, message)
            case _:
                if not (
                    self.tables.received(peer, message) or self.requests.received(peer, message)
                ):
                    self.context.mark("message of no room")

    def _refuses(self, peer: BrokerId, piece: Piece) -> bool:
        """Examine what a peer tells, once, before any room relies on it; what is our own is sound.

        What is refused is as if it was lost: its ticks stay Q, and who needs them asks again.
        """
        if peer == self._me or fault_of(piece) is None:
            return False
        self.context.mark("piece that makes no sense")
        return True

    def _to_leaf(self, pubend: PubendId, piece: Piece) -> None:
        end = self.host.subends.get(pubend) or self.host.loose.get(pubend)
        if end is not None:
            end.receive(piece)

    def _feed_answered(self, peer: BrokerId, message: Attached | Unfed) -> None:
        if not is_leaf_number(message.number):
            if isinstance(message, Attached):
                self.router.attached(peer, message)
            else:
                self.router.unfed(peer, message)
            return
        end = self.host.subends.get(message.pubend) or self.host.loose.get(message.pubend)
        if end is None:
            if isinstance(message, Attached):
                self.context.post(peer, Detach(message.pubend, message.number))
        elif isinstance(message, Attached):
            end.take_attached(peer, message)
        else:
            end.take_unfed(peer, message)

    def _stream_told(
        self, peer: BrokerId, message: Regime | Released | Unreadable | AckExpected
    ) -> None:
        """Take what has no attach number: it may be for the leaf, for the router, or for both."""
        subend = self.host.subends.get(message.pubend)
        match message:
            case Regime():
                if subend is not None:
                    subend.regime(message)
                if peer != self._me:
                    self.router.regime(message)
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
            self.whereabouts.forget(message.pubend)
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
        self._note_home(pubend, ShbId(known.properties.broker, known.properties.cell))
        advertisement = self._advertisement(known.properties.advertisement)
        self.tables.announced(pubend, known.version, advertisement, known.direction)
        best_effort = known.properties.quality is Quality.BEST_EFFORT
        self.host.announced(pubend, advertisement, known.version, best_effort=best_effort)

    def _note_home(self, pubend: PubendId, shb: ShbId) -> None:
        """Remember whose a pubend is; if that one is retired and has left it, others only repeat old news."""
        places, retirements = self.whereabouts, self.retirements
        if places.was_at(pubend) == shb.broker and (
            shb in retirements or retirements.lacks(shb, pubend)
        ):
            return
        places.note(pubend, shb.broker)

    def _advertisement(self, text: str) -> Filter:
        """Return what a pubend advertises; everything, if that is said in words that only newer brokers know."""
        try:
            return Filter(text)
        except FilterError:
            self.context.mark("advertisement that cannot be read")
            return EVERYTHING

    def _obstacle(self, pubend: PubendId) -> str:
        """Name a broker that feeds do not come from, and the partitions on the way to it, for people (R11, R12)."""
        known = self.announcements.get(pubend)
        if known is None:
            return "no broker has told of this pubend yet"
        way = dict.fromkeys((*known.path, known.properties.cell))
        found = dict.fromkeys(each for cell in way for each in self.partitions.cutting(cell))
        cuts = "; ".join(str(each) for each in [*found][:SHOWN_CUTS_MAX])
        named = f" (partition {cuts})" if cuts else ""
        home = known.properties
        where = f"its broker {home.broker} in cell {home.cell}"
        if home.broker == self._me or self.sessions.is_open(home.broker):
            return f"{where} can be reached, and does not have it, or not yet"
        if self.retirements.has(home.broker):
            return f"{where} was retired, and its log is lost with it"
        return f"there is no way to {where} now{named}"
