"""The time-outs of brokers and clients in a run, with which failover times are compared."""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.core.parameters import DEFAULTS, Parameters
from gapless_lab.chaos.subscribers import FAILOVER_AFTER_S

__all__ = ["Timing", "parameters_for", "timing_for"]

_PARAMETERS: Final = {"redial_max_ms": 500, "keepalive_ms": 500}
"""Brokers on one computer may reconnect often, and clients leave a broker after two seconds of
silence."""

_HEARTBEATS_PER_TIMEOUT: Final = 6
"""Heartbeats per session time-out: the ratio of the defaults."""

_TIMEOUTS_PER_EXPIRY: Final = 4
"""An attachment outlives the last heartbeat of its session by this many time-outs: the ratio of the
defaults."""

_TIMEOUTS_PER_REPLAY: Final = 2
"""A replay buffer outlasts a session time-out, and the time until the receiver asks again."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that decide how soon a failure is detected."""

    heartbeat_ms: int
    session_timeout_ms: int
    redial_max_ms: int
    attach_timeout_ms: int
    """How long a new subscription waits for streams that cannot start, before it starts without
    them."""
    keepalive_ms: int
    failover_after_s: float
    """How long durable subscribers that know several brokers wait for their hosting broker."""

    @property
    def story(self) -> str:
        """Describe the parameters in a sentence."""
        return (
            f"brokers: heartbeat_ms {self.heartbeat_ms}, session_timeout_ms {self.session_timeout_ms}, "
            f"redial_max_ms {self.redial_max_ms}, attach_timeout_ms {self.attach_timeout_ms}; "
            f"clients: keepalive_ms {self.keepalive_ms}, "
            f"durable ones fail over after {self.failover_after_s:g} s"
        )


def parameters_for(session_timeout_ms: int) -> dict[str, int]:
    """Return broker parameters for a session time-out.

    Dependent parameters grow with it, as in the lab's experiment on failover; the default time-out
    gives the defaults.
    """
    return {
        **_PARAMETERS,
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_ms": session_timeout_ms // _HEARTBEATS_PER_TIMEOUT,
        "attach_expiry_ms": max(
            DEFAULTS.attach_expiry_ms, _TIMEOUTS_PER_EXPIRY * session_timeout_ms
        ),
        "replay_buffer_ms": max(
            DEFAULTS.replay_buffer_ms, _TIMEOUTS_PER_REPLAY * session_timeout_ms
        ),
    }


def timing_for(session_timeout_ms: int) -> Timing:
    """Return the timing that the verdict shows."""
    parameters = msgspec.convert(parameters_for(session_timeout_ms), Parameters)
    return Timing(
        heartbeat_ms=parameters.heartbeat_ms,
        session_timeout_ms=parameters.session_timeout_ms,
        redial_max_ms=parameters.redial_max_ms,
        attach_timeout_ms=parameters.attach_timeout_ms,
        keepalive_ms=parameters.keepalive_ms,
        failover_after_s=FAILOVER_AFTER_S,
    )
