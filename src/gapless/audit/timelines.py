"""From what was said of subscriptions: which events each is owed, under which filter, and what is sure.

A subscription has visits, one after the other. On each pubend a visit begins after a tick and has come
up to a tick: as a stream comes in order, all that is owed up to there must have come. That is *settled*.
What is above may still come, or came and was not written down: it is *in flight*. What is above and was
published long ago, while the subscriber was there, is settled too, after ``tail_us``.

Between two visits of one subscription nothing may be missing, unless it was sought. If a writer ended
without saying so, what it knew last is not known: what falls between its last word and the next visit
is in flight, not lost.

What a visit takes again that an earlier one has taken is a *repetition* if it was not acknowledged before:
the subscriber came back and asked for it. Otherwise it is a duplicate.

Where clients have written a log, it counts; else that of the brokers. To a broker, what is sent again to
another connection is a repetition if it is after the place that the client came back with.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from gapless.audit.facts import Control, visit_key
from gapless.audit.records import (
    Acked,
    Closing,
    Ended,
    GapTold,
    Header,
    Opened,
    Progressed,
    ReadOut,
    Started,
    Stored,
    Switched,
)
from gapless.core.ids import PubendId

__all__ = [
    "FOREVER",
    "Interval",
    "Log",
    "Reading",
    "Recipient",
    "Stay",
    "Subscription",
    "logs_of",
    "readings_of",
    "recipients_of",
    "subscriptions_of",
]

FOREVER: Final = 2**62
"""Above every tick."""


class Interval(NamedTuple):
    """Ticks above ``low`` up to ``high`` of a pubend, under one filter."""

    pubend: str
    low: int
    high: int
    filter: str
    settled: bool


class Stay(NamedTuple):
    """A visit on one pubend: what to make of the events that came in it."""

    run: str
    visit: str
    rank: int
    """Among the visits of its subscription, first to last."""
    epoch: int
    """How often it was sought before: order holds between seeks."""
    pubend: str
    above: int
    """What is not above was taken before the log begins to know of the visit."""
    up_to: int
    """What is above was dropped before it was handed out."""
    fresh_up_to: int
    """What is not above was acknowledged, or told to be there, before: it must not come again."""


class Subscription(NamedTuple):
    """What is known of one subscription."""

    name: str
    side: str
    total: bool
    intervals: list[Interval]
    stays: list[Stay]
    gaps: list[tuple[str, int, int]]


class Recipient(NamedTuple):
    """To whom a broker sends what it sends in a visit."""

    run: str
    visit: str
    subscription: str
    principal: str


class Reading(NamedTuple):
    """Ticks above ``low`` up to ``high`` of a pubend that somebody has read, as far as they match."""

    principal: str
    pubend: str
    filter: str
    low: int
    high: int


class Log:
    """One run of a writer."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.number = header.number
        """The first segment that is there."""
        self.began_us = header.at_us
        self.seen_us = 0
        """When it wrote last."""
        self.is_closed = False
        self.stored: dict[str, int] = {}
        self.numbers: set[int] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all segments are there, from the first to the last that is known."""
        return self.numbers == set(range(1, max(self.numbers) + 1))


class _Visit:
    def __init__(self, log: Log, control: Control, opened: Opened) -> None:
        self.log = log
        self.opened = opened
        self.order = (control.at_us, log.header.run, control.place)
        self.controls: list[tuple[int, Opened | Started | Switched]] = []
        self.reached: dict[str, int] = {}
        self.acked: dict[str, int] = {}
        self.gaps: list[GapTold] = []
        self.ended: Ended | None = None
        self.starts: dict[str, int] = {}

    @property
    def is_sure(self) -> bool:
        """Whether all that was known of it was written."""
        return self.ended is not None or self.log.is_closed

    def came_to(self, pubend: str, start: int) -> int:
        if self.ended is not None and self.ended.position is not None:
            handed = _named(self.ended.position).get(pubend)
            if handed is not None:
                return handed
        skipped = [gap.high for gap in self.gaps if str(gap.pubend) == pubend]
        return max(start, self.reached.get(pubend, start), *skipped)


def logs_of(controls: Iterable[Control]) -> dict[str, Log]:
    """Return what is known of every writer, by its run."""
    found: dict[str, Log] = {}
    for each in controls:
        header = each.header
        log = found.setdefault(header.run, Log(header))
        if header.number < log.number:
            log.number, log.began_us = header.number, header.at_us
        log.numbers.add(header.number)
        log.seen_us = max(log.seen_us, each.at_us)
        if isinstance(each.record, Closing):
            log.is_closed = True
        elif isinstance(each.record, Stored):
            name = str(each.record.pubend)
            log.stored[name] = max(log.stored.get(name, 0), each.record.tick)
    return found


def subscriptions_of(controls: Iterable[Control], tail_us: int) -> list[Subscription]:
    """Return what every subscription is owed, of one side each, in the order of their names."""
    ordered = sorted(controls, key=lambda each: (each.header.run, each.place))
    logs = logs_of(ordered)
    visits = _visits_of(ordered, logs)
    gone = _gone(ordered, visits)
    grouped: dict[str, dict[str, list[_Visit]]] = {}
    for visit in visits.values():
        sides = grouped.setdefault(_key(visit.opened), {})
        sides.setdefault(visit.log.header.side, []).append(visit)
    found = []
    for name in sorted(grouped):
        sides = grouped[name]
        side = "client" if "client" in sides else "broker"
        chosen = sorted(sides[side], key=lambda visit: visit.order)
        found.append(_Timeline(name, side, chosen, tail_us, is_gone=name in gone).done())
    return found


def recipients_of(controls: Iterable[Control]) -> list[Recipient]:
    """Return whose visits brokers had. What clients have written counts not: they are not asked."""
    ordered = sorted(controls, key=lambda each: (each.header.run, each.place))
    visits = _visits_of(ordered, logs_of(ordered))
    return [
        Recipient(run, visit_key(name, subscription), _key(visit.opened), visit.opened.principal)
        for (run, subscription, name), visit in visits.items()
        if visit.log.header.side == "broker"
    ]


def readings_of(controls: Iterable[Control]) -> list[Reading]:
    """Return what was read from logs, in as few pieces as there are: who reads on makes one of many."""
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for each in controls:
        record = each.record
        if isinstance(record, ReadOut):
            key = (record.principal, str(record.pubend), record.filter)
            found.setdefault(key, []).append((record.low - 1, record.high))
    return [Reading(*key, low, high) for key in sorted(found) for low, high in _merged(found[key])]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


def _key(opened: Opened) -> str:
    """Return a name for the subscription: a durable one belongs to its broker."""
    return f"{opened.subscription}@{opened.broker}" if opened.durable else opened.subscription


def _visits_of(controls: list[Control], logs: dict[str, Log]) -> dict[tuple[str, str, str], _Visit]:
    visits: dict[tuple[str, str, str], _Visit] = {}
    for each in controls:
        record, run = each.record, each.header.run
        if not isinstance(
            record, Opened | Started | Switched | Progressed | Acked | GapTold | Ended
        ):
            continue
        key = (run, record.subscription, record.visit)
        visit = visits.get(key)
        if isinstance(record, Opened):
            if visit is None:
                visit = visits[key] = _Visit(logs[run], each, record)
            elif record.restated:
                continue
        if visit is None:
            continue  # the segment with its beginning is gone, and none has said it again
        _note(visit, each.place, record)
    return visits


def _note(
    visit: _Visit,
    place: int,
    record: Opened | Started | Switched | Progressed | Acked | GapTold | Ended,
) -> None:
    if isinstance(record, Opened | Started | Switched):
        visit.controls.append((place, record))
    elif isinstance(record, GapTold):
        visit.gaps.append(record)
    elif isinstance(record, Ended):
        visit.ended = record
    else:
        all_of = visit.acked if isinstance(record, Acked) else visit.reached
        for pubend, tick in _named(record.position).items():
            all_of[pubend] = max(all_of.get(pubend, 0), tick)


def _gone(controls: list[Control], visits: dict[tuple[str, str, str], _Visit]) -> set[str]:
    """Return subscriptions that were ended for good."""
    found = set()
    for each in controls:
        record = each.record
        if isinstance(record, Ended) and record.is_gone:
            found.add(f"{record.subscription}@{each.header.name}")
            visit = visits.get((each.header.run, record.subscription, record.visit))
            if visit is not None:
                found.add(_key(visit.opened))
    return found


def _named(places: Iterable[tuple[PubendId, int]]) -> dict[str, int]:
    return {str(pubend): tick for pubend, tick in places}


class _Timeline:
    """The visits of one subscription, put together."""

    def __init__(
        self, name: str, side: str, visits: list[_Visit], tail_us: int, *, is_gone: bool
    ) -> None:
        self._name = name
        self._side = side
        self._visits = visits
        self._tail_us = tail_us
        self._is_gone = is_gone
        self._text = visits[0].opened.filter
        self._governed: dict[str, list[tuple[int, str]]] = {}
        """By pubend after which ticks which filter governs."""
        self._spans: list[tuple[str, int, int, bool]] = []
        self._came_to: dict[str, tuple[int, _Visit]] = {}
        self._acked: dict[str, int] = {}
        self._stays: list[Stay] = []
        self._epoch = 0

    def done(self) -> Subscription:
        for rank, visit in enumerate(self._visits):
            self._epoch += visit.opened.sought
            for _, record in visit.controls:
                self._take(visit, record)
            for pubend, start in visit.starts.items():
                self._stay(rank, visit, pubend, start)
            for pubend, tick in visit.acked.items():
                self._acked[pubend] = max(self._acked.get(pubend, 0), tick)
        for pubend, (came_to, visit) in self._came_to.items():
            self._tail(pubend, came_to, visit)
        gaps = [gap for visit in self._visits for gap in visit.gaps]
        return Subscription(
            self._name,
            self._side,
            self._visits[0].opened.total,
            [*self._intervals(gaps)],
            self._stays,
            [(str(gap.pubend), gap.low, gap.high) for gap in gaps if not gap.expected],
        )

    def _take(self, visit: _Visit, record: Opened | Started | Switched) -> None:
        """Follow which filter governs where."""
        if isinstance(record, Switched):
            self._switch(record.filter, _named(record.position))
            return
        if isinstance(record, Started):
            places = {str(record.pubend): record.after}
        else:
            places = _named(record.position)
            if not record.durable and record.filter != self._text:
                # it began anew with another filter: asked for before the connection was lost
                self._switch(record.filter, places)
        for pubend, tick in places.items():
            visit.starts.setdefault(pubend, tick)
            self._governed.setdefault(pubend, [(-1, self._text)])

    def _switch(self, text: str, places: dict[str, int]) -> None:
        for pubend, tick in places.items():
            self._governed.setdefault(pubend, [(-1, self._text)]).append((tick, text))
        self._text = text

    def _stay(self, rank: int, visit: _Visit, pubend: str, start: int) -> None:
        """Put down what a visit is owed on a pubend, and what its events mean."""
        before = self._came_to.get(pubend)
        is_sought = visit.opened.sought
        if before is not None and not is_sought and start > before[0]:
            self._spans.append((pubend, before[0], start, before[1].is_sure))
        came_to = visit.came_to(pubend, start)
        if came_to > start:
            self._spans.append((pubend, start, came_to, True))
        handed = visit.ended.position if visit.ended is not None else None
        dropped = came_to if handed is not None and pubend in _named(handed) else FOREVER
        if is_sought:
            fresh_up_to = -1
        else:
            fresh_up_to = start if self._side == "broker" else self._acked.get(pubend, -1)
        self._stays.append(
            Stay(
                visit.log.header.run,
                visit_key(visit.opened.visit, visit.opened.subscription),
                rank,
                self._epoch,
                pubend,
                start if visit.opened.restated else -1,
                dropped,
                fresh_up_to,
            )
        )
        self._came_to[pubend] = (came_to, visit)

    def _tail(self, pubend: str, came_to: int, visit: _Visit) -> None:
        """What is above all that has come."""
        last = self._visits[-1]
        if visit.ended is None and visit is last:
            overdue = visit.log.seen_us - self._tail_us
            if overdue > came_to:
                self._spans.append((pubend, came_to, overdue, True))
                came_to = overdue
        elif self._is_gone or not last.opened.durable:
            return
        self._spans.append((pubend, came_to, FOREVER, False))

    def _intervals(self, gaps: list[GapTold]) -> Iterable[Interval]:
        """Cut spans where filters change, and take gaps out that were told."""
        for pubend, spans in _joined(self._spans).items():
            told = [(gap.low - 1, gap.high) for gap in gaps if str(gap.pubend) == pubend]
            switches = sorted(self._governed.get(pubend, []), key=lambda change: change[0])
            for low, high, settled in _without(spans, told):
                for place, (after, text) in enumerate(switches):
                    following = switches[place + 1][0] if place + 1 < len(switches) else FOREVER
                    begin = max(low, after)
                    end = min(high, following)
                    if begin < end:
                        yield Interval(pubend, begin, end, text, settled)


_Span = tuple[int, int, bool]


def _joined(spans: Iterable[tuple[str, int, int, bool]]) -> dict[str, list[_Span]]:
    """Return spans that do not overlap; where one is settled and another is not, it is settled."""
    found: dict[str, list[_Span]] = {}
    for pubend in sorted({span[0] for span in spans}):
        mine = [span[1:] for span in spans if span[0] == pubend]
        bounds = sorted({bound for low, high, _ in mine for bound in (low, high)})
        for low, high in pairwise(bounds):
            over = [settled for begin, end, settled in mine if begin <= low and high <= end]
            if over:
                found.setdefault(pubend, []).append((low, high, any(over)))
    return found


def _without(spans: list[_Span], told: list[tuple[int, int]]) -> Iterable[_Span]:
    """Give spans without what is in told ranges."""
    for low, high, settled in spans:
        begin = low
        for gap_low, gap_high in sorted(told):
            if gap_high <= begin or gap_low >= high:
                continue
            if gap_low > begin:
                yield begin, gap_low, settled
            begin = max(begin, gap_high)
        if begin < high:
            yield begin, high, settled
