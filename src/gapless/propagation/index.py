"""One match of an event gives the set of tables that it matches (R25).

Each table that a broker holds has a number. A set of tables is a mask with one bit for each number.
One test of such a mask decides whether a receiver gets the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from gapless.content import Conjunction
from gapless.content.matching import RoutingIndex
from gapless.content.matching.work import MatchWork
from gapless.content.values import Attributes

__all__ = ["TableIndex"]


class TableIndex:
    """The conjunctions of all tables of a broker, by the tables' numbers."""

    def __init__(self) -> None:
        self.match_work = MatchWork()
        """The allowance of each step for matching. An event beyond it matches all tables."""
        self._index = RoutingIndex(work=self.match_work)
        self._counts: dict[int, dict[Conjunction, int]] = {}
        """By table number; two texts of a table may be the same conjunction."""
        self._free: list[int] = []

    def number(self) -> int:
        """Allocate the least free number to a table."""
        number = heappop(self._free) if self._free else len(self._counts)
        self._counts[number] = {}
        return number

    def change(
        self, number: int, added: Iterable[Conjunction], removed: Iterable[Conjunction]
    ) -> None:
        """Apply a change of a table."""
        counts = self._counts[number]
        for conjunction in added:
            counts[conjunction] = counts.get(conjunction, 0) + 1
            if counts[conjunction] == 1:
                self._index.add_link(number, conjunction)
        for conjunction in removed:
            counts[conjunction] -= 1
            if not counts[conjunction]:
                del counts[conjunction]
                self._index.remove_link(number, conjunction)

    def drop(self, number: int) -> None:
        """Remove a table; its number may be allocated again."""
        del self._counts[number]
        self._index.drop_link(number)
        heappush(self._free, number)

    def match(self, attributes: Attributes) -> int:
        """Return the mask of the tables that match an event with these attributes."""
        return self._index.match_links((attributes,))[0]

    def match_batch(self, events: Iterable[Attributes]) -> list[int]:
        """Return the masks for several events, in their order."""
        return self._index.match_links(events)

    def statistics(self) -> dict[str, int]:
        """Return counters for operators."""
        return self._index.statistics()
