"""The index of a router: one pass finds the links of an event and its local subscriptions."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple

from gapless.content.conjunction import Conjunction
from gapless.content.filter import Filter
from gapless.content.matching.kernel import new_engine
from gapless.content.matching.table import SlotTable, check_filter
from gapless.content.matching.work import MatchWork, WorkSpentError
from gapless.content.values import Attributes
from gapless.core.errors import UsageError
from gapless.core.limits import LINKS_MAX

__all__ = ["ALL_LINKS", "Route", "RoutingIndex"]

ALL_LINKS: Final = -1
"""The mask of all links, also of those that have no conjunctions."""


class Route(NamedTuple):
    """The destinations of an event: a bit per link, and the keys of local subscriptions."""

    links: int
    local: frozenset[Any]


class RoutingIndex:
    """Conjunctions owned by links (numbered from 0) and filters owned by local subscriptions.

    It may be used by one thread at a time, as every index. ``work`` limits searches (:mod:`.work`).
    Beyond it :meth:`match_links` widens: an event matches all links. The others raise WorkSpentError.

    >>> from gapless import Filter
    >>> index = RoutingIndex()
    >>> for conjunction in Filter("price > 10").conjunctions:
    ...     index.add_link(3, conjunction)
    >>> index.add_local("desk", Filter("symbol = 'IBM'"))
    >>> index.match({"symbol": "IBM", "price": 20})
    Route(links=8, local=frozenset({'desk'}))
    """

    def __init__(self, *, kernel: str | None = None, work: MatchWork | None = None) -> None:
        self._engine = new_engine(kernel)
        self._work = work
        self._table = SlotTable(self._engine, work)
        self._local: dict[Hashable, tuple[int, ...]] = {}
        self._links: dict[int, set[int]] = {}
        self._masks: dict[int, int] = {}

    def add_link(self, link: int, conjunction: Conjunction) -> None:
        """Add a conjunction of a link. To add it again changes nothing."""
        if not 0 <= operator.index(link) < LINKS_MAX:
            raise UsageError(f"link {link} is not within 0 … {LINKS_MAX - 1} (limit LINKS_MAX)")
        if not isinstance(conjunction, Conjunction):
            raise TypeError(
                f"a link takes a Conjunction, not a {type(conjunction).__name__}; "
                "add each of a filter's conjunctions"
            )
        slot = self._table.acquire(conjunction)
        slots = self._links.setdefault(link, set())
        if slot in slots:
            self._table.release(slot)
            return
        slots.add(slot)
        self._set_mask(slot, self._masks.get(slot, 0) | 1 << link)
        if len(slots) == 1:
            self._engine.set_all_links(self.links)

    def remove_link(self, link: int, conjunction: Conjunction) -> None:
        """Remove a conjunction of a link; KeyError if the link does not have it."""
        slot = self._table.find(conjunction)
        if slot is None or slot not in self._links.get(link, ()):
            raise KeyError((link, str(conjunction)))
        self._drop(link, slot)

    def drop_link(self, link: int) -> None:
        """Remove all conjunctions of a link, if it has any."""
        for slot in sorted(self._links.get(link, ())):
            self._drop(link, slot)

    def add_local(self, key: Hashable, filter: Filter) -> None:
        """Put a local subscription's filter under a key; it replaces an earlier one."""
        check_filter(filter)
        hash(key)  # before anything is changed
        slots = self._table.acquire_all(filter.conjunctions)
        if key in self._local:
            self.remove_local(key)
        for slot in slots:
            self._engine.own(slot, key)
        self._local[key] = slots

    def remove_local(self, key: Hashable) -> None:
        """Remove a local subscription; KeyError if it does not exist."""
        for slot in self._local.pop(key):
            self._engine.disown(slot, key)
            self._table.release(slot)

    @property
    def links(self) -> int:
        """The mask of all links that have conjunctions."""
        return sum(1 << link for link in self._links)

    def match(self, attributes: Attributes) -> Route:
        """Return the destinations of an event with these attributes."""
        if self._work is not None:
            self._work.begin(attributes)
        return Route(*self._engine.route(attributes))

    def match_batch(self, events: Iterable[Attributes]) -> list[Route]:
        """Return the destinations of each of several events, in order."""
        return [self.match(attributes) for attributes in events]

    def match_links(self, events: Iterable[Attributes]) -> list[int]:
        """Return only the links of each of several events, in order; ALL_LINKS beyond the allowance."""
        if self._work is None or not self._work.checks:
            return self._engine.links(events)
        return [self._links_of(attributes, self._work) for attributes in events]

    def _links_of(self, attributes: Attributes, work: MatchWork) -> int:
        if work.allowance <= 0:
            return ALL_LINKS
        work.begin(attributes)
        try:
            return self._engine.links((attributes,))[0]
        except WorkSpentError:
            return ALL_LINKS

    def statistics(self) -> dict[str, int]:
        """Return counts for people."""
        return {
            "local": len(self._local),
            "links": len(self._links),
            **self._engine.statistics(),
        }

    def _drop(self, link: int, slot: int) -> None:
        slots = self._links[link]
        slots.remove(slot)
        self._set_mask(slot, self._masks[slot] & ~(1 << link))
        if not slots:
            del self._links[link]
            self._engine.set_all_links(self.links)
        self._table.release(slot)

    def _set_mask(self, slot: int, mask: int) -> None:
        if mask:
            self._masks[slot] = mask
        else:
            del self._masks[slot]
        self._engine.set_links(slot, mask)
