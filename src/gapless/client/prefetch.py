"""The events and gaps that a subscription has received and not handed out: bounded and in order.

Three positions matter. *Received* is where a lost connection is resumed. *Handed out* is where the
application is; ``event.position`` is such a position. *Done* is what was handed out before the
application requested more; it is acknowledged. Each is a tick by pubend, and
done <= handed out <= received.

The broker sends as many events as it has credit for. Credited and waiting events together never
exceed the bound. New credit is given when half of the bound is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import repeat
from typing import TypeAlias

from gapless.client.event import Event, EventRun
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.streams import Publication

__all__ = ["Item", "Prefetch", "PrefetchedEnd", "PrefetchedGap"]


class PrefetchedGap:
    """A gap among events."""

    __slots__ = ("high", "low", "run")

    def __init__(self, low: Tick, high: Tick, run: EventRun) -> None:
        self.low = low
        self.high = high
        self.run = run


class PrefetchedEnd:
    """The end of a closed pubend, after all its events. It is acknowledged by the tick ``high``."""

    __slots__ = ("high", "last", "run")

    def __init__(self, last: Tick, high: Tick, run: EventRun) -> None:
        self.last = last
        self.high = high
        self.run = run


Item: TypeAlias = Event | PrefetchedGap | PrefetchedEnd
OnReceived: TypeAlias = Callable[[list[tuple[PubendId, tuple[Publication, ...]]]], None]


class Prefetch:
    """Events and gaps that were received and not handed out."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.queue: deque[Item] = deque()
        self.received: dict[PubendId, Tick] = {}
        self.starts: dict[PubendId, Tick] = {}
        """The tick at which each stream started, or to which it was last repositioned."""
        self.at: Item | None = None
        """The item that was handed out last."""
        self.free = bound
        """How many events fit beside those that wait and those that the broker has credit for."""
        self.gaps = 0
        """How many gaps and ends are in the queue."""
        self.repeated = 0
        """How many repeated events were dropped."""
        self.last: tuple[Tick, PubendId] | None = None
        """The last event that was received; in total order nothing comes below it."""
        self._on_received: OnReceived | None = None
        self._run: EventRun | None = None

    def report_to(self, on_received: OnReceived) -> None:
        """Report new events of pubends that have a log."""
        self._on_received = on_received

    # --- positions -----------------------------------------------------------------------------

    def start(self, pubend: PubendId, tick: Tick) -> None:
        """A stream starts after a tick, or continues there; its position never falls."""
        known = self.received.get(pubend)
        if known is None or tick > known:
            self.received[pubend] = tick
            self._run = None
        self.starts.setdefault(pubend, tick)

    def handed(self) -> dict[PubendId, Tick]:
        """Return the position of the application."""
        if not self.queue:
            return dict(self.received)
        return self.after(self.at)

    def after(self, item: Item | None) -> dict[PubendId, Tick]:
        """Return the position of the application after an item, with streams that started later."""
        found = dict(self.starts)
        if item is not None:
            tick = item.tick if isinstance(item, Event) else item.high
            found.update(item.run.after(tick))
        return found

    def bounded(self, ticks: Mapping[PubendId, Tick]) -> dict[PubendId, Tick]:
        """Return the part of a position that was received."""
        received = self.received
        return {each: min(tick, received[each]) for each, tick in ticks.items() if each in received}

    def reposition(self, position: Mapping[PubendId, Tick]) -> None:
        """Continue at other ticks on some streams; waiting items of the others are kept."""
        here = self.handed()
        kept = [each for each in self.queue if each.run.pubend not in position]
        reached = self.received
        self.free += sum(isinstance(each, Event) for each in self.queue)
        self.queue.clear()
        self.gaps = 0
        self.at = self._run = self.last = None
        self.received = {**here, **position}
        self.starts = dict(self.received)
        for item in kept:
            if isinstance(item, Event):
                self.free -= 1
                self._put(item.run.pubend, (item.publication,))
            elif isinstance(item, PrefetchedEnd):
                self.add_end(item.run.pubend, item.last)
            else:
                self.add_gap(item.run.pubend, item.low, item.high)
        for pubend, tick in reached.items():
            if pubend not in position:
                self.received[pubend] = max(tick, self.received.get(pubend, 0))

    # --- receiving -----------------------------------------------------------------------------

    def take(self, runs: tuple[tuple[PubendId, tuple[Publication, ...]], ...]) -> None:
        """Take the events of a Delivery."""
        fresh = [
            (pubend, self._put(pubend, publications))
            for pubend, publications in runs
            if publications
        ]
        if self._on_received is not None:
            logged = [(pubend, run) for pubend, run in fresh if run and pubend in self.received]
            if logged:
                self._on_received(logged)

    def _put(
        self, pubend: PubendId, publications: tuple[Publication, ...]
    ) -> tuple[Publication, ...]:
        """Take a run; return the publications that had not come before."""
        received = self.received.get(pubend)
        if received is not None and publications[0].tick <= received:
            fresh = tuple(each for each in publications if each.tick > received)
            self.repeated += len(publications) - len(fresh)
            self.free += len(publications) - len(fresh)
            if not fresh:
                return ()
            publications = fresh
        run = self._run_of(pubend, is_logged=received is not None)
        self.queue.extend(map(Event, publications, repeat(run)))
        if received is not None:
            tick = self.received[pubend] = publications[-1].tick
            self.last = (tick, pubend)
        return publications

    def _run_of(self, pubend: PubendId, *, is_logged: bool) -> EventRun:
        """Return the run of the next events of a pubend; it ends when another pubend has events."""
        run = self._run
        if run is None or run.pubend != pubend:
            # a pubend whose start was never reported is best effort: its ticks are no positions
            run = self._run = EventRun(pubend, dict(self.received), is_logged=is_logged)
        return run

    def add_gap(self, pubend: PubendId, low: Tick, high: Tick) -> None:
        """Take a gap."""
        self.start(pubend, low - 1)
        if high <= self.received[pubend]:
            return
        self.queue.append(PrefetchedGap(low, high, self._run_of(pubend, is_logged=True)))
        self.gaps += 1
        self.received[pubend] = high

    def add_end(self, pubend: PubendId, last: Tick) -> None:
        """Take the end of a closed pubend. A best-effort pubend has no position."""
        is_logged = pubend in self.received
        high = max(last + 1, self.received.get(pubend, 0)) if is_logged else last
        self.queue.append(PrefetchedEnd(last, high, self._run_of(pubend, is_logged=is_logged)))
        self.gaps += 1
        if is_logged:
            self.received[pubend] = high

    # --- handing out ---------------------------------------------------------------------------

    def pop(self) -> Item:
        """Hand out the next item."""
        item = self.at = self.queue.popleft()
        if type(item) is Event:
            self.free += 1
        else:
            self.gaps -= 1
        return item

    def pop_many(self, events_max: int) -> list[Event]:
        """Hand out events up to the first gap."""
        queue = self.queue
        found: list[Event] = []
        if not self.gaps and len(queue) <= events_max:
            found.extend(queue)  # type: ignore[arg-type]  # there is no gap among them
            queue.clear()
        else:
            while queue and len(found) < events_max and isinstance(head := queue[0], Event):
                found.append(head)
                queue.popleft()
        if found:
            self.at = found[-1]
            self.free += len(found)
        return found

    def drop(self) -> None:
        """Drop the waiting items; the position of the application does not change."""
        self.received = self.handed()
        self.queue.clear()
        self.gaps = 0

    def grant(self) -> int:
        """Return the credit to give now: all that is free."""
        free, self.free = self.free, 0
        return max(0, free)

    def disconnected(self) -> None:
        """The connection is lost, and all credit with it."""
        queued = len(self.queue) - self.gaps
        self.free = self.bound - queued

    def level_of(self, pubend: PubendId) -> Tick:
        """In total order: return the tick up to which a stream was merged, by the last event
        received.

        Events are ordered by tick, then by pubend.
        """
        if self.last is None:
            return 0
        last, of = self.last
        return last if pubend <= of else last - 1

    def resume_from(
        self, pending: dict[PubendId, Tick], excluded: Collection[PubendId] = (), *, merged: bool
    ) -> dict[PubendId, Tick]:
        """Return the ticks after which to continue, including streams with a pending start.

        In total order everything below the last event was merged on all streams, by the filter of
        that time, so all streams continue there; events that only another filter matches are not
        requested. The streams that were ``excluded`` from the merge continue where they were.
        """
        position = {**pending, **self.received}
        if not merged:
            return position
        return {
            pubend: tick if pubend in excluded else max(tick, self.level_of(pubend))
            for pubend, tick in position.items()
        }
