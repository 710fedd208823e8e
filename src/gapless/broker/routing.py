"""What the overlay and the tables say to the router: who may feed whom, and who wants what."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.delivery.attachments import ReceiverRef, ShapeVersions
from gapless.delivery.feed import Candidate
from gapless.delivery.regimes import Vector
from gapless.messages.overlay import Quality
from gapless.messages.streams import AttachKind, Piece, Publication
from gapless.overlay.announcements import Announcements, Known
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.sessions import Sessions
from gapless.propagation import Holdings
from gapless.propagation.sufficiency import Receiver
from gapless.propagation.sufficiency import Vector as Obligations

__all__ = ["Routing", "rendezvous"]


def rendezvous(pubend: PubendId, brokers: list[BrokerId]) -> list[BrokerId]:
    """Return brokers in the order of their hashes with a pubend: load is shared by pubend (R6)."""
    return sorted(brokers, key=lambda broker: _weight(pubend, broker), reverse=True)


def _weight(pubend: PubendId, broker: BrokerId) -> bytes:
    return blake2b(f"{pubend}\0{broker}".encode(), digest_size=8).digest()


class Routing:
    """Answers the router's questions from the overlay and the tables."""

    def __init__(
        self,
        context: Context,
        neighbourhood: Neighbourhood,
        sessions: Sessions,
        announcements: Announcements,
        holdings: Holdings,
    ) -> None:
        self._identity = context.identity
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._announcements = announcements
        self._holdings = holdings

    def reshape(self, neighbourhood: Neighbourhood) -> None:
        """Route in a tree that has changed (R13)."""
        self._neighbourhood = neighbourhood

    # --- events ----------------------------------------------------------------------------------

    def tables_for(
        self, pubend: PubendId, piece: Piece, vector: Vector | None, receiver: ReceiverRef
    ) -> int | None:
        """Return the tables that decide for a receiver; None if everything passes (R25)."""
        obligations = (
            None
            if vector is None
            else Obligations(piece.regime, vector.announcement_version, vector.entries)
        )
        choice = self._holdings.chooser.choose(
            pubend, obligations, piece.control_version, Receiver(receiver.kind, receiver.name)
        )
        return None if choice.tables is None else choice.mask

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the tables that want it."""
        return self._holdings.index.match_batch([each.attributes for each in publications])

    # --- feeds -----------------------------------------------------------------------------------

    def is_announced(self, pubend: PubendId) -> bool:
        """Say whether a pubend is known."""
        return self._announcements.get(pubend) is not None

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Say whether a pubend promises nothing but order (R33)."""
        known = self._announcements.get(pubend)
        return known is not None and known.properties.quality is Quality.BEST_EFFORT

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed this router: brokers of the next cell, at home the pubend's (R7)."""
        known = self._announcements.get(pubend)
        if known is None:
            return []
        nearer = self._sessions.open_in(self._next_brokers(known))
        return [Candidate(broker, 0) for broker in rendezvous(pubend, nearer)]

    def _next_brokers(self, known: Known) -> tuple[BrokerId, ...]:
        direction = known.direction
        if direction is None:
            host = known.properties.broker
            return () if host == self._identity.broker else (host,)
        return self._neighbourhood.brokers(direction) if direction in self._neighbourhood else ()

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed the leaf: the routers of its cell, this one included (R7)."""
        me = self._identity.broker
        peers = [*self._sessions.open_in(self._neighbourhood.peers), me]
        return [Candidate(broker, 0) for broker in rendezvous(pubend, peers)]

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return what this router is to its feeder."""
        known = self._announcements.get(pubend)
        at_home = known is not None and known.direction is None
        return AttachKind.HOME if at_home else AttachKind.CELL

    def may_feed(self, pubend: PubendId, receiver: ReceiverRef) -> bool:
        """Say whether a receiver lies beyond this broker as seen from a pubend (R10)."""
        known = self._announcements.get(pubend)
        if known is None:
            return False
        if receiver.kind is AttachKind.LEAF:
            return receiver.name.rpartition("@")[2] == self._identity.cell
        if receiver.kind is AttachKind.HOME:
            at_home = known.properties.broker == self._identity.broker
            return at_home and receiver.name == self._identity.cell
        towards = self._direction(receiver.name)
        return towards is not None and towards != known.direction

    def shape_versions(self, feeder: BrokerId) -> ShapeVersions:
        """Return the shapes of the cells between a feeder and this broker, as this one knows them."""
        cell = self._neighbourhood.cell_of(feeder)
        return () if cell is None else self._neighbourhood.shapes_between(cell)

    def has_shape(self, receiver: ReceiverRef, versions: ShapeVersions) -> bool:
        """Say whether a receiver knows the cells between as this broker does.

        Inside a cell it does not matter: a leaf is behind its cell in every shape, and at home
        nothing is filtered.
        """
        if receiver.kind is not AttachKind.CELL or receiver.name not in self._neighbourhood:
            return True
        return versions == self._neighbourhood.shapes_between(receiver.name)

    def _direction(self, cell: CellId) -> CellId | None:
        return self._neighbourhood.direction(cell)

    def next_hop(self, pubend: PubendId, request: int, feeder: BrokerId | None) -> BrokerId | None:
        """Return whom to pass a request to: the feeder, else candidates in turn (2.4)."""
        if feeder is not None:
            return feeder
        candidates = self.candidates(pubend)
        return candidates[request % len(candidates)].broker if candidates else None
