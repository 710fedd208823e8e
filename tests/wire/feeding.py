"""Gives an intake what was not read by a connection."""

from __future__ import annotations

from gapless.wire import Intake

__all__ = ["feed"]


def feed(intake: Intake, data: bytes) -> list[bytes]:
    """Let an intake take bytes, as many at a time as there is room for; return the bodies."""
    bodies: list[bytes] = []
    while data:
        count = min(len(data), len(intake.room))
        intake.room[:count] = data[:count]
        bodies += map(bytes, intake.filled(count))
        data = data[count:]
    return bodies
