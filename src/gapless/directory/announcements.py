"""Announcements: which pubends there are, and the way to each (R4, R5).

When the tree around changes, the ways change with it. A path is longer than the neighbourhood is
wide, so whoever is near the change finds the new way by itself. Who is farther off keeps its
direction, and hears from there how the way goes on: the same announcement by another path (R13).

Who had missed that, and is near the next change, finds a wrong way. So a way is *confirmed* only if
it was told in the present shape of the teller's cell, by one whose own way is confirmed; this begins
at the pubend. A way that is not confirmed gives way to one that is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.overlay import Announce, PubendProperties
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.sessions import PeerSessions

__all__ = ["UNCONFIRMED", "Announcements", "KnownPubend"]

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


class Announcements:
    """All pubends that this broker has heard of."""

    def __init__(
        self, context: Context, neighbourhood: Neighbourhood, sessions: PeerSessions
    ) -> None:
        self._context = context
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._known: dict[PubendId, KnownPubend] = {}
        if not context.parameters.ordered_sessions:
            context.call_later(microseconds(ms=context.parameters.attach_refresh_ms), self._repeat)

    def _repeat(self) -> None:
        """Say everything again: where links lose messages, news may have been lost (R1)."""
        self._context.call_later(
            microseconds(ms=self._context.parameters.attach_refresh_ms), self._repeat
        )
        for peer in self._sessions.open_peers():
            cell = self._neighbourhood.cell_of(peer)
            if cell is not None:
                self.session_opened(peer, cell)

    def reshape(self, neighbourhood: Neighbourhood) -> list[PubendId]:
        """Find the ways in a tree that has changed; return the pubends whose way is another (R13).

        What lay behind an edge that is gone for good is forgotten. If it is still somewhere, it is
        announced from there.
        """
        self._neighbourhood = neighbourhood
        changed = []
        for pubend, known in [*self._known.items()]:
            path = self._current_path(known.path)
            if path is None:
                self._context.mark("pubend lies behind no edge")
                del self._known[pubend]
                changed.append(pubend)
            elif path != known.path:
                self._known[pubend] = msgspec.structs.replace(known, path=path)
                changed.append(pubend)
        return changed

    def _current_path(self, path: tuple[CellId, ...]) -> tuple[CellId, ...] | None:
        """Return where a path leads now: as far as cells are known, then on as before."""
        for index in reversed(range(len(path))):
            prefix = self._neighbourhood.extended_path(path[index])
            if prefix is not None:
                whole = (*prefix, *path[index + 1 :])
                return whole[: self._context.parameters.neighbourhood_radius + 1]
        return None if path else path

    def announce_all(self) -> None:
        """Say again where all pubends lie: what was told in an older shape is not confirmed."""
        for pubend, known in self._known.items():
            self._announce(pubend, known)

    def get(self, pubend: PubendId) -> KnownPubend | None:
        """Return what is known of a pubend; None if nothing is, or if it is gone."""
        known = self._known.get(pubend)
        return None if known is None or known.tombstone else known

    def pubends(self) -> list[PubendId]:
        """Return the pubends there are, in the order of their names."""
        return sorted(pubend for pubend, known in self._known.items() if not known.tombstone)

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the pubends there are of one name."""
        return [
            pubend
            for pubend, known in self._known.items()
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
        for pubend, known in self._known.items():
            if self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def received(self, cell: CellId, announce: Announce) -> bool:
        """Take an announcement from a broker of a cell; say whether it was news."""
        own = self._context.identity.cell
        between = self._neighbourhood.path(cell)[:-1]
        path = announce.path if cell == own else (*between, *announce.path)
        if own in path or len(set(path)) < len(path):
            self._context.mark("announcement went in a circle")
            return False
        path = path[: self._context.parameters.neighbourhood_radius + 1]
        held = self._known.get(announce.pubend)
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
            self._known[pubend] = update
        if confirms:
            self._announce(pubend, update)

    def _is_confirmed(self, known: KnownPubend) -> bool:
        neighbourhood, source = self._neighbourhood, known.source
        return source is None or (
            source in neighbourhood and known.shape_version >= neighbourhood.shape_version(source)
        )

    def _store(self, pubend: PubendId, known: KnownPubend) -> None:
        self._known[pubend] = known
        self._announce(pubend, known)

    def _announce(self, pubend: PubendId, known: KnownPubend) -> None:
        for peer in self._sessions.open_peers():
            cell = self._neighbourhood.cell_of(peer)
            if cell is not None and self._concerns(cell, known):
                self._context.send(peer, self._message(pubend, known, cell))

    def _concerns(self, cell: CellId, known: KnownPubend) -> bool:
        """Say whether brokers of the cell should hear of a pubend from here."""
        return cell == self._context.identity.cell or (
            self._neighbourhood.direction(cell) != known.direction
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
            self._neighbourhood.shape_version(own) if self._is_confirmed(known) else UNCONFIRMED,
        )

    def _bury(self, pubend: PubendId, version: int) -> None:
        """Forget a tombstone that has stood long enough for everyone to have seen it."""
        known = self._known.get(pubend)
        if known is not None and known.tombstone and known.version == version:
            del self._known[pubend]
