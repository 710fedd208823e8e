"""A pubend: takes publications, gives them ticks, logs them, and only then lets them be seen.

Theory of operation
-------------------
``last`` is the highest tick that was given away, ``top`` the highest that may be told. Between them
lie batches and regimes that wait for the disk, in order; silence never overtakes them (R30). What
becomes durable moves ``top`` and goes out as a *piece*: these ticks are events, all others between
the old and the new top are silent, for ever (I1, I2).

Three things are on disk before anything that depends on them is told (I13): a batch with the
sequences of its publishers, a regime with the rows of its members, and the *ceiling*, below which
silence may be promised. After a crash the stream goes on above the ceiling, whatever the clock
says (R29, A8).

Which sequences of a publisher are already published is the business of :mod:`.publishers`, how large
the log is that of :mod:`.logsize`. A log at its limit gives up first what only retention keeps. What
members need is not given up: publications are refused until those who lag have been told and have
acknowledged or let go (R58).

A regime is a numbered vector V^m. When members or claims change, the next regime opens at the next
tick, with a piece of its own, even when nothing is published (R31).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from gapless.content.filter import Filter
from gapless.core.ids import Entry, PubendId, ShbId
from gapless.core.machine import Context, Fetched
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.delivery.logsize import LogSize, row_bytes
from gapless.delivery.members import Claim, Membership
from gapless.delivery.overdue import Overdue
from gapless.delivery.publishers import (
    Events,
    Publishers,
    PublishRefusedError,
    last_logged,
    refuse_unadvertised,
)
from gapless.messages.records import (
    Append,
    Change,
    Erase,
    LogRow,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    RegimeRecord,
    Store,
    Trim,
)
from gapless.messages.streams import Piece, Publication

__all__ = ["Outlet", "Pubend", "PublishRefusedError", "last_logged"]


class Outlet(Protocol):
    """Where a pubend's knowledge goes: the router of its broker."""

    def spread(self, pubend: PubendId, piece: Piece, opened: RegimeRecord | None) -> None:
        """Take a piece above all before; ``opened`` is the regime that begins with it."""

    def released(self, pubend: PubendId, up_to: Tick) -> None:
        """The log no longer has ticks up to this one."""

    def expect_ack(self, pubend: PubendId, tick: Tick, pressure: bool) -> None:
        """Ask those who have not acknowledged up to a tick to look for their gaps (R57, R58)."""


class _Pending(msgspec.Struct):
    """Something that waits for the disk: a batch, or the opening of a regime."""

    low: Tick
    high: Tick
    regime: int
    publications: tuple[Publication, ...] = ()
    opens: RegimeRecord | None = None
    done: Callable[[], None] | None = None
    durable: bool = False

    def piece(self) -> Piece:
        """Return what is told when it is durable."""
        return Piece(self.low, self.high, self.regime, 0, self.publications)


class Pubend:
    """One guaranteed stream of this broker."""

    def __init__(
        self,
        context: Context,
        record: PubendRecord,
        outlet: Outlet,
        claim: Claim,
        clock_view: Callable[[], int],
        last_logged: Tick = 0,
        regimes: Iterable[RegimeRecord] = (),
        publishers: Iterable[PublisherRecord] = (),
        membership: Membership | None = None,
    ) -> None:
        self._context = context
        self._record = record
        """As it is on disk; ``_latest`` is as it will be when all writes are through."""
        self._latest = record
        self._outlet = outlet
        self._claim = claim
        self._clock_view = clock_view
        self.membership = membership or Membership(record.pubend, context.parameters, context.now)
        self.regimes = sorted(regimes, key=lambda regime: regime.number)
        window = context.parameters.publisher_window
        self._publishers = Publishers(record.pubend, window, publishers)
        self._size = LogSize(
            context.parameters.log_bytes_max,
            record.log_marks,
            self._publishers.logged,
            record.released,
        )
        self._advertised = Filter(record.properties.advertisement)
        # what was promised silent before a crash stays silent (R29)
        logged, _ = self._publishers.logged
        self.last = self.top = max(last_logged, logged, record.ceiling, record.released)
        self.damage: str | None = None
        """What is wrong with the log, if a row could not be read (P8)."""
        self._pending: deque[_Pending] = deque()
        self._raising = False
        self._regime_at = -us(s=3_600)
        self._regime_due = False
        self._silence_us = us(ms=context.parameters.silence_ms)
        self._eager = False
        self._overdue = Overdue(context.parameters, context.now, self.top)
        self._idle_timer = context.after(self._silence_us, self._idle)
        context.after(us(ms=context.parameters.ack_ms), self._review)
        context.after(self._publisher_review_us, self._review_publishers)

    # --- what others ask ---------------------------------------------------------------------

    @property
    def record(self) -> PubendRecord:
        """The pubend as it is on disk."""
        return self._record

    @property
    def regime(self) -> int:
        """The number of the regime that ticks are given now; 0 before the first."""
        return self.regimes[-1].number if self.regimes else 0

    def vector(self, number: int) -> RegimeRecord | None:
        """Return a regime by its number."""
        return next((regime for regime in self.regimes if regime.number == number), None)

    def regime_of(self, tick: Tick) -> int:
        """Return the regime of a tick: the last one that began at or before it."""
        number = 0
        for regime in self.regimes:
            if regime.start > tick:
                break
            number = regime.number
        return number if tick > self._record.released else 0

    # --- reading the log ---------------------------------------------------------------------

    def pieces_between(
        self, low: Tick, high: Tick, then: Callable[[list[Piece], Tick], None]
    ) -> None:
        """Read the log from ``low``; call back with pieces and the tick that they reach.

        What lies between rows is silence, cut where regimes begin.
        """
        low = max(low, self._record.released + 1)
        high = min(high, self.top)
        if low > high:
            then([], high)
            return

        def fetched(event: Fetched) -> None:
            if event.damaged is not None:
                self._context.mark("damaged log row")
                self.damage = event.damaged
            rows: tuple[LogRow, ...] = event.rows
            whole = event.complete and event.damaged is None
            done = high if whole else (min(high, rows[-1].last) if rows else low - 1)
            # what was released meanwhile may be trimmed: it is gone, not silent (A14)
            start = max(low, self._record.released + 1)
            found = [each for row in rows for each in row.publications if start <= each.tick <= done]
            then(self._pieces(start, done, found) if start <= done else [], done)

        bytes_max = self._context.parameters.read_chunk_bytes
        self._context.fetch(self._record.pubend, low, high, bytes_max, fetched)

    def _pieces(self, low: Tick, high: Tick, publications: list[Publication]) -> list[Piece]:
        """Return exact knowledge of a range: these publications, silence elsewhere."""
        starts = [each.start for each in self.regimes if low < each.start <= high]
        pieces = []
        for first, beyond in itertools.pairwise([low, *starts, high + 1]):
            if first < beyond:
                inside = tuple(each for each in publications if first <= each.tick < beyond)
                pieces.append(Piece(first, beyond - 1, self.regime_of(first), 0, inside))
        return pieces

    # --- publishing --------------------------------------------------------------------------

    def open_publisher(self, publisher: str, then: Callable[[PublisherRecord], None]) -> None:
        """Fence older sessions of a publisher and say how far it has come (R28)."""
        record = self._publishers.open(publisher, self._context.clock)
        self._context.write((Store(record),), lambda: then(record))

    def publish(
        self,
        publisher: str,
        session: int,
        first: int,
        events: Events,
        then: Callable[[tuple[Tick, ...]], None],
    ) -> None:
        """Log a batch whole, or refuse it whole, and call back with its ticks (R27).

        A repeated event gets its old tick. Sequences may be left out: they are given up, and
        refused if they come later. See :mod:`.publishers`.
        """
        held = self._publishers.get(publisher, session)
        refuse_unadvertised(self._advertised, events)
        published = self._publishers.published(held, first, len(events))
        fresh = events[len(published) :]
        if not fresh:
            # its first copy may still wait for the disk: the answer waits behind it
            self._context.write((), lambda: then(published))
            return
        self._refuse_when_full()
        new = self._with_ticks(publisher, first + len(published), fresh)
        ticks = published + tuple(each.tick for each in new)
        self._append(held, new, lambda: then(ticks))

    def _refuse_when_full(self) -> None:
        """Refuse to publish into a log at its limit (R58)."""
        if self._size.is_full:
            self._context.mark("log full")
            late = self.membership.laggards(self._size.tick_to_fit())
            raise PublishRefusedError(self._size.fault(self._record.pubend, late))

    def _with_ticks(self, publisher: str, sequence: int, events: Events) -> tuple[Publication, ...]:
        found = []
        tick = max(self.last + 1, self._present())
        for attributes, payload in events:
            found.append(Publication(tick, publisher, sequence, attributes, payload))
            tick, sequence = tick + 1, sequence + 1
        return tuple(found)

    def _present(self) -> Tick:
        """Return the tick of this moment: never far ahead of what the neighbours' clocks say."""
        lead = us(ms=self._context.parameters.tick_lead_ms)
        return min(self._context.clock, self._clock_view() + lead)

    def _append(
        self,
        held: PublisherRecord,
        publications: tuple[Publication, ...],
        done: Callable[[], None],
    ) -> None:
        first, last, clock = publications[0], publications[-1], self._context.clock
        pending = _Pending(self.last + 1, last.tick, self.regime, publications, done=done)
        self.last = last.tick
        self._size.add(last.tick, row_bytes(pending.piece()))
        record = self._publishers.append(held, publications, clock, self._size.total)
        row = LogRow(
            self._record.pubend, first.tick, last.tick, self.regime, 0, clock, publications
        )
        self._enqueue(pending, (Append(row), Store(record)))

    # --- the order of telling ----------------------------------------------------------------

    def _enqueue(self, pending: _Pending, changes: tuple[Change, ...]) -> None:
        self._pending.append(pending)

        def durable() -> None:
            pending.durable = True
            self._settle()

        self._context.write(changes, durable)

    def _settle(self) -> None:
        """Tell what is durable, in the order in which ticks were given."""
        while self._pending and self._pending[0].durable:
            pending = self._pending.popleft()
            if pending.done is not None:
                pending.done()
            self._tell(pending.piece(), pending.opens)

    def _tell(self, piece: Piece, opens: RegimeRecord | None = None) -> None:
        assert piece.low == self.top + 1, f"{piece.low} does not follow {self.top}"
        self.top = piece.high
        self._outlet.spread(self._record.pubend, piece, opens)

    # --- silence -----------------------------------------------------------------------------

    def set_eager(self, eager: bool) -> None:
        """Say whether somebody waits in total order, and silence has to flow at once."""
        if eager and not self._eager:
            # an idle stream may have been about to be silent for long
            self._idle_timer.cancel()
            self._silence_us = us(ms=self._context.parameters.eager_silence_ms)
            self._idle_timer = self._context.after(self._silence_us, self._idle)
        self._eager = eager

    def advance(self, tick: Tick) -> None:
        """Promise silence up to a tick that somebody waits for (R51)."""
        lead = self._clock_view() + us(ms=self._context.parameters.tick_lead_ms)
        if self.last < tick <= lead:
            self._be_silent_until(tick)

    def _idle(self) -> None:
        parameters = self._context.parameters
        before = self.top
        self._idle_once()
        quiet = self.top > before
        longest = us(ms=parameters.idle_silence_max_ms)
        if self._eager:
            self._silence_us = us(ms=parameters.eager_silence_ms)
        elif quiet:
            self._silence_us = min(2 * self._silence_us, longest)
        else:
            self._silence_us = us(ms=parameters.silence_ms)
        self._idle_timer = self._context.after(self._silence_us, self._idle)

    def _idle_once(self) -> None:
        if not self._pending:
            # at least one tick, so that a clock that was set back does not look like a dead feed
            self._be_silent_until(max(self.last + 1, self._present()))

    def _be_silent_until(self, tick: Tick) -> None:
        if self._pending:
            return
        if tick > max(self._record.ceiling, self.last):
            self._raise_ceiling(tick)
            tick = min(tick, self._record.ceiling)
        if tick > self.last:
            low, self.last = self.last + 1, tick
            self._tell(Piece(low, tick, self.regime, 0))

    def _raise_ceiling(self, need: Tick) -> None:
        if self._raising:
            return
        self._raising = True
        ceiling = need + us(ms=self._context.parameters.ceiling_step_ms)

        def raised() -> None:
            self._raising = False
            self._raised(ceiling)
            if need > self.last:
                self._be_silent_until(need)

        self._context.write((self._change(ceiling=ceiling),), raised)

    def _raised(self, ceiling: Tick) -> None:
        ceiling = max(ceiling, self._record.ceiling)
        self._record = msgspec.structs.replace(self._record, ceiling=ceiling)

    def _change(self, *, ceiling: Tick = 0, released: Tick = 0) -> Store:
        """Return the write of the pubend's record with greater values.

        Several may be under way; each says all that the ones before it said, so that a later
        one never takes an earlier one back.
        """
        latest = self._latest
        self._latest = msgspec.structs.replace(
            latest,
            ceiling=max(ceiling, latest.ceiling),
            released=max(released, latest.released),
            log_marks=self._size.marks,
        )
        return Store(self._latest)

    # --- regimes and members -----------------------------------------------------------------

    def review_regime(self) -> None:
        """Open a new regime if members or claims have changed; not too often (R31)."""
        if self._regime_due:
            return
        wait = self._regime_at + us(ms=self._context.parameters.regime_interval_ms)
        if self._context.now < wait:
            self._regime_due = True
            self._context.after(wait - self._context.now, self._due_regime)
            return
        vector = self.membership.vector(self._claim, self._context.now)
        version = self._record.announcement_version
        latest = self.regimes[-1] if self.regimes else None
        served = {} if latest is None else dict(latest.entries)
        if vector != served or (latest is not None and latest.announcement_version != version):
            self._open_regime(vector)

    def _due_regime(self) -> None:
        self._regime_due = False
        self.review_regime()

    def _open_regime(self, vector: dict[ShbId, Entry]) -> None:
        self._regime_at = self._context.now
        start = self.last + 1
        regime = RegimeRecord(
            self._record.pubend,
            self.regime + 1,
            start,
            self._record.announcement_version,
            tuple(vector.items()),
        )
        rows = self.membership.rows_for(vector, start, self._latest.released)
        self.regimes.append(regime)
        self.last = start
        # the opening tick is promised silent, so the ceiling covers it in the same write
        changes: list[Change] = [Store(regime), self._change(ceiling=start)]
        changes += [Store(row) for row in rows]
        pending = _Pending(
            start, start, regime.number, opens=regime, done=lambda: self._raised(start)
        )
        self._enqueue(pending, tuple(changes))

    def leave(self, shb: ShbId, then: Callable[[], None]) -> None:
        """Make the end of a member's stay durable and then call back."""
        key = MemberRecord.key_of(self._record.pubend, shb)
        self._context.write((Erase(key),), then)
        self.review_regime()

    def _review(self) -> None:
        """Park, expire and release; look for a regime that is due."""
        self._context.after(us(ms=self._context.parameters.ack_ms), self._review)
        parked, ended = self.membership.review(self._claim, self._context.now)
        changes: list[Change] = [Store(row) for row in parked]
        changes += [Erase(MemberRecord.key_of(self._record.pubend, shb)) for shb in ended]
        changes += [Erase(row.key) for row in self.membership.expired_holds(self._context.now)]
        if changes:
            self._context.write(tuple(changes), _nothing)
        self.review_regime()
        self._release()
        self._expect_acks()

    @property
    def _publisher_review_us(self) -> int:
        return us(s=self._context.parameters.publisher_ttl_s) // 8

    def _review_publishers(self) -> None:
        """Forget publishers that were not used for long; the ceiling then says how far they came."""
        self._context.after(self._publisher_review_us, self._review_publishers)
        limit = us(s=self._context.parameters.publisher_ttl_s)
        unused = self._publishers.forget_unused(self._present() - limit)
        if unused:
            ceiling = last_logged(unused)
            changes = [self._change(ceiling=ceiling), *(Erase(each.key) for each in unused)]
            self._context.write(tuple(changes), lambda: self._raised(ceiling))

    def _expect_acks(self) -> None:
        """Ask members that are far behind to look for their gaps, or to let go (R57, R58)."""
        pubend, now = self._record.pubend, self._context.now
        if self._size.is_full:
            tick = self._size.tick_to_fit()
            if self.membership.holds_back(tick) and self._overdue.may_ask(now, pressure=True):
                self._outlet.expect_ack(pubend, tick, pressure=True)
        tick = self._overdue.observe(now, self.top)
        if self.membership.lagging(tick) and self._overdue.may_ask(now, pressure=False):
            self._outlet.expect_ack(pubend, tick, pressure=False)

    def _release(self) -> None:
        """Give up the part of the log that nobody needs any more (R56)."""
        floor = self.membership.floor()
        kept_from = self._clock_view() - us(s=self._context.parameters.retention_s)
        if self._size.is_full:
            kept_from = max(kept_from, self._size.tick_to_fit())
        up_to = min(self.top, kept_from, self.top if floor is None else floor)
        if up_to <= self._latest.released:
            return
        rows = tuple(Store(row) for row in self.membership.rows())

        def trim() -> None:
            self._record = msgspec.structs.replace(self._record, released=up_to)
            self._size.release(up_to)
            forgotten = self._forget_regimes(up_to)
            self._outlet.released(self._record.pubend, up_to)
            self._context.write((Trim(self._record.pubend, up_to), *forgotten), _nothing)

        # the floors that allow it are durable with it, and rows are deleted only after that
        self._context.write((self._change(released=up_to), *rows), trim)

    def _forget_regimes(self, up_to: Tick) -> list[Erase]:
        """Forget regimes whose last tick is released; return the changes on disk."""
        kept = self.regimes
        while len(kept) > 1 and kept[1].start <= up_to + 1:
            kept = kept[1:]
        gone = self.regimes[: len(self.regimes) - len(kept)]
        self.regimes = kept
        return [Erase(regime.key) for regime in gone]


def _nothing() -> None:
    """Nothing depends on this write."""
