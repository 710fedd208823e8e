"""A toy machine: every broker copies every log completely, by repeated requests to its neighbours.

It is slow and keeps everything for ever, but it keeps the promises that a client can see, under all
faults. So the simulator can be tested without the real broker. The toy has no total order and
releases nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gapless.core.context import Context, Identity, StepTime
from gapless.core.effects import Effect, Send
from gapless.core.events import (
    ClientDown,
    ClientRequest,
    Fetched,
    LinkDown,
    LinkUp,
    MachineEvent,
    Received,
    Written,
)
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.message_counts import MessageCounts
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.clients import (
    Ack,
    Credit,
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    Refused,
    Seek,
    SetFilter,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)
from gapless.messages.overlay import PubendProperties
from gapless.messages.reading import ReadLog, ReadPart
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    IncarnationRecord,
    LogRow,
    PubendRecord,
    PutRecord,
    Record,
    SubscriptionRecord,
)
from gapless.messages.streams import Publication
from gapless.overlay.neighbourhood import Neighbourhood
from tests.lab.sim.toy_subscriptions import Subscribing, Subscription

TOY = "tests.lab.sim.toy:ToyMachine"
EVER = 2**62


class Pull(NamedTuple):
    """How many publications of each pubend the sender has."""

    counts: tuple[tuple[PubendId, int], ...]


class Rows(NamedTuple):
    """Publications of a pubend from an index on."""

    pubend: PubendId
    first: int
    publications: tuple[Publication, ...]


class HostedPubend:
    """A pubend that this broker hosts; it handles one request after the other."""

    def __init__(self, record: PubendRecord) -> None:
        self.record = record
        self.busy = False
        self.is_corrupt = False
        self.queue: deque[Callable[[], None]] = deque()
        self.sessions: dict[str, int] = {}


class ToyMachine(Subscribing):
    """The machine."""

    def __init__(
        self,
        broker: BrokerId,
        cell: CellId,
        parameters: Parameters,
        neighbourhood: Neighbourhood,
        records: Iterable[Record],
        now: StepTime,
    ) -> None:
        super().__init__()
        self.incarnation = 1
        self.hosted: dict[PubendId, HostedPubend] = {}
        self.peers = [
            peer
            for name in (*neighbourhood.neighbours, cell)
            for peer in neighbourhood.brokers(name)
            if peer != broker
        ]
        self.up: dict[BrokerId, bool] = {}
        self.clients: dict[str, bool] = {}
        self.loading = 1
        self.queued: list[tuple[str, Any]] = []
        for record in records:
            self._recall(record)
        self.context = Context(Identity(broker, cell, self.incarnation), parameters)
        self.context.now, self.context.clock = now
        self.context.write((PutRecord(IncarnationRecord(self.incarnation)),), self._load)

    @property
    def coverage_marks(self) -> dict[str, int]:
        return self.context.coverage_marks

    @property
    def message_counts(self) -> MessageCounts:
        return self.context.message_counts

    def step_all(self, events: Sequence[MachineEvent], now: StepTime) -> list[Effect]:
        return [effect for event in events for effect in self.step(event, now)]

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        context = self.context
        context.now, context.clock = now
        match event:
            case Received(peer, packet):
                self._received(peer, packet)
            case Written() | Fetched():
                context.resume(event)
            case ClientRequest(client, request):
                self._handle(client, request)
            case ClientDown(client):
                self._client_left(client)
            case LinkUp(peer):
                self.up[peer] = True
            case LinkDown(peer):
                self.up.pop(peer, None)
            case _:
                context.run_timers()
        effects, context.effects = context.effects, []
        return effects

    def next_timer(self) -> int | None:
        return self.context.next_timer()

    # --- start and recovery ------------------------------------------------------------------

    def _recall(self, record: Record) -> None:
        match record:
            case IncarnationRecord(incarnation):
                self.incarnation = incarnation + 1
            case PubendRecord():
                self.hosted[record.pubend] = HostedPubend(record)
            case SubscriptionRecord():
                segments = record.segments
                held = Subscription(record.subscription, segments[-1].filter, durable=True)
                held.acked = dict(record.acked)
                held.history = [(each.filter, dict(each.ends)) for each in segments[:-1]]
                self.subscriptions[held.name] = held
            case _:
                raise AssertionError(record)

    def _load(self) -> None:
        """Read the logs, then start to gossip."""
        self.loading = len(self.hosted)
        for pubend in self.hosted:
            self._new_stream(pubend)
            self._read(pubend)
        self._gossip()
        self._serve_queued()

    def _read(self, pubend: PubendId) -> None:
        self.context.fetch(pubend, 0, EVER, EVER, lambda fetched: self._loaded(pubend, fetched))

    def _loaded(self, pubend: PubendId, fetched: Fetched) -> None:
        if fetched.corruption is not None:
            self.context.mark("corrupt log")
            self.hosted[pubend].is_corrupt = True
        for row in fetched.rows:
            self._extend(pubend, row.publications)
        self.loading -= 1
        self._serve_queued()

    def _serve_queued(self) -> None:
        if self.loading == 0:
            queued, self.queued = self.queued, []
            for client, request in queued:
                self._handle(client, request)

    # --- copying -----------------------------------------------------------------------------

    def _gossip(self) -> None:
        self.context.call_later(microseconds(ms=self.context.parameters.heartbeat_ms), self._gossip)
        counts = tuple((pubend, len(ticks)) for pubend, ticks in self.ticks.items())
        for peer in self.peers:
            if peer in self.up:
                self.context.effects.append(Send(peer, Pull(counts)))

    def _received(self, peer: BrokerId, packet: Any) -> None:
        if isinstance(packet, Pull):
            have = dict(packet.counts)
            for pubend, stream in self.streams.items():
                first = have.get(pubend, 0)
                if len(stream) > first or pubend not in have:
                    rows = Rows(pubend, first, tuple(stream[first:]))
                    self.context.effects.append(Send(peer, rows))
        elif isinstance(packet, Rows):
            self._copy(packet)

    def _copy(self, rows: Rows) -> None:
        if self.loading or rows.pubend in self.hosted:
            return
        self._new_stream(rows.pubend)
        known = len(self.ticks[rows.pubend])
        if rows.first <= known:
            self._extend(rows.pubend, rows.publications[known - rows.first :])

    def _new_stream(self, pubend: PubendId) -> None:
        if pubend not in self.streams:
            self.streams[pubend] = []
            self.ticks[pubend] = []

    def _extend(self, pubend: PubendId, publications: Iterable[Publication]) -> None:
        for publication in publications:
            self.streams[pubend].append(publication)
            self.ticks[pubend].append(publication.tick)
        self._deliver_all()

    # --- clients -----------------------------------------------------------------------------

    def _handle(self, client: str, request: Any) -> None:
        if self.loading:
            self.queued.append((client, request))
            return
        match request:
            case OpenPubend():
                self._open_pubend(client, request)
            case OpenPublisher():
                self._queue(client, request, lambda: self._open_publisher(client, request))
            case Publish():
                self._queue(client, request, lambda: self._publish(client, request))
            case Subscribe():
                self._subscribe(client, request)
            case Credit(name, events):
                held = self.subscriptions.get(name)
                if held is not None and held.client == client:
                    held.credit += events
                    self._deliver(held)
            case Ack(name, position):
                self._ack(name, position)
            case SetFilter():
                self._set_filter(client, request)
            case Seek():
                self._seek(client, request)
            case ReadLog():
                self._read_log(client, request)
            case Unsubscribe(number, name):
                self.subscriptions.pop(name, None)
                key = ("subscription", name)
                notice = Unsubscribed(number)
                self.context.write(
                    (DeleteRecord(key),), lambda: self.context.notify(client, notice)
                )

    def _client_left(self, client: str) -> None:
        self.queued = [each for each in self.queued if each[0] != client]
        for name, held in list(self.subscriptions.items()):
            if held.client == client:
                held.client = None
                if not held.durable:
                    del self.subscriptions[name]

    def _read_log(self, client: str, request: ReadLog) -> None:
        if request.pubend not in self.streams:
            self.context.notify(client, Refused(request.request, "not known here"))
            return
        top = self._top(request.pubend)
        done = min(request.high, top)
        wanted = self._filter(request.filter)
        found = tuple(
            publication
            for publication in self.streams[request.pubend]
            if request.low <= publication.tick <= done and wanted.matches(publication.attributes)
        )
        self.context.notify(client, ReadPart(request.request, found, done, top, 0))

    # --- publishing --------------------------------------------------------------------------

    def _open_pubend(self, client: str, request: OpenPubend) -> None:
        pubend = PubendId(request.name)
        done = PubendOpened(request.request, pubend)
        if pubend in self.hosted:
            self._queue(client, request, lambda: self.context.notify(client, done))
            return
        identity = self.context.identity
        properties = PubendProperties(
            identity.broker, identity.cell, request.advertisement, request.quality
        )
        hosted = self.hosted[pubend] = HostedPubend(PubendRecord(pubend, properties, 1, 0, 0))
        hosted.busy = True

        def opened() -> None:
            self._new_stream(pubend)
            self.context.notify(client, done)
            self._next(hosted)

        self.context.write((PutRecord(hosted.record),), opened)

    def _queue(self, client: str, request: Any, action: Callable[[], None]) -> None:
        pubend = PubendId(request.name) if isinstance(request, OpenPubend) else request.pubend
        hosted = self.hosted.get(pubend)
        if hosted is None or hosted.is_corrupt:
            self.context.notify(client, Refused(request.request, "no such pubend here"))
            return
        hosted.queue.append(action)
        if not hosted.busy:
            self._next(hosted)

    def _next(self, hosted: HostedPubend) -> None:
        hosted.busy = False
        while hosted.queue and not hosted.busy:
            hosted.queue.popleft()()

    def _logged(self, pubend: PubendId, publisher: str) -> dict[int, int]:
        return {
            publication.sequence: publication.tick
            for publication in self.streams[pubend]
            if publication.publisher == publisher
        }

    def _open_publisher(self, client: str, request: OpenPublisher) -> None:
        hosted = self.hosted[request.pubend]
        session = hosted.sessions[request.publisher] = hosted.sessions.get(request.publisher, 0) + 1
        last = max(self._logged(request.pubend, request.publisher), default=0)
        self.context.notify(client, PublisherOpened(request.request, session, last, 1_024))

    def _publish(self, client: str, request: Publish) -> None:
        hosted = self.hosted[request.pubend]
        if hosted.sessions.get(request.publisher) != request.session:
            self.context.notify(client, Refused(request.request, "an older session"))
            return
        logged = self._logged(request.pubend, request.publisher)
        last = max(logged, default=0)
        ticks = self.ticks[request.pubend]
        tick = max(ticks[-1] if ticks else 0, self.context.clock - 1)
        new = []
        for sequence, (attributes, payload) in enumerate(request.events, request.first):
            if sequence > last:
                tick += 1
                new.append(Publication(tick, request.publisher, sequence, attributes, payload))
        advertised = self._filter(hosted.record.properties.advertisement)
        if not all(advertised.matches(publication.attributes) for publication in new):
            self.context.notify(client, Refused(request.request, "outside the advertisement"))
            return
        repeated = range(request.first, min(last + 1, request.first + len(request.events)))
        if any(sequence not in logged for sequence in repeated):
            self.context.notify(client, Refused(request.request, "refused before"))
            return
        if not new:
            self._acknowledge(client, request)
            return
        row = LogRow(
            request.pubend, new[0].tick, new[-1].tick, 1, 0, self.context.clock, 0, tuple(new)
        )
        hosted.busy = True
        self._log(client, request, row)

    def _log(self, client: str, request: Publish, row: LogRow) -> None:
        """Write a row; the reply follows when it is durable."""

        def done() -> None:
            self._extend(row.pubend, row.publications)
            self._acknowledge(client, request)
            self._next(self.hosted[row.pubend])

        self.context.write((AppendRow(row),), done)

    def _acknowledge(self, client: str, request: Publish) -> None:
        logged = self._logged(request.pubend, request.publisher)
        sequences = range(request.first, request.first + len(request.events))
        ticks = tuple(logged[sequence] for sequence in sequences if sequence in logged)
        self.context.notify(client, Published(request.request, ticks))
