"""Sketches: of each filter the matched events with the smallest hashes, at most so many.

Every event has one hash, whatever filter it matches. So the smallest hashes of a filter are a fair sample
of its events, and the samples of two filters have the same events in common as far as the filters do:
of the smallest hashes of their union, the share that both have estimates their Jaccard index. Sketches
of parts merge into the sketch of the whole. A filter with fewer matches than the limit has all of them
in its sketch, and what is computed from it is exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "Sketches", "event_hashes", "ranks"]

Longs = npt.NDArray[np.int64]

LARGEST: Final = np.iinfo(np.int64).max

_PENDING_MIN: Final = 1_000_000
"""So many hashes are gathered before they are sorted, at least."""


def event_hashes(indices: Longs, ticks: Longs) -> Longs:
    """Return a hash for each event, from a number for its pubend and its tick (SplitMix64)."""
    mixed = ticks.view(np.uint64) + indices.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    hashes: Longs = mixed.view(np.int64)
    return hashes


def ranks(keys: Longs) -> Longs:
    """Return the place of each element among its equals, which stand side by side.

    >>> ranks(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    indices = np.arange(len(keys), dtype=np.int64)
    begins = np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.zeros(0, dtype=np.bool_)
    return indices - np.maximum.accumulate(np.where(begins, indices, 0))


class Sketches:
    """The sketches of several filters, under their numbers."""

    def __init__(self, filters: int, size: int) -> None:
        self._size = size
        self._limits = np.full(filters, LARGEST, dtype=np.int64)
        """From which hash on an event is too large for a filter's sketch."""
        self._keys: list[Longs] = []
        self._hashes: list[Longs] = []
        self._pending = 0
        self._held = 0

    def add(self, keys: Longs, hashes: Longs) -> None:
        """Take matches: for each the filter and the hash of the event."""
        if not self._size:
            return
        small = hashes < self._limits[keys]
        self._keys.append(keys[small])
        self._hashes.append(hashes[small])
        self._pending += int(small.sum())
        if self._pending > max(_PENDING_MIN, self._held):
            self.squeezed()

    def squeezed(self) -> tuple[Longs, Longs]:
        """Return filters and hashes, sorted, and keep no more than these."""
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
