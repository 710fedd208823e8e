"""Positions in streams, as they are written on a command line."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from gapless.core.errors import UsageError, shortened

if TYPE_CHECKING:
    from gapless.client.starts import Start

__all__ = ["HELP", "read_position"]

HELP = (
    "latest, earliest, a position such as quotes:1700000000000000 (or as JSON), or a time such as "
    "2026-03-01T09:30 (without a time zone: local time)"
)


def read_position(text: str) -> Start:
    """Return the position at which to start.

    >>> read_position("earliest"), read_position("2026-03-01T09:30Z").isoformat()
    ('earliest', '2026-03-01T09:30:00+00:00')
    >>> read_position("quotes:17,orders:5")
    Position({'orders': 5, 'quotes': 17})
    """
    from gapless.client import Position

    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    try:
        # before positions: a time has colons too
        return dt.datetime.fromisoformat(text).astimezone(_zone(text))
    except ValueError:
        pass
    try:
        if text.startswith("{"):
            return Position(json.loads(text))
        return Position.parse(text)
    except ValueError as error:
        raise UsageError(
            f"{shortened(text)!r} is not a start position ({error}); write {HELP}"
        ) from None


def _zone(text: str) -> dt.tzinfo | None:
    """Return the time zone of a time; None stands for local time."""
    return dt.datetime.fromisoformat(text).tzinfo
