"""Offsets: positions of a stream as Spark keeps them in a checkpoint.

An offset is a JSON object with ``positions`` (up to which tick of each pubend everything is read) and,
if something was skipped that logs no longer had, ``skipped`` (how many ticks of each pubend, since the
query began).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gapless.client.position import Position
from gapless.core.errors import UsageError
from gapless.core.ticks import Tick

__all__ = ["Offset"]


class Offset(msgspec.Struct, frozen=True):
    """A position, and what was skipped on the way to it."""

    positions: dict[str, Tick]
    skipped: dict[str, int] = {}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Offset:
        """Return the offset that Spark gives back; a bare position is one too.

        >>> Offset.of({"quotes": 1700}) == Offset.of({"positions": {"quotes": 1700}})
        True
        """
        positions, skipped = stored.get("positions"), stored.get("skipped", {})
        if not isinstance(positions, Mapping) or not isinstance(skipped, Mapping):
            positions, skipped = stored, {}
        try:
            return cls(dict(Position(positions)), dict(skipped))
        except UsageError as error:
            raise UsageError(f"the checkpoint has no position of gapless: {error}") from error

    def stored(self) -> dict[str, Any]:
        """Return it as Spark keeps it; equal offsets give equal texts."""
        found: dict[str, Any] = {"positions": dict(sorted(self.positions.items()))}
        if self.skipped:
            found["skipped"] = dict(sorted(self.skipped.items()))
        return found
