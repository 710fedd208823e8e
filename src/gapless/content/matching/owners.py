"""Who owns a slot, and the memory of results that many owners share.

Equal conjunctions share one slot, so a slot may have thousands of owners, and an event that
matches a few such slots has a large result. Building it costs far more than finding the slots;
so a result is remembered by the slots it came from until the index changes.
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
        """Make a key an owner."""
        self.keys.add(key)
        self._frozen = None

    def discard(self, key: Hashable) -> None:
        """Take a key off, if it is one."""
        self.keys.discard(key)
        self._frozen = None

    def frozen(self) -> frozenset[Hashable]:
        """Return the keys as a result that may be handed out many times."""
        if self._frozen is None:
            self._frozen = frozenset(self.keys)
        return self._frozen


class Memo:
    """Results by the slots they came from; at most ``KEYS_MAX`` keys in all of them together."""

    WORTHWHILE: ClassVar = 64
    """Shared keys in a result from which on remembering it pays."""
    KEYS_MAX: ClassVar = MEMO_KEYS_MAX

    __slots__ = ("_results", "held")

    def __init__(self) -> None:
        self._results: dict[bytes, frozenset[Hashable]] = {}
        self.held = 0

    def clear(self) -> None:
        """Forget all: the index changed."""
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
