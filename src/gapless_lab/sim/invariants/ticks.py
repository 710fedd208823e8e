"""Ticks and events: told once, and only when they are on disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.records import Append, Change
from gapless.messages.streams import Piece, Publication
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Host, Process

__all__ = ["LoggedFirst", "Ticks"]


class Ticks(Invariant):
    """I1: what the pubend's broker has told of a tick stays so; no event comes there later.

    Nothing is logged at or below the highest tick of any piece that has left the pubend's broker,
    also in an earlier life. That a tick has one event for ever is checked with I2.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self.told: dict[PubendId, Tick] = {}

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Note how far the pubend's broker has told its stream."""
        del peer, leaf
        if stream.broker == process.host.broker and piece.high > self.told.get(stream.pubend, 0):
            self.told[stream.pubend] = piece.high

    def durable(self, host: Host, change: Change) -> None:
        """Check what is logged against what was told."""
        if type(change) is not Append:
            return
        row = change.row
        told = self.told.get(row.pubend, 0)
        if row.publications and row.publications[0].tick <= told:
            self.world.violate(
                "I1",
                f"{host.broker} logs {row.pubend} {row.publications[0].tick}, "
                f"but has told all up to {told}",
            )


class LoggedFirst(Invariant):
    """I2: an event that anybody is sent is in the durable log, as it is there, or was and is
    released. Read replies count too. What clients are sent is checked by their checkers.
    """

    def said(self) -> Mapping[type, Handler]:
        """Look at the answers to reads."""
        return {ReadReply: self._replied}

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check the events of a piece."""
        del leaf
        if piece.publications:
            self._check(process, peer, stream, piece.publications)

    def _replied(self, process: Process, peer: str, reply: ReadReply) -> None:
        stream = self.truth.streams[reply.pubend]
        for piece in reply.pieces:
            self._check(process, peer, stream, piece.publications)

    def _check(
        self, process: Process, peer: str, stream: Stream, publications: tuple[Publication, ...]
    ) -> None:
        ticks, logged = stream.ticks, stream.publications
        for each in publications:
            place = bisect_left(ticks, each.tick)
            found = logged[place] if place < len(ticks) else None
            if found is not each and found != each:
                self.world.violate(
                    "I2",
                    f"{process.host.broker} sends {peer} {stream.pubend} {each}, logged is {found}",
                )
                return
