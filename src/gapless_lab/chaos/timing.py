"""What brokers and clients of a run are told about patience; times of fail-over are read against it."""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.core.parameters import DEFAULTS, Parameters
from gapless_lab.chaos.subscribers import FLEE_AFTER_S

__all__ = ["Timing", "parameters_for", "timing_for"]

_PARAMETERS: Final = {"redial_max_ms": 500, "client_beat_ms": 500}
"""Brokers of one computer may look often whether a neighbour is back, and clients leave a broker that
says nothing for two seconds."""

_BEATS: Final = 6
"""Heartbeats in the time after which a session is dead: the ratio of the defaults."""

_LIVES: Final = 4
"""An attachment outlives the last sign of its session, so often that time: the ratio of the defaults."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how soon a failure is noticed."""

    heartbeat_ms: int
    session_dead_ms: int
    redial_max_ms: int
    attach_timeout_ms: int
    """For so long a new subscription waits for streams that cannot begin before it does without them."""
    client_beat_ms: int
    flee_after_s: float
    """How long durable watchers that know several brokers wait for theirs."""

    @property
    def story(self) -> str:
        """Say it in a sentence."""
        return (
            f"brokers: heartbeat_ms {self.heartbeat_ms}, session_dead_ms {self.session_dead_ms}, "
            f"redial_max_ms {self.redial_max_ms}, attach_timeout_ms {self.attach_timeout_ms}; "
            f"clients: client_beat_ms {self.client_beat_ms}, "
            f"durable ones flee after {self.flee_after_s:g} s"
        )


def parameters_for(session_dead_ms: int) -> dict[str, int]:
    """Return the parameters of brokers that give up a silent neighbour after so long.

    What depends on that goes with it, as in the lab's experiment on fail-over; the default gives the defaults.
    """
    return {
        **_PARAMETERS,
        "session_dead_ms": session_dead_ms,
        "heartbeat_ms": session_dead_ms // _BEATS,
        "attach_expiry_ms": max(DEFAULTS.attach_expiry_ms, _LIVES * session_dead_ms),
    }


def timing_for(session_dead_ms: int) -> Timing:
    """Return what the verdict says of a run with these parameters."""
    told = msgspec.convert(parameters_for(session_dead_ms), Parameters)
    return Timing(
        heartbeat_ms=told.heartbeat_ms,
        session_dead_ms=told.session_dead_ms,
        redial_max_ms=told.redial_max_ms,
        attach_timeout_ms=told.attach_timeout_ms,
        client_beat_ms=told.client_beat_ms,
        flee_after_s=FLEE_AFTER_S,
    )
