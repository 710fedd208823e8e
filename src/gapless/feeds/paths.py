"""The interface by which a feed gets its candidates (R7)."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import CELL_BROKERS_MAX, DELTA_MAX
from gapless.messages.overlay import PathEpochs

__all__ = ["RELAYED", "Candidate", "FeedPaths"]

RELAYED: Final = (DELTA_MAX + 4) * CELL_BROKERS_MAX
"""The lowest rank at which a hop between the pubend and the receiver is relayed (R7)."""


class Candidate(NamedTuple):
    """A broker that may feed; a lower rank is better (R7's classes, load shared inside them)."""

    broker: BrokerId
    rank: int
    relayed: bool = False
    """Whether the session with it is relayed."""


class FeedPaths(Protocol):
    """The feed candidates, by the tree, the sessions and the announcements of this broker."""

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return the brokers that may feed this router, best first (R7)."""

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return the brokers that may feed the leaf of this broker, best first (R7)."""

    def path_epochs(self, feeder: BrokerId) -> PathEpochs:
        """Return the epochs above the first one of the edges between a feeder and this broker."""

    def is_sealed(self, pubend: PubendId) -> bool:
        """Return whether a pubend is sealed: its stream is silent for ever (RS-32)."""
