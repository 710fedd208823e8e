"""A pubend: assigns ticks to publications, logs them, and only then sends them.

Theory of operation
-------------------
Ticks are assigned in order and sent in order, with silence between them (:mod:`.stream_end`). Three
things are on disk before anything that depends on them is sent (I13): a batch with the sequences of
its publishers, a stream epoch with the rows of its members, and the *tick ceiling*, up to which
silence may be declared.

Each part owns its state. :mod:`.publishers` knows which sequences of a publisher are published, and
:mod:`.repeats` looks up older ones in the log. :mod:`.log_reader` reads the log, :mod:`.log_size`
counts its bytes, :mod:`.event_numbers` its publications, and :mod:`.retention` releases it. :mod:`.members` and :mod:`.known_hosts` know the
SHBs, and :mod:`.member_epochs` opens stream epochs for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.ids import MembershipId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.closing import CloseMode
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
from gapless.packed.encode import in_rows
from gapless.packed.template import PackedTemplate
from gapless.pubend.drain import Drain, sealed_reason
from gapless.pubend.event_numbers import CountedEvents, EventNumbers
from gapless.pubend.known_hosts import KnownHosts, KnownTimes
from gapless.pubend.log_budget import LogBudget
from gapless.pubend.log_reader import LogReader
from gapless.pubend.log_size import LogSize, packed_bytes, row_bytes
from gapless.pubend.member_epochs import MemberEpochs
from gapless.pubend.members import Members
from gapless.pubend.protocols import AckRequests, Claims, ClockView, Outlet
from gapless.pubend.publishers import (
    ClosedRefusalError,
    Publishers,
    PublishRefusedError,
    last_logged,
    refuse_unadvertised,
    with_ticks,
)
from gapless.pubend.repeats import LookupResult, PendingBatch, SequenceLookups
from gapless.pubend.retention import Retention
from gapless.pubend.review_timer import ReviewTimer
from gapless.pubend.stream_end import PendingRange, StreamEnd
from gapless.pubend.tick_ceiling import TickCeiling
from gapless.pubend.unused_publishers import UnusedPublishers

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
        acks: AckRequests,
        claims: Claims,
        clocks: ClockView,
        ceiling: TickCeiling,
        last_logged: Tick = 0,
        stream_epochs: Iterable[StreamEpochRecord] = (),
        publishers: Iterable[PublisherRecord] = (),
        members: Members | None = None,
        known_hosts: KnownHosts | None = None,
        budget: LogBudget | None = None,
    ) -> None:
        window = context.parameters.publisher_window
        self._publishers = Publishers(record.pubend, window, publishers)
        logged, _ = self._publishers.logged
        top = max(last_logged, logged)
        super().__init__(context, record, outlet, clocks, top, stream_epochs, ceiling)
        self.members = members or Members(record.pubend, context.parameters, context.now)
        self.known_hosts = known_hosts or KnownHosts(record.pubend, context.parameters, context.now)
        self._lookups = SequenceLookups(context, self._publishers, self)
        self._reviews = ReviewTimer(context, self._review)
        self._size = LogSize(
            context.parameters.log_bytes_max,
            record.log_size_marks,
            self._publishers.logged,
            record.released,
            budget,
            self._reviews.note_news,
        )
        self._numbers = EventNumbers(
            context,
            self,
            max(record.logged_events, self._publishers.logged_events),
            max(logged, record.last_event),
        )
        self._advertised = Filter(record.properties.advertisement)
        self._reader = LogReader(context, self, outlet)
        self._epochs = MemberEpochs(context, self, self.members, self.known_hosts, claims)
        self._retention = Retention(
            context,
            self,
            self._publishers,
            self._size,
            self.members,
            self.known_hosts,
            acks,
            clocks,
        )
        self.unused = UnusedPublishers(context, self, self._publishers)

    # --- queries -----------------------------------------------------------------------------

    @property
    def log_bytes(self) -> int:
        """The size of the log in bytes."""
        return self._size.bytes

    @property
    def corruption(self) -> str | None:
        """The corruption of the log, if a row could not be read and is still there (P8)."""
        return self._reader.corruption

    def note_corruption(self, corruption: str, low: Tick) -> None:
        """Note that the first row at or above a tick cannot be read."""
        self._reader.note_corruption(corruption, low)

    def ranges_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[list[KnowledgeRange], Tick], None],
        bytes_max: int = 0,
    ) -> None:
        """Read the log from ``low``; call back with knowledge ranges and the last tick covered."""
        self._reader.ranges_between(low, high, then, bytes_max)

    def rows_between(
        self,
        low: Tick,
        high: Tick,
        then: Callable[[tuple[PackedRow, ...], Tick, Tick], None],
        bytes_max: int,
    ) -> None:
        """Read the log from ``low``; call back with the packed rows that overlap the range."""
        self._reader.rows_between(low, high, then, bytes_max)

    def count_events(self, ticks: Iterable[Tick], then: Callable[[CountedEvents], None]) -> None:
        """Call back with the number of publications up to each tick."""
        self._numbers.count(ticks, then)

    # --- publishing --------------------------------------------------------------------------

    def open_publisher(self, publisher: str, then: Callable[[PublisherRecord], None]) -> None:
        """Fence older sessions of a publisher; call back with its record (R28)."""
        record = self._publishers.open(publisher, self._used)
        self._lookups.fence(publisher)
        self._context.write((PutRecord(record),), lambda: then(record))

    def session_of(self, publisher: str) -> int | None:
        """Return the current session of a publisher, or None if the publisher is not open."""
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

        A refusal that needs no look-up in the log raises PublishRefusedError; any other calls
        ``refused``. A repeated event gets its first tick. A batch may skip sequences: the skipped
        ones are given up, and refused if they come later. See :mod:`.publishers`.
        """
        self._lookups.take(PendingBatch(publisher, session, first, events, then, refused))

    def admit(self, batch: PendingBatch, found: LookupResult) -> range:
        """Publish a batch, or return the sequences of it that must be looked up in the log."""
        held = self._publishers.get(batch.publisher, batch.session)
        refuse_unadvertised(self._advertised, batch.events)
        first, events, then = batch.first, batch.events, batch.then
        old = self._publishers.too_old(held, first, len(events))
        if old and not found.covers(old):
            return old
        if old and found.corruption is not None:
            raise PublishRefusedError(
                f"sequence {old[0]} cannot be looked up, because the log is corrupt: {found.corruption}"
            )
        published = self._publishers.published(held, first, len(events), found.ticks)
        fresh = events[len(published) :]
        if not fresh:
            # the first copy may still wait for the disk; the reply waits for that write
            self.after_sent(lambda: then(published))
            return NOTHING
        self.refuse_when_sealed()
        self._refuse_when_corrupt()
        self._refuse_when_full()
        self._epochs.follow_announcement()
        tick = max(self.last + 1, self.present())
        new = with_ticks(tick, batch.publisher, first + len(published), fresh)
        ticks = (*published, *range(new[0].tick, new[-1].tick + 1))
        self._append(held, new, lambda: then(ticks))
        return NOTHING

    def refuse_when_sealed(self) -> None:
        """Refuse what is new to a sealed pubend (RS-32)."""
        if self.sealed is not None:
            raise ClosedRefusalError(sealed_reason(self._record.pubend))

    def _refuse_when_corrupt(self) -> None:
        """Refuse to publish behind a corrupt row: no reader could pass it in order (P8)."""
        if self.corruption is not None:
            self._context.mark("published into a corrupt log")
            raise PublishRefusedError(
                f"the log of {self._record.pubend} is corrupt: {self.corruption}; check it with "
                "gapless log verify, save the readable rows with gapless log export, and publish "
                "to another pubend"
            )

    def _refuse_when_full(self) -> None:
        """Refuse to publish into a log at its limit (R58)."""
        if self._size.is_full:
            self._context.mark("log full")
            late = self.members.lagging_hosts(self._size.tick_to_fit())
            raise PublishRefusedError(self._size.fault(self._record.pubend, late))

    def _release_if_tight(self, *, was_tight: bool) -> None:
        """Release a log that has become tight, before it is full (R58)."""
        self._size.notify_others()
        if self._size.is_tight and not was_tight:
            self._retention.release(self._reader.review_corruption)

    def _append(
        self,
        held: PublisherRecord,
        publications: tuple[Publication, ...],
        done: Callable[[], None],
    ) -> None:
        self._reviews.note_events()
        clock, pendings, appends = self._context.clock, [], []
        was_tight = self._size.is_tight
        for stored in in_rows(publications):
            stored.cache()
            part = stored.publications
            low, high = part[0].tick, part[-1].tick
            pending = PendingRange(self.last + 1, high, self.stream_epoch, part)
            self.last = high
            self._size.add(high, row_bytes(pending.knowledge()))
            before = self._numbers.add(high, len(part))
            row = LogRow(self._record.pubend, low, high, self.stream_epoch, 0, clock, before, part)
            pendings.append(pending)
            appends.append(AppendRow(row, stored.packed))
        pendings[-1].call_also(done)
        record = self._publishers.append(
            held, publications, self._used, self._size.total, self._numbers.total
        )
        self._enqueue_all(pendings, (*appends, PutRecord(record), *self.known_hosts.changes()))
        self._release_if_tight(was_tight=was_tight)

    def refuse_outside(self, events: Events) -> None:
        """Refuse events that do not match the advertisement."""
        refuse_unadvertised(self._advertised, events)

    def publish_whole(
        self,
        writer: str,
        after: int,
        chunks: Sequence[PackedTemplate],
        changes: Callable[[int, Tick, Tick], Iterable[StorageChange]],
        done: Callable[[], None],
    ) -> None:
        """Log all chunks, each as a row, in one write with other changes (S1).

        ``changes`` gets the last sequence, the first tick and the last tick. Sequences continue
        after the last one of the writer's name, and above ``after``. Sessions of ordinary
        publishers of that name are fenced. PublishRefusedError is raised before anything is
        changed. The advertisement is not checked again: it was checked when the chunks were staged
        (:meth:`refuse_outside`), and it only widens.
        """
        self.refuse_when_sealed()
        self._refuse_when_corrupt()
        self._refuse_when_full()
        self._epochs.follow_announcement()
        self._reviews.note_events()
        clock = self._context.clock
        held = self._publishers.open(writer, self._used)
        self._lookups.fence(writer)
        sequence = max(held.last_sequence, after) + 1
        first = tick = max(self.last + 1, self.present())
        pendings, appends = [], []
        was_tight = self._size.is_tight
        for index, chunk in enumerate(chunks):
            high = tick + len(chunk) - 1
            packed = chunk.filled(tick, sequence + tick - first)
            then = done if index == len(chunks) - 1 else None
            pending = PendingRange(self.last + 1, high, self.stream_epoch, packed=packed, done=then)
            pendings.append(pending)
            before = self._numbers.add(high, len(chunk))
            row = AppendPackedRow(
                self._record.pubend, tick, high, self.stream_epoch, clock, before, packed
            )
            appends.append(row)
            self._size.add(high, packed_bytes(packed))
            self.last, tick = high, high + 1
        batch = (sequence, first, tick - first)
        record = self._publishers.extend(
            held, batch, self._used, self._size.total, self._numbers.total
        )
        others = changes(record.last_sequence, first, self.last)
        self._enqueue_all(
            pendings, (*appends, PutRecord(record), *others, *self.known_hosts.changes())
        )
        self._release_if_tight(was_tight=was_tight)

    def _log_size_marks(self) -> tuple[tuple[Tick, int], ...]:
        return self._size.marks

    def _logged_events(self) -> int:
        return self._numbers.total

    @property
    def last_event(self) -> Tick:
        """The last tick that may have had an event."""
        return max(self._publishers.logged[0], self._record.last_event)

    # --- the advertisement -------------------------------------------------------------------

    def widen(self, advertisement: Filter, then: Callable[[], None]) -> None:
        """Widen the advertisement; call back when it may be announced (A22)."""
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
            self._epochs.follow_announcement()
            self._advertised = Filter(properties.advertisement)

        self._context.write((change,), widened)

    # --- stream epochs and members -----------------------------------------------------------------

    def note_hosts(self, hosts: Mapping[ShbId, VirtualTime]) -> None:
        """Note SHBs of the tables that may not have heard of the pubend (R46)."""
        for shb, time in hosts.items():
            self.known_hosts.note(shb, time, self.last, self._context.now)

    def expect_member(
        self,
        joining_member: Member,
        former_hosts: Iterable[ShbId],
        then: Callable[[dict[ShbId, KnownTimes], Tick], None],
    ) -> None:
        """Keep the log for a joining SHB; call back with its known times and the retained tick.

        The known times of ``former_hosts`` are included: subscriptions of them are at the SHB now.
        """
        found = {shb: self.known_hosts.known(shb) for shb in (joining_member.shb, *former_hosts)}
        known = {shb: each for shb, each in found.items() if each}
        row = None
        if known:
            since = min(each[0][1] for each in known.values())
            floor = max(since, self._latest.released)
            row = self.members.expect_member(joining_member, floor, self._context.now)
        if row is None:
            then({}, 0)
        else:
            written = (PutRecord(row), *self.known_hosts.changes())
            self._context.write(written, lambda: then(known, row.ack_floor))

    def update_stream_epoch(self) -> None:
        """Open a new stream epoch if members or claims have changed; the rate is limited (R31)."""
        self._epochs.update()

    def report(self, member: Member, tick: Tick) -> bool:
        """Process a report of a member; return True, since the pubend is hosted here."""
        changed = self.members.report(member, tick, self._context.now)
        if self.sealed is not None and 0 < tick < self.sealed:
            returned = self.members.keep_for_returned(
                member, max(tick, self._latest.released), self._context.now
            )
            self._context.write(tuple(map(PutRecord, returned)))
        if changed and self._epochs.concerns(member.shb):
            self._epochs.update()
        if changed or self._retention.is_held:
            self._reviews.note_news()
        return True

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a membership of an SHB; call back when that is on disk (R55)."""
        left, was_member = self.members.leave(shb, membership, self._context.now)
        changes: list[StorageChange] = [PutRecord(left)]
        if was_member:
            changes.append(DeleteRecord(MemberRecord.key_of(self._record.pubend, shb)))
        self._context.write(tuple(changes), then)
        self._epochs.update()
        self._reviews.note_news()

    @property
    def last_log_tick(self) -> Tick:
        """The last tick that was assigned."""
        return self.last

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for an SHB that will not return (R26)."""
        was_member, log_holds = self.members.retire(shb)
        changes = [DeleteRecord(row.key) for row in log_holds] + self.known_hosts.retire(shb)
        if was_member:
            changes.append(DeleteRecord(MemberRecord.key_of(self._record.pubend, shb)))
        if changes:
            self._context.write(tuple(changes))
            self._epochs.update()
            self._reviews.note_news()

    # --- the end -----------------------------------------------------------------------------

    def drain(self, mode: CloseMode) -> Drain:
        """Return what the sealed pubend still waits for (RS-33)."""
        return Drain.of(
            self._record,
            self.members,
            self.last_event,
            self.known_hosts.floor(self._context.now),
            self._clocks.clock_view(),
            self._context.parameters.retention_s if mode is CloseMode.DRAIN else 0,
        )

    def erase(self) -> tuple[StorageChange, ...]:
        """End the pubend; return the changes that erase its log and its records (RS-33)."""
        self.stop()
        self.unused.stop()
        self._reviews.stop()
        self._size.close()
        return (
            DeleteRecord(self._record.key),
            *(DeleteRecord(each.key) for each in self.stream_epochs),
            *(DeleteRecord(each.key) for each in self._publishers),
            *self.members.erasures(),
            *self.known_hosts.erasures(),
            TrimLog(self._record.pubend, self.last),
        )

    def _review(self) -> None:
        """Update member states, release the log, and open the stream epoch that is due."""
        self.known_hosts.observe(self._epochs.claim, self._context.now)
        inactive, ended = self.members.update_states(self._epochs.claim, self._context.now)
        changes: list[StorageChange] = [PutRecord(row) for row in inactive]
        pubend = self._record.pubend
        changes += [DeleteRecord(MemberRecord.key_of(pubend, shb)) for shb in ended]
        forgotten = self.members.forget_ended(self._context.now)
        changes += [DeleteRecord(EndedMembershipRecord.key_of(pubend, shb)) for shb in forgotten]
        expired = self.members.expired_log_holds(self._context.now)
        changes += [DeleteRecord(row.key) for row in expired]
        if changes:
            self._context.write(tuple(changes))
        self._epochs.update()
        self.review_stream_epochs()
        self._retention.release(self._reader.review_corruption)
        self._reviews.plan(often=self._retention.expect_acks())

    @property
    def _used(self) -> int:
        """The time of use of a publisher that is used now, also by a clock that is behind."""
        return max(self._context.clock, self.last)
