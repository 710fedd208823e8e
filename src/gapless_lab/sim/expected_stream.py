"""One stream as one subscription sees it: where it started, how far it is, which filter governs.

A filter change is *open* on a stream from the moment it is asked for until its switch-over tick is
known. Meanwhile an event may come by the old filter or the new one, but the whole must have one
cut: the old filter's events before it, the new one's after. If the answer came to the first asking,
the cut is exactly where it said; if it had to be asked again, the change may have happened earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gapless.messages.streams import Publication
from gapless_lab.sim.oracle import Stream, Truth

__all__ = ["Report", "View"]

FOREVER: Final = 2**62

Report: TypeAlias = Callable[[str, str], None]
"""Takes the name of a violation and what it was."""


class View:
    """A subscription's sight of one guaranteed stream."""

    __slots__ = (
        "_truth",
        "base",
        "begun_at",
        "blurred",
        "cursor",
        "filter",
        "first",
        "gone",
        "known",
        "limit",
        "old",
        "place",
        "seen",
        "segments",
        "stream",
        "until",
        "window",
        "window_place",
    )

    def __init__(self, truth: Truth, stream: Stream, filter_text: str) -> None:
        self._truth = truth
        self.stream = stream
        self.filter = filter_text
        self.segments: list[tuple[int, str]] = []
        """Earlier filters, each with the tick up to which it governs."""
        self.blurred = -1
        """Up to here it is not known which filter governed: an answer was lost."""
        self.known = False
        """Whether it was told where the stream starts."""
        self.first: int | None = None
        """The first tick that came before the start was told."""
        self.limit: int | None = None
        """The start may be told anywhere up to here."""
        self.base = 0
        """Where it started first."""
        self.begun_at = -1
        """Where it began in the past, of which the log may have lost a part: a gap may follow."""
        self.gone = 0
        """Up to where that gap may go: a beginning is told when its hold is kept (R49)."""
        self.cursor = 0
        self.place = 0
        self.seen: list[int] = []
        """The ticks that came, lowest first."""
        self.old: str | None = None
        """The filter that an open change leaves behind."""
        self.until: int | None = None
        """The tick after which the new filter surely governs, once it is known."""
        self.window: list[int] = []
        self.window_place = 0

    # --- what is owed ------------------------------------------------------------------------

    def _matches(self, text: str, place: int) -> bool:
        return self._truth.matches(self.stream, text, place)

    def _governing(self, tick: int) -> tuple[str, str]:
        """Return the filter that governs a tick, twice, or the two of which one does."""
        for end, text in self.segments:
            if tick <= end:
                return text, text
        if self.old is not None and (self.until is None or tick <= self.until):
            return self.old, self.filter
        return self.filter, self.filter

    def owed(self, place: int) -> bool:
        """Say whether the publication at a place of the stream surely has to come."""
        old, new = self._governing(self.stream.ticks[place])
        return self._matches(new, place) and (old == new or self._matches(old, place))

    def allowed(self, place: int) -> bool:
        """Say whether the publication at a place of the stream may come."""
        old, new = self._governing(self.stream.ticks[place])
        return self._matches(new, place) or (old != new and self._matches(old, place))

    def owed_between(self, low: int, high: int) -> list[int]:
        """Return what has to come of the ticks after ``low`` up to ``high``."""
        stream = self.stream
        places = range(stream.after(low), stream.after(high))
        return [stream.ticks[place] for place in places if self.owed(place)]

    def missing(self) -> list[int]:
        """Return the ticks that are durable and owed and have not come."""
        stream = self.stream
        if not self.begun or not stream.ticks:
            return []
        return self.owed_between(self.cursor, stream.ticks[-1])

    # --- where it starts ---------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether there is a position to go on from."""
        return self.known or self.first is not None

    @property
    def last_seen(self) -> int:
        """The last tick that came, 0 if none did."""
        return self.seen[-1] if self.seen else 0

    @property
    def is_between_filters(self) -> bool:
        """Whether an earlier filter governs what has not come yet."""
        return any(end > self.cursor for end, _ in self.segments)

    def place_at(self, tick: int, *, past: bool, held: bool = False) -> None:
        """Go on after a tick, back or forth; in the ``past``, unless ``held``, nothing keeps the log."""
        if not self.begun and self.limit is None:
            self.base = tick
        self._began(tick, past=past, held=held)
        self.cursor = tick
        self.place = self.stream.after(tick)
        self.seen = [seen for seen in self.seen if seen <= tick]
        self.known = True
        self.first = self.limit = None
        self._begin_window()

    def _began(self, tick: int, *, past: bool, held: bool) -> None:
        self.begun_at = tick if past else -1
        self.gone = self.stream.released if held else FOREVER

    def told_start(self, tick: int, report: Report, *, past: bool) -> None:
        """Take the start, or where a resumed subscription goes on, which must lose nothing."""
        pubend = self.stream.pubend
        low = self.cursor if self.known else self.limit
        if low is not None:
            for missed in self.owed_between(low, tick):
                report("lost", f"{pubend} {missed}: goes on after {tick}")
            if tick < self.base:
                report("spurious", f"{pubend}: goes on after {tick}, before its start {self.base}")
        if self.known and tick <= self.cursor:
            if past or self.cursor != self.begun_at:  # else a gap it may hear of is still to come
                self._began(self.cursor, past=past, held=True)
        elif self.known or self.first is None:
            self.place_at(tick, past=past, held=True)
        else:
            if tick >= self.first:
                report("spurious", f"{pubend} {self.first} came, but the start is after {tick}")
            for missed in self.owed_between(tick, self.first - 1):
                report("lost", f"{pubend} {missed}, after the start at {tick}")
            self.known = True
            self.base = tick

    # --- what comes --------------------------------------------------------------------------

    def deliver(self, publication: Publication, report: Report) -> None:
        """Take an event that came."""
        tick, stream = publication.tick, self.stream
        name = f"{stream.pubend} {tick}"
        if self.begun and tick <= self.cursor:
            again = tick in self.seen
            report("duplicate" if again else "nonmonotonic", f"{name} after {self.cursor}")
            return
        if stream.at(tick) != publication:
            key = (publication.publisher, publication.sequence)
            sent = (stream.pubend, *key) in self._truth.sent
            durable = key in stream.logged
            report("undurable" if sent and not durable else "spurious", f"{name} {publication}")
            return
        if not self.begun:
            low = tick - 1 if self.limit is None else min(self.limit, tick - 1)
            self.first = tick
            if self.limit is None:
                self.base = low
            self.cursor, self.place = low, stream.after(low)
            self._begin_window()
        self._skip_what_is_behind()
        for place in range(self.place, len(stream.ticks)):
            if stream.ticks[place] >= tick:
                self.place = place + 1
                break
            if self.owed(place):
                report("lost", f"{stream.pubend} {stream.ticks[place]}: {tick} came")
                return
        if not self.allowed(self.place - 1):
            report("spurious", f"{name} does not match {self._governing(tick)[0]}")
        self.cursor = tick
        self.seen.append(tick)
        if self.old is not None:
            self.window.append(tick)
            self._close_if_passed(report)

    def _skip_what_is_behind(self) -> None:
        """Pass over publications that came since at ticks not above a cursor ahead of the stream."""
        behind = self.stream.after(self.cursor)
        if behind > self.place:
            if self.window_place == self.place:
                self.window_place = behind
            self.place = behind

    def gap(self, low: int, high: int, *, lawful: bool, report: Report) -> None:
        """Take a gap: ticks that the log no longer has."""
        stream = self.stream
        name = f"{stream.pubend} [{low}, {high}]"
        if not self.begun:
            self.place_at(low - 1, past=True)
        if high > stream.released:
            report("dishonest gap", f"{name}, but only {stream.released} is released")
        elif not (lawful or (self.cursor == self.begun_at and high <= self.gone)):
            report("dishonest gap", f"{name}: nothing allowed to release it, at {self.cursor}")
        for missed in self.owed_between(self.cursor, low - 1):
            report("lost", f"{stream.pubend} {missed} before the gap {name}")
        if high > self.cursor:
            self._check_window(None, report)  # what the gap swallowed cannot be judged
            self.cursor, self.place = high, stream.after(high)
            self._begin_window()

    def progress(self, tick: int, report: Report) -> None:
        """Take that everything up to a tick has come."""
        if tick <= self.cursor:
            return
        for missed in self.owed_between(self.cursor, tick):
            report("lost", f"{self.stream.pubend} {missed}: all up to {tick} was sent, it is said")
        self._skip_what_is_behind()
        self.cursor, self.place = tick, self.stream.after(tick)
        self._close_if_passed(report)

    # --- filter changes ----------------------------------------------------------------------

    def open_change(self, filter_text: str) -> None:
        """A change to another filter was asked for."""
        assert self.old is None, "one change at a time"
        self.old, self.filter = self.filter, filter_text
        self.until = None
        self._begin_window()

    def _begin_window(self) -> None:
        """Judge an open change only by what comes from here on."""
        self.window = []
        self.window_place = self.place

    def cancel_change(self, report: Report) -> None:
        """The change was refused: the old filter governs all along."""
        if self.old is not None:
            self._check_window(self.cursor, report)
            self.filter = self.old
            self._close()

    def switched(self, tick: int, report: Report, *, exact: bool) -> None:
        """The new filter governs after a tick; if not exact, perhaps it did before."""
        assert self.old is not None
        if exact:
            self._check_window(tick, report)
            if self.old != self.filter:
                self.segments.append((tick, self.old))
            self._close()
        else:
            self.until = tick
            self._close_if_passed(report)

    def cut_here(self, report: Report) -> None:
        """The new filter governs all that has not come yet."""
        if self.old is not None:
            self.switched(self.cursor, report, exact=False)
        self.segments = [(min(end, self.cursor), text) for end, text in self.segments]

    def _close_if_passed(self, report: Report) -> None:
        if self.until is not None and self.cursor >= self.until:
            self._check_window(None, report)
            self.blurred = self.until
            self._close()

    def _close(self) -> None:
        self.old = self.until = None
        self.window = []

    def _check_window(self, cut: int | None, report: Report) -> None:
        """Check that what came in the window has one cut: at a tick, or anywhere."""
        if self.old is None:
            return
        stream, came = self.stream, set(self.window)
        publications = stream.publications[self.window_place : self.place]
        old_fits, new_fits = [], []
        for place, each in enumerate(publications, self.window_place):
            old, new = self._governing(each.tick)
            old_fits.append((each.tick in came) == self._matches(old, place))
            new_fits.append((each.tick in came) == self._matches(new, place))
        if cut is None:
            bound = self.cursor if self.until is None else self.until
            places = range(sum(each.tick <= bound for each in publications) + 1)
        else:
            before = sum(each.tick <= cut for each in publications)
            places = range(before, before + 1)
        if not any(all(old_fits[:place]) and all(new_fits[place:]) for place in places):
            where = "anywhere" if cut is None else f"at {cut}"
            ticks = [(each.tick, each.tick in came) for each in publications]
            report("segments", f"{stream.pubend}: no cut {where} in {ticks}")
