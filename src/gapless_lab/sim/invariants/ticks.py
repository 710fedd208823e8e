"""Ticks and events: a PHB sends the state of a tick once, after it is on disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.records import AppendRow, StorageChange
from gapless.messages.streams import KnowledgeRange, Publication
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess

__all__ = ["LoggedBeforeSentInvariant", "TickInvariant"]


class TickInvariant(Invariant):
    """I1: the state of a tick that a PHB has sent is final; no event is published there later.

    Nothing is logged at or below the highest tick of any knowledge range that has left the PHB,
    also in an earlier incarnation. I2 checks that a tick has one event forever.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self.sent_up_to: dict[PubendId, Tick] = {}

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Record up to which tick the PHB has sent its stream."""
        del peer, number
        if stream.broker == process.host.broker and knowledge.high > self.sent_up_to.get(
            stream.pubend, 0
        ):
            self.sent_up_to[stream.pubend] = knowledge.high

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Check what is logged against what was sent."""
        if type(change) is not AppendRow:
            return
        row = change.row
        sent_up_to = self.sent_up_to.get(row.pubend, 0)
        if row.publications and row.publications[0].tick <= sent_up_to:
            self.world.violate(
                "I1",
                f"{host.broker} logs {row.pubend} {row.publications[0].tick}, "
                f"but has sent all up to {sent_up_to}",
            )


class LoggedBeforeSentInvariant(Invariant):
    """I2: an event that is sent is in the durable log with the same content, or was and is
    released. Read replies count too. The checkers of the clients check what clients are sent.
    """

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle read replies."""
        return {ReadReply: self._replied}

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the events of a knowledge range."""
        del number
        if knowledge.publications:
            self._check(process, peer, stream, knowledge.publications)

    def _replied(self, process: SimulatedProcess, peer: str, reply: ReadReply) -> None:
        stream = self.oracle.streams[reply.pubend]
        for knowledge in reply.ranges:
            self._check(process, peer, stream, knowledge.publications)

    def _check(
        self,
        process: SimulatedProcess,
        peer: str,
        stream: PublishedStream,
        publications: tuple[Publication, ...],
    ) -> None:
        ticks, logged = stream.ticks, stream.publications
        for each in publications:
            index = bisect_left(ticks, each.tick)
            found = logged[index] if index < len(ticks) else None
            if found is not each and found != each:
                self.world.violate(
                    "I2",
                    f"{process.host.broker} sends {peer} {stream.pubend} {each}, logged is {found}",
                )
                return
