"""Messages that copy subscription tables from one broker to another."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry
from gapless.core.numbers import ComposedName, Count, Signed
from gapless.messages.overlay import FIRST_SHAPE, ShapeVersion

__all__ = ["TableDelta", "TableFull", "TableId", "TableRequest", "TableStop"]


class TableId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies a table: its broker, the broker's incarnation, and the direction."""

    broker: BrokerId
    incarnation: Count
    direction: ComposedName
    """A neighbour cell, or a leaf ``broker@cell``."""
    shape_version: ShapeVersion = FIRST_SHAPE
    """Of the broker's cell. A reshape changes the set of cells in a direction (R13)."""


class TableRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Requests the table for the sender's direction; the sender has ``version`` of ``have``."""

    direction: ComposedName
    have: TableId | None = None
    version: Count = 0


class TableStop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Ends the updates for the sender's direction, because another broker sends them (R20)."""

    direction: ComposedName


class TableFull(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One part of a whole table. The table takes effect when all parts have arrived (R19)."""

    table: TableId
    version: Count
    part: Count
    parts: Count
    conjunctions: tuple[str, ...]
    """The canonical text of each conjunction."""
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    known: tuple[tuple[PubendId, Count], ...]
    """The pubends, at their announcement versions, for which the table is complete."""
    late: tuple[tuple[PubendId, tuple[ShbId, ...]], ...]
    """Per pubend the SHBs for which the table is not complete yet."""
    digest: Signed


class TableDelta(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A table's change from exactly ``base`` to ``version`` (R19): VT's constraint in one number."""

    table: TableId
    base: Count
    version: Count
    added: tuple[str, ...]
    removed: tuple[str, ...]
    entries: tuple[tuple[ShbId, VectorEntry], ...]
    removed_hosts: tuple[ShbId, ...]
    known: tuple[tuple[PubendId, Count], ...]
    removed_pubends: tuple[PubendId, ...]
    late: tuple[tuple[PubendId, tuple[ShbId, ...]], ...]
    """The whole set of each pubend whose set changed; an empty set removes the pubend."""
    digest: Signed
