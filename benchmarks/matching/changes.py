"""The cost of changes: replaced filters, and the covering forest as it grows and shrinks.

Also the form of the index that a router uses, compared with the plain one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.matching.contenders import Looped
from benchmarks.matching.timing import Stopwatch, measure, without_gc
from benchmarks.workloads import FAMILIES, Workload, nested_texts
from gapless import Filter, MatchIndex
from gapless.content.conjunction import Conjunction
from gapless.content.matching.forest import CoveringForest
from gapless.content.matching.routing import RoutingIndex

__all__ = [
    "FOREST_SETS",
    "Forest",
    "Routing",
    "Updates",
    "measure_forest",
    "measure_routing",
    "measure_updates",
]

LINKS: Final = 10
_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class Updates:
    """How fast filters are replaced in a full index."""

    workload: str
    kernel: str
    pairs_per_second: float
    """A pair is a ``remove`` and an ``add``."""
    remove_microseconds: float
    add_microseconds: float


def measure_updates(name: str, size: int, kernel: str, pairs: int) -> Updates:
    """Replace random keys of an index by new filters of the same kind."""
    index = MatchIndex(kernel=kernel)
    for number, text in enumerate(FAMILIES[name](size, 1).texts()):
        index.add(number, Filter(text))
    fresh = [Filter(text) for text in FAMILIES[name](pairs + 1, 1).texts()][:pairs]
    keys = random.Random(name).sample(range(size), pairs)
    rounds = 5
    share = pairs // rounds
    best_remove = best_add = float("inf")
    with without_gc():
        for at in range(0, share * rounds, share):
            part = keys[at : at + share]
            watch = Stopwatch()
            for key in part:
                index.remove(key)
            removed = watch.seconds
            for key, new in zip(part, fresh[at : at + share], strict=True):
                index.add(key, new)
            best_remove = min(best_remove, removed / share)
            best_add = min(best_add, (watch.seconds - removed) / share)
    assert len(index) == size
    pair = best_remove + best_add
    return Updates(f"{name} {size:,}", kernel, 1 / pair, best_remove * 1e6, best_add * 1e6)


# --- the router's form --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Routing:
    """An event to its links and local keys, compared with an event to its keys."""

    workload: str
    links: int
    route_microseconds: float
    match_microseconds: float


def measure_routing(name: str, size: int, events: int) -> Routing:
    """Assign the filters of a workload to links in turn, and match."""
    workload = FAMILIES[name](size, events)
    routes, keys = RoutingIndex(), MatchIndex()
    for number, text in enumerate(workload.texts()):
        parsed = Filter(text)
        keys.add(number, parsed)
        for conjunction in parsed.conjunctions:
            routes.add_link(number % LINKS, conjunction)
    _check_routes(routes, keys, workload)
    route = measure(Looped("route", routes.match, workload), events)  # type: ignore[arg-type]
    match = measure(Looped("match", keys.match, workload), events)
    return Routing(workload.title, LINKS, route.microseconds, match.microseconds)


def _check_routes(routes: RoutingIndex, keys: MatchIndex, workload: Workload) -> None:
    for event in workload.events[:20]:
        wanted = {number % LINKS for number in keys.match(event)}
        assert routes.match(event).links == sum(1 << link for link in wanted)


# --- the covering forest ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forest:
    """How fast the covering forest grows and shrinks, and its number of roots."""

    name: str
    size: int
    kernel: str
    inserts_per_second: float
    """Over all inserts."""
    last_inserts_per_second: float
    """Over the last tenth of them."""
    removals_per_second: float
    """Of a tenth of all, picked at random."""
    roots: tuple[int, ...]
    """After each tenth of the inserts."""


def _workload_texts(name: str) -> Callable[[int], Iterator[str]]:
    return lambda size: FAMILIES[name](size, 1).texts()


FOREST_SETS: Final[dict[str, Callable[[int], Iterator[str]]]] = {
    "W4, coverings rare": _workload_texts("W4"),
    "nested ranges, coverings common": nested_texts,
    "W1, an equality each": _workload_texts("W1"),
}
"""The sets of filters for the forest."""


def _conjunctions(texts: Iterable[str]) -> list[Conjunction]:
    return [conjunction for text in texts for conjunction in Filter(text).conjunctions]


def measure_forest(name: str, size: int, kernel: str) -> Forest:
    """Insert all of a set, then remove a tenth of it."""
    conjunctions = _conjunctions(FOREST_SETS[name](size))
    share = len(conjunctions) // _STEPS
    leaving = random.Random(name).sample(range(len(conjunctions)), share)
    forest = CoveringForest(kernel=kernel)
    roots, times = [], []
    with without_gc():
        for at in range(0, share * _STEPS, share):
            watch = Stopwatch()
            for conjunction in conjunctions[at : at + share]:
                forest.insert(conjunction)
            times.append(watch.seconds)
            roots.append(forest.statistics()["roots"])
        watch = Stopwatch()
        for at in leaving:
            forest.remove(conjunctions[at])
        removal = watch.seconds
    return Forest(
        name,
        size,
        kernel,
        share * _STEPS / sum(times),
        share / times[-1],
        share / removal,
        tuple(roots),
    )
