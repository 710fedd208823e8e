"""A subscription table: what one broker states of the SHBs behind it, at one version (R14).

A table has conjunctions, a vector with one entry for each SHB, and the pubends for which it is
complete: ``known``, by announcement version, except for the SHBs that are ``late`` for a pubend.
All four change together from version to version, so the conjunctions cover all claims (I4).

The digest is the exclusive or of one hash for each item. It is the same in every process and does
not depend on the order of the items. The cost of an update depends only on the size of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias, TypeVar

from gapless.content import Conjunction, Filter
from gapless.content.conjunction import EVERYTHING
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.core.limits import CONJUNCTION_TEXTS_MAX, INT_MAX
from gapless.messages.propagation import TableDelta, TableFull, TableId

__all__ = ["UNKNOWN", "Late", "SubscriptionTable", "conjunction_of", "is_leaf", "rank", "text_of"]

Late: TypeAlias = Mapping[PubendId, frozenset[ShbId]]

_NO_SHBS: frozenset[ShbId] = frozenset()
UNKNOWN = -1
"""Less than every announcement version."""

_K = TypeVar("_K", ShbId, PubendId)
_V = TypeVar("_V", VectorEntry, int)


@lru_cache(maxsize=CONJUNCTION_TEXTS_MAX)
def conjunction_of(text: str) -> Conjunction:
    """Return the conjunction of a text in a table.

    A text that is not one conjunction (it may come from a newer broker) matches everything. A
    conjunction that is too wide forwards too much, never too little.
    """
    try:
        found = Filter(text).conjunctions
    except FilterError:
        return EVERYTHING
    return found[0] if len(found) == 1 else EVERYTHING


@lru_cache(maxsize=CONJUNCTION_TEXTS_MAX)
def text_of(conjunction: Conjunction) -> str:
    """Return the canonical text of a conjunction, the form in which tables carry it."""
    return str(conjunction)


def is_leaf(name: TableId) -> bool:
    """Return whether this is a leaf table, which is not pruned and claims for all pubends."""
    return name.direction.startswith(f"{name.broker}@")


def rank(entry: VectorEntry) -> tuple[bool, VectorEntry]:
    """Return the sort key of an SHB's entries: a retired one is greater than all others (R26)."""
    return entry.retired, entry


class SubscriptionTable:
    """The state of one broker's table at one version, at that broker or as a copy.

    >>> name = TableId("b", 7, "up")
    >>> table, copy = SubscriptionTable(name), SubscriptionTable(name)
    >>> delta = table.difference(added=["price > 10"], known={PubendId("stocks"): 1})
    >>> delta is not None and table.apply(delta) and copy.apply(delta)
    True
    >>> copy.digest == table.digest, copy.apply(delta)  # the copy is no longer at the delta's base
    (True, False)
    """

    __slots__ = ("conjunctions", "digest", "entries", "known", "late", "leaf", "name", "version")

    def __init__(self, name: TableId, version: int = 0) -> None:
        self.name = name
        self.version = version
        self.leaf = is_leaf(name)
        self.conjunctions: dict[str, Conjunction] = {}
        self.entries: dict[ShbId, VectorEntry] = {}
        self.known: dict[PubendId, int] = {}
        self.late: dict[PubendId, frozenset[ShbId]] = {}
        self.digest = 0

    @classmethod
    def of(cls, parts: Iterable[TableFull]) -> SubscriptionTable | None:
        """Assemble the parts of a full table; return None if the digest does not match."""
        parts = tuple(parts)
        table = cls(parts[0].table, parts[0].version)
        late: dict[PubendId, set[ShbId]] = {}
        for part in parts:
            table.conjunctions.update((text, conjunction_of(text)) for text in part.conjunctions)
            table.entries.update(part.entries)
            table.known.update(part.known)
            for pubend, shbs in part.late:
                late.setdefault(pubend, set()).update(shbs)
        table.late = {pubend: frozenset(shbs) for pubend, shbs in late.items()}
        table.digest = table.computed_digest()
        return table if table.digest == parts[0].digest else None

    def __repr__(self) -> str:
        entries = ", ".join(f"{shb}:{entry.time}" for shb, entry in sorted(self.entries.items()))
        return f"<Table of {self.name.broker} to {self.name.direction} v{self.version} {entries}>"

    # --- claims ------------------------------------------------------------------------------

    def knows(self, pubend: PubendId, announcement_version: int) -> bool:
        """Return whether the table is complete for a pubend except for late SHBs."""
        return self.leaf or self.known.get(pubend, UNKNOWN) >= announcement_version

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return the entry of an SHB if the conjunctions cover its filters for a pubend, else None.

        A retired SHB has no filters, so its entry is a claim for every pubend (R26).
        """
        entry = self.entries.get(shb)
        if entry is None or entry.retired or self.leaf:
            return entry
        if self.known.get(pubend, UNKNOWN) < announcement_version:
            return None
        return None if shb in self.late.get(pubend, _NO_SHBS) else entry

    def claims(self) -> Iterator[tuple[ShbId, PubendId, int, VectorEntry]]:
        """Yield all claims of the table, at the announcement versions that it knows."""
        for pubend, version in self.known.items():
            late = self.late.get(pubend, _NO_SHBS)
            for shb, entry in self.entries.items():
                if shb not in late:
                    yield shb, pubend, version, entry

    # --- changes -----------------------------------------------------------------------------

    def rename(self, name: TableId) -> None:
        """Give the table another name and the next version."""
        self.name = name
        self.version += 1

    def difference(
        self,
        *,
        added: Iterable[str] = (),
        removed: Iterable[str] = (),
        entries: Mapping[ShbId, VectorEntry] | None = None,
        known: Mapping[PubendId, int] | None = None,
        late: Late | None = None,
    ) -> TableDelta | None:
        """Return the delta to the next version, None if nothing changes.

        Conjunctions are given as changes; entries, known and late are given as a whole, or None if
        they do not change.
        """
        entries = self.entries if entries is None else entries
        known = self.known if known is None else known
        late = self.late if late is None else late
        delta = TableDelta(
            table=self.name,
            base=self.version,
            version=self.version + 1,
            added=tuple(sorted(added)),
            removed=tuple(sorted(removed)),
            entries=_changed(self.entries, entries),
            removed_hosts=tuple(sorted(self.entries.keys() - entries.keys())),
            known=_changed(self.known, known),
            removed_pubends=tuple(sorted(self.known.keys() - known.keys())),
            late=_changed_late(self.late, late),
            digest=0,
        )
        return self._digested(delta)

    def _digested(self, delta: TableDelta) -> TableDelta | None:
        """Return the delta with the digest of its result, None if it changes nothing."""
        content = (delta.added, delta.removed, delta.entries, delta.removed_hosts)
        if not any((*content, delta.known, delta.removed_pubends, delta.late)):
            return None
        digest = self._digest_after(delta)
        assert digest is not None, "a delta removes existing items and adds new ones"
        scope = (delta.known, delta.removed_pubends, delta.late)
        return TableDelta(self.name, delta.base, delta.version, *content, *scope, digest)

    def apply(self, delta: TableDelta) -> bool:
        """Apply a delta. Return False and change nothing if it does not fit exactly (R19)."""
        if delta.table != self.name or delta.base != self.version:
            return False
        if self._digest_after(delta) != delta.digest:
            return False
        for text in delta.removed:
            del self.conjunctions[text]
        self.conjunctions.update((text, conjunction_of(text)) for text in delta.added)
        for shb in delta.removed_hosts:
            del self.entries[shb]
        self.entries.update(delta.entries)
        for pubend in delta.removed_pubends:
            del self.known[pubend]
        self.known.update(delta.known)
        for pubend, shbs in delta.late:
            if shbs:
                self.late[pubend] = frozenset(shbs)
            else:
                self.late.pop(pubend, None)
        self.version = delta.version
        self.digest = delta.digest
        return True

    def computed_digest(self) -> int:
        """Compute the digest of the table from all its items."""
        digest = 0
        for text in self.conjunctions:
            digest ^= _of_conjunction(text)
        for shb, entry in self.entries.items():
            digest ^= _of_entry(shb, entry)
        for pubend, version in self.known.items():
            digest ^= _of_known(pubend, version)
        for pubend, shbs in self.late.items():
            digest ^= _of_late(pubend, shbs)
        return digest

    def _digest_after(self, delta: TableDelta) -> int | None:
        """Return the digest of a delta's result, None if the delta does not fit the table."""
        digest = self.digest
        if not self.conjunctions.keys() >= set(delta.removed):
            return None
        if not self.conjunctions.keys().isdisjoint(delta.added):
            return None
        for text in (*delta.removed, *delta.added):
            digest ^= _of_conjunction(text)
        for shb in delta.removed_hosts:
            if shb not in self.entries:
                return None
            digest ^= _of_entry(shb, self.entries[shb])
        for shb, entry in delta.entries:
            digest ^= _of_entry(shb, entry)
            if shb in self.entries:
                digest ^= _of_entry(shb, self.entries[shb])
        for pubend in delta.removed_pubends:
            if pubend not in self.known:
                return None
            digest ^= _of_known(pubend, self.known[pubend])
        for pubend, version in delta.known:
            digest ^= _of_known(pubend, version)
            if pubend in self.known:
                digest ^= _of_known(pubend, self.known[pubend])
        for pubend, shbs in delta.late:
            digest ^= _of_late(pubend, self.late.get(pubend, _NO_SHBS).symmetric_difference(shbs))
        return digest


def _changed(old: Mapping[_K, _V], new: Mapping[_K, _V]) -> tuple[tuple[_K, _V], ...]:
    return tuple((key, new[key]) for key in sorted(new) if old.get(key) != new[key])


def _changed_late(old: Late, new: Late) -> tuple[tuple[PubendId, tuple[ShbId, ...]], ...]:
    """Return the new set of each pubend whose set changed; an empty set removes the pubend."""
    changed = [pubend for pubend in old if pubend not in new]
    changed += [pubend for pubend, shbs in new.items() if old.get(pubend) != shbs]
    return tuple((pubend, tuple(sorted(new.get(pubend, _NO_SHBS)))) for pubend in sorted(changed))


def _hash(*item: object) -> int:
    # the quotes in the ascii form separate the items, and it is the same in every process
    return int.from_bytes(blake2b(ascii(item).encode(), digest_size=8).digest()) & INT_MAX


@lru_cache(maxsize=CONJUNCTION_TEXTS_MAX)
def _of_conjunction(text: str) -> int:
    return _hash("conjunction", text)


def _of_entry(shb: ShbId, entry: VectorEntry) -> int:
    time, control_version, retired = entry
    return _hash("entry", *shb, *time, control_version, int(retired))


def _of_known(pubend: PubendId, version: int) -> int:
    return _hash("known", *pubend, version)


def _of_late(pubend: PubendId, shbs: Iterable[ShbId]) -> int:
    digest = 0
    for shb in shbs:
        digest ^= _hash("late", *pubend, *shb)
    return digest
