"""Where a subscription begins, as people say it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from gapless.client.position import Position
from gapless.core.errors import UsageError
from gapless.core.ticks import Tick
from gapless.messages.clients import Begin, BeginKind

__all__ = ["Start", "begin_of"]

Start: TypeAlias = Literal["latest", "earliest"] | Mapping[str, Tick] | datetime
"""A word, a position, or a time with its zone."""


def begin_of(start: Start) -> Begin:
    """Return where to begin, as it travels."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError(f"{start} has no time zone; write datetime.now(timezone.utc)")
        return Begin(BeginKind.TIME, clock=round(start.timestamp() * 1_000_000))
    if isinstance(start, Mapping):
        return Begin(BeginKind.POSITION, Position(start).as_tuple())
    if start == "latest":
        return Begin()
    if start == "earliest":
        return Begin(BeginKind.EARLIEST)
    raise UsageError(f"start is 'latest', 'earliest', a position or a datetime, not {start!r}")
