"""The owners of slots, and a cache of results that many owners share.

Equal conjunctions share one slot, so a slot may have thousands of owners, and an event that
matches a few such slots has a large result. To build it costs far more than to find the slots, so
a result is cached by its slots until the index changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Final

from gapless.core.limits import MEMO_KEYS_MAX

__all__ = ["NO_KEYS", "Memo", "Owners"]

NO_KEYS: Final[frozenset[Any]] = frozenset()


class Owners:
    """Several keys that own one slot."""

    __slots__ = ("_frozen", "keys")

    def __init__(self, *keys: Hashable) -> None:
        self.keys: set[Hashable] = set(keys)
        self._frozen: frozenset[Hashable] | None = None

    def add(self, key: Hashable) -> None:
        """Add an owner."""
        self.keys.add(key)
        self._frozen = None

    def discard(self, key: Hashable) -> None:
        """Remove an owner, if the key is one."""
        self.keys.discard(key)
        self._frozen = None

    def frozen(self) -> frozenset[Hashable]:
        """Return the keys as a set that many results can share."""
        if self._frozen is None:
            self._frozen = frozenset(self.keys)
        return self._frozen


class Memo:
    """Results by their slots; at most ``KEYS_MAX`` keys in all of them together."""

    WORTHWHILE: ClassVar = 64
    """The number of shared keys in a result from which caching it pays."""
    KEYS_MAX: ClassVar = MEMO_KEYS_MAX

    __slots__ = ("_results", "held")

    def __init__(self) -> None:
        self._results: dict[bytes, frozenset[Hashable]] = {}
        self.held = 0

    def clear(self) -> None:
        """Remove all results, because the index changed."""
        if self._results:
            self._results.clear()
            self.held = 0

    def recall(
        self, slots: bytes, single: Iterable[Hashable], several: Iterable[Owners]
    ) -> frozenset[Hashable]:
        """Return the result for these slots, made of single owners and several."""
        result = self._results.get(slots)
        if result is None:
            result = frozenset(single).union(*[owners.keys for owners in several])
            if self.held + len(result) > self.KEYS_MAX:
                self.clear()
            self._results[slots] = result
            self.held += len(result)
        return result
