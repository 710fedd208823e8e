"""Parameters that follow from the session timeout."""

from __future__ import annotations

import msgspec
import pytest

from gapless.cli.main import EXIT_WRONG_INPUT
from gapless.core.parameters import DEFAULTS, Parameters
from gapless_lab.chaos.timing import parameters_for, timing_for
from gapless_lab.commands.chaos import SESSION_TIMEOUT_MIN_MS
from tests.cli.overlays import gapless

SESSION_TIMEOUT_MAX_MS = DEFAULTS.link_idle_timeout_ms - 1


def test_the_default_gives_the_defaults() -> None:
    parameters = msgspec.convert(parameters_for(DEFAULTS.session_timeout_ms), Parameters)
    expected = msgspec.structs.replace(DEFAULTS, redial_max_ms=500, keepalive_ms=500)
    assert parameters == expected


@pytest.mark.parametrize(
    "session_timeout_ms", [SESSION_TIMEOUT_MIN_MS, 600, 3_000, 6_000, SESSION_TIMEOUT_MAX_MS]
)
def test_brokers_accept_every_session_timeout_that_can_be_chosen(session_timeout_ms: int) -> None:
    parameters = msgspec.convert(
        parameters_for(session_timeout_ms), Parameters
    )  # raises if invalid
    assert parameters.heartbeat_ms == session_timeout_ms // 6
    assert parameters.attach_expiry_ms >= 4 * session_timeout_ms
    assert parameters.replay_buffer_ms >= 2 * session_timeout_ms


def test_the_verdict_names_the_chosen_parameters() -> None:
    timing = timing_for(3_000)
    assert (timing.heartbeat_ms, timing.session_timeout_ms) == (500, 3_000)
    assert "heartbeat_ms 500, session_timeout_ms 3000" in timing.story


@pytest.mark.parametrize(
    "session_timeout_ms", [SESSION_TIMEOUT_MIN_MS - 1, SESSION_TIMEOUT_MAX_MS + 1]
)
def test_an_invalid_session_timeout_is_refused(session_timeout_ms: int) -> None:
    ran = gapless("chaos", "--network", "proxies", "--session-timeout-ms", str(session_timeout_ms))
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "--session-timeout-ms" in ran.stderr
