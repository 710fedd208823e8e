"""Feed candidates: the brokers that may feed this one, and the receivers it may feed (R6, R7, R10).

All candidates are nearer to the pubend than the receiver. The brokers of the next cell on the path
rank first, over their links, then over a peer of the own cell. Brokers of cells farther along the
path follow: they bypass the cells between. Routes over other relays rank last.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gapless.core.context import Identity
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.limits import BROKER_NAME_BYTES_MAX, CELL_BROKERS_MAX
from gapless.directory.announcements import KnownPubend, KnownPubends
from gapless.feeds.paths import RELAYED, Candidate
from gapless.messages.overlay import PathEpochs, Quality
from gapless.messages.streams import AttachKind
from gapless.overlay.path_epochs import SAME_VIEW, ViewDifference, compare, epochs_to
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree
from gapless.propagation.sufficiency import Receiver

__all__ = ["FeedCandidates", "rendezvous"]

_CLASS: Final = CELL_BROKERS_MAX
"""The ranks of a class, one for each broker of a cell: load is shared inside a class only."""

_OVER_RELAYS: Final = RELAYED // _CLASS
"""The class of brokers that are reached over relays, R7 (d)."""


def rendezvous(pubend: PubendId, brokers: list[BrokerId]) -> list[BrokerId]:
    """Return brokers in the order of their hashes with a pubend, to share the load (R6)."""
    return sorted(brokers, key=lambda broker: _weight(pubend, broker), reverse=True)


def _weight(pubend: PubendId, broker: BrokerId) -> bytes:
    return blake2b(f"{pubend}\0{broker}".encode(), digest_size=8).digest()


class FeedCandidates:
    """Finds feeders and receivers, from the tree, the peer sessions and the announcements."""

    def __init__(
        self, identity: Identity, tree: Tree, peers: Peers, announcements: KnownPubends
    ) -> None:
        self._identity = identity
        self._tree = tree
        self._peers = peers
        self._announcements = announcements

    def _known(self, pubend: PubendId) -> KnownPubend | None:
        """Return the announcement of a pubend, or None if it is unknown or was ended."""
        known = self._announcements.known.get(pubend)
        return None if known is None or known.tombstone else known

    def is_announced(self, pubend: PubendId) -> bool:
        """Return whether a pubend is announced."""
        return self._known(pubend) is not None

    def is_best_effort(self, pubend: PubendId) -> bool:
        """Return whether a pubend is best effort (R33)."""
        known = self._known(pubend)
        return known is not None and known.properties.quality is Quality.BEST_EFFORT

    def is_sealed(self, pubend: PubendId) -> bool:
        """Return whether a pubend is sealed: its stream is silent for ever (RS-32)."""
        known = self._known(pubend)
        return known is not None and known.sealed is not None

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return the brokers that may feed this router, best first (R7)."""
        known = self._known(pubend)
        if known is None:
            return []
        found = [
            Candidate(
                broker,
                self._class_of(broker, distance) * _CLASS + index,
                not self._peers.is_direct(broker),
            )
            for distance, brokers in enumerate(self._nearer(known))
            for index, broker in enumerate(rendezvous(pubend, brokers))
            if self._peers.is_open(broker)
        ]
        return sorted(found, key=lambda candidate: candidate.rank)

    def is_bypass(self, pubend: PubendId, feeder: BrokerId) -> bool:
        """Return whether a feeder is beyond the next cell on the path: cells are bypassed."""
        known = self._known(pubend)
        if known is None or known.direction is None:
            return False
        return self._tree.neighbourhood.cell_of(feeder) != known.direction

    def _nearer(self, known: KnownPubend) -> list[list[BrokerId]]:
        """Return the brokers of the cells on the path, nearest first; in the PHB cell, the PHB."""
        if not known.path:
            host = known.properties.broker
            return [] if host == self._identity.broker else [[host]]
        neighbourhood = self._tree.neighbourhood
        nearer = (cell for cell in known.path if cell in neighbourhood)
        return [list(neighbourhood.active_brokers(cell)) for cell in nearer]

    def _class_of(self, broker: BrokerId, distance: int) -> int:
        """Return the class of R7 for a broker on the path; the next cell has distance 0."""
        if self._peers.is_direct(broker):
            return 0 if distance == 0 else 1 + distance
        sideways = len(self._peers.route(broker)) == 1 and distance == 0
        if sideways and self._peers.route(broker)[0] in self._tree.neighbourhood.peers:
            return 1
        return _OVER_RELAYS + distance

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return the brokers that may feed the leaf: the active ones of its cell (R7, RS-3)."""
        me = self._identity.broker
        active = self._tree.neighbourhood.active_brokers(self._identity.cell)
        peers = rendezvous(pubend, list(active))
        return [
            self._peer(broker, index)
            for index, broker in enumerate(peers)
            if broker == me or self._peers.is_open(broker)
        ]

    def _peer(self, broker: BrokerId, index: int) -> Candidate:
        relayed = broker != self._identity.broker and not self._peers.is_direct(broker)
        return Candidate(broker, index + RELAYED if relayed else index, relayed)

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return the kind of this router's attachment at its feeder."""
        known = self._known(pubend)
        in_phb_cell = known is not None and not known.path
        return AttachKind.PHB_CELL if in_phb_cell else AttachKind.CELL

    def may_feed(self, pubend: PubendId, receiver: Receiver) -> bool:
        """Return whether a receiver is beyond this broker, as seen from a pubend (R10)."""
        known = self._known(pubend)
        if known is None:
            return False
        if receiver.kind is AttachKind.LEAF:
            return receiver.name.rpartition("@")[2] == self._identity.cell
        if receiver.kind is AttachKind.PHB_CELL:
            is_phb = known.properties.broker == self._identity.broker
            return is_phb and receiver.name == self._identity.cell
        towards = self._direction(receiver.name)
        return towards is not None and towards != known.direction

    def path(self, pubend: PubendId) -> tuple[CellId, ...] | None:
        """Return the path to a pubend, or None if the pubend is not announced."""
        known = self._known(pubend)
        return None if known is None else known.path

    def path_epochs(self, feeder: BrokerId) -> PathEpochs:
        """Return the epochs above the first one of the edges between a feeder and this broker."""
        tree = self._tree.neighbourhood
        cell = tree.cell_of(feeder)
        return () if cell is None or cell not in tree else epochs_to(tree, cell)

    def difference(self, receiver: Receiver, named: PathEpochs) -> ViewDifference:
        """Compare the epochs that a receiver has named with the path to it (RS-11).

        Inside a cell the views are equal: a leaf is behind its cell in every tree, and inside the
        PHB cell nothing is filtered. A name that no cell can have is not asked for.
        """
        if receiver.kind is not AttachKind.CELL or len(receiver.name) > BROKER_NAME_BYTES_MAX:
            return SAME_VIEW
        return compare(self._tree.neighbourhood, receiver.name, named)

    def _direction(self, cell: CellId) -> CellId | None:
        return self._tree.neighbourhood.direction(cell)

    def next_hop(self, pubend: PubendId, request: int, feeder: BrokerId | None) -> BrokerId | None:
        """Return the next hop of a request: the feeder, or the candidates in turn without one."""
        if feeder is not None:
            return feeder
        candidates = self.candidates(pubend)
        return candidates[request % len(candidates)].broker if candidates else None
