"""What the overlay and the tables say to the router: who may feed whom, and who wants what."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.limits import CELL_BROKERS_MAX
from gapless.core.machine import Context
from gapless.directory.announcements import Announcements, KnownPubend
from gapless.feeds.feed import RELAYED, Candidate
from gapless.messages.overlay import Quality
from gapless.messages.streams import AttachKind, KnowledgeRange, Publication
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.sessions import PeerSessions
from gapless.propagation import TableStore
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachments import ShapeVersions
from gapless.stream.epochs import StreamVector

__all__ = ["BrokerRouting", "rendezvous"]

_CLASS: Final = CELL_BROKERS_MAX
"""Ranks of one class: as many as a cell has brokers, so that load is shared inside of a class only."""

_OVER_RELAYS: Final = RELAYED // _CLASS
"""The class of those that are reached over relays, R7 (d)."""


def rendezvous(pubend: PubendId, brokers: list[BrokerId]) -> list[BrokerId]:
    """Return brokers in the order of their hashes with a pubend: load is shared by pubend (R6)."""
    return sorted(brokers, key=lambda broker: _weight(pubend, broker), reverse=True)


def _weight(pubend: PubendId, broker: BrokerId) -> bytes:
    return blake2b(f"{pubend}\0{broker}".encode(), digest_size=8).digest()


class BrokerRouting:
    """Answers the router's questions from the overlay and the tables."""

    def __init__(
        self,
        context: Context,
        neighbourhood: Neighbourhood,
        sessions: PeerSessions,
        announcements: Announcements,
        table_store: TableStore,
    ) -> None:
        self._identity = context.identity
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._announcements = announcements
        self._table_store = table_store

    def reshape(self, neighbourhood: Neighbourhood) -> None:
        """Route in a tree that has changed (R13)."""
        self._neighbourhood = neighbourhood

    # --- events ----------------------------------------------------------------------------------

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        """Return the tables that decide for a receiver; None if everything passes (R25)."""
        choose = self._table_store.chooser.choose
        choice = choose(pubend, vector, knowledge.control_version, receiver)
        return None if choice.tables is None else choice.mask

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the tables that want it."""
        return self._table_store.index.match_batch([each.attributes for each in publications])

    # --- feeds -----------------------------------------------------------------------------------

    def is_announced(self, pubend: PubendId) -> bool:
        """Say whether a pubend is known."""
        return self._announcements.get(pubend) is not None

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Say whether a pubend promises nothing but order (R33)."""
        known = self._announcements.get(pubend)
        return known is not None and known.properties.quality is Quality.BEST_EFFORT

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed this router, best first (R7).

        All of them are nearer to the pubend: the brokers of the next cell, by their links, then over
        a peer of the own cell; then those of cells farther along the path, which bypasses what lies
        between; at last all of these over any relays.
        """
        known = self._announcements.get(pubend)
        if known is None:
            return []
        found = [
            Candidate(
                broker,
                self._class_of(broker, distance) * _CLASS + index,
                not self._sessions.is_direct(broker),
            )
            for distance, brokers in enumerate(self._nearer(known))
            for index, broker in enumerate(rendezvous(pubend, brokers))
            if self._sessions.is_open(broker)
        ]
        return sorted(found, key=lambda candidate: candidate.rank)

    def is_bypass(self, pubend: PubendId, feeder: BrokerId) -> bool:
        """Say whether a feeder is not of the next cell on the way: what lies between is passed by."""
        known = self._announcements.get(pubend)
        if known is None or known.direction is None:
            return False
        return self._neighbourhood.cell_of(feeder) != known.direction

    def _nearer(self, known: KnownPubend) -> list[list[BrokerId]]:
        """Return the brokers of the cells on the path, nearest first; at home only the pubend's."""
        if known.direction is None:
            host = known.properties.broker
            return [] if host == self._identity.broker else [[host]]
        neighbourhood = self._neighbourhood
        return [list(neighbourhood.brokers(cell)) for cell in known.path if cell in neighbourhood]

    def _class_of(self, broker: BrokerId, distance: int) -> int:
        """Return R7's class of a broker of the cell at a distance along the path, 0 for the next."""
        if self._sessions.is_direct(broker):
            return 0 if distance == 0 else 1 + distance
        sideways = len(self._sessions.route(broker)) == 1 and distance == 0
        if sideways and self._sessions.route(broker)[0] in self._neighbourhood.peers:
            return 1
        return _OVER_RELAYS + distance

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed the leaf: the routers of its cell, this one included (R7)."""
        me = self._identity.broker
        peers = rendezvous(pubend, list(self._neighbourhood.peers))
        return [
            self._peer(broker, index)
            for index, broker in enumerate(peers)
            if broker == me or self._sessions.is_open(broker)
        ]

    def _peer(self, broker: BrokerId, index: int) -> Candidate:
        relayed = broker != self._identity.broker and not self._sessions.is_direct(broker)
        return Candidate(broker, index + RELAYED if relayed else index, relayed)

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return what this router is to its feeder."""
        known = self._announcements.get(pubend)
        in_phb_cell = known is not None and known.direction is None
        return AttachKind.PHB_CELL if in_phb_cell else AttachKind.CELL

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        """Say whether a receiver lies beyond this broker as seen from a pubend (R10)."""
        known = self._announcements.get(pubend)
        if known is None:
            return False
        if receiver.kind is AttachKind.LEAF:
            return receiver.name.rpartition("@")[2] == self._identity.cell
        if receiver.kind is AttachKind.PHB_CELL:
            is_phb = known.properties.broker == self._identity.broker
            return is_phb and receiver.name == self._identity.cell
        towards = self._direction(receiver.name)
        return towards is not None and towards != known.direction

    def shape_versions(self, feeder: BrokerId) -> ShapeVersions:
        """Return the shapes of the cells between a feeder and this broker, as this one knows them."""
        cell = self._neighbourhood.cell_of(feeder)
        return () if cell is None else self._neighbourhood.shapes_between(cell)

    def has_shape(self, receiver: Receiver, versions: ShapeVersions) -> bool:
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
