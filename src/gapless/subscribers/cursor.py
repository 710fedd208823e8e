"""A strand: one subscription on one pubend (R46 to R48).

States::

    PENDING       has not started: no tick is owed yet
    LIVE          takes what the subend hands over
    CATCHING_UP   reads the log, from a position on
    JOINING       reads the last stretch up to a tick J and holds what the subend hands over above it
    DISCONNECTED  started, but its client is gone: what it is owed stays in the log

    PENDING --its virtual time is reached--> LIVE, CATCHING_UP or DISCONNECTED
    PENDING --the pubend says since when it knew of it--> LIVE, CATCHING_UP or DISCONNECTED
    CATCHING_UP --near the horizon, and covered there--> JOINING --J is read--> LIVE
    JOINING --too much is held--> CATCHING_UP
    LIVE --the client is slow, or a filter change was not answered--> CATCHING_UP
    any but PENDING --the client goes--> DISCONNECTED --it comes back--> CATCHING_UP

In total order a strand may be *adrift*: its broker was retired, and the others go on without it
(:mod:`.exclusion`).

What a strand has for its client waits in its buffer, in tick order, until the subscription has
credit for it. ``position`` is up to where everything is in the buffer or beyond it; of a live
strand it is the tick from which on it listens, and the horizon is its position.

Which filter governs a tick is said by the strand's course: the segments that have ended here, each
with its last tick, and then the present one. A start and the end of a segment are on disk, for a
durable subscription, before the client is told anything that lies beyond them: a *barrier* holds
that back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime, Order
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import Publication
from gapless.pubend.known_hosts import KnownTimes
from gapless.subscribers.buffer import Buffer
from gapless.subscribers.catch_up import CatchUp
from gapless.subscribers.cursor_state import FOREVER, CursorPhase, GapRange
from gapless.subscribers.exclusion import MergeExclusion
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.log_hold import LogHolds
from gapless.subscribers.start_guarantee import NO_GUARANTEE, earliest_times

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend
    from gapless.subscribers.subscription import HostedSubscription

__all__ = ["Cursor"]

EXCLUDED: Final = "its broker was retired; in total order the other pubends go on without it"


class Cursor:
    """A subscription's sight of one guaranteed stream."""

    def __init__(
        self, subscription: HostedSubscription, subend: Subend, segment: FilterSegment
    ) -> None:
        self.subscription = subscription
        self.subend = subend
        self.phase = CursorPhase.PENDING
        self.segment = segment
        """Governs what no ended segment does."""
        self.next: FilterSegment | None = None
        """Waits to take over."""
        self.ended_segments: list[tuple[FilterSegment, Tick]] = []
        """Segments that have ended, each with the last tick it governs, oldest first."""
        self.switched_at: Tick | None = None
        self.started_after: Tick | None = None
        """After which tick it began; None before."""
        self.start_stored = False
        """Whether that it has begun is on disk, where that matters."""
        self.is_verifying = False
        """Whether the pubend is to be asked now since when it knew of it: at once, and if it did not, again
        where the stream reaches it, for meanwhile it does."""
        self._reached_after: Tick | None = None
        """After which tick the stream reached it first, while it asked."""
        self.started_by: tuple[HostTime, ...] = ()
        """The moments by which it began, if it began so: until that is told its client may flee again."""
        self.origin: Tick = 0
        """After which tick the present connection goes on."""
        self.start_confirmed = False
        """Whether its client was told in this connection that it has begun."""
        self.start_unconfirmed = False
        """Whether it began while the client was away, and that has not heard of it since."""
        self.position: Tick = 0
        self.acked: Tick = 0
        self.acked_stored: Tick = 0
        self.given_up: Tick = 0
        """Up to here it no longer keeps the log (R58)."""
        host = subscription.host
        self.buffer = Buffer(host.context.parameters, host.backlog)
        self.last_sent: Tick = 0
        """The last tick that the client was sent an event of."""
        self.seek_number = 0
        """The number of the operator's seek that moved it, until its client is known to have seen
        that; 0 if there is none."""
        self.from_earliest = False
        """Whether it was moved to the oldest that the log has, and nobody has said yet what that is."""
        self.seek_count = 0
        """Counts such seeks: what was saved before one says nothing of now."""
        self.merge_exclusion = MergeExclusion(self)
        self.log_holds = LogHolds(self)
        self._delivery_limits: deque[Tick] = deque()
        self.catch_up = CatchUp(self)

    @property
    def pubend(self) -> PubendId:
        """Which stream."""
        return self.subend.pubend

    @property
    def has_guarantee(self) -> bool:
        """Whether it was there before its pubend was known here: then the pubend is asked since when
        it knew of it, and nothing else lets it begin.
        """
        return self.subscription.guarantees.get(self.pubend, NO_GUARANTEE) != NO_GUARANTEE

    @property
    def is_start_unverified(self) -> bool:
        """Whether it has begun without its client, who brings along since when others were its home: the
        pubend is asked whether it knew of them earlier, and nothing is told before (MV-13).
        """
        return self.started_after is not None and self.has_guarantee

    @property
    def is_untouched(self) -> bool:
        """Whether nothing of it was acknowledged or moved, and one filter has governed it all along."""
        is_moved = self.acked != self.started_after or self.seek_number or self.from_earliest
        return not is_moved and not self.ended_segments and self.next is None

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former homes of its subscription that the pubend is asked about."""
        return self.subscription.guarantees[self.pubend].former_hosts

    @property
    def awaits_earliest(self) -> bool:
        """Whether it begins with the oldest that the log has, and nobody has said yet what that is."""
        return self.started_after is None and self.phase is not CursorPhase.PENDING

    @property
    def is_live(self) -> bool:
        """Whether it takes what the subend hands over."""
        return self.phase is CursorPhase.LIVE or self.phase is CursorPhase.JOINING

    @property
    def reads_log(self) -> bool:
        """Whether it reads what it is owed from the log."""
        return self.phase is CursorPhase.CATCHING_UP or self.phase is CursorPhase.JOINING

    @property
    def in_merge(self) -> bool:
        """Whether silence of this stream lets others go on."""
        subscription = self.subscription
        waits = subscription.order is Order.TOTAL and subscription.client is not None
        return waits and len(subscription.cursors) > 1

    @property
    def buffered_up_to(self) -> Tick:
        """Up to where everything is in the buffer, or was."""
        if self.phase is CursorPhase.LIVE:
            return max(self.position, self.subend.horizon or 0)
        return self.position

    @property
    def sent_up_to(self) -> Tick:
        """Up to where the client was told everything."""
        if self.buffer:
            return self.buffer.next_tick - 1
        return min(self.buffered_up_to, self.delivery_limit)

    @property
    def delivery_limit(self) -> Tick:
        """Up to here the client may be told, until a write is on disk."""
        return min(self._delivery_limits, default=FOREVER)

    @property
    def is_up_to_date(self) -> bool:
        """Whether its client was surely told all up to the horizon, and it needs nothing below."""
        live = self.phase is CursorPhase.LIVE and not self.buffer and not self._delivery_limits
        return live and not self.subscription.durable

    @property
    def is_resumable(self) -> bool:
        """Whether it can be said where it goes on: that is on disk, and the log is kept for it."""
        if self.from_earliest or self.is_start_unverified:
            return False
        kept = self.log_holds.current is None or self.log_holds.is_safe
        return self.started_after is not None and not self._delivery_limits and kept

    @property
    def acked_at(self) -> Tick | None:
        """What is acknowledged, of a durable one that has begun, settled or not; else None."""
        is_started = (
            self.started_after is not None and self.start_stored and not self.is_start_unverified
        )
        return self.acked if is_started and self.subscription.durable else None

    @property
    def is_writing(self) -> bool:
        """Whether something about it is on its way to the disk."""
        return bool(self._delivery_limits)

    @property
    def fault(self) -> str:
        """Why the stream stands still for it, unless its pubend is out of reach; empty if it does not."""
        if self.merge_exclusion.is_excluded:
            return EXCLUDED
        return self.catch_up.fault if self.reads_log else self.subend.fault

    def set_phase(self, phase: CursorPhase) -> None:
        """Change the state."""
        self.phase = phase
        self.subend.register(self)

    # --- which filter governs ------------------------------------------------------------------

    def segment_at(self, tick: Tick) -> tuple[FilterSegment, Tick]:
        """Return the segment that governs a tick, and the last tick that it governs."""
        for segment, end in self.ended_segments:
            if tick <= end:
                return segment, end
        return self.segment, FOREVER

    @property
    def wants_more(self) -> bool:
        """Whether its filters can match anything of the stream beyond what is told."""
        segments = [segment for segment, end in self.ended_segments if end > self.retained_from]
        segments += [self.segment] if self.next is None else [self.segment, self.next]
        return any(self.subscription.host.may_match(self.pubend, each) for each in segments)

    def import_segments(self, ended: list[tuple[FilterSegment, dict[PubendId, Tick]]]) -> None:
        """Take over which filters have ended where its subscription lived before."""
        for segment, ends in ended:
            end = ends.get(self.pubend, 0)
            if end > 0:
                self.ended_segments.append((segment, end))
                self.switched_at = end

    def prune(self) -> None:
        """Forget segments whose last tick will not be asked for again.

        After a seek that may be below what is acknowledged.
        """
        passed = self.retained_from
        self.ended_segments = [
            (segment, end) for segment, end in self.ended_segments if end > passed
        ]

    # --- starting and switching ----------------------------------------------------------------

    def start_if_served(self, low: Tick, time: VirtualTime) -> None:
        """Start at a tick whose regime serves this host up to a time, if that is enough (R44)."""
        subscription, required_from = self.subscription, self._required_from
        if required_from is None or required_from > time:
            return
        subscription.clear_guarantee(self.pubend)
        # in total order a stream that comes later starts above what was merged before (R51)
        self.start(max(low - 1, subscription.merged))
        if subscription.client is None:
            self.start_unconfirmed = True
            self.set_phase(CursorPhase.DISCONNECTED)
        elif self.segment.is_served_at(time):
            self.set_phase(CursorPhase.LIVE)
        else:
            self.set_phase(CursorPhase.CATCHING_UP)

    def guaranteed_start_after(self, known: Mapping[ShbId, KnownTimes]) -> Tick | None:
        """Return after which tick its pubend knew of it, by what that knew of hosts; None if it did not."""
        guarantee = self.subscription.guarantees[self.pubend]
        return guarantee.start_after(self.subscription.host.context.identity.shb, known)

    def start_guaranteed(self, after: Tick | None, reply: ReadReply) -> None:
        """Begin where its pubend knew of it, or where the stream reached it if that did not (R46).

        A filter that was changed meanwhile governs from there on: the one before never took hold. Below
        what is kept for this host, and below the horizon, the log is read like any past.
        """
        self.is_verifying = False
        found = [each for each in (after, self._reached_after) if each is not None]
        if not found:
            self.position = reply.top  # the news of it comes later than this
            return
        after = min(found)
        guarantee = self.subscription.guarantees[self.pubend]
        self.started_by = guarantee.all_times(self.subscription.host.context.identity.shb)
        self.subscription.clear_guarantee(self.pubend)
        if reply.last_released_match <= after:
            after = max(after, reply.released)  # it was silence that was released
        after = max(after, self.subscription.merged)
        self.start_unconfirmed = self.subscription.client is None
        if after < max(reply.retained_above, self.subend.horizon or 0):
            self.start_in_past(after)
        else:
            self.start(after)
            self.set_phase(CursorPhase.DISCONNECTED if self.start_unconfirmed else CursorPhase.LIVE)

    def verify_start(self, host_times: tuple[HostTime, ...]) -> None:
        """Have the pubend asked whether it knew of other homes before where it has begun."""
        joint = earliest_times(*self.started_by, *host_times)
        self.subscription.guarantees[self.pubend] = NO_GUARANTEE._replace(former_host_times=joint)
        self.is_verifying = True
        self.subend.register(self)
        self.subend.verify_starts()

    def stop_verifying(self) -> None:
        """Ask no more whether it begins earlier."""
        if self.is_start_unverified:
            self.is_verifying = False
            self.subscription.clear_guarantee(self.pubend)
            self.subend.register(self)

    def move_start_back(self, after: Tick | None, reply: ReadReply) -> None:
        """Begin where its pubend knew of another home, if that is before where it has begun.

        Either way that is on disk before its client is told. The log is held anew: it was kept from there on
        where it had begun.
        """
        assert self.started_after is not None
        self.stop_verifying()
        if after is not None and reply.last_released_match <= after:
            after = max(after, reply.released)  # it was silence that was released
        earliest = self.started_after if after is None else max(after, self.subscription.merged)
        if earliest < self.started_after and self.merge_exclusion.record() is None:
            self.subscription.host.context.mark("start moved back")
            self.seek_count += 1
            self.acked_stored = max(self.acked_stored, self.started_after)
            self.started_after = self.acked = earliest
            self.given_up = min(self.given_up, earliest)
            if self.subscription.client is None:
                self.position = self.origin = earliest
                self._hold_log_if_needed()
            else:
                self.seek(earliest)
            self.acked_stored = earliest
            if self.log_holds.current is not None:
                self.log_holds.refresh(due=True)
        self.subscription.host.cursor_started(self)

    def verify_again(self, low: Tick, time: VirtualTime) -> None:
        """Have the pubend asked again if a regime serves this host up to a time that is enough."""
        if self.is_start_unverified:
            return
        guaranteed_from = self.subscription.guarantees[self.pubend].time or self._required_from
        if self._reached_after is None and guaranteed_from is not None and guaranteed_from <= time:
            self._reached_after = low - 1
            self.position = min(self.position, low - 1)  # it may have to begin there
            self.is_verifying = True

    @property
    def _required_from(self) -> VirtualTime | None:
        """From which virtual time on it is owed events."""
        return self.segment.required_from if self.subscription.durable else self.segment.start

    def start(self, after: Tick, *, acked: Tick = 0) -> None:
        """Note after which tick the strand begins; on disk before it is told.

        Who was sought back elsewhere has ``acked`` what lies above, and comes to it again (R50).
        """
        self.started_after = self.position = self.origin = after
        self.acked = max(after, acked)
        self.subscription.host.cursor_started(self)

    def start_in_past(self, after: Tick | None, *, acked: Tick = 0) -> None:
        """Begin at a position (R48), or, if it is None, with the oldest that the log has."""
        self.subscription.clear_guarantee(self.pubend)
        self.is_verifying = False
        self.position = after or 0
        self._hold_log_if_needed()
        if after is not None:
            self.start(after, acked=acked)
        self.set_phase(
            CursorPhase.DISCONNECTED
            if self.subscription.client is None
            else CursorPhase.CATCHING_UP
        )

    def note_earliest(self) -> None:
        """Begin before all if the oldest was asked for and nobody has said yet what that is."""
        if (
            self.started_after is None
            and self.phase is not CursorPhase.PENDING
            and self.subscription.durable
        ):
            self.from_earliest = True
            self.start(self.subscription.merged)  # in total order nothing can come below it (R51)

    def replace_segments(self, ended: list[tuple[FilterSegment, dict[PubendId, Tick]]]) -> None:
        """Let the filters of elsewhere govern: its client was told of them later than of those here."""
        self.ended_segments = []
        self.segment, self.next, self.switched_at = self.subscription.newest, None, None
        self.import_segments(ended)
        self.subend.register(self)
        self.subscription.host.cursor_filter_changed(self, self.position)

    def set_next_segment(self, segment: FilterSegment) -> None:
        """Take a new filter over: where the stream reaches it, or at once if nothing is live."""
        if self.started_after is None:
            self.segment = segment
            self.catch_up.stop()  # what is under way is for the filter before
        else:
            self.next = segment
            self.subend.register(self)
            if self.phase is not CursorPhase.LIVE:
                self.switch_now()

    def switch_if_served(self, low: Tick, time: VirtualTime) -> None:
        """Let the next filter take over at a tick, if that is reached (R47)."""
        if (
            self.next is not None
            and self.phase is CursorPhase.LIVE
            and self.next.is_served_at(time)
        ):
            # what was read from the log may lie beyond the horizon, and was read by the filter before
            self.switch(max(low - 1, self.position))

    def switch(self, end: Tick) -> None:
        """Let the present filter end after a tick."""
        assert self.next is not None
        self.ended_segments.append((self.segment, end))
        self.segment, self.next = self.next, None
        self.subend.register(self)
        self.switched_at = end
        self.subscription.host.cursor_filter_changed(self, end)

    def switch_now(self, *, surely: bool = False) -> None:
        """Let the next filter take over where the strand is, and read what it needs (R47).

        A filter that can match nothing keeps nothing of the log, so the next one cannot begin
        before the horizon; if that is not known yet, it waits, unless it must not.
        """
        if self.next is None:
            return
        keeps = self.subscription.host.may_match(self.pubend, self.segment)
        if self.subend.horizon is None and not keeps and not surely:
            return
        end = max(
            self.subend.horizon or 0,
            self.position,
            self.acked,
            self.last_sent,
            self.subscription.merged,  # in total order nothing can come below it
        )
        if self.is_live:
            self.fall_behind()
        self.catch_up.stop()  # what is under way may go beyond the end
        self.switch(end)

    def limit_delivery(self, tick: Tick) -> None:
        """Tell the client nothing beyond a tick until :meth:`lift_limit`."""
        self._delivery_limits.append(tick)

    def lift_limit(self) -> None:
        """A write is on disk, the oldest that was waited for."""
        self._delivery_limits.popleft()

    # --- live ------------------------------------------------------------------------------------

    def take(self, segment: FilterSegment, publications: list[Publication]) -> None:
        """Take publications, in tick order, that a segment matches, where it governs."""
        if (
            publications[0].tick <= self.position
            or self.ended_segments
            or segment is not self.segment
        ):
            publications = [
                each
                for each in publications
                if each.tick > self.position and self.segment_at(each.tick)[0] is segment
            ]
        if self.phase is CursorPhase.LIVE:
            self._put(publications)
        elif self.phase is CursorPhase.JOINING:
            self.catch_up.buffer_live(publications)

    def _put(self, publications: list[Publication]) -> None:
        """Buffer what there is room for, and the rest when that is sent, while the client is live."""
        taken = self.buffer.put(publications)
        while taken < len(publications) and self.phase is CursorPhase.LIVE:
            publications = publications[taken:]
            self.subscription.reply_if_ready()  # where it begins is told before its events
            self.subscription.send_available()
            taken = self.buffer.put(publications)
            if not taken and self.phase is CursorPhase.LIVE:
                if not self.buffer.put_beyond(publications):
                    self.subscription.too_slow(self)
                    return
                break
        self.subscription.host.mark_dirty(self.subscription)

    def take_events(self, most: int, up_to: Tick) -> list[Publication]:
        """Take events that may be told: so many, up to a tick, before any loss."""
        return self.buffer.take_events(most, min(up_to, self.delivery_limit))

    def take_gap(self, up_to: Tick) -> GapRange | None:
        """Take a loss, if it is the next that may be told."""
        return self.buffer.take_gap(min(up_to, self.delivery_limit))

    def add_gap(self, low: Tick, high: Tick) -> None:
        """Note that the log has lost a range that was owed."""
        low = max(low, self.position + 1)
        if self.phase is CursorPhase.JOINING:
            self.catch_up.held.clear()
            self.set_phase(CursorPhase.CATCHING_UP)  # reading will say what is gone
        elif low <= high and self.wants_more:
            self.buffer.append_gap(GapRange(low, high))
            self.subscription.host.mark_dirty(self.subscription)

    def rewind(self) -> None:
        """Drop what the client has no room for, and read it again later."""
        position = self.sent_up_to
        self.fall_behind()
        self.buffer.clear()
        self.position = position
        self.switch_now()

    def fall_behind(self) -> None:
        """Read the log from here on."""
        self.position = self.buffered_up_to
        self.catch_up.held.clear()
        self.set_phase(CursorPhase.CATCHING_UP)

    # --- going and coming ----------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The client is gone; what it has not acknowledged comes from the log again."""
        self.catch_up.stop()
        self.switch_now()
        self.buffer.clear()
        self.catch_up.held.clear()
        self.last_sent = 0
        if self.phase is not CursorPhase.PENDING:
            self.set_phase(CursorPhase.DISCONNECTED)

    def resume(self, position: Tick | None, *, exactly: bool = False) -> None:
        """The client is back and has seen everything up to its own position (R50)."""
        if self.started_after is None:  # it went before the log had said where it begins
            self.set_phase(CursorPhase.CATCHING_UP)
        elif exactly and position is not None:
            self.seek(position)
        else:
            self.seek(max(self.acked, position or 0))

    def seek(self, position: Tick) -> None:
        """Go on after a tick."""
        self.catch_up.stop()
        self.buffer.clear()
        self.catch_up.held.clear()
        self.last_sent = position  # what is below is not acknowledged by silence
        self.catch_up.forget_top()
        self.position = self.origin = position
        self._hold_log_if_needed()
        self.set_phase(CursorPhase.CATCHING_UP)
        self.switch_now()

    def move_to(self, tick: Tick, *, earliest: bool = False) -> None:
        """Go on after a tick when the client comes, whatever it has acknowledged or seen.

        Below what is kept for this strand the log has to be held anew. If that is where the
        ``oldest`` is that the log has, what it has lost before is no gap.
        """
        assert self.subscription.client is None, "a stream does not jump inside a connection"
        if self.started_after is None:
            self.start_in_past(tick)
        else:
            kept = tick >= max(self.retained_from, self.given_up)
            self.stop_verifying()
            self.seek_count += 1
            self.started_after = min(self.started_after, tick)
            self.position = self.origin = self.acked = tick
            self.merge_exclusion.repositioned(tick)
            self.acked_stored = min(self.acked_stored, tick)
            self.given_up = min(self.given_up, tick)
            self.start_unconfirmed = False
            if not kept and self.wants_more:
                self.log_holds.take()
        if self.log_holds.current is not None:
            self.from_earliest = earliest
            self.log_holds.refresh(due=True)

    def set_earliest(self, released: Tick) -> None:
        """The log is held for it, and has nothing up to a tick: there it begins, if it is to."""
        if self.from_earliest:
            self.from_earliest = False
            if released > self.position:
                self.start(released)

    # --- how much of the log must be kept ----------------------------------------------------------------

    def _hold_log_if_needed(self) -> None:
        """Take a hold for reading from a position that this host does not keep by reports (R49)."""
        if self.subscription.durable and self.started_after is not None:
            kept = self.position >= self.acked_stored  # by the floor, or by the hold that it has
        else:
            floor = self.subend.retained_above
            kept = floor is not None and self.position >= floor
        if not kept and self.wants_more:
            self.log_holds.take()
        elif not self.subscription.durable and self.log_holds.current is not None:
            # the hold it has may be above; reports keep the log for it from here on
            self.log_holds.release()

    @property
    def retained_from(self) -> Tick:
        """Above which tick the log is kept for it: from what is acknowledged, or where it reads."""
        if not self.subscription.durable:
            return self.sent_up_to
        acked = max(
            self.acked_stored, self.started_after or 0
        )  # nothing below its base is ever needed
        return acked if self.phase is CursorPhase.DISCONNECTED else min(acked, self.sent_up_to)

    @property
    def needed(self) -> Tick | None:
        """Up to where this strand needs the stream no more; None if it keeps nothing by reports."""
        if self.has_guarantee and self.started_after is None:
            return self.position
        if self.phase is CursorPhase.PENDING or self.log_holds.is_safe:
            return None
        if not self.wants_more and not self._delivery_limits:
            return None
        return max(self.retained_from, self.given_up)

    @property
    def report_limit(self) -> Tick | None:
        """Up to where reports may go, as far as this strand is concerned; None if that is far.

        One that is live has read what its hold was for. Reports wait for its client, whose
        acknowledgements would else stay behind them for ever, and the hold could not go.
        """
        if self.phase is CursorPhase.LIVE and self.log_holds.is_safe:
            return max(self.retained_from, self.subend.reported or 0)
        return self.needed

    def acknowledge(self, tick: Tick) -> None:
        """The client needs no more what is up to a tick."""
        self.acked = max(self.acked, min(tick, self.sent_up_to))

    def give_up(self, tick: Tick) -> None:
        """Keep the log no more up to a tick: it is under pressure, and others wait (R58)."""
        if self.phase is CursorPhase.PENDING or max(self.retained_from, self.given_up) >= tick:
            return
        self.subscription.host.context.mark("gave up under pressure")
        self.given_up = tick
        if self.log_holds.current is not None:
            self.log_holds.release()

    @property
    def _parameters(self) -> Parameters:
        return self.subscription.host.context.parameters
