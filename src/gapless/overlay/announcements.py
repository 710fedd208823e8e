"""Announcements: which pubends there are, and the way to each (R4, R5)."""

from __future__ import annotations

import msgspec

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.messages.overlay import Announce, PubendProperties
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.sessions import Sessions

__all__ = ["Announcements", "Known"]


class Known(msgspec.Struct, frozen=True):
    """A pubend as this broker knows it."""

    version: int
    properties: PubendProperties
    path: tuple[CellId, ...]
    """The next cells on the way, nearest first, at most Δ + 1; empty in the home cell."""
    tombstone: bool = False

    @property
    def direction(self) -> CellId | None:
        """The neighbour cell on the way; None in the home cell."""
        return self.path[0] if self.path else None


class Announcements:
    """All pubends that this broker has heard of."""

    def __init__(self, context: Context, neighbourhood: Neighbourhood, sessions: Sessions) -> None:
        self._context = context
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._known: dict[PubendId, Known] = {}
        if not context.parameters.ordered_sessions:
            context.after(us(ms=context.parameters.attach_refresh_ms), self._repeat)

    def _repeat(self) -> None:
        """Say everything again: where links lose messages, news may have been lost (R1)."""
        self._context.after(us(ms=self._context.parameters.attach_refresh_ms), self._repeat)
        for peer in self._sessions.open_peers():
            cell = self._neighbourhood.cell_of(peer)
            if cell is not None:
                self.session_opened(peer, cell)

    def get(self, pubend: PubendId) -> Known | None:
        """Return what is known of a pubend; None if nothing is, or if it is gone."""
        known = self._known.get(pubend)
        return None if known is None or known.tombstone else known

    def pubends(self) -> list[PubendId]:
        """Return the pubends there are, in the order of their names."""
        return sorted(pubend for pubend, known in self._known.items() if not known.tombstone)

    def host(
        self,
        pubend: PubendId,
        version: int,
        properties: PubendProperties,
        *,
        tombstone: bool = False,
    ) -> None:
        """Announce a pubend of this broker, or its end."""
        self._store(pubend, Known(version, properties, (), tombstone))

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Tell a peer of every pubend that does not lie in its direction (R2)."""
        for pubend, known in self._known.items():
            if self._concerns(cell, known):
                self._context.post(peer, self._message(pubend, known, cell))

    def received(self, cell: CellId, announce: Announce) -> bool:
        """Take an announcement from a broker of a cell; say whether it was news."""
        own = self._context.identity.cell
        between = self._neighbourhood.path(cell)[:-1]
        path = announce.path if cell == own else (*between, *announce.path)
        if own in path or len(set(path)) < len(path):
            self._context.mark("announcement went in a circle")
            return False
        held = self._known.get(announce.pubend)
        if held is not None and held.version >= announce.version:
            return False
        path = path[: self._context.parameters.reach + 1]
        self._store(
            announce.pubend,
            Known(announce.version, announce.properties, path, announce.tombstone),
        )
        if announce.tombstone:
            self._context.after(
                us(s=self._context.parameters.tombstone_ttl_s),
                lambda: self._bury(announce.pubend, announce.version),
            )
        return True

    def _store(self, pubend: PubendId, known: Known) -> None:
        self._known[pubend] = known
        for peer in self._sessions.open_peers():
            cell = self._neighbourhood.cell_of(peer)
            if cell is not None and self._concerns(cell, known):
                self._context.post(peer, self._message(pubend, known, cell))

    def _concerns(self, cell: CellId, known: Known) -> bool:
        """Say whether brokers of the cell should hear of a pubend from here."""
        return cell == self._context.identity.cell or (
            self._neighbourhood.direction(cell) != known.direction
        )

    def _message(self, pubend: PubendId, known: Known, cell: CellId) -> Announce:
        own = self._context.identity.cell
        path = known.path if cell == own else (own, *known.path)
        return Announce(
            pubend,
            known.version,
            known.properties,
            path[: self._context.parameters.reach + 1],
            known.tombstone,
        )

    def _bury(self, pubend: PubendId, version: int) -> None:
        """Forget a tombstone that has stood long enough for everyone to have seen it."""
        known = self._known.get(pubend)
        if known is not None and known.tombstone and known.version == version:
            del self._known[pubend]
