"""The end of a pubend's stream: assigned ticks, and durable ticks that may be sent.

Theory of operation
-------------------
``last`` is the highest tick that was assigned, ``top`` the highest that may be sent. Between them
lie batches and stream epochs that wait for the disk, in order. Silence never overtakes them (R30).
A range that becomes durable moves ``top`` and is sent as a knowledge range: its publications are D,
all other ticks between the old and the new top are F, for ever (I1, I2).

Silence is declared only up to a *tick ceiling*, which is on disk before it is used: that of the
broker (:mod:`.tick_ceiling`), or one of the pubend's own where its ticks are ahead of the clock.
After a crash the stream continues above both, independently of the clock (R29, A8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.ids import ShbId, VectorEntry
from gapless.core.limits import ADVERTISEMENTS_KEPT, TICK_REQUESTED_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.closing import CloseMode
from gapless.messages.records import (
    DeleteRecord,
    PubendRecord,
    PublisherRecord,
    PutRecord,
    StorageChange,
    StreamEpochRecord,
    TrimLog,
)
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.packed.pick import unpack
from gapless.pubend.epochs import outlived, stream_epoch_at, surplus
from gapless.pubend.protocols import ClockView, Outlet
from gapless.pubend.publishers import last_logged
from gapless.pubend.tick_ceiling import TickCeiling

__all__ = ["PendingRange", "StreamEnd"]


class PendingRange(msgspec.Struct):
    """A range that waits for the disk: a batch, or the opening of a stream epoch."""

    low: Tick
    high: Tick
    stream_epoch: int
    publications: tuple[Publication, ...] = ()
    packed: bytes = b""
    """Packed publications, in place of ``publications``; unpacked when they are sent."""
    opens: StreamEpochRecord | None = None
    done: Callable[[], None] | None = None
    durable: bool = False

    def mark_durable(self) -> None:
        """The write of the range is on disk."""
        self.durable = True

    def call_also(self, then: Callable[[], None]) -> None:
        """Add a callback; callbacks run in order when the range is sent."""
        done = self.done

        def both() -> None:
            if done is not None:
                done()
            then()

        self.done = both

    def knowledge(self) -> KnowledgeRange:
        """Return the knowledge range to send when this range is durable."""
        publications = tuple(unpack([self.packed])) if self.packed else self.publications
        return KnowledgeRange(self.low, self.high, self.stream_epoch, 0, publications)


class StreamEnd:
    """The end of one guaranteed stream, and the record of its progress."""

    def __init__(
        self,
        context: Context,
        record: PubendRecord,
        outlet: Outlet,
        clocks: ClockView,
        logged: Tick,
        stream_epochs: Iterable[StreamEpochRecord],
        ceiling: TickCeiling,
    ) -> None:
        self._context = context
        self._record = record
        """The record on disk. ``_latest`` is the record after all pending writes."""
        self._latest = record
        self._outlet = outlet
        self._clocks = clocks
        self._ceiling = ceiling
        self.stream_epochs = sorted(stream_epochs, key=lambda stream_epoch: stream_epoch.number)
        # ticks that were declared silent before a crash remain silent (R29)
        self.last = self.top = (
            max(logged, record.ceiling, record.released) if record.sealed is None else record.sealed
        )
        self._pending: deque[PendingRange] = deque()
        self._raising = False
        self._lead_us = microseconds(ms=context.parameters.tick_lead_ms)
        self._silence_us = microseconds(ms=context.parameters.silence_ms)
        self._eager = False
        self._has_moved = False
        """Whether the stream has moved, not by silence alone, since the timer was set."""
        self._idle_timer = context.call_later(self._silence_us, self._idle)

    @property
    def record(self) -> PubendRecord:
        """The record on disk."""
        return self._record

    @property
    def sealed(self) -> Tick | None:
        """The last tick for ever, as soon as it is decided; None while the pubend is open (RS-32)."""
        return self._latest.sealed

    @property
    def stream_epoch(self) -> int:
        """The number of the stream epoch of newly assigned ticks; 0 before the first epoch."""
        return self.stream_epochs[-1].number if self.stream_epochs else 0

    @property
    def latest(self) -> PubendRecord:
        """The record after all pending writes."""
        return self._latest

    def vector(self, number: int) -> StreamEpochRecord | None:
        """Return a stream epoch by its number."""
        return next(
            (stream_epoch for stream_epoch in self.stream_epochs if stream_epoch.number == number),
            None,
        )

    def stream_epoch_of(self, tick: Tick) -> int:
        """Return the stream epoch of a tick: the last one that starts at or before it."""
        return stream_epoch_at(self.stream_epochs, tick, self._record.released)

    def last_released_match(self, read_filter: Filter) -> Tick:
        """Return the last released tick that may have held an event that matches a filter."""
        last_released = self._record.last_released_event
        offered = self._record.properties.advertisement
        for until, narrower in reversed(self._record.past_advertisements):
            if last_released > until and Filter(offered).intersects(read_filter):
                return last_released
            last_released, offered = min(last_released, until), narrower
        return last_released if Filter(offered).intersects(read_filter) else 0

    @property
    def advertisement(self) -> Filter:
        """The advertisement after all pending writes."""
        return Filter(self._latest.properties.advertisement)

    def _log_size_marks(self) -> tuple[tuple[Tick, int], ...]:
        """Return the marks of the log's size that the record stores."""
        raise NotImplementedError

    def _logged_events(self) -> int:
        """Return how many publications were ever logged."""
        raise NotImplementedError

    # --- the order of sending ----------------------------------------------------------------

    def _enqueue(self, pending: PendingRange, changes: tuple[StorageChange, ...]) -> None:
        self._pending.append(pending)

        def durable() -> None:
            pending.mark_durable()
            self._settle()

        self._context.write(changes, durable)

    def _enqueue_all(
        self, pendings: Sequence[PendingRange], changes: tuple[StorageChange, ...]
    ) -> None:
        """Store several ranges in one write; then send them, one per step.

        All are durable after that write. One step sends one packet, so each further range waits for
        an empty write. Otherwise a large write would make a large packet.
        """
        self._pending.extend(pendings)
        waiting = deque(pendings)

        def durable() -> None:
            waiting.popleft().mark_durable()
            self._settle()
            if waiting:
                self._context.write((), durable)

        self._context.write(changes, durable)

    def after_sent(self, then: Callable[[], None]) -> None:
        """Call back when everything assigned before is durable and sent.

        A client that gets the reply and then reads the log finds the event.
        """
        last = self._pending[-1] if self._pending else None

        def durable() -> None:
            if last is None or not any(each is last for each in self._pending):
                then()
            else:
                last.call_also(then)

        self._context.write((), durable)

    def _settle(self) -> None:
        """Send the durable ranges, in the order in which their ticks were assigned."""
        while self._pending and self._pending[0].durable:
            pending = self._pending.popleft()
            if pending.done is not None:
                pending.done()
            self._note_moved()
            self._forward(pending.knowledge(), pending.opens)

    def _forward(self, knowledge: KnowledgeRange, opens: StreamEpochRecord | None = None) -> None:
        assert knowledge.low == self.top + 1, f"{knowledge.low} does not follow {self.top}"
        self.top = knowledge.high
        self._outlet.forward(self._record.pubend, knowledge, opens)

    # --- the end of the stream -----------------------------------------------------------------

    def seal(self, mode: CloseMode, then: Callable[[], None]) -> None:
        """Give no further tick; call back when that is on disk and everything is sent (RS-32)."""
        last = self.last
        version = self._latest.announcement_version + 1
        self._latest = msgspec.structs.replace(
            self._latest, sealed=last, announcement_version=version
        )

        def stored() -> None:
            self._record = msgspec.structs.replace(
                self._record, sealed=last, announcement_version=version
            )
            self.after_sent(then)

        self.set_close_mode(mode, stored)

    def set_close_mode(self, mode: CloseMode, then: Callable[[], None]) -> None:
        """Store what the sealed pubend waits for (RS-33)."""
        self._latest = msgspec.structs.replace(self._latest, close_mode=mode)
        self._context.write((self._change(),), then)

    def stop(self) -> None:
        """Stop all timers: the pubend ends."""
        self._idle_timer.cancel()

    # --- stream epochs and release -----------------------------------------------------------

    def open_stream_epoch(
        self, vector: dict[ShbId, VectorEntry], changes: Iterable[StorageChange]
    ) -> None:
        """Open the next stream epoch at the next tick, in one write with other changes (R31).

        The epoch has a range of its own, even if nothing is published.
        """
        start = self.last + 1
        opened = StreamEpochRecord(
            self._record.pubend,
            self.stream_epoch + 1,
            start,
            self._record.announcement_version,
            tuple(vector.items()),
        )
        self.stream_epochs.append(opened)
        self.last = start
        pending = PendingRange(
            start, start, opened.number, opens=opened, done=lambda: self._raised(start)
        )
        # the opening tick is declared silent, so the ceiling covers it in the same write
        written = (PutRecord(opened), self._change(ceiling=start), *changes)
        self._enqueue(pending, (*written, *self._forget_stream_epochs()))

    def review_stream_epochs(self) -> None:
        """Forget the stream epochs that need not be kept (R31)."""
        changes = self._forget_stream_epochs()
        if changes:
            self._context.write(changes)

    def _forget_stream_epochs(self) -> tuple[StorageChange, ...]:
        """Forget the stream epochs that need not be kept; return the storage changes.

        An SHB that is farther behind than ``inactive_after_s`` is in no vector, so it reads the log
        anyway (R44, R54). An epoch is kept until the next one is on disk and its first tick is sent.
        """
        parameters = self._context.parameters
        low = self.last - microseconds(s=parameters.inactive_after_s)
        count = min(
            surplus(self.stream_epochs, low, parameters.stream_epochs_max),
            outlived(self.stream_epochs, self.top - 1),
        )
        if count <= 0:
            return ()
        forgotten, self.stream_epochs = self.stream_epochs[:count], self.stream_epochs[count:]
        up_to, kept = self.stream_epochs[0].start - 1, [each.number for each in self.stream_epochs]
        self._outlet.forget_stream_epochs(self._record.pubend, up_to, kept)
        return tuple(DeleteRecord(each.key) for each in forgotten)

    def release(
        self,
        up_to: Tick,
        last_released_event: Tick,
        floors: Iterable[StorageChange],
        released: Callable[[], None],
        trimmed: Callable[[], None],
    ) -> None:
        """Release the log up to a tick; call back when that is durable and when it is trimmed.

        The ack floors that allow the release are in the same write. Rows are deleted only after it.
        """

        def durable() -> None:
            self._record = msgspec.structs.replace(
                self._record, released=up_to, last_released_event=last_released_event
            )
            released()
            count = outlived(self.stream_epochs, up_to)
            forgotten, self.stream_epochs = self.stream_epochs[:count], self.stream_epochs[count:]
            kept = [each.number for each in self.stream_epochs]
            self._outlet.set_released(self._record.pubend, up_to, kept)
            deleted = [DeleteRecord(each.key) for each in forgotten]
            self._context.write((TrimLog(self._record.pubend, up_to), *deleted), trimmed)

        change = self._change(released=up_to, last_released_event=last_released_event)
        self._context.write((change, *floors), durable)

    def forget_publishers(self, unused: Sequence[PublisherRecord]) -> None:
        """Delete the records of publishers; the ceiling then covers their last ticks."""
        ceiling = last_logged(unused)
        change = self._change(ceiling=ceiling, last_event=ceiling)
        changes = [change, *(DeleteRecord(each.key) for each in unused)]
        self._context.write(tuple(changes), lambda: self._raised(ceiling))

    def present(self) -> Tick:
        """Return the tick of now, at most ``tick_lead_ms`` ahead of the neighbours' clocks."""
        return min(self._context.clock, self._clocks.clock_view() + self._lead_us)

    # --- silence -----------------------------------------------------------------------------

    def set_eager(self, eager: bool) -> None:
        """Set whether a receiver in total order waits, so that silence must be sent soon (R51)."""
        if eager and not self._eager:
            self._be_idle_after(microseconds(ms=self._context.parameters.eager_silence_ms))
        self._eager = eager

    def advance(self, tick: Tick) -> None:
        """Declare silence up to a tick that a receiver waits for (R51)."""
        # independently of the clock: the events at that tick exist, and R27 has bounded the tick
        tick = min(tick, TICK_REQUESTED_MAX)
        if tick > self.last:
            self._note_moved()
            self._be_silent_until(tick)

    def _note_moved(self) -> None:
        """The stream moves: silence after it is due soon, however long it was idle (R30)."""
        self._has_moved = True
        shortest = microseconds(ms=self._context.parameters.silence_ms)
        if self._silence_us > shortest:
            self._be_idle_after(shortest)

    def _be_idle_after(self, silence_us: int) -> None:
        """Replace the timer, which may have a long interval."""
        self._idle_timer.cancel()
        self._silence_us = silence_us
        self._idle_timer = self._context.call_later(silence_us, self._idle)

    def _idle(self) -> None:
        if self.sealed is not None:
            return
        parameters, has_moved = self._context.parameters, self._has_moved
        before, self._has_moved = self.top, False
        if self._eager or not has_moved:
            self._idle_once()
        if self._eager:
            self._silence_us = microseconds(ms=parameters.eager_silence_ms)
            self._idle_timer = self._context.call_later(self._silence_us, self._idle)
            return
        is_idle = self.top > before
        shortest = microseconds(ms=parameters.silence_ms)
        self._silence_us = min(2 * self._silence_us, parameters.idle_us) if is_idle else shortest
        self._idle_timer = self._context.call_about(self._silence_us, self._idle)

    def _idle_once(self) -> None:
        if not self._pending:
            # at least one tick: with a clock that was set back the feed would otherwise look dead
            self._be_silent_until(max(self.last + 1, self.present()))

    def _be_silent_until(self, tick: Tick) -> None:
        if self._pending or self.sealed is not None:
            return
        ceiling = max(self._record.ceiling, self._ceiling.tick)
        if tick > max(ceiling, self.last):
            self._raise_ceiling(tick)
            tick = min(tick, ceiling)
        if tick > self.last:
            low, self.last = self.last + 1, tick
            self._forward(KnowledgeRange(low, tick, self.stream_epoch, 0))

    def _raise_ceiling(self, need: Tick) -> None:
        """Raise the ceiling of the broker, or the own one for ticks that are ahead of the clock."""
        if self._raising:
            return
        self._raising = True

        def raised() -> None:
            self._raising = False
            if need > self.last:
                self._be_silent_until(need)

        if need <= self.present():
            self._ceiling.raise_above(need, raised)
            return
        ceiling = need + microseconds(ms=self._context.parameters.ceiling_step_ms)

        def raised_own() -> None:
            self._raised(ceiling)
            raised()

        self._context.write((self._change(ceiling=ceiling),), raised_own)

    def _raised(self, ceiling: Tick) -> None:
        ceiling = max(ceiling, self._record.ceiling)
        self._record = msgspec.structs.replace(self._record, ceiling=ceiling)

    def _change(
        self,
        *,
        ceiling: Tick = 0,
        released: Tick = 0,
        last_released_event: Tick = 0,
        last_event: Tick = 0,
        advertisement: str | None = None,
    ) -> PutRecord:
        """Return the write of the pubend's record with greater values, or a wider advertisement.

        Several such writes may be pending. Each contains the changes of all earlier ones, so that a
        later write never reverts an earlier one.
        """
        latest = self._latest
        self._latest = msgspec.structs.replace(
            latest,
            ceiling=max(ceiling, latest.ceiling),
            released=max(released, latest.released),
            last_released_event=max(last_released_event, latest.last_released_event),
            last_event=max(last_event, latest.last_event),
            log_size_marks=self._log_size_marks(),
            logged_events=self._logged_events(),
        )
        if advertisement is not None:
            self._latest = msgspec.structs.replace(
                self._latest,
                properties=msgspec.structs.replace(latest.properties, advertisement=advertisement),
                past_advertisements=(
                    *latest.past_advertisements[1 - ADVERTISEMENTS_KEPT :],
                    (self.last, latest.properties.advertisement),
                ),
                announcement_version=latest.announcement_version + 1,
            )
        return PutRecord(self._latest)
