"""A pubend: takes publications, gives them ticks, logs them, and only then lets them be seen.

Theory of operation
-------------------
Ticks are given in order and told in order, silence between them: see :mod:`.stream_end`. Three
things are on disk before anything that depends on them is told (I13): a batch with the sequences of
its publishers, a regime with the rows of its members, and the *ceiling*, below which silence may be
promised.

Which sequences of a publisher are already published is the business of :mod:`.publishers`, and of
:mod:`.repeats` if that was long ago; how large the log is that of :mod:`.log_size`. A log at its limit gives up first what only retention keeps. What
members need is not given up: publications are refused until those who lag have been told and have
acknowledged or let go (R58).

A regime is a numbered vector V^m. When members or claims change, the next regime opens at the next
tick, with a piece of its own, even when nothing is published (R31).

An advertisement only widens (section 1). Tables are pruned by it, so what the wider one adds may be
published only in a regime of the new announcement version: there tables count only if they know that
version (A22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gapless.content.filter import Filter
from gapless.core.ids import MembershipId, ShbId, VectorEntry, VirtualTime
from gapless.core.machine import Context, Fetched
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import (
    AppendPackedRow,
    AppendRow,
    DeleteRecord,
    EndedMembershipRecord,
    LogRow,
    MemberRecord,
    PackedRow,
    PubendRecord,
    PublisherRecord,
    PutRecord,
    StorageChange,
    StreamEpochRecord,
    TrimLog,
)
from gapless.messages.streams import Events, KnowledgeRange, Member, Publication
from gapless.packed.encode import encode_publications
from gapless.packed.template import PackedTemplate
from gapless.pubend.epochs import exact_ranges, outlived, stream_epoch_at
from gapless.pubend.known_hosts import KnownHosts, KnownTimes
from gapless.pubend.log_size import LogSize, packed_bytes, row_bytes
from gapless.pubend.members import Claim, Members
from gapless.pubend.overdue import OverdueAcks
from gapless.pubend.publishers import (
    Publishers,
    PublishRefusedError,
    last_logged,
    refuse_unadvertised,
)
from gapless.pubend.repeats import LookupResult, PendingBatch, SequenceLookups
from gapless.pubend.stream_end import Outlet, PendingRange, StreamEnd

__all__ = ["Outlet", "Pubend", "PublishRefusedError", "last_logged"]


NOTHING: Final = range(0)
"""No sequences."""


class Pubend(StreamEnd):
    """One guaranteed stream of this broker."""

    def __init__(
        self,
        context: Context,
        record: PubendRecord,
        outlet: Outlet,
        claim: Claim,
        clock_view: Callable[[], int],
        last_logged: Tick = 0,
        stream_epochs: Iterable[StreamEpochRecord] = (),
        publishers: Iterable[PublisherRecord] = (),
        members: Members | None = None,
        known_hosts: KnownHosts | None = None,
    ) -> None:
        window = context.parameters.publisher_window
        self._publishers = Publishers(record.pubend, window, publishers)
        logged, _ = self._publishers.logged
        super().__init__(
            context, record, outlet, clock_view, max(last_logged, logged), stream_epochs
        )
        self._claim = claim
        self.members = members or Members(record.pubend, context.parameters, context.now)
        self.known_hosts = known_hosts or KnownHosts(record.pubend, context.parameters, context.now)
        self._lookups = SequenceLookups(
            context,
            record.pubend,
            self._publishers,
            lambda: self._record.released,
            self._admit,
            self._note_corruption,
        )
        self._size = LogSize(
            context.parameters.log_bytes_max,
            record.log_size_marks,
            self._publishers.logged,
            record.released,
        )
        self._advertised = Filter(record.properties.advertisement)
        self.corruption: str | None = None
        """What is wrong with the log, if a row could not be read and is still there (P8)."""
        self._corrupt_from: Tick = 0
        """The first row from here on is the one that could not be read."""
        self._stream_epoch_at = -microseconds(s=3_600)
        self._stream_epoch_due = False
        self._overdue = OverdueAcks(context.parameters, context.now, self.top)
        context.call_later(microseconds(ms=context.parameters.ack_ms), self._review)
        context.call_later(self._publisher_review_us, self._review_publishers)

    # --- what others ask ---------------------------------------------------------------------

    def vector(self, number: int) -> StreamEpochRecord | None:
        """Return a regime by its number."""
        return next(
            (stream_epoch for stream_epoch in self.stream_epochs if stream_epoch.number == number),
            None,
        )

    def stream_epoch_of(self, tick: Tick) -> int:
        """Return the regime of a tick: the last one that began at or before it."""
        return stream_epoch_at(self.stream_epochs, tick, self._record.released)

    def last_released_match(self, wanted: Filter) -> Tick:
        """Return the last tick that is released and may have held an event for a filter."""
        last_released = self._record.last_released_event
        offered = self._record.properties.advertisement
        for until, narrower in reversed(self._record.past_advertisements):
            if last_released > until and Filter(offered).intersects(wanted):
                return last_released
            last_released, offered = min(last_released, until), narrower
        return last_released if Filter(offered).intersects(wanted) else 0

    @property
    def log_bytes(self) -> int:
        """How many bytes the log holds."""
        return self._size.bytes

    # --- reading the log ---------------------------------------------------------------------

    def ranges_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[list[KnowledgeRange], Tick], None],
        bytes_max: int = 0,
    ) -> None:
        """Read the log from ``low``; call back with pieces and the tick that they reach.

        What lies between rows is silence, cut where regimes begin. What is still in memory is not
        read from disk.
        """
        low = max(low, self._record.released + 1)
        high = min(high, self.top)
        if low > high:
            then([], high)
            return
        cached = self._outlet.cached(self._record.pubend, low, high)
        if cached:
            then(cached, cached[-1].high)
            return

        def fetched(event: Fetched) -> None:
            rows: tuple[LogRow, ...] = event.rows
            start, done = self._reached(event, low, high)
            released = self._record.released
            found = [
                each for row in rows for each in row.publications if start <= each.tick <= done
            ]
            then(exact_ranges(self.stream_epochs, released, start, done, found), done)

        most = max(bytes_max, self._context.parameters.read_chunk_bytes)
        self._context.fetch(self._record.pubend, low, high, most, fetched)

    def rows_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[tuple[PackedRow, ...], Tick, Tick], None],
        bytes_max: int,
    ) -> None:
        """Read the log from ``low`` as it was written; call back with rows that touch the range.

        Also from which tick on they count, and up to which one there is nothing else.
        """
        low, high = max(low, self._record.released + 1), min(high, self.top)
        if low > high:
            then((), low, high)
            return

        def fetched(event: Fetched) -> None:
            then(event.rows, *self._reached(event, low, high))

        self._context.fetch(self._record.pubend, low, high, bytes_max, fetched, packed=True)

    def _reached(self, event: Fetched, low: Tick, high: Tick) -> tuple[Tick, Tick]:
        """Return between which ticks the rows that were read tell all; note damage."""
        rows: tuple[LogRow | PackedRow, ...] = event.rows
        whole = event.complete and event.corruption is None
        done = high if whole else (min(high, rows[-1].last) if rows else low - 1)
        if event.corruption is not None:
            self._note_corruption(event.corruption, done + 1)
        # what was released meanwhile may be trimmed: it is gone, not silent (A14)
        return max(low, self._record.released + 1), done

    def _note_corruption(self, corrupt: str, low: Tick) -> None:
        """The first row from a tick on cannot be read; of several the last one met is shown."""
        self._context.mark("corrupt log row")
        self.corruption, self._corrupt_from = corrupt, low

    def _review_corruption(self) -> None:
        """Something was released: look whether the damaged row is still there."""
        low = self._corrupt_from
        if self.corruption is None or low > self._record.released:
            return

        def looked(event: Fetched) -> None:
            if event.corruption is None and low == self._corrupt_from:
                self._context.mark("corrupt log row released")
                self.corruption = None

        first = max(low, self._record.released + 1)
        self._context.fetch(self._record.pubend, first, max(first, self.top), 1, looked)

    # --- publishing --------------------------------------------------------------------------

    def open_publisher(self, publisher: str, then: Callable[[PublisherRecord], None]) -> None:
        """Fence older sessions of a publisher and say how far it has come (R28)."""
        record = self._publishers.open(publisher, self._used)
        self._lookups.fence(publisher)
        self._context.write((PutRecord(record),), lambda: then(record))

    def session_of(self, publisher: str) -> int | None:
        """Return the session of a publisher that may publish, None if it is not open."""
        return self._publishers.session_of(publisher)

    def publish(
        self,
        publisher: str,
        session: int,
        first: int,
        events: Events,
        then: Callable[[tuple[Tick, ...]], None],
        refused: Callable[[str], None],
    ) -> None:
        """Log a batch whole, or refuse it whole, and call back with its ticks (R27).

        What can be refused at once raises; ``refused`` is called if that takes a look into the log.
        A repeated event gets its old tick. Sequences may be left out: they are given up, and
        refused if they come later. See :mod:`.publishers`.
        """
        self._lookups.take(PendingBatch(publisher, session, first, events, then, refused))

    def _admit(self, batch: PendingBatch, found: LookupResult) -> range:
        """Publish a batch; or return which of its sequences have to be looked up in the log."""
        held = self._publishers.get(batch.publisher, batch.session)
        refuse_unadvertised(self._advertised, batch.events)
        first, events, then = batch.first, batch.events, batch.then
        old = self._publishers.too_old(held, first, len(events))
        if old and not found.covers(old):
            return old
        if old and found.corruption is not None:
            raise PublishRefusedError(
                f"sequence {old[0]} is looked for in a log that is corrupt: {found.corruption}"
            )
        published = self._publishers.published(held, first, len(events), found.ticks)
        fresh = events[len(published) :]
        if not fresh:
            # its first copy may still wait for the disk: the answer waits behind it
            self.after_sent(lambda: then(published))
            return NOTHING
        self._refuse_when_corrupt()
        self._refuse_when_full()
        self._follow_announcement()
        new = self._with_ticks(batch.publisher, first + len(published), fresh)
        ticks = (*published, *range(new[0].tick, new[-1].tick + 1))
        self._append(held, new, lambda: then(ticks))
        return NOTHING

    def _refuse_when_corrupt(self) -> None:
        """Refuse to publish behind what cannot be read: nobody could get there in order (P8)."""
        if self.corruption is not None:
            self._context.mark("published into a corrupt log")
            raise PublishRefusedError(
                f"the log of {self._record.pubend} is corrupt: {self.corruption}; look at it with "
                "gapless log verify, save what can be read with gapless log export, and publish "
                "to another pubend"
            )

    def _refuse_when_full(self) -> None:
        """Refuse to publish into a log at its limit (R58)."""
        if self._size.is_full:
            self._context.mark("log full")
            late = self.members.lagging_hosts(self._size.tick_to_fit())
            raise PublishRefusedError(self._size.fault(self._record.pubend, late))

    def _with_ticks(self, publisher: str, sequence: int, events: Events) -> tuple[Publication, ...]:
        found = []
        tick = max(self.last + 1, self._present())
        for attributes, payload in events:
            found.append(Publication(tick, publisher, sequence, attributes, payload))
            tick, sequence = tick + 1, sequence + 1
        return tuple(found)

    def _append(
        self,
        held: PublisherRecord,
        publications: tuple[Publication, ...],
        done: Callable[[], None],
    ) -> None:
        first, last, clock = publications[0], publications[-1], self._context.clock
        pending = PendingRange(self.last + 1, last.tick, self.stream_epoch, publications, done=done)
        packed = encode_publications(publications)
        self.last = last.tick
        self._size.add(last.tick, row_bytes(pending.knowledge()))
        record = self._publishers.append(held, publications, self._used, self._size.total)
        row = LogRow(
            self._record.pubend, first.tick, last.tick, self.stream_epoch, 0, clock, publications
        )
        self._enqueue(
            pending, (AppendRow(row, packed), PutRecord(record), *self.known_hosts.changes())
        )

    def refuse_outside(self, events: Events) -> None:
        """Refuse events that are not advertised."""
        refuse_unadvertised(self._advertised, events)

    def publish_whole(
        self,
        writer: str,
        after: int,
        chunks: Sequence[PackedTemplate],
        changes: Callable[[int, Tick, Tick], Iterable[StorageChange]],
        done: Callable[[], None],
    ) -> None:
        """Log chunks all or none, each as a row, in one write with what else has to change (S1).

        ``changes`` are made of the last sequence, the first tick and the last one. Sequences go on after
        those of the writer's name, and above ``after``. Sessions of ordinary publishers of that name
        are over. PublishRefusedError says that nothing was done. The chunks were not refused when they
        were staged (:meth:`refuse_outside`), and are not now: an advertisement only widens.
        """
        self._refuse_when_corrupt()
        self._refuse_when_full()
        self._follow_announcement()
        clock = self._context.clock
        held = self._publishers.open(writer, self._used)
        self._lookups.fence(writer)
        sequence = max(held.last_sequence, after) + 1
        first = tick = max(self.last + 1, self._present())
        pendings, appends = [], []
        for chunk in chunks:
            high = tick + len(chunk) - 1
            packed = chunk.filled(tick, sequence + tick - first)
            pendings.append(PendingRange(self.last + 1, high, self.stream_epoch, packed=packed))
            row = AppendPackedRow(self._record.pubend, tick, high, self.stream_epoch, clock, packed)
            appends.append(row)
            self._size.add(high, packed_bytes(packed))
            self.last, tick = high, high + 1
        pendings[-1].done = done
        batch = (sequence, first, tick - first)
        record = self._publishers.extend(held, batch, self._used, self._size.total)
        others = changes(record.last_sequence, first, self.last)
        self._enqueue_all(
            pendings, (*appends, PutRecord(record), *others, *self.known_hosts.changes())
        )

    def _log_size_marks(self) -> tuple[tuple[Tick, int], ...]:
        return self._size.marks

    # --- the advertisement -------------------------------------------------------------------

    @property
    def advertisement(self) -> Filter:
        """What is advertised when all writes are through."""
        return Filter(self._latest.properties.advertisement)

    def widen(self, advertisement: Filter, then: Callable[[], None]) -> None:
        """Advertise more; call back when it is on disk, to announce it (section 1, A22)."""
        assert advertisement.covers(self.advertisement), "an advertisement only widens"
        self._context.mark("advertisement widened")
        change = self._change(advertisement=str(advertisement))
        properties, version = self._latest.properties, self._latest.announcement_version
        past_advertisements = self._latest.past_advertisements

        def widened() -> None:
            self._record = msgspec.structs.replace(
                self._record,
                properties=properties,
                announcement_version=version,
                past_advertisements=past_advertisements,
            )
            self.known_hosts.widened(self._context.now)
            then()
            self._follow_announcement()
            self._advertised = Filter(properties.advertisement)

        self._context.write((change,), widened)

    def _follow_announcement(self) -> None:
        """Open a regime at once if the latest is of an older announcement version (R31).

        Also before a batch gets its ticks: a crash may have come between the two.
        """
        version = self._record.announcement_version
        if self.stream_epochs and self.stream_epochs[-1].announcement_version != version:
            self._open_stream_epoch(self.members.vector(self._claim, self._context.now))

    # --- regimes and members -----------------------------------------------------------------

    def note_hosts(self, hosts: Mapping[ShbId, VirtualTime]) -> None:
        """Note that the news of hosts is here, if these may not have heard of the pubend (R46)."""
        for shb, time in hosts.items():
            self.known_hosts.note(shb, time, self.last, self._context.now)

    def expect_member(
        self,
        joining_member: Member,
        former_hosts: Iterable[ShbId],
        then: Callable[[dict[ShbId, KnownTimes], Tick], None],
    ) -> None:
        """Keep the log for a host that comes; then say since when it was known, and what is kept.

        The same of other hosts from which subscriptions have come to it.
        """
        asked = {shb: self.known_hosts.known(shb) for shb in (joining_member.shb, *former_hosts)}
        known = {shb: each for shb, each in asked.items() if each}
        row = None
        if known:
            since = min(each[0][1] for each in known.values())
            floor = max(since, self._latest.released)
            row = self.members.expect_member(joining_member, floor, self._context.now)
        if row is None:
            then({}, 0)
        else:
            changes = (PutRecord(row), *self.known_hosts.changes())
            self._context.write(changes, lambda: then(known, row.ack_floor))

    def update_stream_epoch(self) -> None:
        """Open a new regime if members or claims have changed; not too often (R31)."""
        if self._stream_epoch_due:
            return
        wait = self._stream_epoch_at + microseconds(
            ms=self._context.parameters.stream_epoch_interval_ms
        )
        if self._context.now < wait:
            self._stream_epoch_due = True
            self._context.call_later(wait - self._context.now, self._due_stream_epoch)
            return
        vector = self.members.vector(self._claim, self._context.now)
        version = self._record.announcement_version
        latest = self.stream_epochs[-1] if self.stream_epochs else None
        served = {} if latest is None else dict(latest.entries)
        if vector != served or (latest is not None and latest.announcement_version != version):
            self._open_stream_epoch(vector)

    def _due_stream_epoch(self) -> None:
        self._stream_epoch_due = False
        self.update_stream_epoch()

    def _open_stream_epoch(self, vector: dict[ShbId, VectorEntry]) -> None:
        self._stream_epoch_at = self._context.now
        start = self.last + 1
        stream_epoch = StreamEpochRecord(
            self._record.pubend,
            self.stream_epoch + 1,
            start,
            self._record.announcement_version,
            tuple(vector.items()),
        )
        rows = self.members.rows_for(vector, start, self._latest.released, self.known_hosts.since)
        self.stream_epochs.append(stream_epoch)
        self.last = start
        # the opening tick is promised silent, so the ceiling covers it in the same write
        changes: list[StorageChange] = [PutRecord(stream_epoch), self._change(ceiling=start)]
        changes += [PutRecord(row) for row in rows]
        pending = PendingRange(
            start, start, stream_epoch.number, opens=stream_epoch, done=lambda: self._raised(start)
        )
        self._enqueue(pending, tuple(changes))

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a host's stay; call back when that is on disk (R55)."""
        left, was_member = self.members.leave(shb, membership, self._context.now)
        changes: list[StorageChange] = [PutRecord(left)]
        if was_member:
            changes.append(DeleteRecord(MemberRecord.key_of(self._record.pubend, shb)))
        self._context.write(tuple(changes), then)
        self.update_stream_epoch()

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for a host that will not return (R26)."""
        was_member, log_holds = self.members.retire(shb)
        changes = [DeleteRecord(row.key) for row in log_holds] + self.known_hosts.retire(shb)
        if was_member:
            changes.append(DeleteRecord(MemberRecord.key_of(self._record.pubend, shb)))
        if changes:
            self._context.write(tuple(changes), _nothing)
            self.update_stream_epoch()

    def _review(self) -> None:
        """Park, expire and release; look for a regime that is due."""
        self._context.call_later(microseconds(ms=self._context.parameters.ack_ms), self._review)
        self.known_hosts.observe(self._claim, self._context.now)
        inactive, ended = self.members.update_states(self._claim, self._context.now)
        changes: list[StorageChange] = [PutRecord(row) for row in inactive]
        pubend = self._record.pubend
        changes += [DeleteRecord(MemberRecord.key_of(pubend, shb)) for shb in ended]
        forgotten = self.members.forget_ended(self._context.now)
        changes += [DeleteRecord(EndedMembershipRecord.key_of(pubend, shb)) for shb in forgotten]
        changes += [
            DeleteRecord(row.key) for row in self.members.expired_log_holds(self._context.now)
        ]
        if changes:
            self._context.write(tuple(changes), _nothing)
        self.update_stream_epoch()
        self._release()
        self._expect_acks()

    @property
    def _used(self) -> int:
        """When a publisher was used that is used now. A clock that is behind, and set right later, would
        make it look unused for long, and what it sends again would be published again; ticks never fall.
        """
        return max(self._context.clock, self.last)

    @property
    def _publisher_review_us(self) -> int:
        return microseconds(s=self._context.parameters.publisher_ttl_s) // 8

    def _review_publishers(self) -> None:
        """Forget publishers that were not used for long; the ceiling then says how far they came."""
        self._context.call_later(self._publisher_review_us, self._review_publishers)
        limit = microseconds(s=self._context.parameters.publisher_ttl_s)
        unused = self._publishers.forget_unused(self._present() - limit)
        if unused:
            ceiling = last_logged(unused)
            change = self._change(ceiling=ceiling, last_event=ceiling)
            changes = [change, *(DeleteRecord(each.key) for each in unused)]
            self._context.write(tuple(changes), lambda: self._raised(ceiling))

    def _expect_acks(self) -> None:
        """Ask members that are far behind to look for their gaps, or to let go (R57, R58)."""
        pubend, now = self._record.pubend, self._context.now
        if self._size.is_full:
            tick = self._size.tick_to_fit()
            if self.members.blocks_release(tick) and self._overdue.may_ask(now, pressure=True):
                self._outlet.expect_ack(pubend, tick, pressure=True)
        tick = self._overdue.observe(now, self.top)
        if self.members.lagging(tick) and self._overdue.may_ask(now, pressure=False):
            self._outlet.expect_ack(pubend, tick, pressure=False)

    def _release(self) -> None:
        """Give up the part of the log that nobody needs any more (R56)."""
        floors = [self.members.ack_floor(), self.known_hosts.floor(self._context.now)]
        floor = min((each for each in floors if each is not None), default=self.top)
        kept_from = self._clock_view() - microseconds(s=self._context.parameters.retention_s)
        if self._size.is_full:
            kept_from = max(kept_from, self._size.tick_to_fit())
        up_to = min(self.top, kept_from, floor)
        if up_to <= self._latest.released:
            return
        rows = tuple(PutRecord(row) for row in self.members.rows())
        last_released = self._last_released_event(up_to)

        def trim() -> None:
            self._record = msgspec.structs.replace(
                self._record, released=up_to, last_released_event=last_released
            )
            self._size.release(up_to)
            forgotten = self._forget_stream_epochs(up_to)
            self._outlet.released(self._record.pubend, up_to)
            changes = (TrimLog(self._record.pubend, up_to), *forgotten)
            self._context.write(changes, self._review_corruption)

        # the floors that allow it are durable with it, and rows are deleted only after that
        self._context.write(
            (self._change(released=up_to, last_released_event=last_released), *rows), trim
        )

    def _last_released_event(self, up_to: Tick) -> Tick:
        """Return the last tick that may have held an event, if the log is released up to a tick.

        Silence takes no room, but it is released with the clock. Who has seen every event that there
        was must not be told of a gap because of that.
        """
        latest = self._latest
        last_event = max(self._publishers.logged[0], latest.last_event)
        return (
            latest.last_released_event if last_event <= latest.released else min(last_event, up_to)
        )

    def _forget_stream_epochs(self, up_to: Tick) -> list[DeleteRecord]:
        """Forget regimes whose last tick is released; return the changes on disk."""
        count = outlived(self.stream_epochs, up_to)
        forgotten, self.stream_epochs = self.stream_epochs[:count], self.stream_epochs[count:]
        return [DeleteRecord(stream_epoch.key) for stream_epoch in forgotten]


def _nothing() -> None:
    """Nothing depends on this write."""
