"""Slots of the fallback engine that NumPy verifies many at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gapless.content.matching.fallback_attributes import AttributeGroups
from gapless.content.matching.fallback_groups import SlotRule

__all__ = ["PlainSlots", "SlotArray", "ValueArray"]

_WIDTH: Final = 6
"""Ranges of a slot that NumPy verifies; a slot with more is verified one by one."""

ValueArray: TypeAlias = npt.NDArray[np.float64]
SlotArray: TypeAlias = npt.NDArray[np.int64]


class PlainSlots:
    """The slots that doubles describe exactly, as arrays: attributes, lowest and highest values.

    Number 0 stands for no attribute: its value is 0 and its range is everything.
    """

    def __init__(self) -> None:
        self.is_plain: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._which: npt.NDArray[np.int32] = np.zeros((0, _WIDTH), dtype=np.int32)
        self._low: ValueArray = np.zeros((0, _WIDTH))
        self._high: ValueArray = np.zeros((0, _WIDTH))

    def store(self, slot: int, rule: SlotRule, attributes: Mapping[str, AttributeGroups]) -> None:
        """Store the ranges of a slot if doubles describe it exactly."""
        if slot >= len(self.is_plain):
            self._grow(max(64, len(self.is_plain)))
        self.is_plain[slot] = (
            rule.check is None
            and not rule.choices
            and len(rule.intervals) <= _WIDTH
            and not any(low[1] or high[1] for _, low, high in rule.intervals)
        )
        if self.is_plain[slot]:
            self._which[slot], self._low[slot], self._high[slot] = 0, -np.inf, np.inf
            for place, (name, low, high) in enumerate(rule.intervals):
                self._which[slot, place] = attributes[name].number
                self._low[slot, place] = low[0]
                self._high[slot, place] = high[0]

    def verified(self, slots: SlotArray, values: ValueArray) -> SlotArray:
        """Return the plain slots that match the values (by attribute number)."""
        found = values[self._which[slots]]
        holds = (self._low[slots] <= found) & (found <= self._high[slots])
        return slots[holds.all(axis=1)]

    def _grow(self, extra: int) -> None:
        rows = (extra, _WIDTH)
        self.is_plain = np.append(self.is_plain, np.zeros(extra, dtype=np.bool_))
        self._which = np.concatenate([self._which, np.zeros(rows, dtype=np.int32)])
        self._low = np.concatenate([self._low, np.zeros(rows)])
        self._high = np.concatenate([self._high, np.zeros(rows)])
