"""The audit finds every planted fault, and none in a clean run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gapless_lab.demo import audit as audit_module
from gapless_lab.demo.audit import Audit, AuditSummaryRow, Latency, audit, audit_files
from gapless_lab.demo.records import (
    DemoDelivered,
    DemoFilterChanged,
    DemoGap,
    DemoOpened,
    DemoPublished,
    Note,
    PublishOutcome,
    RecordFile,
)

TESTS = {
    "TRUE": lambda _: True,
    "price > 10": lambda quote: quote["price"] > 10,
    "price < 10": lambda quote: quote["price"] < 10,
}


def published(
    number: int,
    *,
    price: int = 20,
    outcome: PublishOutcome = "ok",
    pubend: str = "p",
    tick: int = 0,
) -> DemoPublished:
    attributes: dict[str, bool | int | float | str] = {"price": price}
    tick = tick or number * 10
    return DemoPublished(f"of-{pubend}", number, pubend, attributes, number * 1_000, outcome, tick)


def given(
    one: DemoPublished, *, tick: int | None = None, at_us: int | None = None
) -> DemoDelivered:
    at_us = one.sent_us + 500 if at_us is None else at_us
    tick = one.tick if tick is None else tick
    return DemoDelivered(one.publisher, one.number, one.pubend, tick, one.attributes, at_us)


def opened(wanted: str = "price > 10", *, total: bool = False, **position: int) -> DemoOpened:
    return DemoOpened(wanted, "total" if total else "publisher", position or {"p": 5, "q": 5}, 0)


def audited(sent: list[DemoPublished], *notes: Note) -> Audit:
    return audit(sent, {"desk": notes}, TESTS)


def only(found: Audit) -> AuditSummaryRow:
    (row,) = found.rows
    return row


SENT = [published(number) for number in range(1, 6)]


def test_a_faultless_run_is_clean_and_everything_is_counted() -> None:
    cheap = published(6, price=1)
    found = audited([*SENT, cheap], opened(), *map(given, SENT))
    assert found.is_clean
    assert found.examples == []
    assert (found.published, only(found).expected, only(found).delivered) == (6, 5, 5)
    assert (found.unknown, found.failed) == (0, 0)
    assert found.total.latency_ms == Latency(0.5, 0.5, 0.5, 0.5)


@pytest.mark.parametrize("missing", range(5))
def test_an_event_that_never_came_is_lost(missing: int) -> None:
    kept = [each for place, each in enumerate(SENT) if place != missing]
    found = audited(SENT, opened(), *map(given, kept))
    assert only(found) == AuditSummaryRow(
        subscriber="desk", expected=5, delivered=4, lost=1, latency_ms=Latency(0.5, 0.5, 0.5, 0.5)
    )
    assert not found.is_clean
    assert "never came" in found.examples[0]


def test_a_repeated_event_is_a_duplicate_and_not_out_of_order() -> None:
    found = audited(SENT, opened(), *map(given, SENT), given(SENT[2]))
    assert (only(found).duplicates, only(found).out_of_order) == (1, 0)
    assert not found.is_clean


def test_two_swapped_events_are_out_of_order() -> None:
    first, second, *rest = SENT
    found = audited(SENT, opened(), *map(given, [second, first, *rest]))
    assert only(found).out_of_order == 1
    assert not found.is_clean


def test_an_event_that_does_not_match_is_spurious() -> None:
    cheap = published(6, price=1)
    found = audited([*SENT, cheap], opened(), *map(given, [*SENT, cheap]))
    assert only(found).spurious == 1
    assert "does not match" in found.examples[0]


def test_an_event_that_was_not_published_is_spurious() -> None:
    found = audited(SENT, opened(), *map(given, [*SENT, published(7)]))
    assert only(found).spurious == 1


def test_a_changed_event_is_spurious() -> None:
    changed = [*SENT[:4], published(5, price=21)]
    assert only(audited(SENT, opened(), *map(given, changed))).spurious == 1


def test_an_event_at_another_tick_than_acknowledged_is_spurious() -> None:
    found = audited(SENT, opened(), *map(given, SENT[:4]), given(SENT[4], tick=57))
    assert only(found).spurious == 1


def test_an_event_before_the_start_is_spurious_and_not_expected() -> None:
    later = opened(p=25)
    found = audited(
        SENT, DemoOpened(later.filter, later.order, later.position, 9_000), given(SENT[1])
    )
    assert (only(found).expected, only(found).spurious) == (3, 1)


def test_events_sent_after_the_subscription_are_expected_whatever_its_start() -> None:
    found = audited(SENT, opened(p=1_000_000))
    assert (only(found).expected, only(found).lost) == (5, 5)


def test_a_gap_is_not_clean() -> None:
    found = audited(SENT, opened(), *map(given, SENT), DemoGap("p", 100, 200))
    assert only(found).gaps == 1
    assert not found.is_clean


# --- unknown outcomes -------------------------------------------------------------------------


@pytest.mark.parametrize("came", [True, False])
def test_an_event_of_unknown_outcome_may_be_delivered_or_not(came: bool) -> None:
    unknown = published(6, outcome="unknown")
    arrived = [given(unknown, tick=60)] if came else []
    found = audited([*SENT, unknown], opened(), *map(given, SENT), *arrived)
    assert found.is_clean
    assert (found.unknown, found.unknown_delivered, only(found).expected) == (1, int(came), 5)


def test_an_event_of_unknown_outcome_must_not_be_a_duplicate_or_spurious() -> None:
    unknown, cheap = published(6, outcome="unknown"), published(7, price=1, outcome="unknown")
    notes = [given(unknown, tick=60), given(unknown, tick=65), given(cheap, tick=70)]
    found = audited([*SENT, unknown, cheap], opened(), *map(given, SENT), *notes)
    assert (only(found).duplicates, only(found).spurious) == (1, 1)


def test_an_event_reported_as_not_published_must_not_be_delivered() -> None:
    failed = published(6, outcome="failed")
    found = audited([*SENT, failed], opened(), *map(given, SENT), given(failed))
    assert (found.failed, only(found).spurious) == (1, 1)


# --- filter changes ---------------------------------------------------------------------------

MIXED = [published(number, price=20 if number % 2 else 1) for number in range(1, 9)]
"""Odd numbers are expensive, even ones cheap; ticks are 10, 20, …, 80."""


def test_the_filter_changes_exactly_at_its_position() -> None:
    dear = [each for each in MIXED if each.number % 2 and each.tick <= 40]
    cheap = [each for each in MIXED if not each.number % 2 and each.tick > 40]
    switch = DemoFilterChanged("price < 10", {"p": 40})
    found = audited(MIXED, opened(), *map(given, dear), *map(given, cheap), switch)
    assert found.is_clean
    assert only(found).expected == 4


def test_an_event_of_the_old_filter_after_the_position_is_spurious() -> None:
    switch = DemoFilterChanged("price < 10", {"p": 40})
    notes = [given(MIXED[0]), given(MIXED[2]), given(MIXED[4]), given(MIXED[5]), given(MIXED[7])]
    found = audited(MIXED, opened(), *notes, switch)
    assert (only(found).spurious, only(found).lost) == (1, 0)


def test_a_missing_event_of_the_new_filter_after_the_position_is_lost() -> None:
    switch = DemoFilterChanged("price < 10", {"p": 40})
    notes = [given(MIXED[0]), given(MIXED[2]), given(MIXED[7])]
    assert only(audited(MIXED, opened(), *notes, switch)).lost == 1


def test_the_filter_changes_at_a_tick_for_each_pubend() -> None:
    there = [published(number, price=1, pubend="q") for number in range(1, 5)]
    switch = DemoFilterChanged("price < 10", {"p": 10_000, "q": 25})
    dear = [each for each in MIXED if each.number % 2]
    found = audited([*MIXED, *there], opened(), *map(given, [*dear, *there[2:]]), switch)
    assert found.is_clean
    assert only(found).expected == 4 + 2


# --- several streams, several client sessions ---------------------------------------------------


def test_only_in_total_order_streams_must_be_interleaved_by_tick() -> None:
    there = published(1, pubend="q", tick=15)
    notes = [given(SENT[0]), given(SENT[1]), given(there)]
    assert audited([*SENT[:2], there], opened(), *notes).is_clean
    total = audited([*SENT[:2], there], opened(total=True), *notes)
    assert only(total).out_of_order == 1


def test_a_second_client_session_continues_after_the_first() -> None:
    notes: list[Note] = [
        *map(given, SENT[:2]),
        DemoOpened("price > 10", "publisher", {"p": 20}, 4_500),
    ]
    found = audited(SENT, opened(), *notes, *map(given, SENT[2:]))
    assert found.is_clean
    assert only(found).expected == 5
    again = audited(SENT, opened(), *notes, *map(given, SENT[1:]))
    assert only(again).duplicates == 1, "events before the client session must not come again"


def test_the_latency_counts_only_events_sent_while_the_subscriber_was_connected() -> None:
    late = [given(each, at_us=1_000_000) for each in SENT[:4]]
    first = DemoOpened("price > 10", "publisher", {"p": 5}, 4_500)
    notes: list[Note] = [first, *late, given(SENT[4])]
    assert only(audited(SENT, *notes)).latency_ms == Latency(0.5, 0.5, 0.5, 0.5)


def test_percentiles_are_computed_from_the_latencies() -> None:
    assert Latency.of([each * 1_000 for each in range(1, 101)]) == Latency(51, 96, 100, 100)
    assert Latency.of([]) is None


# --- files ------------------------------------------------------------------------------------


def test_records_in_files_give_the_same_audit(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "of-p.published") as file:
        for each in SENT:
            file.write(each)
    with RecordFile(tmp_path / "desk.delivered") as file:
        notes: list[Note] = [opened(), *map(given, SENT[1:]), DemoFilterChanged("TRUE", {"p": 900})]
        for note in notes:
            file.write(note)
    found = audit_files(tmp_path, TESTS)
    assert found == audited(SENT, opened(), *map(given, SENT[1:]))
    assert only(found).lost == 1


def test_the_audit_imports_nothing_of_the_product() -> None:
    for name in ("audit.py", "records.py"):
        source = (Path(audit_module.__file__).parent / name).read_text()
        imports = [
            node.module or ""
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom)
        ]
        ours = {each for each in imports if each.startswith("gapless")}
        assert ours <= {"gapless_lab.demo.records"}
