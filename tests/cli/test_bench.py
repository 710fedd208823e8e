"""``gapless bench`` measures something."""

from __future__ import annotations

import json

from gapless.cli.main import EXIT_WRONG_INPUT
from tests.cli.overlays import gapless


def test_bench_counts_the_delivered_events() -> None:
    ran = gapless("bench", "--topology", "line:2", "--seconds", "0.2", "--durable", "--json")
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    assert measured["brokers"] == 2
    assert measured["events"] > 0
    assert measured["events_a_second"] > 0
    assert 0 < measured["delay_ms_median"] <= measured["delay_ms_p99"]


def test_an_invalid_topology_is_an_error() -> None:
    ran = gapless("bench", "--topology", "ring:1")
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "'ring:1' is no overlay" in ran.stderr
