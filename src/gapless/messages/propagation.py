"""Messages that carry tables: versioned copies of what one broker knows of its subscribers."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry

__all__ = ["TableDelta", "TableFull", "TableId", "TableRequest", "TableStop"]


class TableId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose table, of which life, for which direction: a neighbour cell, or a leaf ``broker@cell``."""

    broker: BrokerId
    incarnation: int
    direction: str
    shape_version: int = 1
    """Of the broker's cell: what lies in a direction is another set after a reshape (R13)."""


class TableRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Send me your table for my direction, from the version on that I have."""

    direction: str
    have: TableId | None = None
    version: int = 0


class TableStop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tell me no more of your table for my direction: another broker tells me (R20)."""

    direction: str


class TableFull(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A whole table, in parts; it takes effect when all parts are there (R19)."""

    table: TableId
    version: int
    part: int
    parts: int
    conjunctions: tuple[str, ...]
    """Canonical texts: one conjunction each."""
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    known: tuple[tuple[PubendId, int], ...]
    """The pubends, at their announcement versions, for which the table is complete."""
    late: tuple[tuple[PubendId, tuple[ShbId, ...]], ...]
    """By pubend the subscriber hosts for which it is not complete yet."""
    digest: int


class TableDelta(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A table's change from exactly ``base`` to ``version`` (R19): VT's constraint in one number."""

    table: TableId
    base: int
    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    removed_hosts: tuple[ShbId, ...]
    known: tuple[tuple[PubendId, int], ...]
    removed_pubends: tuple[PubendId, ...]
    late: tuple[tuple[PubendId, tuple[ShbId, ...]], ...]
    """The whole set of each pubend whose set changed; an empty one takes the pubend out."""
    digest: int
