"""What brokers and clients of a run are told about patience; times of fail-over are read against it."""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.core.parameters import DEFAULTS, Parameters
from gapless_lab.chaos.subscribers import FAILOVER_AFTER_S

__all__ = ["Timing", "parameters_for", "timing_for"]

_PARAMETERS: Final = {"redial_max_ms": 500, "keepalive_ms": 500}
"""Brokers of one computer may look often whether a neighbour is back, and clients leave a broker that
says nothing for two seconds."""

_HEARTBEATS_PER_TIMEOUT: Final = 6
"""Heartbeats in the time after which a session is dead: the ratio of the defaults."""

_TIMEOUTS_PER_EXPIRY: Final = 4
"""An attachment outlives the last sign of its session, so often that time: the ratio of the defaults."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how soon a failure is noticed."""

    heartbeat_ms: int
    session_timeout_ms: int
    redial_max_ms: int
    attach_timeout_ms: int
    """For so long a new subscription waits for streams that cannot begin before it does without them."""
    keepalive_ms: int
    failover_after_s: float
    """How long durable watchers that know several brokers wait for theirs."""

    @property
    def story(self) -> str:
        """Say it in a sentence."""
        return (
            f"brokers: heartbeat_ms {self.heartbeat_ms}, session_timeout_ms {self.session_timeout_ms}, "
            f"redial_max_ms {self.redial_max_ms}, attach_timeout_ms {self.attach_timeout_ms}; "
            f"clients: keepalive_ms {self.keepalive_ms}, "
            f"durable ones fail over after {self.failover_after_s:g} s"
        )


def parameters_for(session_timeout_ms: int) -> dict[str, int]:
    """Return the parameters of brokers that give up a silent neighbour after so long.

    What depends on that goes with it, as in the lab's experiment on fail-over; the default gives the defaults.
    """
    return {
        **_PARAMETERS,
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_ms": session_timeout_ms // _HEARTBEATS_PER_TIMEOUT,
        "attach_expiry_ms": max(
            DEFAULTS.attach_expiry_ms, _TIMEOUTS_PER_EXPIRY * session_timeout_ms
        ),
    }


def timing_for(session_timeout_ms: int) -> Timing:
    """Return what the verdict says of a run with these parameters."""
    parameters = msgspec.convert(parameters_for(session_timeout_ms), Parameters)
    return Timing(
        heartbeat_ms=parameters.heartbeat_ms,
        session_timeout_ms=parameters.session_timeout_ms,
        redial_max_ms=parameters.redial_max_ms,
        attach_timeout_ms=parameters.attach_timeout_ms,
        keepalive_ms=parameters.keepalive_ms,
        failover_after_s=FAILOVER_AFTER_S,
    )
