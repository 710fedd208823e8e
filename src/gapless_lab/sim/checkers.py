"""Checks of what a client sees, notice by notice, against the oracle.

The checker of a subscription gets all requests and notices of its client. It keeps the client's
position, from which the client also resumes. A checker with a wrong position would therefore cause
a violation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gapless.core.ids import PubendId
from gapless.messages.clients import Order, PositionTuple, StartKind, StartPoint
from gapless.messages.streams import Publication
from gapless_lab.sim.expected_stream import ExpectedStream
from gapless_lab.sim.oracle import Oracle, PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import World

__all__ = ["SubscriptionChecker"]


class SubscriptionChecker:
    """Checks one subscription over all its connections."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        filter_text: str,
        *,
        durable: bool,
        order: Order,
    ) -> None:
        self._world = world
        self._oracle = oracle
        self.name = name
        self.filter = filter_text
        self.durable = durable
        self.order = order
        self.views: dict[PubendId, ExpectedStream] = {}
        self.acked: dict[PubendId, int] = {}
        """The greatest position that the client sent an Ack for."""
        self.stalls: dict[PubendId, str] = {}
        """The stalled streams and the reasons, as reported on this connection."""
        self.closed: dict[PubendId, None] = {}
        """The pubends of which the client knows that they are closed."""
        self._once_closed: set[PubendId] = set()
        """The pubends of which it was told so, also if it has forgotten that."""
        self.deliveries = 0
        self.gaps = 0
        self.ended = False
        self._start = StartPoint()
        """The requested start."""
        self._past = False
        """Whether the requested start is in the past, of which the log may have released a part."""
        self._merged: tuple[int, PubendId] | None = None
        self._best_effort: dict[tuple[PubendId, str], int] = {}
        self._texts = [filter_text]
        """Every filter it ever had; without a log the checker cannot know which one applies."""
        self._change: str | None = None
        """The old filter while a change is not answered."""
        self._switches: dict[PubendId, list[tuple[int, str]]] = {}
        """The filter switches of pubends that have no view yet."""

    def _report(self, name: str, detail: str) -> None:
        self._world.violate(name, f"{self.name}: {detail}")

    def position(self) -> PositionTuple:
        """Return the client's position, from which it would resume."""
        return tuple(
            (pubend, view.cursor) for pubend, view in self.views.items() if view.has_started
        )

    def acknowledged(self) -> PositionTuple:
        """Return the acknowledged tick of each stream that has started."""
        return tuple(
            (pubend, max(view.base, self.acked.get(pubend, 0)))
            for pubend, view in self.views.items()
            if view.has_started
        )

    def _view(self, pubend: PubendId) -> ExpectedStream | None:
        view = self.views.get(pubend)
        if view is None:
            stream = self._oracle.streams.get(pubend)
            if stream is None:
                self._report("spurious", f"{pubend} is not a pubend on any disk")
                return None
            view = ExpectedStream(self._oracle, stream, self._change or self.filter)
            view.segments += self._switches.get(pubend, [])
            if self._change is not None:
                view.open_change(self.filter)
            self.views[pubend] = view
        return view

    # --- starting, resuming, seeking ---------------------------------------------------------

    def subscribed(self, start: StartPoint, position: PositionTuple) -> None:
        """The subscription has started for the first time."""
        self._start = start
        self._past = start.kind is not StartKind.LATEST
        for pubend, tick in position:
            view = self._view(pubend)
            if view is not None:
                self._check_start(view.stream, start, tick)
                past = start.kind is not StartKind.LATEST or _starts_in_released(view, tick)
                view.confirm_start(tick, self._report, past=past)

    def resumed(self, position: PositionTuple) -> None:
        """The subscription resumes from the client's position."""
        for pubend, tick in position:
            view = self._view(pubend)
            if view is not None:
                # events before the confirmation of a start count: the client resumed after them
                view.known = view.known or (view.has_started and view.limit is None)
                self._check_late_start(view, tick)
                past = not self.durable or (self._past and not view.known)
                past |= _starts_in_released(view, tick)
                view.confirm_start(tick, self._report, past=past)

    def expired(self, start: StartPoint, position: PositionTuple) -> None:
        """The subscription ended while its client was disconnected, and a new one of its name
        starts.

        Nothing more must come of the old one. The new one has the filter of its request and must
        start at the requested point.
        """
        self.views.clear()
        self.acked.clear()
        self._switches.clear()
        self._merged = None
        self.closed.clear()
        self._once_closed.clear()
        self.subscribed(start, position)

    def forgot(self) -> None:
        """The client lost its position: its durable subscription resumes at or below the
        acknowledged tick.
        """
        self._merged = None
        self.closed.clear()
        for pubend, view in self.views.items():
            if view.has_started:
                view.known, view.first = False, None
                view.limit = max(view.base, self.acked.get(pubend, 0))
                view.seen = []

    def seek_done(self, start: StartPoint, position: PositionTuple) -> None:
        """The subscription has moved to another position."""
        self._merged = None
        for pubend, tick in position:
            view = self._view(pubend)
            if view is not None:
                self._check_start(view.stream, start, tick)
                view.move_to(tick, past=start.kind is not StartKind.LATEST)

    def started(self, pubend: PubendId, after: int) -> None:
        """The subscription has started on a pending pubend."""
        view = self._view(pubend)
        if view is not None:
            self._check_late_start(view, after)
            past = self._past or not self.durable or _starts_in_released(view, after)
            view.confirm_start(after, self._report, past=past)

    def _check_late_start(self, view: ExpectedStream, tick: int) -> None:
        """Check a stream that starts later than others, perhaps at another broker, by the same
        rule.

        Except after a request for a new filter, which starts at the latest tick. In total order
        nothing starts below the merged tick.
        """
        is_new = not view.has_started and view.limit is None
        if is_new and not self.has_changed and self.order is Order.PUBLISHER:
            self._check_start(view.stream, self._start, tick)

    def _check_start(self, stream: PublishedStream, start: StartPoint, tick: int) -> None:
        """Check that the start omits nothing of the requested past."""
        if start.kind is StartKind.POSITION:
            wanted = dict(start.position).get(stream.pubend)
            if wanted is not None and tick < wanted:
                self._report("spurious", f"{stream.pubend}: asked for {wanted}, starts at {tick}")
            if wanted is not None:
                # a start above the requested tick is correct if nothing matches in between.
                # Released ticks are in the position itself or in a gap.
                self._check_passed_over(stream, max(wanted, stream.released), tick, since=0)
        elif start.kind in {StartKind.EARLIEST, StartKind.TIME}:
            since = start.clock if start.kind is StartKind.TIME else 0
            self._check_passed_over(stream, stream.released, tick, since=since)

    def _check_passed_over(
        self, stream: PublishedStream, low: int, high: int, *, since: int
    ) -> None:
        """Check that no publication of a range, from a wall clock on, matches."""
        for index in range(stream.after(low), stream.after(high)):
            # a tick may lag behind its clock (R27), and a time may be looked up by either
            late_enough = min(stream.clocks[index], stream.ticks[index]) >= since
            if late_enough and self._oracle.matches(stream, self.old_filter, index):
                self._report("lost", f"{stream.pubend} {stream.ticks[index]}: starts at {high}")

    # --- what comes --------------------------------------------------------------------------

    def delivered(self, events: Iterable[tuple[PubendId, Publication]]) -> None:
        """Check a delivery."""
        for pubend, publication in events:
            self.deliveries += 1
            self._world.trace.fold(publication.tick, publication.sequence)
            if self.ended:
                self._report("spurious", f"{pubend} {publication.tick} after the end")
            view = self._view(pubend)
            if view is None:
                return
            if not view.stream.guaranteed:
                self._deliver_best_effort(view, publication)
                continue
            if self.order is Order.TOTAL:
                self._merge(pubend, publication.tick)
            view.deliver(publication, self._report)

    def _merge(self, pubend: PubendId, tick: int) -> None:
        if self._merged is not None and (tick, pubend) <= self._merged:
            self._report("disorder", f"{pubend} {tick} after {self._merged}")
        self._merged = (tick, pubend)

    def _deliver_best_effort(self, view: ExpectedStream, publication: Publication) -> None:
        """Check what holds without a log: sent so, matching, each publisher in order (R33)."""
        pubend = view.stream.pubend
        name = f"{pubend} {publication.publisher}/{publication.sequence}"
        sent = self._oracle.sent.get((pubend, publication.publisher, publication.sequence))
        if sent != (publication.attributes, publication.payload):
            self._report("spurious", f"{name} differs from what was sent")
        filters = map(self._oracle.filter, self._texts)
        if not any(each.matches(publication.attributes) for each in filters):
            self._report("spurious", f"{name} does not match {self.filter}")
        key = (pubend, publication.publisher)
        last = self._best_effort.get(key, 0)
        if publication.sequence <= last:
            name_of = "duplicate" if publication.sequence == last else "nonmonotonic"
            self._report(name_of, f"{name} after {last}")
        self._best_effort[key] = publication.sequence

    def gap(self, pubend: PubendId, low: int, high: int) -> None:
        """Check a gap event."""
        self.gaps += 1
        view = self._view(pubend)
        if view is not None:
            lawful = self._world.options.forgiving
            view.gap(low, high, lawful=lawful, report=self._report)

    def progressed(self, position: PositionTuple) -> None:
        """Check the notice that everything up to a position was sent; the client resumes from
        there.
        """
        for pubend, tick in position:
            view = self.views.get(pubend)
            if view is None or not view.has_started:
                self._report("spurious", f"{pubend} advances to {tick}, but has not started")
            else:
                view.progress(tick, self._report)

    def pubend_closed(self, pubend: PubendId, last: int) -> None:
        """Check the notice that a pubend is closed: told once, after everything (RS-32)."""
        stream = self._oracle.streams.get(pubend)
        if stream is None or stream.sealed != last:
            self._report("dishonest end", f"{pubend} is not sealed at {last}")
            return
        if pubend in self.closed:
            self._report("spurious", f"{pubend} is reported as closed twice")
        self.closed[pubend] = None
        self._once_closed.add(pubend)
        view = self.views.get(pubend)
        if not stream.guaranteed:
            return
        if view is None or not view.has_started:
            self._report("spurious", f"{pubend} is reported as closed, but has not started")
        else:
            view.progress(last, self._report)

    def stalled(self, pubend: PubendId, reason: str) -> None:
        """Check the notice that a stream is stalled, or continues (P8)."""
        if not reason:
            if self.stalls.pop(pubend, None) is None:
                self._report("spurious", f"{pubend} continues, but was not reported as stalled")
            return
        stream = self._oracle.streams.get(pubend)
        if stream is None or not self._oracle.was_corrupt(stream):
            self._report("dishonest stall", f"{pubend} is not corrupt: {reason}")
        if self.stalls.get(pubend) == reason:
            self._report("spurious", f"{pubend} is reported as stalled twice: {reason}")
        self.stalls[pubend] = reason

    def unreported_stalls(self, stream: PublishedStream) -> list[str]:
        """Return a line if events of a corrupt stream are missing and the client got no reason."""
        view = self.views.get(stream.pubend)
        if (
            stream.pubend in self.stalls
            or view is None
            or not view.has_started
            or not view.missing()
        ):
            return []
        return [f"{self.name}: got no reason why {stream.pubend} is stalled"]

    # --- filter changes ----------------------------------------------------------------------

    @property
    def changing(self) -> bool:
        """Whether a filter change is open on some stream."""
        return self._change is not None or any(view.old is not None for view in self.views.values())

    @property
    def has_changed(self) -> bool:
        """Whether another filter was ever requested."""
        return len(self._texts) > 1

    @property
    def old_filter(self) -> str:
        """The filter before the unanswered change, or the present one."""
        return self.filter if self._change is None else self._change

    @property
    def may_forget(self) -> bool:
        """Whether all filter changes are known exactly, so that the client may forget its position."""
        return not self.changing and all(view.blurred <= view.base for view in self.views.values())

    def change_requested(self, filter_text: str) -> None:
        """The client requests another filter."""
        assert not self.changing, "one change at a time"
        self._change, self.filter = self.filter, filter_text
        self._texts.append(filter_text)
        for view in self.views.values():
            view.open_change(filter_text)

    def change_refused(self) -> None:
        """The change did not happen."""
        assert self._change is not None
        self.filter, self._change = self._change, None
        for view in self.views.values():
            view.cancel_change(self._report)

    def change_done(self, position: PositionTuple, *, exact: bool) -> None:
        """The change is answered; ``exact`` if the first request got the reply."""
        assert self._change is not None
        old, self._change = self._change, None
        switches = dict(position)
        for pubend, end in position:
            self._switches.setdefault(pubend, []).append((end, old))
        for pubend, view in self.views.items():
            tick = switches.get(pubend)
            if tick is not None:
                view.switched(tick, self._report, exact=exact)
            elif view.has_started and view.stream.guaranteed and not view.stream.closed:
                self._report("segments", f"{pubend} is not in the answer {position}")
            else:
                view.switched(view.cursor, self._report, exact=False)

    def restarted(self) -> None:
        """A non-durable subscription starts again: its present filter applies from here."""
        if self.changing or any(view.is_between_filters for view in self.views.values()):
            self._merged = None  # the new filter applies again to ticks that were merged
        self._change = None
        self._switches = {}
        for view in self.views.values():
            view.cut_here(self._report)

    # --- the end -----------------------------------------------------------------------------

    def unfinished(self, streams: Iterable[PublishedStream]) -> list[str]:
        """Return what must come on these streams and has not come."""
        found = []
        if self._change is not None:
            found.append(f"{self.name}: the filter change is not answered")
        for stream in streams:
            view = self.views.get(stream.pubend)
            if view is not None and view.has_started:
                missing = view.missing()
                if missing:
                    found.append(f"{self.name}: {stream.pubend} {missing[:5]} of {len(missing)}")
                if stream.sealed is not None and stream.pubend not in self._once_closed:
                    found.append(f"{self.name}: was not told that {stream.pubend} is closed")
            elif not stream.closed and self._oracle.filter(self.filter).intersects(
                self._oracle.filter(stream.advertisement)
            ):
                found.append(f"{self.name}: has not started on {stream.pubend}")
        return found


def _starts_in_released(view: ExpectedStream, tick: int) -> bool:
    """Return whether a stream starts below the tick that its log had released before (R46)."""
    return not view.has_started and tick < view.stream.released
