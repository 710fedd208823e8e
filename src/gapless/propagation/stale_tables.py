"""Stale tables: merged into one table for each edge, dropped when others claim as much (R21).

A table whose source is unreachable is still valid. Keeping it avoids flooding while a router
restarts; dropping it is always safe. A merged table must not claim more than its parts: an entry is
claimed for a pubend only if a table that gave this entry claimed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gapless.core.ids import PubendId, ShbId
from gapless.messages.overlay import ShapeVersion
from gapless.messages.propagation import TableId
from gapless.propagation.cover import Merge
from gapless.propagation.table import SubscriptionTable, rank, text_of

__all__ = ["STALE_SHAPE", "merged", "undominated"]

STALE_SHAPE: Final = ShapeVersion(count=0)
"""The shape version of merged tables: less than any other, as the parts may differ in shape."""


def merged(
    direction: str, tables: Sequence[SubscriptionTable], *, budget: int, merge: Merge
) -> SubscriptionTable:
    """Return the union of some tables, which claims nothing that none of them claims."""
    assert not any(table.leaf for table in tables), "leaf tables are not merged"
    made = SubscriptionTable(TableId("", 0, direction, STALE_SHAPE))
    for table in tables:
        made.conjunctions.update(table.conjunctions)
        for shb, entry in table.entries.items():
            if shb not in made.entries or rank(entry) > rank(made.entries[shb]):
                made.entries[shb] = entry
        for pubend, version in table.known.items():
            made.known[pubend] = max(version, made.known.get(pubend, version))
    if len(made.conjunctions) > budget:
        few = merge(made.conjunctions.values(), budget)
        made.conjunctions = {text_of(conjunction): conjunction for conjunction in few}
    for pubend, version in made.known.items():
        late = frozenset(
            shb for shb in made.entries if not _is_claimed(made, tables, shb, pubend, version)
        )
        if late:
            made.late[pubend] = late
    made.digest = made.computed_digest()
    return made


def _is_claimed(
    made: SubscriptionTable,
    tables: Iterable[SubscriptionTable],
    shb: ShbId,
    pubend: PubendId,
    version: int,
) -> bool:
    """Return whether a table that gave an SHB's entry claims it."""
    return any(table.claim(shb, pubend, version) == made.entries[shb] for table in tables)


def undominated(
    old: SubscriptionTable,
    current: Sequence[SubscriptionTable],
    matters: Callable[[PubendId], bool],
    first: tuple[ShbId, PubendId] | None = None,
) -> tuple[ShbId, PubendId] | None:
    """Return an SHB and a pubend for which the stale table claims more than all current ones.

    Only pubends that matter are considered: those whose events go over this edge. ``first`` is the
    result of the last call and is tried first, because it is probably still valid.
    """
    if first is not None and matters(first[1]) and _claims_more(old, current, *first):
        return first
    for pubend in old.known:
        if not matters(pubend):
            continue
        for shb in old.entries:
            if _claims_more(old, current, shb, pubend):
                return shb, pubend
    return None


def _claims_more(
    old: SubscriptionTable, current: Sequence[SubscriptionTable], shb: ShbId, pubend: PubendId
) -> bool:
    version = old.known.get(pubend, 0)
    claim = old.claim(shb, pubend, version)
    if claim is None:
        return False
    others = (table.claim(shb, pubend, version) for table in current)
    return all(other is None or rank(other) < rank(claim) for other in others)
