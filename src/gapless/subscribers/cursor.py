"""A cursor: one subscription on one pubend (R46 to R48). Its phases are in :mod:`.cursor_state`.

The buffer of a cursor keeps events and gaps in tick order until the subscription has credit for
them. ``position`` is the tick up to which everything was put into the buffer. A live cursor takes
from the subend everything above its position, and its buffer is complete up to the horizon.

A durable subscription stores a start and the end of a filter segment before the client is sent
anything beyond them. A *delivery limit* delays such events until the write is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gapless.core.ids import VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import Order
from gapless.messages.streams import Publication
from gapless.subscribers.buffer import Buffer
from gapless.subscribers.catch_up import CatchUp
from gapless.subscribers.cursor_ending import CursorEnding
from gapless.subscribers.cursor_state import (
    NEXT_PHASES,
    NOT_STARTED,
    CursorInput,
    CursorPhase,
    GapRange,
    NotStarted,
    Started,
)
from gapless.subscribers.delivery_limit import DeliveryLimits
from gapless.subscribers.exclusion import MergeExclusion
from gapless.subscribers.filter_segments import FilterSegment, FilterSegments, StoredSegments
from gapless.subscribers.filter_switch import FilterSwitch
from gapless.subscribers.log_hold import LogHolds
from gapless.subscribers.record import SavedCursor, StoredCursor
from gapless.subscribers.retention import LogRetention
from gapless.subscribers.settled import SettledTick
from gapless.subscribers.start_verification import StartVerification

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["Cursor"]

EXCLUDED: Final = "its broker was retired; in total order the other pubends continue without it"


class Cursor:
    """The progress of one subscription on one guaranteed pubend."""

    def __init__(
        self, subscription: HostedSubscription, subend: Subend, segment: FilterSegment
    ) -> None:
        resources = subscription.resources
        self.subscription = subscription
        self.subend = subend
        self.pubend = subend.pubend
        self.phase = CursorPhase.PENDING
        self.start: NotStarted | Started = NOT_STARTED
        self.segments = FilterSegments(segment)
        """Which filter applies at which tick."""
        self.start_confirmed = False
        """Whether the client was sent the start in this connection."""
        self.start_unconfirmed = False
        """Whether the cursor started while the client was disconnected, and the client does not
        know the start yet."""
        self.position: Tick = 0
        self.last_sent: Tick = 0
        """The tick of the last event that the client was sent."""
        self.seek_number = 0
        """The number of the operator's seek that moved it; 0 once the client has seen it."""
        self.from_earliest = False
        """Whether a seek moved it to the earliest event, whose tick is not known yet."""
        self.seek_count = 0
        """Counts moves. A write that was started before the last move does not update the start."""
        self.buffer = Buffer(resources.context.parameters, resources.backlog)
        self.limits = DeliveryLimits(subscription)
        self.settled = SettledTick(self)
        self._mark_dirty = resources.step_end.mark
        self._note_waiting = resources.step_end.note_waiting
        self.verification = StartVerification(self)
        self.merge_exclusion = MergeExclusion(self)
        self.log_holds = LogHolds(self)
        self.retention = LogRetention(self)
        self.catch_up = CatchUp(self)
        self.filter_switch = FilterSwitch(self)
        self.ending = CursorEnding(self)

    # --- state ---------------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """Whether the cursor has no start and waits for its stream or for the PHB."""
        return self.phase is CursorPhase.PENDING or self.phase is CursorPhase.GUARANTEED

    @property
    def is_live(self) -> bool:
        """Whether the cursor takes the events that the subend hands over."""
        return self.phase is CursorPhase.LIVE or self.phase is CursorPhase.JOINING

    @property
    def reads_log(self) -> bool:
        """Whether the cursor reads the log for its client."""
        return self.phase is CursorPhase.CATCHING_UP or self.phase is CursorPhase.JOINING

    @property
    def awaits_earliest(self) -> bool:
        """Whether the cursor starts with the earliest event, whose tick is not known yet."""
        return not self.is_pending and not isinstance(self.start, Started)

    @property
    def is_untouched(self) -> bool:
        """Whether it has started, and no acknowledgement, seek or filter change followed."""
        if not isinstance(self.start, Started) or self.start.acked != self.start.after:
            return False
        is_moved = self.seek_number or self.from_earliest
        return not is_moved and not self.segments.ended and self.segments.next is None

    @property
    def required_from(self) -> VirtualTime | None:
        """The virtual time from which the subscription must receive events."""
        segment = self.segments.current
        return segment.required_from if self.subscription.durable else segment.start

    @property
    def in_merge(self) -> bool:
        """Whether silence of this stream lets a merge continue."""
        subscription = self.subscription
        waits = subscription.order is Order.TOTAL and subscription.client is not None
        return waits and len(subscription.cursors) > 1

    @property
    def buffered_up_to(self) -> Tick:
        """The tick up to which everything was put into the buffer."""
        if self.phase is CursorPhase.LIVE:
            return max(self.position, self.subend.horizon)
        return self.position

    @property
    def sent_up_to(self) -> Tick:
        """The tick up to which the client was sent everything."""
        if self.buffer:
            return self.buffer.next_tick - 1
        return min(self.buffered_up_to, self.limits.tick)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the client was sent everything up to the horizon and needs nothing below."""
        live = self.phase is CursorPhase.LIVE and not self.buffer and not self.limits
        return live and not self.subscription.durable

    @property
    def is_resumable(self) -> bool:
        """Whether the position may be sent to a client: it is stored, and the log kept."""
        if self.from_earliest or self.verification.is_outstanding:
            return False
        kept = self.log_holds.current is None or self.log_holds.is_safe
        return isinstance(self.start, Started) and not self.limits and kept

    @property
    def acked_at(self) -> Tick | None:
        """The acknowledged tick; None if it is not durable or its start is not stored."""
        is_started = (
            isinstance(self.start, Started)
            and self.limits.start_stored
            and not self.verification.is_outstanding
        )
        return self.start.acked if is_started and self.subscription.durable else None

    @property
    def fault(self) -> str:
        """Why the stream is stalled although the pubend can be reached; empty if it is not."""
        if self.merge_exclusion.is_excluded:
            return EXCLUDED
        return self.catch_up.fault if self.reads_log else self.subend.fault

    def enter(self, phase: CursorPhase, given: CursorInput) -> None:
        """Change the phase by an input, as the table of phases allows."""
        assert phase in NEXT_PHASES.get((self.phase, given), ()), (
            f"{self.phase.name} does not become {phase.name}: {given.value}"
        )
        self.phase = phase
        self.subend.register(self)

    # --- starting ------------------------------------------------------------------------------

    def wait_for_start(self) -> None:
        """Wait for the stream, or query the PHB if there is a start guarantee (R46)."""
        self.verification.wait()
        self.stay_pending()
        self.subend.verify_starts()

    def stay_pending(self) -> None:
        """Continue to wait for the start."""
        guaranteed = self.verification.has_guarantee
        phase = CursorPhase.GUARANTEED if guaranteed else CursorPhase.PENDING
        self.enter(phase, CursorInput.WAITED)
        self._note_waiting(self)

    def wait_at(self, position: Tick) -> None:
        """Keep the log above a tick while the PHB is queried for the start."""
        self.position = position

    def start_if_served(self, low: Tick, time: VirtualTime) -> None:
        """Start at a tick if the virtual time that its stream epoch serves is enough (R44)."""
        subscription, required_from = self.subscription, self.required_from
        if required_from is None or required_from > time:
            return
        subscription.guarantees.clear(self.pubend)
        # in total order a stream that is added later starts above what was merged (R51)
        self.start_after(max(low - 1, subscription.merged))
        phase = CursorPhase.CATCHING_UP
        if subscription.client is None:
            self.start_unconfirmed = True
            phase = CursorPhase.DISCONNECTED
        elif self.segments.current.is_served_at(time):
            phase = CursorPhase.LIVE
        self.enter(phase, CursorInput.SERVED)

    def start_after(self, after: Tick, *, acked: Tick = 0) -> None:
        """Start after a tick; the start is stored before the client is sent it.

        After a seek back at another broker the client has ``acked`` a higher tick, and receives the
        events up to there again (R50).
        """
        self.position = after
        self.start = Started(after, after, max(after, acked), self.start.acked_stored)
        self.store_start()

    def store_start(self) -> None:
        """Store the start before the client is sent anything beyond it."""
        self.limits.until_stored(self.position, started=True)

    def start_in_past(self, after: Tick | None, *, acked: Tick = 0) -> None:
        """Start at a position (R48), or with the earliest event of the log if ``after`` is None."""
        self.subscription.guarantees.clear(self.pubend)
        self.verification.cancel()
        self.position = after or 0
        self.retention.hold_log_if_needed()
        if after is not None:
            self.start_after(after, acked=acked)
        is_disconnected = self.subscription.client is None
        phase = CursorPhase.DISCONNECTED if is_disconnected else CursorPhase.CATCHING_UP
        self.enter(phase, CursorInput.PLACED)

    def note_earliest(self) -> None:
        """Start before all events if the earliest was requested and its tick is not known yet."""
        if self.awaits_earliest and self.subscription.durable:
            self.from_earliest = True
            self.start_after(self.subscription.merged)  # no event comes below it (R51)

    def set_earliest(self, released: Tick) -> None:
        """The log is held above a released tick: start there if the earliest was requested."""
        if self.from_earliest:
            self.from_earliest = False
            if released > self.position:
                self.start_after(released)

    def move_start_back(self, after: Tick) -> None:
        """Start after an earlier tick, with a new log hold: the log was kept above the start."""
        assert isinstance(self.start, Started)
        self.seek_count += 1
        stored = max(self.start.acked_stored, self.start.after)
        self.start = self.start._replace(after=after, acked=after, acked_stored=stored)
        self.retention.lower(after)
        if self.subscription.client is None:
            self._move_position(after)
            self.retention.hold_log_if_needed()
        else:
            self.seek(after)
        self.start = self.start._replace(acked_stored=after)
        if self.log_holds.current is not None:
            self.log_holds.refresh(due=True)

    def note_unconfirmed(self, *, unconfirmed: bool) -> None:
        """Note whether the client is disconnected and is sent the start later."""
        self.start_unconfirmed = unconfirmed

    def confirm_start(self) -> bool:
        """The client is sent the start now. Return whether the start was unconfirmed until now."""
        self.start_confirmed = True
        missed, self.start_unconfirmed = self.start_unconfirmed, False
        return missed

    def forget_confirmation(self) -> None:
        """Note that the client was not sent the start in this connection."""
        self.start_confirmed = False

    def restore(
        self, stored: StoredCursor, newest: FilterSegment, segments: StoredSegments
    ) -> None:
        """Restore a started cursor from the record."""
        self.start = stored.start
        self.segments.restore(newest, self.pubend, segments)
        self.position = stored.start.acked
        self.ending.restore(known=stored.end_known)
        self.log_holds.restore(stored.log_holds)
        self.start_unconfirmed = stored.start_unconfirmed
        self.seek_number = stored.seek_number
        self.from_earliest = stored.from_earliest
        self.settled.restore(stored.settled)
        if stored.merge_exclusion is not None:
            self.merge_exclusion.restore(stored.merge_exclusion)
        self.limits.restore()
        self.verification.restore()
        self.enter(CursorPhase.DISCONNECTED, CursorInput.RESTORED)
        self.subend.verify_starts()

    # --- writes --------------------------------------------------------------------------------

    def saving(self) -> SavedCursor:
        """Return the state of the cursor that a record written now contains."""
        hold = self.log_holds.current
        return SavedCursor(self.seek_count, self.start.acked, hold, self.ending.is_known)

    def saved(self, saved: SavedCursor) -> None:
        """A record with this state is on disk."""
        start = self.start
        if self.seek_count == saved.seek_count and isinstance(start, Started):
            self.start = start._replace(acked_stored=max(start.acked_stored, saved.acked))
            self.subend.reports.note_news()
        self.log_holds.saved(saved.log_hold)
        self.ending.saved(known=saved.end_known)

    # --- live ------------------------------------------------------------------------------------

    def take(self, segment: FilterSegment, publications: list[Publication]) -> None:
        """Take the publications that a segment matched, at ticks where the segment applies."""
        segments = self.segments
        if (
            publications[0].tick <= self.position
            or segments.ended
            or segment is not segments.current
        ):
            publications = [
                each
                for each in publications
                if each.tick > self.position and segments.at(each.tick)[0] is segment
            ]
        if self.phase is CursorPhase.LIVE:
            self._put(publications)
        elif self.phase is CursorPhase.JOINING:
            self.catch_up.buffer_live(publications)

    def _put(self, publications: list[Publication]) -> None:
        """Buffer as many as fit, send them, and buffer the rest, while the cursor is live."""
        taken = self.buffer.put(publications)
        while taken < len(publications) and self.phase is CursorPhase.LIVE:
            publications = publications[taken:]
            self.subscription.reply.send_if_ready()  # the start is sent before its events
            self.subscription.delivery.send_available()
            taken = self.buffer.put(publications)
            if not taken and self.phase is CursorPhase.LIVE:
                if not self.buffer.put_beyond(publications):
                    self.subscription.delivery.too_slow(self)
                    return
                break
        self._mark_dirty(self.subscription)

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take at most ``most`` events up to a tick that may be sent, and that precede any gap."""
        events = self.buffer.take_events(most, min(up_to, self.limits.tick))
        if events:
            self.settled.sending(events[0].tick)
            self.last_sent = events[-1].tick
        return events

    def take_gap(self, up_to: Tick) -> GapRange | None:
        """Take a gap if it is next in the buffer and may be sent."""
        gap = self.buffer.take_gap(min(up_to, self.limits.tick))
        if gap is not None:
            self.settled.sending(gap.low)
            # the client acknowledges a gap like an event, because the notice may be lost
            self.last_sent = max(self.last_sent, gap.high)
        return gap

    def add_gap(self, low: Tick, high: Tick) -> None:
        """Note that the log has released a range that the subscription needed."""
        low = max(low, self.position + 1)
        if self.phase is CursorPhase.JOINING:
            self.catch_up.drop_held()
            self.enter(CursorPhase.CATCHING_UP, CursorInput.RELEASED)  # the read reports the gap
        elif low <= high and self.retention.needs_more:
            self.buffer.append_gap(GapRange(low, high))
            self._mark_dirty(self.subscription)

    def pass_up_to(self, tick: Tick) -> None:
        """Note that everything up to a tick was buffered or skipped."""
        self.position = max(self.position, tick)

    def rewind(self) -> None:
        """Discard the buffer, which is full, and read the events from the log later."""
        position = self.sent_up_to
        self.fall_behind(CursorInput.OVERFLOWED)
        self.buffer.clear()
        self.position = position
        self.filter_switch.switch_now()

    def fall_behind(self, given: CursorInput) -> None:
        """Read the log from here on."""
        self.position = self.buffered_up_to
        self.catch_up.drop_held()
        self.enter(CursorPhase.CATCHING_UP, given)

    # --- clients -------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The client has disconnected. Unacknowledged events are read from the log again."""
        self.settled.client_left()
        self.catch_up.stop()
        self.filter_switch.switch_now()
        self.buffer.clear()
        self.catch_up.drop_held()
        self.last_sent = 0
        if not self.is_pending:
            self.enter(CursorPhase.DISCONNECTED, CursorInput.CLIENT_LEFT)

    def resume(self, position: Tick | None, *, exactly: bool = False) -> None:
        """The client has returned and has received everything up to its own position (R50)."""
        if not isinstance(self.start, Started):  # it left before the earliest event was known
            self.enter(CursorPhase.CATCHING_UP, CursorInput.RESUMED)
        elif exactly and position is not None:
            self.seek(position)
        else:
            self.seek(max(self.start.acked, position or 0))

    def seek(self, position: Tick) -> None:
        """Continue after a tick."""
        self.catch_up.stop()
        self.buffer.clear()
        self.catch_up.drop_held()
        self.last_sent = position  # a progress notice does not acknowledge ticks below
        self.catch_up.forget_top()
        self._move_position(position)
        self.retention.hold_log_if_needed()
        self.enter(CursorPhase.CATCHING_UP, CursorInput.REPOSITIONED)
        self.filter_switch.switch_now()

    def _move_position(self, position: Tick) -> None:
        assert isinstance(self.start, Started), "only a started cursor has a position to leave"
        self.position = position
        self.settled.moved(position)
        self.start = self.start._replace(origin=position)

    def move_to(self, tick: Tick, *, earliest: bool = False) -> None:
        """Continue after a tick when the client returns, whatever it has acknowledged or received.

        The cursor takes a new log hold if the log is not kept above that tick. If the cursor moves
        to the ``earliest`` event of the log, the released range before it is no gap.
        """
        assert self.subscription.client is None, "a stream does not jump inside a connection"
        start = self.start
        if not isinstance(start, Started):
            self.start_in_past(tick)
        else:
            kept = self.retention.is_kept_above(tick)
            self.verification.stop()
            self.ending.sought()
            self.seek_count += 1
            self.position = tick
            self.settled.moved(tick)
            self.start = Started(min(start.after, tick), tick, tick, min(start.acked_stored, tick))
            self.merge_exclusion.repositioned(tick)
            self.retention.lower(tick)
            self.start_unconfirmed = False
            if not kept and self.retention.needs_more:
                self.log_holds.take()
        if self.log_holds.current is not None:
            self.from_earliest = earliest
            self.log_holds.refresh(due=True)

    def note_seek(self, number: int) -> None:
        """Note the number of the operator's seek that moved the cursor."""
        self.seek_number = number

    def acknowledge(self, tick: Tick) -> None:
        """The client acknowledges everything up to a tick, and has seen the last seek."""
        if isinstance(self.start, Started):
            acked = max(self.start.acked, min(tick, self.sent_up_to))
            self.start = self.start._replace(acked=acked)
            self.ending.acknowledged(tick)
        self.seek_number = 0

    def pass_end(self, last: Tick) -> None:
        """The client is sent the end of the pubend, which counts as the tick above the last."""
        self.position = max(self.position, last + 1)
        self.last_sent = max(self.last_sent, last + 1)

    def raise_acked(self, tick: Tick) -> None:
        """Take over the tick that the client acknowledged at a former hosting broker."""
        assert isinstance(self.start, Started)
        self.start = self.start._replace(acked=max(self.start.acked, tick))

    def drop(self) -> None:
        """The subscription does not need the pubend any more."""
        self.catch_up.stop()
        self.buffer.clear()
        self.subend.forget(self)
