"""A table: what one broker says of the subscribers behind it, at one version (R14).

A table has conjunctions, a vector of entries by subscriber host, and the pubends for which it is
complete: ``known``, by announcement version, less those hosts that are ``late`` for a pubend. All
four change together, from version to version, so what a table claims its conjunctions cover (I4).

The digest is the exclusive or of one hash an item. It is the same in every process, does not depend
on the order in which the items came, and a change costs as much as it changes.
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

_NOBODY: frozenset[ShbId] = frozenset()
UNKNOWN = -1
"""Less than every announcement version."""

_K = TypeVar("_K", ShbId, PubendId)
_V = TypeVar("_V", VectorEntry, int)


@lru_cache(maxsize=CONJUNCTION_TEXTS_MAX)
def conjunction_of(text: str) -> Conjunction:
    """Return the conjunction that a table's text stands for.

    A text that is not one conjunction (it may come from a newer broker) stands for everything:
    what is wider than it should be brings too much, never too little.
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
    """Say whether this is the table of a subscriber host: it is not pruned and claims for all."""
    return name.direction.startswith(f"{name.broker}@")


def rank(entry: VectorEntry) -> tuple[bool, VectorEntry]:
    """Return what to compare entries of one host by: a retired one beats all others (R26)."""
    return entry.retired, entry


class SubscriptionTable:
    """The state of one broker's table at one version; its own, or a copy that another holds.

    >>> name = TableId("b", 7, "up")
    >>> said, copy = SubscriptionTable(name), SubscriptionTable(name)
    >>> delta = said.difference(added=["price > 10"], known={PubendId("stocks"): 1})
    >>> delta is not None and said.apply(delta) and copy.apply(delta)
    True
    >>> copy.digest == said.digest, copy.apply(delta)  # the copy is no longer at the delta's base
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
        """Put the parts of a full table together; None if they do not fit their digest."""
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

    # --- what it says ------------------------------------------------------------------------

    def knows(self, pubend: PubendId, announcement_version: int) -> bool:
        """Say whether the table is complete for a pubend, but for the late."""
        return self.leaf or self.known.get(pubend, UNKNOWN) >= announcement_version

    def claim(self, shb: ShbId, pubend: PubendId, announcement_version: int) -> VectorEntry | None:
        """Return up to when the conjunctions cover a host's wishes of a pubend, if they do.

        A host that is retired wishes nothing, so its entry is a claim for every pubend (R26).
        """
        entry = self.entries.get(shb)
        if entry is None or entry.retired or self.leaf:
            return entry
        if self.known.get(pubend, UNKNOWN) < announcement_version:
            return None
        return None if shb in self.late.get(pubend, _NOBODY) else entry

    def claims(self) -> Iterator[tuple[ShbId, PubendId, int, VectorEntry]]:
        """Go through all that the table claims, at the announcement versions that it knows."""
        for pubend, version in self.known.items():
            late = self.late.get(pubend, _NOBODY)
            for shb, entry in self.entries.items():
                if shb not in late:
                    yield shb, pubend, version, entry

    # --- how it changes ----------------------------------------------------------------------

    def difference(
        self,
        *,
        added: Iterable[str] = (),
        removed: Iterable[str] = (),
        entries: Mapping[ShbId, VectorEntry] | None = None,
        known: Mapping[PubendId, int] | None = None,
        late: Late | None = None,
    ) -> TableDelta | None:
        """Return the change to the next version, None if nothing changes.

        Conjunctions are given as changes; entries, known and late as they shall be, or not at all
        if they stay.
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
        """Return the delta with the digest it leads to, None if it changes nothing."""
        content = (delta.added, delta.removed, delta.entries, delta.removed_hosts)
        if not any((*content, delta.known, delta.removed_pubends, delta.late)):
            return None
        digest = self._digest_after(delta)
        assert digest is not None, "a difference takes out what is there and adds what is not"
        scope = (delta.known, delta.removed_pubends, delta.late)
        return TableDelta(self.name, delta.base, delta.version, *content, *scope, digest)

    def apply(self, delta: TableDelta) -> bool:
        """Go to the delta's version. False, and nothing changed, if it does not fit exactly (R19)."""
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
        """Return the digest of all that the table says, computed anew."""
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
        """Return the digest that a delta leads to, None if it takes out what is not there."""
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
            digest ^= _of_late(pubend, self.late.get(pubend, _NOBODY).symmetric_difference(shbs))
        return digest


def _changed(old: Mapping[_K, _V], new: Mapping[_K, _V]) -> tuple[tuple[_K, _V], ...]:
    return tuple((key, new[key]) for key in sorted(new) if old.get(key) != new[key])


def _changed_late(old: Late, new: Late) -> tuple[tuple[PubendId, tuple[ShbId, ...]], ...]:
    """Return the new set of each pubend whose set changed; an empty one takes the pubend out."""
    changed = [pubend for pubend in old if pubend not in new]
    changed += [pubend for pubend, shbs in new.items() if old.get(pubend) != shbs]
    return tuple((pubend, tuple(sorted(new.get(pubend, _NOBODY)))) for pubend in sorted(changed))


def _hash(*item: object) -> int:
    # the ascii form keeps items apart by its quotes, and is the same in every process
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
