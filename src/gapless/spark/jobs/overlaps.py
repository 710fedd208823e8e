"""Overlap: which filters match the same events, estimated from their sketches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from gapless.spark.jobs.sketches import Longs, ranks

__all__ = ["FilterPair", "Overlap", "most_alike"]

PAIRS_MAX: Final = 20_000_000
"""The most pairs of filters at common events that are compared; beyond, sketches are shortened."""

SKETCH_MIN: Final = 16
"""Shorter sketches than this are useless; then the filters that match least are omitted."""

_CHOICE: Final = 50
"""So many candidates per wanted pair are compared closely."""


class FilterPair(msgspec.Struct, frozen=True):
    """Two filters, by number, and how similar they are."""

    left: int
    right: int
    jaccard: float
    """The events that both match as a share of those that either matches."""
    shared: int
    """How many events both match."""
    exact: bool


class Overlap(msgspec.Struct, frozen=True):
    """The most similar pairs."""

    pairs: list[FilterPair]
    looked_at: int
    """Pairs were searched among so many filters, those that match most."""
    chosen_by: int
    """How many events of a filter were used at most to choose the pairs."""


def most_alike(counts: Longs, keys: Longs, hashes: Longs, size: int, wanted: int) -> Overlap:
    """Return the pairs with the largest Jaccard index.

    ``keys`` and ``hashes`` are sketches of at most ``size`` hashes, sorted by filter and hash.
    """
    chosen_by, looked_at = size, int((counts > 0).sum())
    chosen = np.ones(len(keys), np.bool_)
    indices = ranks(keys)
    while _meetings(hashes[chosen]) > PAIRS_MAX:
        if chosen_by > SKETCH_MIN:
            chosen_by = max(chosen_by // 2, SKETCH_MIN)
        else:
            looked_at //= 2
        large = np.argsort(-counts, kind="stable")[:looked_at]
        chosen = (indices < chosen_by) & np.isin(keys, large)
    lefts, rights, together = _met(keys[chosen], hashes[chosen])
    sizes = np.minimum(counts, chosen_by)
    likeness = together / np.maximum(sizes[lefts] + sizes[rights] - together, 1)
    best = np.argsort(-likeness, kind="stable")[: wanted * _CHOICE]
    bounds = np.searchsorted(keys, np.arange(len(counts) + 1))
    sketches = [hashes[bounds[index] : bounds[index + 1]] for index in range(len(counts))]
    found = [
        _compared(int(left), int(right), counts, sketches, size)
        for left, right in zip(lefts[best], rights[best], strict=True)
    ]
    found.sort(key=lambda pair: (-pair.jaccard, -pair.shared, pair.left, pair.right))
    return Overlap(found[:wanted], looked_at, chosen_by)


def _meetings(hashes: Longs) -> int:
    """Return the number of pairs of filters with a common event, over all events."""
    _, sizes = np.unique(hashes, return_counts=True)
    return int((sizes * (sizes - 1) // 2).sum())


def _met(keys: Longs, hashes: Longs) -> tuple[Longs, Longs, Longs]:
    """Return the pairs of filters that share hashes, and how many they share."""
    order = np.lexsort((keys, hashes))
    keys, hashes = keys[order], hashes[order]
    width = int(keys.max()) + 1 if len(keys) else 1
    codes: list[Longs] = [np.zeros(0, np.int64)]
    active = np.arange(len(keys), dtype=np.int64)
    step = 0
    while len(active):
        # each with the one so many entries after it at the same event
        step += 1
        active = active[active + step < len(keys)]
        active = active[hashes[active] == hashes[active + step]]
        codes.append(keys[active] * width + keys[active + step])
    pairs, together = np.unique(np.concatenate(codes), return_counts=True)
    return pairs // width, pairs % width, together


def _compared(
    left: int, right: int, counts: Longs, sketches: Sequence[Longs], size: int
) -> FilterPair:
    """Compare two filters: exactly if their sketches contain all their matches."""
    both = int(counts[left]) + int(counts[right])
    common = np.intersect1d(sketches[left], sketches[right], assume_unique=True)
    if counts[left] <= size and counts[right] <= size:
        return FilterPair(left, right, len(common) / (both - len(common)), len(common), exact=True)
    union = np.union1d(sketches[left], sketches[right])[:size]
    jaccard = float(np.isin(union, common).sum()) / len(union)
    shared = min(round(both * jaccard / (1 + jaccard)), int(min(counts[left], counts[right])))
    return FilterPair(left, right, jaccard, shared, exact=False)
