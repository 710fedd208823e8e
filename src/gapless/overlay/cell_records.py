"""Sets of cell records: the order of records, live edges, distances, and the form of a record.

Of two records of one cell the one with the greater version is kept, as a whole (RS-1). So merging
is commutative and idempotent: brokers that hear of changes in different orders hold equal records
in the end. An edge is live if the newest records of both its cells list it with one epoch; at the
border of what a broker holds the one record that it holds decides (RS-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from gapless.core.address import Address
from gapless.core.errors import AddressError
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import CELL_BROKERS_MAX
from gapless.core.overlay_limits import MEMBER_ADDRESSES_MAX
from gapless.messages.overlay import CellEdge, CellMember, CellRecord, RecordVersion

__all__ = [
    "RecordDigests",
    "Records",
    "by_name",
    "is_live",
    "merged",
    "versions_of",
    "within",
    "wrong_form",
]

_DIGEST_BYTES: Final = 8

Records = Mapping[CellId, CellRecord]
"""Records by the names of their cells."""


def by_name(records: Iterable[CellRecord]) -> dict[CellId, CellRecord]:
    """Return records by the names of their cells."""
    return {each.name: each for each in records}


def merged(held: Records, received: Iterable[CellRecord]) -> dict[CellId, CellRecord]:
    """Return the newest record of each cell (RS-1)."""
    newest = dict(held)
    for record in received:
        known = newest.get(record.name)
        if known is None or record.version > known.version:
            newest[record.name] = record
    return newest


def is_live(records: Records, cell: CellId, edge: CellEdge) -> bool:
    """Return whether an edge that the record of a cell lists is live (RS-2)."""
    other = records.get(edge.cell)
    return other is None or other.epoch(cell) == edge.epoch


def within(
    records: Records, cell: CellId, radius: int, *, listed: bool = False
) -> dict[CellId, CellRecord]:
    """Return the records of the cells within a distance over live edges, nearest first.

    If ``listed``, then over all edges that a record lists: a broker keeps what it knows of a
    neighbour that has switched before the own cell, because a takeover has to ask it (RS-17).
    """
    if cell not in records:
        return {}
    order, distance = [cell], {cell: 0}
    for name in order:
        if distance[name] == radius:
            break
        for edge in records[name].edges:
            known = edge.cell in records and edge.cell not in distance
            if known and (listed or is_live(records, name, edge)):
                distance[edge.cell] = distance[name] + 1
                order.append(edge.cell)
    return {name: records[name] for name in order}


def versions_of(records: Iterable[CellRecord]) -> list[RecordVersion]:
    """Return the versions of records, in their order."""
    return [RecordVersion(each.name, *each.version) for each in records]


class RecordDigests:
    """Digests of the records of a neighbourhood, for the comparison with peers (RS-4).

    A digest is over the versions of the records of all cells within Δ of both ends. It is computed
    once for each cell. Both ends get the same one if they hold the same records.
    """

    __slots__ = ("_cells", "_digests", "_radius")

    def __init__(self, cells: Iterable[CellRecord], radius: int) -> None:
        self._cells = by_name(cells)
        self._radius = radius
        self._digests: dict[CellId, int] = {}

    def of(self, cell: CellId) -> int:
        """Return the digest for the peers in a cell."""
        found = self._digests.get(cell)
        if found is None:
            versions = versions_of(within(self._cells, cell, self._radius).values())
            content = msgspec.msgpack.encode(sorted(versions, key=lambda each: each.cell))
            digest = blake2b(content, digest_size=_DIGEST_BYTES).digest()
            found = self._digests[cell] = int.from_bytes(digest, "big", signed=True)
        return found


def wrong_form(record: CellRecord, degree_max: int) -> str | None:
    """Return what is wrong with a record of another broker, or None."""
    brokers, neighbours = record.brokers, record.neighbours
    found = {
        "names": not all(map(_is_name, (record.name, *brokers, *neighbours))),
        "no members": not brokers,
        "too many members": len(brokers) > CELL_BROKERS_MAX,
        "a member twice": len(set(brokers)) < len(brokers),
        "addresses": not all(map(_has_addresses, record.members)),
        "a foreign leader": record.leader != "" and record.leader not in brokers,
        "too many edges": len(neighbours) > degree_max,
        "an edge twice": len(set(neighbours)) < len(neighbours),
        "an edge to itself": record.name in neighbours,
    }
    return next((what for what, is_wrong in found.items() if is_wrong), None)


def _is_name(name: BrokerId | CellId) -> bool:
    return name != "" and "@" not in name


def _has_addresses(member: CellMember) -> bool:
    if len(member.addresses) > MEMBER_ADDRESSES_MAX:
        return False
    try:
        return all(Address.parse(each) for each in member.addresses)
    except AddressError:
        return False
