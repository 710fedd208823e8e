"""Feeds: every feeder is nearer to the pubend than its receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.streams import Attached, KnowledgeRange
from gapless_lab.sim.invariants.global_state import GlobalState, broker_of
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream
from gapless_lab.sim.world_tree import CellGraph

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess

__all__ = ["FeedInvariant"]


class FeedInvariant(Invariant):
    """I11: the feeder of a router is the PHB, or a broker in a cell strictly nearer to it. The
    feeder of a leaf is a router of its own cell. The invariant checks all knowledge ranges that are
    sent and all replies to Attach, so no broker holds a range from elsewhere.

    The tree is the one that the feeder sees: a broker that has not applied a step of the tree feeds
    by the older one until its receiver leaves. So the invariant also checks, for every reply that
    promises a feed, that the feeders from the receiver on make no cycle.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._lawful: set[tuple[PubendId, BrokerId, BrokerId, bool]] = set()
        """What was lawful in the trees that their feeders see now."""
        self._views: dict[BrokerId, CellGraph] = {}

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle replies that promise a feed."""
        return {Attached: self._attached}

    def _attached(self, process: SimulatedProcess, peer: str, message: Attached) -> None:
        stream = self.oracle.streams.get(message.pubend)
        if stream is not None:
            leaf = is_leaf_number(message.number)
            self._check(process.host.broker, peer, leaf, stream)
            if not leaf:
                self._check_cycle(process.host.broker, peer, stream)

    def _check_cycle(self, feeder: BrokerId, receiver: BrokerId, stream: PublishedStream) -> None:
        """Check that the feeders of a feeder do not lead to its receiver (R-4)."""
        names = [feeder]
        for name in names:
            if name == receiver:
                route = ", ".join(names)
                self.world.violate("I11", f"{stream.pubend} has a cycle of feeders: {route}")
                return
            machine = broker_of(self.world.hosts[name])
            above = None if machine is None else machine.components.router.feeder(stream.pubend)
            if above is not None and above not in names:
                names.append(above)

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the feeder and the receiver of a knowledge range."""
        del knowledge
        self._check(process.host.broker, peer, is_leaf_number(number), stream)

    def _check(
        self, feeder: BrokerId, receiver: BrokerId, leaf: bool, stream: PublishedStream
    ) -> None:
        tree = self.global_state.tree_of(self.world.hosts[feeder])
        if self._views.get(feeder) is not tree:
            self._views[feeder] = tree
            self._lawful = {each for each in self._lawful if each[1] != feeder}
        key = (stream.pubend, feeder, receiver, leaf)
        if key in self._lawful:
            return
        hosts, phb_cell = self.world.hosts, self.global_state.phb_cell(stream)
        here, there = hosts[feeder].cell, hosts[receiver].cell
        if leaf:
            lawful = here == there
        elif tree.find_path(phb_cell, there) is None:
            return  # the feeder does not see all of this path
        else:
            lawful = feeder == stream.broker or here != there
            lawful &= tree.is_behind(there, here, phb_cell)
        if lawful:
            self._lawful.add(key)
        else:
            kind = "the leaf of " if leaf else ""
            self.world.violate(
                "I11", f"{feeder} in {here} feeds {kind}{receiver} in {there} with {stream.pubend}"
            )
