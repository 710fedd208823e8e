"""Sketches: per filter the matched events with the smallest hashes, up to a limit.

An event has the same hash for all filters. So the smallest hashes of a filter are a fair sample of
its events, and the samples of two filters overlap as much as the filters do: among the smallest
hashes of their union, the share that both have estimates their Jaccard index. Sketches of parts
merge into the sketch of the whole. The sketch of a filter with fewer matches than the limit
contains all of them, and results computed from it are exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "Sketches", "event_hashes", "ranks"]

Longs = npt.NDArray[np.int64]

LARGEST: Final = np.iinfo(np.int64).max

_PENDING_MIN: Final = 1_000_000
"""At least so many hashes are collected before they are sorted."""


def event_hashes(indices: Longs, ticks: Longs) -> Longs:
    """Return a hash for each event, from a number for its pubend and its tick (SplitMix64)."""
    mixed = ticks.view(np.uint64) + indices.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    hashes: Longs = mixed.view(np.int64)
    return hashes


def ranks(keys: Longs) -> Longs:
    """Return the index of each element among its equals, which are adjacent.

    >>> ranks(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    indices = np.arange(len(keys), dtype=np.int64)
    begins = np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.zeros(0, dtype=np.bool_)
    return indices - np.maximum.accumulate(np.where(begins, indices, 0))


class Sketches:
    """The sketches of several filters, by their numbers."""

    def __init__(self, filters: int, size: int) -> None:
        self._size = size
        self._limits = np.full(filters, LARGEST, dtype=np.int64)
        """From this hash on an event is too large for the filter's sketch."""
        self._keys: list[Longs] = []
        self._hashes: list[Longs] = []
        self._pending = 0
        self._held = 0

    def add(self, keys: Longs, hashes: Longs) -> None:
        """Add matches: for each the filter and the hash of the event."""
        if not self._size:
            return
        small = hashes < self._limits[keys]
        self._keys.append(keys[small])
        self._hashes.append(hashes[small])
        self._pending += int(small.sum())
        if self._pending > max(_PENDING_MIN, self._held):
            self.squeezed()

    def squeezed(self) -> tuple[Longs, Longs]:
        """Return filters and hashes, sorted, and keep only these."""
        keys = np.concatenate([np.zeros(0, np.int64), *self._keys])
        hashes = np.concatenate([np.zeros(0, np.int64), *self._hashes])
        order = np.lexsort((hashes, keys))
        keys, hashes = keys[order], hashes[order]
        indices = ranks(keys)
        full = indices == self._size - 1
        self._limits[keys[full]] = hashes[full]
        kept = indices < self._size
        keys, hashes = keys[kept], hashes[kept]
        self._keys, self._hashes = [keys], [hashes]
        self._pending, self._held = 0, len(keys)
        return keys, hashes
