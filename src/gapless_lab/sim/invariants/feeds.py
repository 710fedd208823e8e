"""Feeds: every feeder is nearer to the pubend than its receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.streams import Attached, KnowledgeRange
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess

__all__ = ["FeedInvariant"]


class FeedInvariant(Invariant):
    """I11: the feeder of a router is the PHB, or a broker in a cell strictly nearer to it. The
    feeder of a leaf is a router of its own cell. The invariant checks all knowledge ranges that are
    sent and all replies to Attach, so no broker holds a range from elsewhere.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._lawful: set[tuple[PubendId, BrokerId, BrokerId, bool]] = set()

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle replies that promise a feed."""
        return {Attached: self._attached}

    def _attached(self, process: SimulatedProcess, peer: str, message: Attached) -> None:
        stream = self.oracle.streams.get(message.pubend)
        if stream is not None:
            self._check(process.host.broker, peer, is_leaf_number(message.number), stream)

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        leaf: bool,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the feeder and the receiver of a knowledge range."""
        del knowledge
        self._check(process.host.broker, peer, leaf, stream)

    def _check(
        self, feeder: BrokerId, receiver: BrokerId, leaf: bool, stream: PublishedStream
    ) -> None:
        key = (stream.pubend, feeder, receiver, leaf)
        if key in self._lawful:
            return
        hosts, phb_cell = self.world.hosts, self.global_state.phb_cell(stream)
        here, there = hosts[feeder].cell, hosts[receiver].cell
        distance = self.global_state.distance
        if leaf:
            lawful = here == there
        else:
            lawful = feeder == stream.broker or distance(phb_cell, here) < distance(phb_cell, there)
            lawful &= self.global_state.is_behind(there, here, phb_cell)
        if lawful:
            self._lawful.add(key)
        else:
            kind = "the leaf of " if leaf else ""
            self.world.violate(
                "I11", f"{feeder} in {here} feeds {kind}{receiver} in {there} with {stream.pubend}"
            )
