"""Stream epochs: a number has one vector and one range of ticks, forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, PubendId, VirtualTime
from gapless.messages.records import (
    DeleteRecord,
    MemberRecord,
    PubendRecord,
    PutRecord,
    StorageChange,
    StreamEpochRecord,
)
from gapless.messages.streams import KnowledgeRange
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess

__all__ = ["StreamEpochInvariant"]


class StreamEpochInvariant(Invariant):
    """I6: numbers grow with ticks. A number has one vector forever. In one membership the values of
    a member never fall. A listed SHB has a row on disk whose ack floor is not below what is
    released. Ticks below the newest stream epoch may have epoch 0 instead of their own.

    Also, the ticks of every knowledge range lie in its stream epoch, so no cache has merged two
    (A7).
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._last: dict[PubendId, StreamEpochRecord] = {}
        self._values: dict[tuple[str, ...], VirtualTime] = {}
        """By the key of a member's row, the greatest value in a stream epoch."""
        self._missing: dict[tuple[str, ...], StreamEpochRecord] = {}
        """Rows that the write of a stream epoch must contain too."""

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Check stream epochs and members as they reach the disk."""
        if type(change) is PutRecord:
            record = change.record
            if isinstance(record, StreamEpochRecord):
                self._rows_are_there()
                self._stream_epoch(record)
                return
            if isinstance(record, MemberRecord):
                self._member(host, record)
                return
            if isinstance(record, PubendRecord):
                return
        self._rows_are_there()
        if type(change) is DeleteRecord:
            self._values.pop(change.key, None)

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """The write is complete: all rows must be on disk."""
        del process, machine, event
        if self._missing:
            self._rows_are_there()

    def _rows_are_there(self) -> None:
        for key, stream_epoch in self._missing.items():
            self.world.violate("I6", f"{stream_epoch} is on disk without the row {key}")
        self._missing = {}

    def _stream_epoch(self, record: StreamEpochRecord) -> None:
        pubend = record.pubend
        known = self.global_state.stream_epochs[pubend][record.number]
        if known != record:
            self.world.violate("I6", f"{known} becomes {record}")
        last = self._last.get(pubend)
        grows = last is None or (record.number > last.number and record.start > last.start)
        if not grows and record != last:
            self.world.violate("I6", f"{record} comes after {last}")
        self._last[pubend] = record
        rows = self.global_state.members.get(pubend, {})
        for shb, entry in record.entries:
            key = MemberRecord.key_of(pubend, shb)
            if entry.time < self._values.get(key, entry.time):
                self.world.violate("I6", f"{record}: {shb} falls from {self._values[key]}")
            self._values[key] = entry.time
            if shb not in rows:
                self._missing[key] = record

    def _member(self, host: SimulatedHost, record: MemberRecord) -> None:
        self._missing.pop(record.key, None)
        stored = host.disk.records.get(("pubend", str(record.pubend)))
        released = stored.released if isinstance(stored, PubendRecord) else 0
        if record.ack_floor < released:
            self.world.violate("I6", f"{record} comes when {released} is released")

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check that the ticks of a knowledge range lie in its stream epoch."""
        del number
        stream_epochs = self.global_state.stream_epochs.get(stream.pubend, {})
        record = stream_epochs.get(knowledge.stream_epoch)
        following = stream_epochs.get(knowledge.stream_epoch + 1)
        if not knowledge.stream_epoch and stream_epochs:
            # older epochs are not kept, and their ticks have epoch 0 (R31)
            following = stream_epochs[max(stream_epochs)]
        if (record is not None and knowledge.low < record.start) or (
            following is not None and knowledge.high >= following.start
        ):
            self.world.violate(
                "I6",
                f"{process.host.broker} sends {peer} [{knowledge.low}, {knowledge.high}] of "
                f"{stream.pubend} in {record}; the next is {following}",
            )
