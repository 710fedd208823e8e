"""A minute of chaos with real processes: every expected event is delivered once and in order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gapless.cli.main import EXIT_WRONG_INPUT
from gapless_lab.chaos.faults import ONE_TOO_MANY, SIDE_CUT
from gapless_lab.chaos.namespaces import why_not
from tests.cli.overlays import environment, gapless

LONGEST_S = 600.0
"""More than a run takes on a loaded computer; a longer run hangs."""

FAULTY = ("lost", "duplicates", "out_of_order", "spurious", "gaps")

ALWAYS = {
    *("crash", "freeze", "one-way cut", "cut link", "flapping link"),
    *("one left in each cell", "another one left", SIDE_CUT, ONE_TOO_MANY),
}
"""The kinds of faults of every tree with some cells of several brokers."""

KINDS = {*ALWAYS, "lost cell", "barrier", "island", "one-way island", "2 cells in a row"}

SUBSCRIBERS = {
    *("tape", "abroad", "roamer", "desk", "ledger", "refugee", "fickle"),
    *("visitor", "newcomer-1", "newcomer-2"),
}


def chaos(*options: str) -> tuple[int, Any, str]:
    """Run the command to its end; return its exit code, its verdict, and its error output."""
    ran = subprocess.run(
        [sys.executable, "-m", "gapless", "chaos", "--json", *options],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        env=environment(),
    )
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else None, ran.stderr


def check(code: int, verdict: Any, printed: str) -> None:
    """Check that the run is clean and that there were faults and events."""
    assert verdict is not None, printed
    total = verdict["audit"]["total"]
    assert {name: total[name] for name in FAULTY} == dict.fromkeys(FAULTY, 0), verdict["audit"]
    assert verdict["stuck"] == []
    assert verdict["listed"] == []
    assert verdict["clean"]
    assert code == 0
    assert total["expected"] > 500
    expected = {row["subscriber"]: row["expected"] for row in verdict["audit"]["rows"]}
    assert expected.keys() >= SUBSCRIBERS
    assert all(expected.values()), expected
    assert verdict["failovers"] >= 1
    check_times(verdict)


def check_times(verdict: Any) -> None:
    """Check that streams had a route in every kind of fault, and that their recovery was measured."""
    measured = ("healed_median_s", "joined_median_s")
    for row in verdict["failover_times"]:
        assert all(row[name] is not None and row[name] > 0 for name in measured), row
        assert row["median_s"] or row["moved_median_s"], "if few brokers are left all have to move"
        if row["kind"] in {SIDE_CUT, ONE_TOO_MANY}:
            assert row["waited_most"] > 0, "there is no way from one side to the other"
    moved = [row["moved_median_s"] for row in verdict["failover_times"]]
    assert any(moved), "some subscriber had to fail over"
    assert verdict["timing"] == {
        "heartbeat_ms": 250,
        "session_timeout_ms": 1_500,
        "redial_max_ms": 500,
        "attach_timeout_ms": 1_000,
        "keepalive_ms": 500,
        "failover_after_s": 1.0,
    }


@pytest.mark.campaign
def test_a_minute_of_all_faults_between_network_namespaces_is_clean() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"network namespaces are not allowed here: {reason}")
    code, verdict, printed = chaos("--minutes", "1", "--seed", "5", "--network", "namespaces")
    check(code, verdict, printed)
    assert verdict["network"] == "namespaces"
    assert {row["kind"] for row in verdict["failover_times"]} >= KINDS


@pytest.mark.slow
def test_chaos_between_proxies_is_clean(tmp_path: Path) -> None:
    data = tmp_path / "data"
    code, verdict, printed = chaos(
        *("--minutes", "0.1", "--topology", "line:3x2", "--delta", "1", "--seed", "35"),
        *("--network", "proxies", "--data", str(data)),
    )
    check(code, verdict, printed)
    assert verdict["network"] == "proxies"
    assert (data / "records/tape.delivered").stat().st_size > 0


@pytest.mark.campaign
def test_chaos_without_bypass_is_clean() -> None:
    code, verdict, printed = chaos(
        *("--minutes", "0.05", "--topology", "line:3x3", "--delta", "0", "--seed", "35"),
        *("--network", "proxies"),
    )
    check(code, verdict, printed)
    assert {row["kind"] for row in verdict["failover_times"]} == ALWAYS


def test_without_namespaces_the_command_names_the_reason_and_the_remedy(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gapless", "chaos", "--network", "namespaces"],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        env={**environment(), "PATH": str(tmp_path)},  # without the program unshare
    )
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "network namespaces are not allowed here" in ran.stderr
    assert "--network proxies" in ran.stderr


def test_an_invalid_topology_is_refused_before_anything_is_started() -> None:
    ran = gapless("chaos", "--network", "proxies", "--topology", "ring:3")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "'ring:3' is no overlay" in ran.stderr
