"""The matching index: which filters an event matches."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from gapless.content.filter import Filter
from gapless.content.matching.kernel import new_engine
from gapless.content.matching.table import SlotTable, check_filter
from gapless.content.matching.work import MatchWork
from gapless.content.values import Attributes

__all__ = ["MatchIndex"]

T = TypeVar("T")


class MatchIndex:
    """A set of filters under keys, to find those that an event matches.

    >>> from gapless import Filter, MatchIndex
    >>> index = MatchIndex()
    >>> index.add("desk", Filter("symbol = 'IBM' AND price > 90"))
    >>> index.add("audit", Filter("price IS NOT NULL"))
    >>> sorted(index.match({"symbol": "IBM", "price": 91.5}))
    ['audit', 'desk']
    >>> index.remove("audit")
    >>> index.match({"symbol": "IBM", "price": 12})
    frozenset()

    A key is any hashable object. The filters themselves are not kept. ``kernel`` is
    ``"compiled"`` or ``"fallback"``, by default the fastest available. An index may be used by one
    thread at a time; use inside its own search raises IndexBusyError. ``work`` limits searches
    (:mod:`.work`), which then raise WorkSpentError; without it they have no limit.
    """

    def __init__(self, *, kernel: str | None = None, work: MatchWork | None = None) -> None:
        self._engine = new_engine(kernel)
        self._work = work
        self._table = SlotTable(self._engine, work)
        self._slots: dict[Hashable, int | tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._slots)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def add(self, key: Hashable, filter: Filter) -> None:
        """Put a filter under a key; it replaces an earlier filter of the key."""
        check_filter(filter)
        hash(key)  # before anything is changed
        slots = self._table.acquire_all(filter.conjunctions)
        if key in self._slots:
            self.remove(key)
        for slot in slots:
            self._engine.own(slot, key)
        # most filters have one conjunction, and an int is much smaller than a tuple of one
        self._slots[key] = slots[0] if len(slots) == 1 else slots

    def remove(self, key: Hashable) -> None:
        """Remove a key and its filter; KeyError if it does not exist."""
        slots = self._slots.pop(key)
        for slot in (slots,) if isinstance(slots, int) else slots:
            self._engine.disown(slot, key)
            self._table.release(slot)

    def match(self, attributes: Attributes) -> frozenset[Any]:
        """Return the keys of the filters that an event with these attributes matches."""
        if self._work is not None:
            self._work.begin(attributes)
        return self._engine.match(attributes)

    def match_batch(self, events: Iterable[Attributes]) -> list[frozenset[Any]]:
        """Return the keys for each of several events, in their order."""
        if self._work is not None:
            return [self.match(attributes) for attributes in events]
        return self._engine.match_batch(events)

    def distribute(self, events: Iterable[Attributes], items: Iterable[T]) -> dict[Any, list[T]]:
        """Return for each key the items of the events that match its filter, in order.

        >>> index = MatchIndex()
        >>> index.add("cheap", Filter("price < 90"))
        >>> index.distribute([{"price": 91}, {"price": 12}, {"price": 5}], ["a", "b", "c"])
        {'cheap': ['b', 'c']}
        """
        if self._work is None or not self._work.checks:
            return self._engine.distribute(events, items)
        found: dict[Any, list[T]] = {}
        for attributes, item in zip(events, items, strict=True):
            for key in self.match(attributes):
                found.setdefault(key, []).append(item)
        return found

    def statistics(self) -> dict[str, int]:
        """Return counts for people: keys, distinct conjunctions, groups by access."""
        return {"keys": len(self._slots), **self._engine.statistics()}
