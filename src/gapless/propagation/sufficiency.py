"""The test whether the tables of an edge suffice to filter a range (R23 to R25; VT 3.2.3).

A knowledge range belongs to a stream epoch, whose vector gives the virtual time up to which each
SHB must be served. A broker may filter the range for a receiver only if the tables claim as much
for every SHB that may be behind the receiver. An SHB of unknown location counts everywhere. (VT
slices its vector by the SHBs that the broker knows to be downstream. Right after a restart that
slice is empty and so always sufficient.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gapless.core.ids import CellId, PubendId, ShbId
from gapless.core.limits import ROUTES_CACHED_MAX
from gapless.messages.streams import AttachKind
from gapless.propagation.edge import Edge, HeldTable, LocationVersion
from gapless.stream.epochs import StreamVector

__all__ = [
    "EVERYTHING_PASSES",
    "NeighbourhoodPaths",
    "Receiver",
    "StreamVector",
    "TableChoice",
    "TableChooser",
    "sufficient",
]


class NeighbourhoodPaths(Protocol):
    """The paths in a broker's neighbourhood."""

    @property
    def version(self) -> int:
        """Grows whenever a path may have changed."""

    def path_to(self, cell: CellId) -> tuple[CellId, ...] | None:
        """Return the path to a cell, with that cell and without the own cell.

        None if the cell is not in the neighbourhood; empty for the own cell.
        """


class Receiver(NamedTuple):
    """A fed receiver: a cell, a leaf ``broker@cell``, or a router of the PHB cell (R10)."""

    kind: AttachKind
    name: str


class TableChoice(NamedTuple):
    """The tables by which ranges are filtered for a receiver."""

    tables: tuple[HeldTable, ...] | None
    """None: everything passes."""
    mask: int
    """The numbers of the tables, as bits."""


EVERYTHING_PASSES = TableChoice(None, 0)

_BEST_EFFORT: Final = -1
"""The stream epoch under which choices for best effort are cached; others are never negative."""


def sufficient(
    tables: Sequence[HeldTable],
    pubend: PubendId,
    vector: StreamVector,
    control_version: int,
    counting: Iterable[ShbId],
) -> bool:
    """Return whether the tables claim enough for all SHBs that count (R24)."""
    return all(
        any(_suffices(held, shb, pubend, vector, control_version) for held in tables)
        for shb in counting
    )


def _suffices(
    held: HeldTable, shb: ShbId, pubend: PubendId, vector: StreamVector, control_version: int
) -> bool:
    """Return whether one table claims both time and control version for an SHB."""
    assert held.table is not None
    claim = held.table.claim(shb, pubend, vector.announcement_version)
    if claim is None:
        return False
    enough = claim.time >= vector.entries[shb].time and claim.control_version >= control_version
    return claim.retired or enough


class TableChooser:
    """Chooses tables for receivers and caches the choices until a table or location changes."""

    def __init__(
        self,
        edges: Mapping[str, Edge],
        location_version: LocationVersion,
        neighbourhood: NeighbourhoodPaths,
    ) -> None:
        self._edges = edges
        self._location_version = location_version
        self._neighbourhood = neighbourhood
        self._cache: dict[str, _Cache] = {}

    def choose(
        self,
        pubend: PubendId,
        vector: StreamVector | None,
        control_version: int,
        receiver: Receiver,
    ) -> TableChoice:
        """Return the tables by which a range of a stream epoch is filtered for a receiver (R25)."""
        edge = self._edge(receiver)
        if edge is None or not edge.settled or vector is None:
            return EVERYTHING_PASSES
        cache = self._cache_of(edge)
        key = (pubend, vector.stream_epoch, control_version, receiver)
        found = cache.choices.get(key)
        if found is None:
            found = self._chosen(edge, pubend, vector, control_version, receiver)
            cache.keep(key, found)
        return found

    def choose_best_effort(self, pubend: PubendId, version: int, receiver: Receiver) -> TableChoice:
        """Return the tables by which a best-effort pubend is filtered for a receiver (RS-14).

        There is no vector, so a table of the edge must show that those behind it know the pubend.
        Otherwise their tables may omit filters that only this pubend matches.
        """
        edge = self._edge(receiver)
        if edge is None or not edge.settled:
            return EVERYTHING_PASSES
        cache = self._cache_of(edge)
        key = (pubend, _BEST_EFFORT, version, receiver)
        found = cache.choices.get(key)
        if found is None:
            found = _decided_by(tuple(edge.held()))
            if edge.leaf is None and not any(
                held.current and _claims_all(held, pubend, version) for held in edge.held()
            ):
                found = EVERYTHING_PASSES
            cache.keep(key, found)
        return found

    def counting(self, shbs: Iterable[ShbId], receiver: Receiver) -> Iterator[ShbId]:
        """Yield the SHBs that may be behind a receiver, the only ones it needs to know of (R39)."""
        if receiver.kind is AttachKind.PHB_CELL:
            yield from shbs
            return
        edge = self._edge(receiver)
        for shb in shbs:
            if edge is None or self._counts(shb, edge, receiver):
                yield shb

    def _edge(self, receiver: Receiver) -> Edge | None:
        """Return the edge to a receiver, None if it has none or the path to it is unknown."""
        if receiver.kind is AttachKind.PHB_CELL:
            return None
        if receiver.kind is AttachKind.LEAF:
            return self._edges.get(receiver.name)
        path = self._neighbourhood.path_to(receiver.name)
        return self._edges.get(path[0]) if path else None

    def _cache_of(self, edge: Edge) -> _Cache:
        stamp = (
            id(edge),
            edge.revision,
            self._location_version.revision,
            self._neighbourhood.version,
        )
        cache = self._cache.get(edge.name)
        if cache is None or cache.stamp != stamp:
            cache = self._cache[edge.name] = _Cache(stamp, {})
        return cache

    def _chosen(
        self,
        edge: Edge,
        pubend: PubendId,
        vector: StreamVector,
        control_version: int,
        receiver: Receiver,
    ) -> TableChoice:
        counting = tuple(self.counting(vector.entries, receiver))
        every = tuple(edge.held())
        own = every if receiver.kind is AttachKind.LEAF else edge.held_of(receiver.name)
        # if no SHB counts, all tables of the edge decide
        for tables in (own, every) if counting else (every,):
            if sufficient(tables, pubend, vector, control_version, counting):
                return _decided_by(tables)
        return EVERYTHING_PASSES

    # --- location of an SHB (R23) ------------------------------------------------------------

    def _counts(self, shb: ShbId, edge: Edge, receiver: Receiver) -> bool:
        """Return whether an SHB may be behind a receiver."""
        if edge.leaf is not None:
            return shb == edge.leaf
        path = self._neighbourhood.path_to(shb.cell)
        if path is not None:
            # an SHB of known location is behind the cells on the path to it and no others
            return receiver.name in path
        if not self._may_be_behind(shb, edge):
            return False
        return not self._is_behind_a_sibling(shb, edge, receiver.name)

    def _may_be_behind(self, shb: ShbId, edge: Edge) -> bool:
        if shb in edge.hosts:
            return True
        return not any(
            other.settled and other.locates(shb)
            for other in self._edges.values()
            if other is not edge
        )

    def _is_behind_a_sibling(self, shb: ShbId, edge: Edge, cell: CellId) -> bool:
        """Return whether a table proves that an SHB is behind a sibling cell of the direction.

        Cells are siblings if neither is on the path to the other: a table from beyond a cell proves
        that the SHB is behind that cell. Stale tables belong to no cell.
        """
        here = self._neighbourhood.path_to(cell)
        sibling = False
        for other in edge.cells():
            there = self._neighbourhood.path_to(other)
            if here is None or there is None or not _has_entry(edge.held_of(other), shb):
                continue
            if cell in there:
                return False
            sibling |= other not in here
        return sibling


class _Cache(NamedTuple):
    stamp: tuple[int, int, int, int]
    choices: dict[tuple[PubendId, int, int, Receiver], TableChoice]

    def keep(self, key: tuple[PubendId, int, int, Receiver], choice: TableChoice) -> None:
        if len(self.choices) >= ROUTES_CACHED_MAX:
            self.choices.clear()
        self.choices[key] = choice


def _decided_by(tables: tuple[HeldTable, ...]) -> TableChoice:
    return TableChoice(tables, sum(1 << held.number for held in tables))


def _claims_all(held: HeldTable, pubend: PubendId, version: int) -> bool:
    """Return whether a table is complete for a pubend, for all SHBs that it lists."""
    assert held.table is not None
    return held.knows(pubend, version) and not held.table.late.get(pubend)


def _has_entry(tables: Iterable[HeldTable], shb: ShbId) -> bool:
    return any(held.table is not None and shb in held.table.entries for held in tables)
