"""What goes with the time after which a silent neighbour is down."""

from __future__ import annotations

import msgspec
import pytest

from gapless.cli.main import EXIT_WRONG_INPUT
from gapless.core.parameters import DEFAULTS, Parameters
from gapless_lab.chaos.timing import parameters_for, timing_for
from gapless_lab.commands.chaos import LEAST_DEAD_MS
from tests.cli.overlays import gapless

MOST_DEAD_MS = DEFAULTS.link_silent_ms - 1


def test_the_default_gives_the_defaults() -> None:
    told = msgspec.convert(parameters_for(DEFAULTS.session_dead_ms), Parameters)
    expected = msgspec.structs.replace(DEFAULTS, redial_max_ms=500, client_beat_ms=500)
    assert told == expected


@pytest.mark.parametrize("session_dead_ms", [LEAST_DEAD_MS, 600, 3_000, 6_000, MOST_DEAD_MS])
def test_brokers_take_every_time_that_can_be_chosen(session_dead_ms: int) -> None:
    told = msgspec.convert(parameters_for(session_dead_ms), Parameters)  # else it raises
    assert told.heartbeat_ms == session_dead_ms // 6
    assert told.attach_expiry_ms >= 4 * session_dead_ms


def test_the_verdict_names_what_was_chosen() -> None:
    timing = timing_for(3_000)
    assert (timing.heartbeat_ms, timing.session_dead_ms) == (500, 3_000)
    assert "heartbeat_ms 500, session_dead_ms 3000" in timing.story


@pytest.mark.parametrize("session_dead_ms", [LEAST_DEAD_MS - 1, MOST_DEAD_MS + 1])
def test_a_time_that_brokers_could_not_live_with_is_refused(session_dead_ms: int) -> None:
    ran = gapless("chaos", "--network", "proxies", "--session-dead-ms", str(session_dead_ms))
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "--session-dead-ms" in ran.stderr
