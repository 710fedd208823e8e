"""Where a subscription continues on each stream after a lost connection, here or at another broker.

Two values are computed from it. The *start point* has the ticks after which a broker continues. The
*resume state* is what another broker needs to know of a durable subscription: what was
acknowledged, the past filters, the start guarantees (:mod:`gapless.mobility`).

If a filter change was under way, or its position is not reached yet, the new filter may apply before
that position, as for a subscription that is not durable.
"""

from __future__ import annotations

from msgspec import structs

from gapless.client.prefetch import Prefetch
from gapless.client.settings import SubscriptionOptions
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Gap,
    Order,
    PastFilter,
    PositionTuple,
    Stalled,
    StartGuarantees,
    StartKind,
    StartPoint,
    Subscribed,
)

__all__ = ["ResumeState"]


class ResumeState:
    """Positions, past filters and start guarantees of one subscription."""

    def __init__(self, settings: SubscriptionOptions, prefetch: Prefetch) -> None:
        self.pending: dict[PubendId, str] = {}
        """Pubends from which no events can come now, and why."""
        self.order = Order.PUBLISHER if settings.order is None else settings.order
        """The order of the subscription, which a durable one may have had before."""
        self._settings = settings
        self._prefetch = prefetch
        self._default_start = settings.start
        """The start on streams on which the subscription has no position."""
        self._sought_back_from: dict[PubendId, Tick] = {}
        """Streams that were sought back: the broker would skip events up to this tick."""
        self._earliest: set[PubendId] = set()
        """Streams that continue with the earliest event: a range released before it is no gap."""
        self._acked: dict[PubendId, Tick] = {}
        self._started_after: dict[PubendId, Tick] = {}
        """The start of each stream; events up to it are not due. No seek changes it: a seek does
        not acknowledge what was handed out before."""
        self._pending_after: dict[PubendId, Tick] = {}
        """Where pending streams continue: of a durable subscription those that had started once, and
        those that were pending when the filter was changed."""
        self._quiet: dict[PubendId, tuple[Tick, Tick]] = {}
        """Streams without events: the tick of the last event, and the progress of the stream."""
        self._start_guarantees: StartGuarantees | None = None
        """Of a durable subscription: the guarantees for streams without a position, as confirmed with
        its filter."""
        self._past_filters: tuple[PastFilter, ...] = ()
        """Of a durable subscription: the filters before the present one, and the ticks up to which each
        applies."""
        self._closed: dict[PubendId, None] = {}
        """Closed pubends; a broker does not notify the client of them again."""
        self._ends: dict[PubendId, Tick] = {}
        """Of a durable subscription: ends of pubends that were handed out and are acknowledged when
        all events before them are."""
        self._excluded: dict[PubendId, bool] = {}
        """In total order: streams that were excluded from the merge, and whether they still are.
        The broker gets their positions, so that it can report a gap if they return."""

    @property
    def is_sought_back(self) -> bool:
        """Whether the broker would resume beyond the position of the program."""
        return self._settings.durable and bool(self._sought_back_from)

    @property
    def _is_merged(self) -> bool:
        return self.order is Order.TOTAL

    # --- what is requested of a broker ---------------------------------------------------------

    def start_point(self) -> StartPoint:
        """Return the ticks after which a broker continues."""
        start = self._default_start
        requested = dict(start.position) if start.kind is StartKind.POSITION else {}
        ticks = self._prefetch.resume_from(
            {**requested, **self._pending_after}, self._excluded, merged=self._is_merged
        )
        closed = tuple(sorted(self._closed))
        if not ticks:
            return structs.replace(start, closed=closed) if closed else start
        merged = None
        if self._is_merged:
            last = self._prefetch.last
            before = min(max(requested.values(), default=0), max(ticks.values()))
            merged = before if last is None else last[0]
        unnamed = start.for_unnamed()
        excluded = tuple(sorted(self._excluded)) if self._is_merged else ()
        return StartPoint(
            StartKind.POSITION,
            tuple(ticks.items()),
            unnamed.clock,
            unnamed.kind,
            merged,
            excluded,
            closed,
        )

    def presented(self) -> tuple[PositionTuple, tuple[PastFilter, ...], StartGuarantees | None]:
        """Return what another broker needs to continue the subscription."""
        acked = {**self._pending_after, **self._started_after, **self._acked}
        # after a seek back, acknowledged events come again, by the filters of that time
        received = self._prefetch.received
        done = {pubend: min(tick, received.get(pubend, tick)) for pubend, tick in acked.items()}
        # on a stream without a position the subscription starts with the current filter
        self._past_filters = tuple(
            each
            for each in self._past_filters
            if any(end > done.get(pubend, end) for pubend, end in each.ends)
        )
        return tuple(acked.items()), self._past_filters, self._start_guarantees

    # --- acknowledgements ----------------------------------------------------------------------

    @property
    def acked(self) -> PositionTuple:
        """The ticks up to which the program has acknowledged."""
        return tuple(self._acked.items())

    def acknowledge(self, ticks: dict[PubendId, Tick]) -> dict[PubendId, Tick]:
        """Acknowledge up to these ticks; return those that are new."""
        newer = {each: tick for each, tick in ticks.items() if tick > self._acked.get(each, -1)}
        self._acked.update(newer)
        return newer

    def note_quiet(self, pubend: PubendId, tick: Tick) -> bool:
        """No event came up to a tick; return whether the client may acknowledge that (MV-13).

        It may if all events that came are acknowledged. Until then the broker keeps the log: if it
        dies, no other broker knows that nothing matched there.
        """
        received = self._prefetch.received.get(pubend, 0)
        received_last, reported = self._quiet.get(pubend, (received, received))
        last = received_last if reported == received else received
        self._quiet[pubend] = (last, tick)
        return max(self._acked.get(pubend, 0), self._started_after.get(pubend, 0)) >= last

    def take_end(self, pubend: PubendId, last: Tick) -> bool:
        """A pubend is closed; return whether that is new."""
        self.pending.pop(pubend, None)
        is_new = pubend not in self._closed
        self._closed[pubend] = None
        if is_new and self._settings.durable:
            self.note_quiet(pubend, last + 1)
        return is_new

    def end_handed(self, pubend: PubendId, tick: Tick) -> None:
        """The program was handed the end of a pubend, which is acknowledged by a tick."""
        if self._settings.durable and pubend in self._quiet:
            self._ends[pubend] = tick

    def due_ends(self) -> dict[PubendId, Tick]:
        """Return, once, the ends of which all earlier events are acknowledged."""
        due = {
            pubend: tick
            for pubend, tick in self._ends.items()
            if max(self._acked.get(pubend, 0), self._started_after.get(pubend, 0))
            >= self._quiet[pubend][0]
        }
        for pubend, tick in due.items():
            del self._ends[pubend]
            self._acked[pubend] = max(tick, self._acked.get(pubend, 0))
        return due

    # --- positions -----------------------------------------------------------------------------

    def repositioned(self, ticks: dict[PubendId, Tick], kind: StartKind) -> None:
        """A seek was executed: continue at these ticks and drop the waiting items there."""
        for pubend, tick in ticks.items():
            received = self._prefetch.received.get(pubend, 0)
            reached = max(received, self._sought_back_from.get(pubend, 0))
            if tick < reached:
                self._sought_back_from[pubend] = reached
            else:
                self._sought_back_from.pop(pubend, None)
        self._earliest = set(ticks) if kind is StartKind.EARLIEST else self._earliest - set(ticks)
        self._prefetch.reposition(ticks)

    def start_at(self, pubend: PubendId, tick: Tick) -> None:
        """The subscription starts on a stream after a tick, or continues there."""
        self._started_after.setdefault(pubend, tick)
        if pubend not in self._sought_back_from:
            self._prefetch.start(pubend, tick)

    def started(self, pubend: PubendId, after: Tick) -> None:
        """A pending stream has started."""
        self.pending.pop(pubend, None)
        self.start_at(pubend, after)

    def take_gap(self, gap: Gap) -> bool:
        """Take a gap; return whether it was released before the earliest event and so is no gap."""
        pubend = gap.pubend
        is_expected = pubend in self._earliest and gap.low <= 1
        if is_expected:
            self._started_after[pubend] = max(gap.high, self._started_after.get(pubend, 0))
            self._prefetch.start(pubend, gap.high)
        else:
            self._prefetch.add_gap(pubend, gap.low, gap.high)
        self._forget_excluded()
        return is_expected

    def events_taken(self) -> None:
        """Events or progress came: forget the streams that have reached where they were before."""
        if self._sought_back_from:
            received = self._prefetch.received
            self._sought_back_from = {
                pubend: tick
                for pubend, tick in self._sought_back_from.items()
                if received.get(pubend, 0) < tick
            }
        if self._excluded:
            self._forget_excluded()

    # --- replies and filters -------------------------------------------------------------------

    def subscribed(self, answer: Subscribed, text: str, *, is_first: bool) -> None:
        """Take the reply to Subscribe; ``text`` is the filter that was requested."""
        self._start_guarantees = answer.start_guarantees
        if answer.order is not None:
            self.order = answer.order
        if answer.filter:
            if answer.filter != text:
                self.keep_starts(set())
            self._past_filters = answer.past_filters
        if self._settings.durable and self._default_start.kind is not StartKind.POSITION:
            self._default_start = answer.start  # another program may have created the subscription
        for pubend, tick in answer.position:
            self.start_at(pubend, tick)
        self.pending = {each.pubend: each.reason for each in answer.pending}
        self._excluded = dict.fromkeys(self._excluded, False)  # the broker reports them again
        self._pending_after = {
            each.pubend: after
            for each in answer.pending
            if (after := self._pending_after.get(each.pubend) if each.after is None else each.after)
            is not None
        }
        # a pending stream at tick 0 continues with the earliest event of the log
        self._earliest.update(pubend for pubend, tick in self._pending_after.items() if tick == 0)
        if is_first and self._settings.start.kind is StartKind.EARLIEST:
            self._earliest.update(pubend for pubend, _ in answer.position)

    def filter_changed(
        self,
        before: str,
        text: str,
        position: PositionTuple,
        start_guarantees: StartGuarantees | None,
    ) -> None:
        """Another filter applies after a position."""
        if text != before:
            if self._settings.durable:
                self._past_filters += (PastFilter(before, position),)
            self.keep_starts({*dict(position)})
        self._start_guarantees = start_guarantees

    def keep_starts(self, named: set[PubendId]) -> None:
        """Pending streams keep the requested start; on all others a new filter starts with the
        latest event.
        """
        start = self._default_start
        if start.kind is StartKind.EARLIEST or start.kind is StartKind.TIME:
            after = max(0, start.clock - 1)
            pending = {*self.pending, *named} - self._prefetch.received.keys()
            self._pending_after = {**dict.fromkeys(sorted(pending), after), **self._pending_after}
            if start.kind is StartKind.EARLIEST:
                self._earliest |= pending
            self._default_start = StartPoint()

    # --- merge exclusion -----------------------------------------------------------------------

    def stalled(self, notice: Stalled) -> bool:
        """A stream has stalled or continues; return whether it is newly excluded from the merge."""
        if notice.reason:
            self.pending[notice.pubend] = notice.reason
        else:
            self.pending.pop(notice.pubend, None)
        if notice.excluded:
            is_new = notice.pubend not in self._excluded
            self._excluded[notice.pubend] = True
            return is_new
        if notice.pubend in self._excluded:
            self._excluded[notice.pubend] = False
        return False

    def _forget_excluded(self) -> None:
        """Forget streams that are in the merge again and have caught up with the others."""
        self._excluded = {
            pubend: still
            for pubend, still in self._excluded.items()
            if still or self._prefetch.received.get(pubend, 0) < self._prefetch.level_of(pubend)
        }
