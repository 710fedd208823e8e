"""The audit: what subscribers must receive, what they received, and every difference.

It reads records and nothing else. Plain Python functions, one beside the text of each filter,
decide what matches, not the code that the brokers use.

A subscriber must receive every acknowledged event that matches the filter that applies at its tick,
if the event is after the start of the subscriber or was sent after it had subscribed. The filter
that applies is that of the last change whose position on that pubend is below the tick.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from gapless_lab.demo.records import (
    DemoDelivered,
    DemoFilterChanged,
    DemoGap,
    DemoOpened,
    DemoPublished,
    Note,
    Quote,
    read_notes,
    read_published,
)

__all__ = ["Audit", "AuditSummaryRow", "Latency", "Test", "audit", "audit_files"]

Test: TypeAlias = Callable[[Quote], bool]
"""Returns whether a quote matches, without the filter code of the brokers."""

EXAMPLES_MAX: Final = 10
"""How many findings are described; all are counted."""

COUNTS: Final = ("expected", "delivered", "lost", "duplicates", "out_of_order", "spurious", "gaps")
"""The counts of a subscriber."""

Key: TypeAlias = tuple[str, int]


class Latency(msgspec.Struct, frozen=True):
    """The time from before an event was sent until it was delivered, in milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, delays_us: list[int]) -> Latency | None:
        """Return the percentiles of delays; None if there are none."""
        if not delays_us:
            return None
        ordered = sorted(delays_us)
        last = len(ordered) - 1
        picked = [ordered[min(last, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99, 1)]
        return cls(*(round(each / 1_000, 1) for each in picked))


class AuditSummaryRow(msgspec.Struct, kw_only=True):
    """The result for one subscriber, or for all."""

    subscriber: str
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    spurious: int = 0
    """Not matching, never published, or different from what was published."""
    gaps: int = 0
    latency_ms: Latency | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        found = (self.lost, self.duplicates, self.out_of_order, self.spurious, self.gaps)
        return not any(found)


class Audit(msgspec.Struct, kw_only=True):
    """The whole result."""

    published: int
    """Acknowledged events."""
    unknown: int
    """Events with an unknown outcome."""
    unknown_delivered: int
    """Those of them that a subscriber received, so they were published."""
    failed: int
    """Events that were certainly not published, as the publisher was informed."""
    rows: list[AuditSummaryRow]
    total: AuditSummaryRow
    examples: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee was kept."""
        return self.total.is_clean


class _Ledger:
    """All published events, and the findings."""

    def __init__(self, published: Iterable[DemoPublished]) -> None:
        self.by_key: dict[Key, DemoPublished] = {}
        self.examples: list[str] = []
        self.repeated: list[DemoPublished] = []
        for each in published:
            key = each.publisher, each.number
            if key in self.by_key:
                self.repeated.append(each)
            self.by_key[key] = each

    def note(self, finding: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(finding)

    def count(self, outcome: str) -> int:
        return sum(each.outcome == outcome for each in self.by_key.values())


class _AppliedFilters:
    """Which filter of one subscriber applies at which tick."""

    def __init__(self, first: DemoOpened, tests: Mapping[str, Test]) -> None:
        self._tests = tests
        self._first = tests[first.filter]
        self._switches: dict[str, list[tuple[int, Test]]] = {}
        self.start = first.position
        self.since_us = first.at_us

    def switch(self, switched: DemoFilterChanged) -> None:
        for pubend, tick in switched.position.items():
            changes = self._switches.setdefault(pubend, [])
            changes.append((tick, self._tests[switched.filter]))
            changes.sort(key=lambda change: change[0])

    def wants(self, pubend: str, tick: int, quote: Quote) -> bool:
        """Return whether the filter that applies at a tick matches."""
        changes = self._switches.get(pubend, [])
        index = bisect_left(changes, tick, key=lambda change: change[0])
        test = changes[index - 1][1] if index else self._first
        return test(quote)

    def must_receive(self, each: DemoPublished) -> bool:
        if each.outcome != "ok" or not self.wants(each.pubend, each.tick, each.attributes):
            return False
        return each.tick > self.start.get(each.pubend, -1) or each.sent_us > self.since_us


class _SubscriberAudit:
    """The deliveries of one subscriber, in the order of its file."""

    def __init__(
        self, name: str, ledger: _Ledger, filters: _AppliedFilters, *, total: bool
    ) -> None:
        self.row = AuditSummaryRow(subscriber=name)
        self.seen: set[Key] = set()
        self.delays_us: list[int] = []
        self.since_us = 0
        self._ledger = ledger
        self._filters = filters
        self._is_total = total
        self._ticks: dict[str, int] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._last = (-1, "")

    def take(self, each: DemoDelivered) -> None:
        row, key = self.row, (each.publisher, each.number)
        row.delivered += 1
        if key in self.seen:
            row.duplicates += 1
            self._note(each, "came twice")
            return
        self.seen.add(key)
        problem = self._spurious(each)
        if problem:
            row.spurious += 1
            self._note(each, problem)
        elif not self._follows(each):
            row.out_of_order += 1
            self._note(each, "came out of order")
        sent = self._ledger.by_key.get(key)
        if sent is not None and sent.sent_us >= self.since_us:
            self.delays_us.append(each.at_us - sent.sent_us)

    def _note(self, each: DemoDelivered, what: str) -> None:
        event = f"{each.publisher} {each.number} at {each.pubend}:{each.tick}"
        self._ledger.note(f"{self.row.subscriber}: {event} {what}")

    def _spurious(self, each: DemoDelivered) -> str:
        """Return why an event should not have been delivered, or an empty text."""
        sent = self._ledger.by_key.get((each.publisher, each.number))
        if sent is None:
            return "was never published"
        if sent.outcome == "failed":
            return "came although it was reported as not published"
        if sent.attributes != each.attributes or sent.pubend != each.pubend:
            return "differs from what was published"
        if sent.outcome == "ok" and sent.tick != each.tick:
            return f"was acknowledged at {sent.tick}"
        if not self._filters.wants(each.pubend, each.tick, each.attributes):
            return "does not match the filter that applies there"
        if each.tick <= self._filters.start.get(each.pubend, -1):
            return "is before the start"
        return ""

    def _follows(self, each: DemoDelivered) -> bool:
        """Record a delivery; return whether it is after all earlier ones."""
        of_publisher = each.pubend, each.publisher
        good = each.tick > self._ticks.get(each.pubend, -1)
        good &= each.number > self._numbers.get(of_publisher, -1)
        good &= not self._is_total or (each.tick, each.pubend) > self._last
        self._ticks[each.pubend] = max(each.tick, self._ticks.get(each.pubend, -1))
        self._numbers[of_publisher] = max(each.number, self._numbers.get(of_publisher, -1))
        self._last = max(self._last, (each.tick, each.pubend))
        return good

    def settle(self) -> None:
        """Count the expected events that are missing as lost."""
        row = self.row
        for key, each in self._ledger.by_key.items():
            if self._filters.must_receive(each):
                row.expected += 1
                if key not in self.seen:
                    row.lost += 1
                    event = f"{each.publisher} {each.number} at {each.pubend}:{each.tick}"
                    self._ledger.note(f"{row.subscriber}: {event} never came")
        row.latency_ms = Latency.of(self.delays_us)


def _audit_subscriber(
    name: str, notes: list[Note], ledger: _Ledger, tests: Mapping[str, Test]
) -> _SubscriberAudit | None:
    """Audit the notes of one subscriber; None if it never subscribed."""
    first = next((note for note in notes if isinstance(note, DemoOpened)), None)
    if first is None:
        return None
    filters = _AppliedFilters(first, tests)
    for note in notes:  # a change may be recorded after events to which it applies
        if isinstance(note, DemoFilterChanged):
            filters.switch(note)
    audited = _SubscriberAudit(name, ledger, filters, total=first.order == "total")
    for note in notes:
        if isinstance(note, DemoDelivered):
            audited.take(note)
        elif isinstance(note, DemoOpened):
            audited.since_us = note.at_us
        elif isinstance(note, DemoGap):
            audited.row.gaps += 1
            ledger.note(f"{name}: a gap on {note.pubend} from {note.low} to {note.high}")
    audited.settle()
    return audited


def audit(
    published: Iterable[DemoPublished],
    notes: Mapping[str, Iterable[Note]],
    tests: Mapping[str, Test],
) -> Audit:
    """Compare what was published with what every subscriber received."""
    ledger = _Ledger(published)
    for each in ledger.repeated:
        ledger.note(f"{each.publisher} recorded {each.number} twice")
    found = (_audit_subscriber(name, [*each], ledger, tests) for name, each in notes.items())
    subscribers = [one for one in found if one is not None]
    total = AuditSummaryRow(subscriber="total")
    for field in COUNTS:
        setattr(total, field, sum(getattr(one.row, field) for one in subscribers))
    total.latency_ms = Latency.of([delay for one in subscribers for delay in one.delays_us])
    seen = {key for one in subscribers for key in one.seen}
    unknown = {key for key, each in ledger.by_key.items() if each.outcome == "unknown"}
    return Audit(
        published=ledger.count("ok"),
        unknown=len(unknown),
        unknown_delivered=len(unknown & seen),
        failed=ledger.count("failed"),
        rows=[one.row for one in subscribers],
        total=total,
        examples=ledger.examples,
    )


def audit_files(directory: Path, tests: Mapping[str, Test]) -> Audit:
    """Audit a directory: ``*.published`` of publishers, ``*.delivered`` of subscribers."""
    publishers = sorted(directory.glob("*.published"))
    published = (record for path in publishers for record in read_published(path))
    notes = {path.stem: read_notes(path) for path in sorted(directory.glob("*.delivered"))}
    return audit(published, notes, tests)
