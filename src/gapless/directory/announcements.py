"""Announcements: which pubends there are, and the way to each (R4, R5).

When the tree around changes, the ways change with it. A path is longer than the neighbourhood is
wide, so whoever is near the change finds the new way by itself. Who is farther off keeps its
direction, and hears from there how the way goes on: the same announcement by another path (R13).

Who had missed that, and is near the next change, finds a wrong way. So a way is *confirmed* only if
it was told in the present shape of the teller's cell, by one whose own way is confirmed; this begins
at the pubend. A way that is not confirmed gives way to one that is.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from gapless.content.filter import EVERYTHING, Filter
from gapless.core.errors import FilterError
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.directory.locations import PubendLocations
from gapless.messages.overlay import Announce, PubendProperties
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["UNCONFIRMED", "AnnouncementListener", "Announcements", "KnownPubend"]

UNCONFIRMED: Final = 0
"""The shape version with which a way is told that is not confirmed: less than that of any cell."""


class KnownPubend(msgspec.Struct, frozen=True):
    """A pubend as this broker knows it."""

    version: int
    properties: PubendProperties
    path: tuple[CellId, ...]
    """The next cells on the way, nearest first, at most Δ + 1; empty in the home cell."""
    tombstone: bool = False
    source: CellId | None = None
    """The cell that it was heard from; None for a pubend of this broker."""
    shape_version: int = 1
    """Of that cell, when it was heard."""

    @property
    def direction(self) -> CellId | None:
        """The neighbour cell on the way; None in the home cell."""
        return self.path[0] if self.path else None


class AnnouncementListener(Protocol):
    """Learns what announcements change."""

    def pubend_announced(self, pubend: PubendId) -> None:
        """The properties of a pubend, its path or its existence have changed."""

    def pubend_redirected(self, pubend: PubendId) -> None:
        """A pubend lies in another direction."""


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
        """All pubends, tombstones included. Others may read it."""

    def start(self) -> None:
        """Repeat all announcements from time to time if links may lose messages."""
        parameters = self._context.parameters
        if not parameters.ordered_sessions:
            self._context.call_later(microseconds(ms=parameters.attach_refresh_ms), self._repeat)

    def _repeat(self) -> None:
        """Say everything again: where links lose messages, news may have been lost (R1)."""
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_refresh_ms), self._repeat
        )
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is not None:
                self.session_opened(peer, cell)

    def reshape(self, change: TreeChange) -> None:
        """Find the paths to all pubends in a tree that has changed (R13).

        A pubend behind an edge that is gone for good is forgotten. If it still exists, it is announced
        from where it is now.
        """
        del change
        for pubend in self._find_paths():
            self._listener.pubend_announced(pubend)

    def _find_paths(self) -> list[PubendId]:
        """Find the paths to all pubends; return the pubends whose path has changed."""
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
        """Return where a path leads now: as far as cells are known, then on as before."""
        for index in reversed(range(len(path))):
            prefix = self._tree.neighbourhood.extended_path(path[index])
            if prefix is not None:
                whole = (*prefix, *path[index + 1 :])
                return whole[: self._context.parameters.neighbourhood_radius + 1]
        return None if path else path

    def reshaped(self) -> None:
        """Announce all pubends again: a path announced in an older shape is not confirmed."""
        for pubend, known in self.known.items():
            self._announce(pubend, known)

    def get(self, pubend: PubendId) -> KnownPubend | None:
        """Return what is known of a pubend; None if nothing is, or if it is gone."""
        known = self.known.get(pubend)
        return None if known is None or known.tombstone else known

    def advertisement_of(self, known: KnownPubend) -> Filter:
        """Return what a pubend advertises; everything, if only newer brokers can read the advertisement."""
        try:
            return Filter(known.properties.advertisement)
        except FilterError:
            self._context.mark("unreadable advertisement")
            return EVERYTHING

    def pubends(self) -> list[PubendId]:
        """Return the pubends there are, in the order of their names."""
        return sorted(pubend for pubend, known in self.known.items() if not known.tombstone)

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the pubends there are of one name."""
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
    ) -> None:
        """Announce a pubend of this broker, or its end."""
        self._store(pubend, KnownPubend(version, properties, (), tombstone))

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Tell a peer of every pubend that does not lie in its direction (R2)."""
        for pubend, known in self.known.items():
            if self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def received(self, peer: BrokerId, announce: Announce) -> bool:
        """Take an announcement from a peer; tell the listener if it changes something, and say so."""
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
        """Take an announcement from a broker of a cell; say whether it changes something."""
        own = self._context.identity.cell
        between = self._tree.neighbourhood.path(cell)[:-1]
        path = announce.path if cell == own else (*between, *announce.path)
        if own in path or len(set(path)) < len(path):
            self._context.mark("announcement went in a circle")
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
        )
        if held is not None and not self._is_update(held, update):
            self._confirm(announce.pubend, held, update)
            return False
        self._store(announce.pubend, update)
        if announce.tombstone:
            self._context.call_later(
                microseconds(s=self._context.parameters.tombstone_ttl_s),
                lambda: self._bury(announce.pubend, announce.version),
            )
        return True

    def _is_update(self, held: KnownPubend, update: KnownPubend) -> bool:
        """Say whether something was not known: a version, or the way, if that is to be believed.

        Another direction is believed only from those who told the present one, or if that is not
        confirmed: else a broker that has not heard of a change would lead all others astray.
        """
        if held.version != update.version:
            return held.version < update.version
        if held.path == update.path or held.source is None:
            return False
        believed = held.direction == update.direction or held.source == update.source
        return believed or (self._is_confirmed(update) and not self._is_confirmed(held))

    def _confirm(self, pubend: PubendId, held: KnownPubend, update: KnownPubend) -> None:
        """Note that what is known was told again, in a newer shape; if that confirms it, say so."""
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

    def _store(self, pubend: PubendId, known: KnownPubend) -> None:
        self.known[pubend] = known
        self._announce(pubend, known)

    def _announce(self, pubend: PubendId, known: KnownPubend) -> None:
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is not None and self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def _concerns(self, cell: CellId, known: KnownPubend) -> bool:
        """Say whether brokers of the cell should hear of a pubend from here."""
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
        )

    def _bury(self, pubend: PubendId, version: int) -> None:
        """Forget a tombstone that has stood long enough for everyone to have seen it."""
        known = self.known.get(pubend)
        if known is not None and known.tombstone and known.version == version:
            del self.known[pubend]
