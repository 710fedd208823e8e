"""Announcements: the pubends that exist, and the path to each (R4, R5).

When the tree changes, paths change with it. A path is one cell longer than the radius of the
neighbourhood, so a broker near the change computes the new path by itself. A broker farther away
keeps its direction, and receives the same announcement with the new path from there (R13).

A broker that missed this announcement would compute a wrong path at the next change. So a path is
*confirmed* only if it was received in the current shape of the sender's cell, from a sender whose
own path is confirmed. This begins at the PHB. A confirmed path replaces one that is not confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from gapless.content.filter import EVERYTHING, Filter
from gapless.core.context import Context
from gapless.core.errors import FilterError
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.directory.locations import PubendLocations
from gapless.messages.overlay import FIRST_SHAPE, Announce, PubendProperties, ShapeVersion
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["UNCONFIRMED", "AnnouncementListener", "Announcements", "KnownPubend", "KnownPubends"]

UNCONFIRMED: Final = ShapeVersion(count=0)
"""The shape version sent with a path that is not confirmed: less than that of any cell."""


class KnownPubend(msgspec.Struct, frozen=True):
    """A pubend as this broker knows it."""

    version: int
    properties: PubendProperties
    path: tuple[CellId, ...]
    """The next cells on the path, nearest first, at most Δ + 1; empty in the PHB cell."""
    tombstone: bool = False
    source: CellId | None = None
    """The cell from which it was received; None for a pubend of this broker."""
    shape_version: ShapeVersion = FIRST_SHAPE
    """The shape version of that cell when it was received."""
    sealed: Tick | None = None
    """The last tick of a pubend that is sealed or a tombstone (RS-32)."""
    last_event: Tick = 0
    """The last tick of a tombstone that may have had an event."""

    @property
    def direction(self) -> CellId | None:
        """The neighbour cell on the path; None in the PHB cell."""
        return self.path[0] if self.path else None


class KnownPubends(Protocol):
    """The announcements, for components that only read them."""

    @property
    def known(self) -> Mapping[PubendId, KnownPubend]:
        """All pubends, tombstones included."""

    def get(self, pubend: PubendId) -> KnownPubend | None:
        """Return the announcement of a pubend, or None if it is unknown or was ended."""

    def is_closed(self, pubend: PubendId) -> bool:
        """Return whether a pubend is a tombstone, as long as that is remembered."""

    def pubends(self) -> list[PubendId]:
        """Return the existing pubends, in the order of their names."""

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the existing pubends of one name."""


class AnnouncementListener(Protocol):
    """Is notified of changes by announcements."""

    def pubend_announced(self, pubend: PubendId) -> None:
        """The properties of a pubend, its path or its existence have changed."""

    def pubend_redirected(self, pubend: PubendId) -> None:
        """The direction of a pubend has changed."""


class Announcements:
    """All pubends that this broker has heard of."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: Peers,
        locations: PubendLocations,
        listener: AnnouncementListener,
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._locations = locations
        self._listener = listener
        self.known: dict[PubendId, KnownPubend] = {}
        """All pubends, tombstones included. Other components may read it."""
        self._announces_anew = False
        """Whether the present step of the tree changes an edge of the own cell (RS-13)."""

    def start(self) -> None:
        """Start to repeat all announcements at intervals if links may lose messages."""
        parameters = self._context.parameters
        if not parameters.ordered_sessions:
            self._context.call_later(microseconds(ms=parameters.attach_refresh_ms), self._repeat)

    def _repeat(self) -> None:
        """Send all announcements again: links may have lost some (R1)."""
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_refresh_ms), self._repeat
        )
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is not None:
                self.session_opened(peer, cell)

    def reshape(self, change: TreeChange) -> None:
        """Compute the paths to all pubends after a change of the tree (R13).

        A pubend behind an edge that was removed is forgotten. If it still exists, it is announced
        again from its new direction.
        """
        self._announces_anew = change.changes_own_edges
        for pubend in self._find_paths():
            self._listener.pubend_announced(pubend)

    def _find_paths(self) -> list[PubendId]:
        """Compute the paths to all pubends; return the pubends whose path has changed."""
        changed = []
        for pubend, known in [*self.known.items()]:
            path = self._current_path(known.path)
            if path is None:
                self._context.mark("pubend lies behind no edge")
                del self.known[pubend]
                changed.append(pubend)
            elif path != known.path:
                self.known[pubend] = msgspec.structs.replace(known, path=path)
                changed.append(pubend)
        return changed

    def _current_path(self, path: tuple[CellId, ...]) -> tuple[CellId, ...] | None:
        """Return the current path: new up to the farthest known cell, unchanged after it."""
        for index in reversed(range(len(path))):
            prefix = self._tree.neighbourhood.extended_path(path[index])
            if prefix is not None:
                whole = (*prefix, *path[index + 1 :])
                return whole[: self._context.parameters.neighbourhood_radius + 1]
        return None if path else path

    def reshaped(self) -> None:
        """Announce all pubends again if the own cell has another shape (RS-13).

        A path that was announced in an older shape is not confirmed.
        """
        for pubend, known in self.known.items() if self._announces_anew else ():
            self._announce(pubend, known)

    def get(self, pubend: PubendId) -> KnownPubend | None:
        """Return the announcement of a pubend, or None if it is unknown or was ended."""
        known = self.known.get(pubend)
        return None if known is None or known.tombstone else known

    def is_closed(self, pubend: PubendId) -> bool:
        """Return whether a pubend is a tombstone, as long as that is remembered (RS-34)."""
        known = self.known.get(pubend)
        return known is not None and known.tombstone

    def advertisement_of(self, known: KnownPubend) -> Filter:
        """Return the advertisement of a pubend; everything if this version cannot parse it."""
        try:
            return Filter(known.properties.advertisement)
        except FilterError:
            self._context.mark("unreadable advertisement")
            return EVERYTHING

    def pubends(self) -> list[PubendId]:
        """Return the existing pubends, in the order of their names."""
        return sorted(pubend for pubend, known in self.known.items() if not known.tombstone)

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the existing pubends of one name."""
        return [
            pubend
            for pubend, known in self.known.items()
            if pubend.name == name and not known.tombstone
        ]

    def host(
        self,
        pubend: PubendId,
        version: int,
        properties: PubendProperties,
        *,
        tombstone: bool = False,
        sealed: Tick | None = None,
        last_event: Tick = 0,
    ) -> None:
        """Announce a pubend of this broker, or its end."""
        known = KnownPubend(
            version, properties, (), tombstone, sealed=sealed, last_event=last_event
        )
        self._store(pubend, known)

    def bury_later(self, pubend: PubendId, version: int, after_us: int) -> None:
        """Forget a tombstone after a time, when every broker has received it."""
        self._context.call_later(max(1, after_us), lambda: self._bury(pubend, version))

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Announce every pubend to a peer that is not in its direction (R2)."""
        for pubend, known in self.known.items():
            if self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def received(self, peer: BrokerId, announce: Announce) -> bool:
        """Process an announcement of a peer; notify the listener and return True if it is new."""
        cell, pubend = self._tree.neighbourhood.cell_of(peer), announce.pubend
        if cell is None:
            return False
        before = self.get(pubend)
        if not self._take(cell, announce):
            return False
        if announce.tombstone:
            self._locations.forget(pubend)
        self._listener.pubend_announced(pubend)
        known = self.get(pubend)
        if known is not None and before is not None and known.direction != before.direction:
            self._listener.pubend_redirected(pubend)
        return True

    def _take(self, cell: CellId, announce: Announce) -> bool:
        """Store an announcement from a broker of a cell; return whether it is new."""
        own = self._context.identity.cell
        between = self._tree.neighbourhood.path(cell)[:-1]
        path = announce.path if cell == own else (*between, *announce.path)
        if own in path or len(set(path)) < len(path):
            self._context.mark("announcement looped")
            return False
        path = path[: self._context.parameters.neighbourhood_radius + 1]
        held = self.known.get(announce.pubend)
        update = KnownPubend(
            announce.version,
            announce.properties,
            path,
            announce.tombstone,
            cell,
            announce.shape_version,
            announce.sealed,
            announce.last_event,
        )
        if held is not None and not self._is_update(held, update):
            self._confirm(announce.pubend, held, update)
            return False
        # cellmates have or get another path from its source: if they told each other what they have
        # heard from each other, two paths would go around among three of them for ever
        is_new = held is None or held.version != update.version
        self._store(announce.pubend, update, to_cellmates=is_new or cell != own)
        if announce.tombstone:
            ttl_us = microseconds(s=self._context.parameters.tombstone_ttl_s)
            self.bury_later(announce.pubend, announce.version, ttl_us)
        return True

    def _is_update(self, held: KnownPubend, update: KnownPubend) -> bool:
        """Return whether an update has a newer version, or another path that is accepted.

        Another direction is accepted only from the source of the current one, or if it is confirmed
        and the current one is not. Otherwise a broker that has not heard of a change of the tree
        would spread a wrong direction.
        """
        if held.version != update.version:
            return held.version < update.version
        if held.path == update.path or held.source is None:
            return False
        believed = held.direction == update.direction or held.source == update.source
        return believed or (self._is_confirmed(update) and not self._is_confirmed(held))

    def _confirm(self, pubend: PubendId, held: KnownPubend, update: KnownPubend) -> None:
        """Note a path that was received again in a newer shape; announce it if confirmed now."""
        if (held.version, held.path) != (update.version, update.path) or held.source is None:
            return
        confirms = self._is_confirmed(update) and not self._is_confirmed(held)
        if confirms or (held.source == update.source and held.shape_version < update.shape_version):
            self.known[pubend] = update
        if confirms:
            self._announce(pubend, update)

    def _is_confirmed(self, known: KnownPubend) -> bool:
        neighbourhood, source = self._tree.neighbourhood, known.source
        return source is None or (
            source in neighbourhood and known.shape_version >= neighbourhood.shape_version(source)
        )

    def _store(self, pubend: PubendId, known: KnownPubend, *, to_cellmates: bool = True) -> None:
        self.known[pubend] = known
        self._announce(pubend, known, to_cellmates=to_cellmates)

    def _announce(self, pubend: PubendId, known: KnownPubend, *, to_cellmates: bool = True) -> None:
        own = self._context.identity.cell
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is None or (cell == own and not to_cellmates):
                continue
            if self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def _concerns(self, cell: CellId, known: KnownPubend) -> bool:
        """Return whether this broker announces a pubend to the brokers of a cell."""
        return cell == self._context.identity.cell or (
            self._tree.neighbourhood.direction(cell) != known.direction
        )

    def _message(self, pubend: PubendId, known: KnownPubend, cell: CellId) -> Announce:
        own = self._context.identity.cell
        path = known.path if cell == own else (own, *known.path)
        return Announce(
            pubend,
            known.version,
            known.properties,
            path[: self._context.parameters.neighbourhood_radius + 1],
            known.tombstone,
            self._tree.neighbourhood.shape_version(own)
            if self._is_confirmed(known)
            else UNCONFIRMED,
            known.sealed,
            known.last_event,
        )

    def _bury(self, pubend: PubendId, version: int) -> None:
        """Forget a tombstone, unless a newer announcement has replaced it."""
        known = self.known.get(pubend)
        if known is not None and known.tombstone and known.version == version:
            del self.known[pubend]
