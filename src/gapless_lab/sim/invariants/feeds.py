"""Feeds approach the pubend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.streams import Attached, Piece
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Process

__all__ = ["Feeds"]


class Feeds(Invariant):
    """I11: who feeds a router is the pubend's broker, or in a cell strictly nearer to it; who feeds
    a leaf is a router of its own cell. Looked at are all pieces under way, and all answers to Attach,
    so nobody holds a piece from elsewhere.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._lawful: set[tuple[PubendId, BrokerId, BrokerId, bool]] = set()

    def said(self) -> Mapping[type, Handler]:
        """Look at promises to feed."""
        return {Attached: self._attached}

    def _attached(self, process: Process, peer: str, message: Attached) -> None:
        stream = self.truth.streams.get(message.pubend)
        if stream is not None:
            self._check(process.host.broker, peer, is_leaf_number(message.number), stream)

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check who sends to whom."""
        del piece
        self._check(process.host.broker, peer, leaf, stream)

    def _check(self, feeder: BrokerId, receiver: BrokerId, leaf: bool, stream: Stream) -> None:
        key = (stream.pubend, feeder, receiver, leaf)
        if key in self._lawful:
            return
        hosts, home = self.world.hosts, self.insight.home(stream)
        here, there = hosts[feeder].cell, hosts[receiver].cell
        distance = self.insight.distance
        if leaf:
            lawful = here == there
        else:
            lawful = feeder == stream.broker or distance(home, here) < distance(home, there)
            lawful &= self.insight.is_behind(there, here, home)
        if lawful:
            self._lawful.add(key)
        else:
            kind = "the leaf of " if leaf else ""
            self.world.violate(
                "I11", f"{feeder} in {here} feeds {kind}{receiver} in {there} with {stream.pubend}"
            )
