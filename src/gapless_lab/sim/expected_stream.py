"""One stream as one subscription must receive it: its start, its position, the filters that apply.

A filter change is *open* on a stream from its request until its switch-over tick is known.
Meanwhile an event may match the old filter or the new one, but there must be one cut: the old
filter's events before it, the new one's after. If the first request got the reply, the cut is
exactly at its tick. If the request was repeated, the change may have happened earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gapless.messages.streams import Publication
from gapless_lab.sim.oracle import Oracle, PublishedStream

__all__ = ["ExpectedStream", "OnViolation"]

FOREVER: Final = 2**62

OnViolation: TypeAlias = Callable[[str, str], None]
"""Takes the name of a violation and its details."""


class ExpectedStream:
    """The view that a subscription has of one guaranteed stream."""

    __slots__ = (
        "_oracle",
        "base",
        "blurred",
        "cursor",
        "filter",
        "first",
        "gap_up_to",
        "index",
        "known",
        "limit",
        "old",
        "seen",
        "segments",
        "started_in_past_at",
        "stream",
        "until",
        "window",
        "window_index",
    )

    def __init__(self, oracle: Oracle, stream: PublishedStream, filter_text: str) -> None:
        self._oracle = oracle
        self.stream = stream
        self.filter = filter_text
        self.segments: list[tuple[int, str]] = []
        """Past filters, each with the tick up to which it applies."""
        self.blurred = -1
        """The tick up to which it is unknown which filter applied: a reply was lost."""
        self.known = False
        """Whether the start was confirmed."""
        self.first: int | None = None
        """The first tick that came before the start was confirmed."""
        self.limit: int | None = None
        """The greatest tick at which the start may be confirmed."""
        self.base = 0
        """The first start."""
        self.started_in_past_at = -1
        """A start in the past, of which the log may have released a part: a gap may follow."""
        self.gap_up_to = 0
        """The greatest end of that gap: a start is confirmed after its log hold is durable (R49).
        """
        self.cursor = 0
        self.index = 0
        self.seen: list[int] = []
        """The received ticks, lowest first."""
        self.old: str | None = None
        """The filter before an open change."""
        self.until: int | None = None
        """The tick after which the new filter certainly applies, once it is known."""
        self.window: list[int] = []
        self.window_index = 0

    # --- what must come ----------------------------------------------------------------------

    def _matches(self, text: str, index: int) -> bool:
        return self._oracle.matches(self.stream, text, index)

    def _filters_at(self, tick: int) -> tuple[str, str]:
        """Return the filter that applies to a tick, twice, or the two of which one applies."""
        for end, text in self.segments:
            if tick <= end:
                return text, text
        if self.old is not None and (self.until is None or tick <= self.until):
            return self.old, self.filter
        return self.filter, self.filter

    def is_required(self, index: int) -> bool:
        """Return whether the publication at an index of the stream certainly has to come."""
        old, new = self._filters_at(self.stream.ticks[index])
        return self._matches(new, index) and (old == new or self._matches(old, index))

    def allowed(self, index: int) -> bool:
        """Return whether the publication at an index of the stream may come."""
        old, new = self._filters_at(self.stream.ticks[index])
        return self._matches(new, index) or (old != new and self._matches(old, index))

    def required_between(self, low: int, high: int) -> list[int]:
        """Return the ticks after ``low`` up to ``high`` that have to come."""
        stream = self.stream
        indices = range(stream.after(low), stream.after(high))
        return [stream.ticks[index] for index in indices if self.is_required(index)]

    def missing(self) -> list[int]:
        """Return the durable ticks that must come and have not come."""
        stream = self.stream
        if not self.has_started or not stream.ticks:
            return []
        return self.required_between(self.cursor, stream.ticks[-1])

    # --- where it starts ---------------------------------------------------------------------

    @property
    def has_started(self) -> bool:
        """Whether there is a position to resume from."""
        return self.known or self.first is not None

    @property
    def last_seen(self) -> int:
        """The last received tick, 0 if there is none."""
        return self.seen[-1] if self.seen else 0

    @property
    def is_between_filters(self) -> bool:
        """Whether a past filter applies to ticks that have not come yet."""
        return any(end > self.cursor for end, _ in self.segments)

    def move_to(self, tick: int, *, past: bool, held: bool = False) -> None:
        """Continue after a tick, back or forth; in the ``past``, unless ``held``, no log hold
        applies.
        """
        if not self.has_started and self.limit is None:
            self.base = tick
        self._set_start(tick, past=past, held=held)
        self.cursor = tick
        self.index = self.stream.after(tick)
        self.seen = [seen for seen in self.seen if seen <= tick]
        self.known = True
        self.first = self.limit = None
        self._start_window()

    def _set_start(self, tick: int, *, past: bool, held: bool) -> None:
        self.started_in_past_at = tick if past else -1
        self.gap_up_to = self.stream.released if held else FOREVER

    def confirm_start(self, tick: int, report: OnViolation, *, past: bool) -> None:
        """Take the start, or the tick after which a resumed subscription continues; nothing may be
        lost.
        """
        pubend = self.stream.pubend
        low = self.cursor if self.known else self.limit
        if low is not None:
            for missed in self.required_between(low, tick):
                report("lost", f"{pubend} {missed}: continues after {tick}")
            if tick < self.base:
                report(
                    "spurious", f"{pubend}: continues after {tick}, before its start {self.base}"
                )
        if self.known and tick <= self.cursor:
            if (
                past or self.cursor != self.started_in_past_at
            ):  # otherwise a gap may still be reported
                self._set_start(self.cursor, past=past, held=True)
        elif self.known or self.first is None:
            self.move_to(tick, past=past, held=True)
        else:
            if tick >= self.first:
                report("spurious", f"{pubend} {self.first} came, but the start is after {tick}")
            for missed in self.required_between(tick, self.first - 1):
                report("lost", f"{pubend} {missed}, after the start at {tick}")
            self.known = True
            self.base = tick

    # --- what comes --------------------------------------------------------------------------

    def deliver(self, publication: Publication, report: OnViolation) -> None:
        """Check a received event."""
        tick, stream = publication.tick, self.stream
        name = f"{stream.pubend} {tick}"
        if self.has_started and tick <= self.cursor:
            again = tick in self.seen
            report("duplicate" if again else "nonmonotonic", f"{name} after {self.cursor}")
            return
        if stream.at(tick) != publication:
            key = (publication.publisher, publication.sequence)
            sent = (stream.pubend, *key) in self._oracle.sent
            durable = key in stream.logged
            report("undurable" if sent and not durable else "spurious", f"{name} {publication}")
            return
        if not self.has_started:
            low = tick - 1 if self.limit is None else min(self.limit, tick - 1)
            self.first = tick
            if self.limit is None:
                self.base = low
            self.cursor, self.index = low, stream.after(low)
            self._start_window()
        self._skip_what_is_behind()
        for index in range(self.index, len(stream.ticks)):
            if stream.ticks[index] >= tick:
                self.index = index + 1
                break
            if self.is_required(index):
                report("lost", f"{stream.pubend} {stream.ticks[index]}: {tick} came")
                return
        if not self.allowed(self.index - 1):
            report("spurious", f"{name} does not match {self._filters_at(tick)[0]}")
        self.cursor = tick
        self.seen.append(tick)
        if self.old is not None:
            self.window.append(tick)
            self._close_if_passed(report)

    def _skip_what_is_behind(self) -> None:
        """Skip publications logged since at ticks not above a cursor ahead of the stream."""
        behind = self.stream.after(self.cursor)
        if behind > self.index:
            if self.window_index == self.index:
                self.window_index = behind
            self.index = behind

    def gap(self, low: int, high: int, *, lawful: bool, report: OnViolation) -> None:
        """Check a gap: ticks that the log has released."""
        stream = self.stream
        name = f"{stream.pubend} [{low}, {high}]"
        if not self.has_started:
            self.move_to(low - 1, past=True)
        if high > stream.released:
            report("dishonest gap", f"{name}, but only {stream.released} is released")
        elif not (
            lawful
            or stream.may_give_up
            or (self.cursor == self.started_in_past_at and high <= self.gap_up_to)
        ):
            report("dishonest gap", f"{name}: it was not allowed to be released, at {self.cursor}")
        for missed in self.required_between(self.cursor, low - 1):
            report("lost", f"{stream.pubend} {missed} before the gap {name}")
        if high > self.cursor:
            self._check_window(None, report)  # ticks inside the gap cannot be checked
            self.cursor, self.index = high, stream.after(high)
            self._start_window()

    def progress(self, tick: int, report: OnViolation) -> None:
        """Check the notice that everything up to a tick has come."""
        if tick <= self.cursor:
            return
        for missed in self.required_between(self.cursor, tick):
            report(
                "lost",
                f"{self.stream.pubend} {missed}: everything up to {tick} was reported as sent",
            )
        self._skip_what_is_behind()
        self.cursor, self.index = tick, self.stream.after(tick)
        self._close_if_passed(report)

    # --- filter changes ----------------------------------------------------------------------

    def open_change(self, filter_text: str) -> None:
        """A change to another filter was requested."""
        assert self.old is None, "one change at a time"
        self.old, self.filter = self.filter, filter_text
        self.until = None
        self._start_window()

    def _start_window(self) -> None:
        """Check an open change only from the present position on."""
        self.window = []
        self.window_index = self.index

    def cancel_change(self, report: OnViolation) -> None:
        """The change was refused: the old filter applies throughout."""
        if self.old is not None:
            self._check_window(self.cursor, report)
            self.filter = self.old
            self._close()

    def switched(self, tick: int, report: OnViolation, *, exact: bool) -> None:
        """The new filter applies after a tick; if not exact, possibly from an earlier one."""
        assert self.old is not None
        if exact:
            self._check_window(tick, report)
            if self.old != self.filter:
                self.segments.append((tick, self.old))
            self._close()
        else:
            self.until = tick
            self._close_if_passed(report)

    def cut_here(self, report: OnViolation) -> None:
        """The new filter applies to everything that has not come yet."""
        if self.old is not None:
            self.switched(self.cursor, report, exact=False)
        self.segments = [(min(end, self.cursor), text) for end, text in self.segments]

    def _close_if_passed(self, report: OnViolation) -> None:
        if self.until is not None and self.cursor >= self.until:
            self._check_window(None, report)
            self.blurred = self.until
            self._close()

    def _close(self) -> None:
        self.old = self.until = None
        self.window = []

    def _check_window(self, cut: int | None, report: OnViolation) -> None:
        """Check that the events of the window have one cut: at a tick, or anywhere."""
        if self.old is None:
            return
        stream, came = self.stream, set(self.window)
        publications = stream.publications[self.window_index : self.index]
        old_fits, new_fits = [], []
        for index, each in enumerate(publications, self.window_index):
            old, new = self._filters_at(each.tick)
            old_fits.append((each.tick in came) == self._matches(old, index))
            new_fits.append((each.tick in came) == self._matches(new, index))
        if cut is None:
            bound = self.cursor if self.until is None else self.until
            indices = range(sum(each.tick <= bound for each in publications) + 1)
        else:
            before = sum(each.tick <= cut for each in publications)
            indices = range(before, before + 1)
        if not any(all(old_fits[:place]) and all(new_fits[place:]) for place in indices):
            where = "anywhere" if cut is None else f"at {cut}"
            ticks = [(each.tick, each.tick in came) for each in publications]
            report("segments", f"{stream.pubend}: no cut {where} in {ticks}")
