"""Regimes: a number has one vector and one range of ticks, for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId, VirtualTime
from gapless.core.machine import Event
from gapless.messages.records import (
    Change,
    Erase,
    MemberRecord,
    PubendRecord,
    RegimeRecord,
    Store,
)
from gapless.messages.streams import Piece
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Host, Process

__all__ = ["Regimes"]


class Regimes(Invariant):
    """I6: numbers grow with ticks; a number has one vector for ever; in one stay of a member its
    values never fall; who is listed has a row on disk whose floor is not below what is released.

    Also, of every piece: its ticks lie in its regime, so no cache has joined two (A7).
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._last: dict[PubendId, RegimeRecord] = {}
        self._values: dict[tuple[str, ...], VirtualTime] = {}
        """By the key of a member's row the greatest value in a regime."""
        self._missing: dict[tuple[str, ...], RegimeRecord] = {}
        """Rows that have to come with a regime, in the same write."""

    def durable(self, host: Host, change: Change) -> None:
        """Check regimes and members as they reach the disk."""
        if type(change) is Store:
            record = change.record
            if isinstance(record, RegimeRecord):
                self._rows_are_there()
                self._regime(record)
                return
            if isinstance(record, MemberRecord):
                self._member(host, record)
                return
            if isinstance(record, PubendRecord):
                return
        self._rows_are_there()
        if type(change) is Erase:
            self._values.pop(change.key, None)

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """The write is over: all rows must be there."""
        del process, machine, event
        if self._missing:
            self._rows_are_there()

    def _rows_are_there(self) -> None:
        for key, regime in self._missing.items():
            self.world.violate("I6", f"{regime} is on disk without the row {key}")
        self._missing = {}

    def _regime(self, record: RegimeRecord) -> None:
        pubend = record.pubend
        known = self.insight.regimes[pubend][record.number]
        if known != record:
            self.world.violate("I6", f"{known} becomes {record}")
        last = self._last.get(pubend)
        grows = last is None or (record.number > last.number and record.start > last.start)
        if not grows and record != last:
            self.world.violate("I6", f"{record} comes after {last}")
        self._last[pubend] = record
        rows = self.insight.members.get(pubend, {})
        for shb, entry in record.entries:
            key = MemberRecord.key_of(pubend, shb)
            if entry.time < self._values.get(key, entry.time):
                self.world.violate("I6", f"{record}: {shb} falls from {self._values[key]}")
            self._values[key] = entry.time
            if shb not in rows:
                self._missing[key] = record

    def _member(self, host: Host, record: MemberRecord) -> None:
        self._missing.pop(record.key, None)
        stored = host.disk.records.get(("pubend", str(record.pubend)))
        released = stored.released if isinstance(stored, PubendRecord) else 0
        if record.floor < released:
            self.world.violate("I6", f"{record} comes when {released} is released")

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check that the ticks of a piece lie in its regime."""
        del leaf
        regimes = self.insight.regimes.get(stream.pubend, {})
        record = regimes.get(piece.regime)
        following = regimes.get(piece.regime + 1)
        if (record is not None and piece.low < record.start) or (
            following is not None and piece.high >= following.start
        ):
            self.world.violate(
                "I6",
                f"{process.host.broker} sends {peer} [{piece.low}, {piece.high}] of "
                f"{stream.pubend} in {record}; the next is {following}",
            )
