"""Offsets: positions of a stream as Spark keeps them in a checkpoint.

An offset is a JSON object with ``positions`` (the tick up to which each pubend was read); if
released ranges were skipped, ``skipped`` (how many ticks of each pubend since the start of the
query); and ``released`` (of each pubend whose beginning was released before the query began to read
it, the last released tick).
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
    """A position, and what was skipped or released before it."""

    positions: dict[str, Tick]
    skipped: dict[str, int] = {}
    released: dict[str, Tick] = {}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Offset:
        """Return the offset of a checkpoint; a bare position is accepted too.

        >>> Offset.of({"quotes": 1700}) == Offset.of({"positions": {"quotes": 1700}})
        True
        """
        positions: Any = stored.get("positions")
        skipped = stored.get("skipped", {})
        released = stored.get("released", {})
        if not all(isinstance(each, Mapping) for each in (positions, skipped, released)):
            positions, skipped, released = stored, {}, {}
        try:
            return cls(dict(Position(positions)), dict(skipped), dict(released))
        except UsageError as error:
            raise UsageError(f"the checkpoint has no valid position: {error}") from error

    def stored(self) -> dict[str, Any]:
        """Return the form for a checkpoint; equal offsets give equal texts."""
        found: dict[str, Any] = {"positions": dict(sorted(self.positions.items()))}
        if self.skipped:
            found["skipped"] = dict(sorted(self.skipped.items()))
        if self.released:
            found["released"] = dict(sorted(self.released.items()))
        return found
