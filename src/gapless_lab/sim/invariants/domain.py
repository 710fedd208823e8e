"""Filters as sets of events: every event that a workload can publish is a bit.

The attributes of the workload have few values, so its events can be enumerated. "Covers" is then a
comparison of bit masks, independent of the algebra that is to be checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from gapless.content import Conjunction
from gapless.content.filter import Filter
from gapless.content.values import Value

__all__ = ["Domain"]


class Domain:
    """All events of a workload, and the sets of them that filters match."""

    def __init__(self, size: int) -> None:
        self.events = _events(size)
        self._conjunctions: dict[Conjunction, int] = {}
        self._filters: dict[str, int] = {}

    def of_conjunction(self, conjunction: Conjunction) -> int:
        """Return the events that a conjunction matches."""
        mask = self._conjunctions.get(conjunction)
        if mask is None:
            mask = sum(
                1 << bit for bit, each in enumerate(self.events) if conjunction.matches(each)
            )
            self._conjunctions[conjunction] = mask
        return mask

    def of_all(self, conjunctions: Iterable[Conjunction]) -> int:
        """Return the events that any of some conjunctions matches."""
        mask = 0
        for conjunction in conjunctions:
            mask |= self.of_conjunction(conjunction)
        return mask

    def of_filter(self, text: str) -> int:
        """Return the events that a filter matches, by evaluating the filter itself."""
        mask = self._filters.get(text)
        if mask is None:
            wanted = Filter(text)
            mask = sum(1 << bit for bit, each in enumerate(self.events) if wanted.matches(each))
            self._filters[text] = mask
        return mask

    def first(self, mask: int) -> dict[str, Value]:
        """Return one event of a set, for a message."""
        return self.events[(mask & -mask).bit_length() - 1]


def _events(size: int) -> list[dict[str, Value]]:
    """Return all events that :func:`gapless_lab.sim.generators.draw_event` can draw."""
    found: list[dict[str, Value]] = []
    for kind, price, hot in product("abcdefgh"[:size], range(size + 1), (None, False, True)):
        event: dict[str, Value] = {"kind": kind, "price": price}
        if hot is not None:
            event["hot"] = hot
        found.append(event)
    return found
