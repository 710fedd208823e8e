"""A pubend alone with a disk that a test controls: writes become durable when the test says so."""

from __future__ import annotations

from gapless.content.values import Value
from gapless.core.ids import Entry, Join, PubendId, ShbId, VirtualTime
from gapless.core.machine import Context, Fetch, Fetched, Identity, Write, Written
from gapless.core.parameters import Parameters, us
from gapless.core.ticks import Tick
from gapless.messages.overlay import PubendProperties
from gapless.messages.records import (
    Append,
    Change,
    Erase,
    HoldRecord,
    LogRow,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    Record,
    RegimeRecord,
    Store,
    Trim,
)
from gapless.messages.streams import Member, Piece
from gapless.pubend.members import Membership
from gapless.pubend.pubend import Pubend

STOCKS = PubendId("stocks")
PARAMETERS = Parameters(retention_s=0)


class Bench:
    """A pubend, its disk, its clocks, and what it has told."""

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
        self.claims: dict[ShbId, Entry] = {}
        self.told: list[Piece] = []
        self.opened: list[RegimeRecord] = []
        self.releases: list[Tick] = []
        self.expected: list[tuple[int, Tick, bool]] = []
        """When acknowledgement up to which tick was expected, and whether with pressure."""
        self.refusals: list[str] = []
        """Why batches were refused that could not be refused at once."""
        self.writes: list[Write] = []
        self.fetches: list[Fetch] = []
        self.damaged: set[Tick] = set()
        """The first ticks of rows that cannot be read."""
        properties = PubendProperties("p", "p", advertisement)
        first = PubendRecord(STOCKS, properties, 1, 0, 0)
        self.records[first.key] = first
        self.life = 0
        self.start()

    # --- the pubend's surroundings -----------------------------------------------------------

    def clock_view(self) -> int:
        return self.context.clock

    def spread(self, pubend: PubendId, piece: Piece, opened: RegimeRecord | None) -> None:
        assert pubend == STOCKS
        self.told.append(piece)
        if opened is not None:
            self.opened.append(opened)

    def released(self, pubend: PubendId, up_to: Tick) -> None:
        assert pubend == STOCKS
        self.releases.append(up_to)

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[Piece]:
        del pubend, low, high
        return []

    def expect_ack(self, pubend: PubendId, tick: Tick, pressure: bool) -> None:
        assert pubend == STOCKS
        self.expected.append((self.now, tick, pressure))

    # --- what a test does --------------------------------------------------------------------

    def start(self) -> None:
        """Start the pubend from what is on disk."""
        self.life += 1
        self.writes = []
        self.fetches = []
        self.context = Context(Identity("p", "p", self.life), self.parameters)
        self.context.now, self.context.clock = self.now, self.clock
        stored = list(self.records.values())
        (record,) = [each for each in stored if isinstance(each, PubendRecord)]
        self.pubend = Pubend(
            self.context,
            record,
            self,
            self.claims.get,
            self.clock_view,
            regimes=[each for each in stored if isinstance(each, RegimeRecord)],
            publishers=[each for each in stored if isinstance(each, PublisherRecord)],
            membership=Membership(
                STOCKS,
                self.parameters,
                self.now,
                [each for each in stored if isinstance(each, MemberRecord)],
                [each for each in stored if isinstance(each, HoldRecord)],
            ),
        )

    def run(self, ms: int, *, sync: bool = True) -> None:
        """Let time pass, a millisecond at a time."""
        for _ in range(ms):
            self.now += us(ms=1)
            self.clock += us(ms=1)
            self.context.now, self.context.clock = self.now, self.clock
            self.context.run_timers()
            self.collect()
            if sync:
                self.sync()

    def collect(self) -> None:
        """Take the writes and reads that the pubend asked for; none is done yet."""
        for effect in self.context.effects:
            if isinstance(effect, Fetch):
                self.fetches.append(effect)
            else:
                assert isinstance(effect, Write)
                self.writes.append(effect)
        self.context.effects.clear()

    def sync(self) -> None:
        """Make all writes durable, in order, those that follow from them too."""
        self.collect()
        while self.writes:
            write = self.writes.pop(0)
            for change in write.changes:
                self._apply(change)
            self.context.resume(Written(write.ticket))
            self.collect()

    def answer_fetches(self, count: int = 1_000) -> None:
        """Let the disk answer what it was asked to read, as it is now, and what follows."""
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
            if row.first in self.damaged:
                return Fetched(fetch.ticket, tuple(found), f"row {row.first} is damaged")
            size += 40 * len(row.publications)
            if found and size > fetch.bytes_max:
                return Fetched(fetch.ticket, tuple(found), None, complete=False)
            found.append(row)
        return Fetched(fetch.ticket, tuple(found))

    def open(self, publisher: str = "ann") -> PublisherRecord:
        """Open a publisher and wait for it."""
        found: list[PublisherRecord] = []
        self.pubend.open_publisher(publisher, found.append)
        self.sync()
        return found[0]

    def publish(self, session: PublisherRecord, first: int, *values: int) -> list[tuple[Tick, ...]]:
        """Publish events with an attribute ``a``; the answer fills when it comes."""
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

    def report(self, broker: str, tick: Tick = 0, join: int = 1, *, durable: bool = True) -> None:
        """Let a subscriber host report."""
        shb = ShbId(broker, broker)
        member = Member(shb, Join(1, join), durable, VirtualTime(1, 1))
        self.pubend.membership.report(member, tick, self.now)
        self.pubend.review_regime()

    def claim(self, broker: str, counter: int) -> None:
        """Let a table claim a subscriber host."""
        self.claims[ShbId(broker, broker)] = Entry(VirtualTime(1, counter))
        self.pubend.review_regime()

    def _apply(self, change: Change) -> None:
        if isinstance(change, Store):
            self.records[change.record.key] = change.record
        elif isinstance(change, Erase):
            self.records.pop(change.key, None)
        elif isinstance(change, Append):
            self.rows.append(change.row)
        elif isinstance(change, Trim):
            self.rows = [row for row in self.rows if row.last > change.up_to]
