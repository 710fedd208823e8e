"""The output of the demo, on a terminal and in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gapless_lab.demo.audit import Audit, AuditSummaryRow, Latency
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.screen import PLAIN_S, Screen, show_audit


def a_console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=160)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def an_audit(**faults: int) -> Audit:
    row = AuditSummaryRow(subscriber="desk", expected=1_234, delivered=1_234)
    row.latency_ms = Latency(1.5, 20.0, 300.0, 4_000.0)
    total = AuditSummaryRow(subscriber="total", expected=1_234, delivered=1_234)
    for name, count in faults.items():
        setattr(row, name, count)
        setattr(total, name, count)
    return Audit(
        published=2_000,
        unknown=3,
        unknown_delivered=2,
        failed=4,
        rows=[row],
        total=total,
        examples=["desk: nyse-1 7 at nyse:17 never came"] if faults else [],
    )


def test_a_clean_audit_is_shown_with_all_its_numbers() -> None:
    console = a_console()
    show_audit(console, an_audit(), DemoCounters())
    text = shown(console)
    for part in (
        "2,000 events were acknowledged",
        "of 3 the outcome was unknown",
        "4 were reported",
    ):
        assert part in text
    assert "1,234" in text
    assert "4,000.0" in text
    assert "clean: nothing lost" in text


@pytest.mark.parametrize("fault", ["lost", "duplicates", "out_of_order", "spurious", "gaps"])
def test_any_fault_makes_the_audit_not_clean(fault: str) -> None:
    console = a_console()
    show_audit(console, an_audit(**{fault: 1}), DemoCounters())
    assert "NOT CLEAN" in shown(console)
    assert "never came" in shown(console)


def test_without_a_terminal_plain_lines_are_printed_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("gapless_lab.demo.screen.time.monotonic", lambda: clock[0])
    console, tally = a_console(), DemoCounters()
    with Screen(console, tally) as screen:
        screen.phase("publishing")
        screen.tick(3, 3)
        clock[0] += PLAIN_S
        tally.published, tally.kills = 500, 2
        screen.tick(2, 3)
        screen.tick(2, 3)
    lines = shown(console).splitlines()
    assert len(lines) == 1
    assert "publishing: 2/3 brokers up, 500 published (100/s)" in lines[0]
    assert "2 kills" in lines[0]
    assert "\x1b" not in lines[0]


def test_on_a_terminal_one_line_is_redrawn() -> None:
    console = a_console(terminal=True)
    with Screen(console, DemoCounters()) as screen:
        screen.tick(3, 3)
    assert "3/3 brokers up" in shown(console)


def test_a_quiet_screen_prints_nothing() -> None:
    console = a_console(terminal=True)
    with Screen(console, DemoCounters(), quiet=True) as screen:
        screen.say("hello")
        screen.tick(3, 3)
    assert shown(console) == ""
