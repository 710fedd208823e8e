"""A pubend with a disk that a test controls: writes become durable when the test says so."""

from __future__ import annotations

from gapless.content.values import Value
from gapless.core.context import Context, Identity
from gapless.core.effects import Fetch, Write
from gapless.core.events import Fetched, Written
from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import PubendProperties
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    LogHoldRecord,
    LogRow,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    PutRecord,
    Record,
    StorageChange,
    StreamEpochRecord,
    TickCeilingRecord,
    TrimLog,
)
from gapless.messages.streams import KnowledgeRange, Member
from gapless.pubend.members import Members
from gapless.pubend.pubend import Pubend
from gapless.pubend.tick_ceiling import TickCeiling

STOCKS = PubendId("stocks")
PARAMETERS = Parameters(retention_s=0)


class Claims(dict[ShbId, VectorEntry]):
    """What tables claim of SHBs."""

    def claim(self, shb: ShbId, pubend: PubendId, version: int) -> VectorEntry | None:
        assert (pubend, version) >= (STOCKS, 1)
        return self.get(shb)


class Bench:
    """A pubend, its disk, its clocks, and what it has sent."""

    def __init__(
        self,
        parameters: Parameters = PARAMETERS,
        advertisement: str = "TRUE",
        start: int = 1_000_000,
    ) -> None:
        self.parameters = parameters
        self.records: dict[tuple[str, ...], Record] = {}
        self.rows: list[LogRow] = []
        self.now = start
        self.clock = start
        self.claims = Claims()
        self.sent: list[KnowledgeRange] = []
        self.opened: list[StreamEpochRecord] = []
        self.releases: list[Tick] = []
        self.expected: list[tuple[int, Tick, bool]] = []
        """For each AckExpected its time, its tick, and whether it was sent under pressure."""
        self.refusals: list[str] = []
        """Reasons of batches that were refused later than their call."""
        self.writes: list[Write] = []
        self.fetches: list[Fetch] = []
        self.corrupt: set[Tick] = set()
        """The first ticks of rows that cannot be read."""
        properties = PubendProperties("p", "p", advertisement)
        first = PubendRecord(STOCKS, properties, 1, 0, 0)
        self.records[first.key] = first
        self.incarnation = 0
        self.start()

    # --- the environment of the pubend -------------------------------------------------------

    def clock_view(self) -> int:
        return self.context.clock

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        assert pubend == STOCKS
        self.sent.append(knowledge)
        if opened is not None:
            self.opened.append(opened)

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        assert pubend == STOCKS
        assert stream_epochs == [each.number for each in self.pubend.stream_epochs]
        self.releases.append(up_to)

    def forget_stream_epochs(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        assert pubend == STOCKS
        assert up_to == self.pubend.stream_epochs[0].start - 1
        assert stream_epochs == [each.number for each in self.pubend.stream_epochs]

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        del pubend, low, high
        return []

    def request_acks(self, pubend: PubendId, tick: Tick, *, pressure: bool) -> None:
        assert pubend == STOCKS
        self.expected.append((self.now, tick, pressure))

    # --- what a test does --------------------------------------------------------------------

    def start(self) -> None:
        """Start the pubend from the records on disk."""
        self.incarnation += 1
        self.writes = []
        self.fetches = []
        self.context = Context(Identity("p", "p", self.incarnation), self.parameters)
        self.context.now, self.context.clock = self.now, self.clock
        stored = list(self.records.values())
        (record,) = [each for each in stored if isinstance(each, PubendRecord)]
        ceilings = [each.ceiling for each in stored if isinstance(each, TickCeilingRecord)]
        ceiling = TickCeiling(self.context, max(ceilings, default=0))
        self.pubend = Pubend(
            self.context,
            ceiling.restored(record),
            self,
            self,
            self.claims,
            self,
            ceiling,
            stream_epochs=[each for each in stored if isinstance(each, StreamEpochRecord)],
            publishers=[each for each in stored if isinstance(each, PublisherRecord)],
            members=Members(
                STOCKS,
                self.parameters,
                self.now,
                [each for each in stored if isinstance(each, MemberRecord)],
                [each for each in stored if isinstance(each, LogHoldRecord)],
            ),
        )

    def run(self, ms: int, *, sync: bool = True) -> None:
        """Let time pass, a millisecond at a time."""
        for _ in range(ms):
            self.now += microseconds(ms=1)
            self.clock += microseconds(ms=1)
            self.context.now, self.context.clock = self.now, self.clock
            self.context.run_timers()
            self.collect()
            if sync:
                self.sync()

    def collect(self) -> None:
        """Take the writes and reads of the pubend without completing them."""
        for effect in self.context.effects:
            if isinstance(effect, Fetch):
                self.fetches.append(effect)
            else:
                assert isinstance(effect, Write)
                self.writes.append(effect)
        self.context.effects.clear()

    def sync(self) -> None:
        """Make all writes durable, in order, also those that follow from them."""
        self.collect()
        while self.writes:
            self.step_durable(self.writes.pop(0))

    def step_durable(self, write: Write) -> None:
        """Make one write durable, and collect what follows from it."""
        for change in write.changes:
            self._apply(change)
        self.context.resume(Written(write.write_id))
        self.collect()

    def answer_fetches(self, count: int = 1_000) -> None:
        """Answer the reads from the present state of the disk, also those that follow."""
        while self.fetches and count > 0:
            fetch = self.fetches.pop(0)
            self.context.resume(self._fetched(fetch))
            self.collect()
            count -= 1

    def _fetched(self, fetch: Fetch) -> Fetched:
        found: list[LogRow] = []
        size = 0
        for row in self.rows:
            if row.last < fetch.low or row.first > fetch.high:
                continue
            if row.first in self.corrupt:
                return Fetched(fetch.fetch_id, tuple(found), f"row {row.first} is corrupt")
            size += 40 * len(row.publications)
            if found and size > fetch.bytes_max:
                return Fetched(fetch.fetch_id, tuple(found), None, complete=False)
            found.append(row)
        return Fetched(fetch.fetch_id, tuple(found))

    def open(self, publisher: str = "ann") -> PublisherRecord:
        """Open a publisher and wait for the answer."""
        found: list[PublisherRecord] = []
        self.pubend.open_publisher(publisher, found.append)
        self.sync()
        return found[0]

    def publish(self, session: PublisherRecord, first: int, *values: int) -> list[tuple[Tick, ...]]:
        """Publish events with an attribute ``a``; the returned list receives the answer."""
        answers: list[tuple[Tick, ...]] = []
        events: tuple[tuple[dict[str, Value], bytes], ...] = tuple(
            ({"a": value}, b"") for value in values
        )
        self.pubend.publish(
            session.publisher,
            session.session,
            first,
            events,
            answers.append,
            self.refusals.append,
        )
        self.collect()
        return answers

    def report(
        self, broker: str, tick: Tick = 0, membership: int = 1, *, durable: bool = True
    ) -> None:
        """Let an SHB send an ack report."""
        shb = ShbId(broker, broker)
        member = Member(shb, MembershipId(1, membership), durable, VirtualTime(1, 1))
        self.pubend.report(member, tick)
        self.pubend.update_stream_epoch()

    def claim(self, broker: str, counter: int) -> None:
        """Let a table claim an SHB."""
        self.claims[ShbId(broker, broker)] = VectorEntry(VirtualTime(1, counter))
        self.pubend.update_stream_epoch()

    def _apply(self, change: StorageChange) -> None:
        if isinstance(change, PutRecord):
            self.records[change.record.key] = change.record
        elif isinstance(change, DeleteRecord):
            self.records.pop(change.key, None)
        elif isinstance(change, AppendRow):
            self.rows.append(change.row)
        elif isinstance(change, TrimLog):
            self.rows = [row for row in self.rows if row.last > change.up_to]
