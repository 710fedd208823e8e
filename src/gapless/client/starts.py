"""Start points of subscriptions, in the form that programs give them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

from gapless.client.position import Position
from gapless.content.values import plain_scalar
from gapless.core.errors import UsageError, shown_value
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint

__all__ = ["Start", "start_point_of"]

Start: TypeAlias = Literal["latest", "earliest"] | Mapping[str, Tick] | datetime
"""A word, a position, or a time with its zone."""


def start_point_of(start: Start) -> StartPoint:
    """Return a start in its wire form."""
    given: Any = plain_scalar(start)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise UsageError(f"{given} has no time zone; write datetime.now(timezone.utc)")
        return StartPoint(StartKind.TIME, clock=round(given.timestamp() * 1_000_000))
    if isinstance(given, Mapping):
        return StartPoint(StartKind.POSITION, Position(given).as_tuple())
    if isinstance(given, str) and given == "latest":
        return StartPoint()
    if isinstance(given, str) and given == "earliest":
        return StartPoint(StartKind.EARLIEST)
    raise UsageError(
        f"start is 'latest', 'earliest', a position or a datetime, not {shown_value(given)}"
    )
