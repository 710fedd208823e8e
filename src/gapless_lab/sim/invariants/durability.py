"""Durable before sent: what others rely on is on disk before they receive it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    PubendOpened,
    PublisherOpened,
    Subscribed,
    SubscriptionStarted,
)
from gapless.messages.pubend_requests import LogHoldId, Read, ReadReply
from gapless.messages.records import (
    IncarnationRecord,
    JoinedPubendRecord,
    PublisherRecord,
    PutRecord,
    StorageChange,
    SubscriptionRecord,
)
from gapless.messages.streams import DefineMemberSet, KnowledgeRange, StreamEpoch
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess

__all__ = ["DurabilityInvariant"]

LOG_HOLDS_MAX = 4_096
"""How many reads with a log hold are remembered until their replies come."""


class DurabilityInvariant(Invariant):
    """I13: state is on disk before a message depends on it. An incarnation. A stream epoch that is
    sent, or that a knowledge range names. A tick that a PHB sends, by a row or below the tick
    ceiling. The membership that an SHB reports. A log hold before its read is answered. A pubend
    before its publisher gets a reply. Of a durable subscription, its record with its start, and the
    filter that an event matches, before its client receives them.

    Publishers check the acknowledgements of publications. I9 checks positions. Reads of a PHB from
    itself are not observed.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._incarnations: dict[BrokerId, int] = {}
        self._log_holds: dict[tuple[BrokerId, int], LogHoldId] = {}
        self._sessions: set[tuple[BrokerId, int]] = set()
        """All sessions of publishers that were on disk, also if the next one replaced them in the
        same write."""

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle all messages that others rely on."""
        return {
            StreamEpoch: self._stream_epoch,
            DefineMemberSet: self._membership,
            Read: self._read,
            ReadReply: self._answered,
            PubendOpened: self._opened,
            PublisherOpened: self._publisher,
            Subscribed: self._subscribed,
            SubscriptionStarted: self._started,
            Delivery: self._delivered,
            FilterSet: self._filter_set,
        }

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Record the sessions of publishers."""
        if type(change) is PutRecord and type(change.record) is PublisherRecord:
            self._sessions.add((host.broker, change.record.session))

    def _undurable(self, process: SimulatedProcess, what: str) -> None:
        self.world.violate("I13", f"{process.host.broker} sends {what}, which is not on its disk")

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Check the incarnation once: a broker that has started it may send."""
        del event
        me, incarnation = process.host.broker, machine.context.identity.incarnation
        if self._incarnations.get(me) != incarnation:
            self._incarnations[me] = incarnation
            stored = process.host.disk.records.get(("incarnation",))
            if not isinstance(stored, IncarnationRecord) or stored.incarnation != incarnation:
                self._undurable(process, f"its incarnation {incarnation}")

    # --- streams -----------------------------------------------------------------------------

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the stream epoch of a knowledge range, and the ticks that a PHB sends."""
        del number
        pubend = stream.pubend
        if (
            knowledge.stream_epoch
            and knowledge.stream_epoch not in self.global_state.stream_epochs.get(pubend, {})
        ):
            self._undurable(
                process,
                f"{peer} stream epoch {knowledge.stream_epoch} of {pubend} in its knowledge",
            )
        if stream.broker == process.host.broker:
            allowed = self.global_state.sendable_up_to(pubend, stream.broker)
            if knowledge.high > allowed:
                self._undurable(process, f"{pubend} up to {knowledge.high}, above {allowed}")

    def _stream_epoch(self, process: SimulatedProcess, peer: str, message: StreamEpoch) -> None:
        if message.number not in self.global_state.stream_epochs.get(message.pubend, {}):
            self._undurable(process, f"{peer} stream epoch {message.number} of {message.pubend}")

    def _membership(self, process: SimulatedProcess, peer: str, message: DefineMemberSet) -> None:
        del peer
        if message.number >= 0:
            return
        for member in message.members:
            stored = process.host.disk.records.values()
            memberships = [
                each.membership for each in stored if isinstance(each, JoinedPubendRecord)
            ]
            if member.membership not in memberships:
                self._undurable(process, f"its membership {member.membership}")

    def _read(self, process: SimulatedProcess, peer: str, read: Read) -> None:
        del process, peer
        if read.log_hold is not None and not read.route:
            self._log_holds[read.requester, read.request] = read.log_hold
            if len(self._log_holds) > LOG_HOLDS_MAX:
                del self._log_holds[next(iter(self._log_holds))]

    def _answered(self, process: SimulatedProcess, peer: str, reply: ReadReply) -> None:
        log_hold = self._log_holds.get((reply.route[0], reply.request)) if reply.route else None
        if log_hold is not None and log_hold not in self.global_state.log_holds_ever:
            self._undurable(process, f"{peer} what it reads under {log_hold}")

    # --- clients -----------------------------------------------------------------------------

    def _opened(self, process: SimulatedProcess, client: str, notice: PubendOpened) -> None:
        del client
        if ("pubend", str(notice.pubend)) not in process.host.disk.records:
            self._undurable(process, f"that {notice.pubend} is open")

    def _publisher(self, process: SimulatedProcess, client: str, notice: PublisherOpened) -> None:
        known = (process.host.broker, notice.session) in self._sessions
        if not known and self._is_guaranteed(process):
            self._undurable(process, f"{client} the session {notice.session}")

    def _is_guaranteed(self, process: SimulatedProcess) -> bool:
        """Return whether all pubends of a broker have their sessions on disk (R33)."""
        return all(
            stream.guaranteed
            for stream in self.oracle.streams.values()
            if stream.broker == process.host.broker
        )

    def _record(self, process: SimulatedProcess, name: str) -> SubscriptionRecord | None:
        """Return the record of a durable subscription; None, with a violation, if it is not on
        disk.
        """
        record = self.global_state.subscriptions[process.host.broker].get(name)
        if record is None:
            self._undurable(process, f"of the durable subscription {name}")
        return record

    def _durable_of(self, process: SimulatedProcess, client: str) -> list[str]:
        machine: Any = process.machine
        owned = machine.components.registry.of_client(client)
        return [each.name for each in owned.values() if each.durable]

    def _is_durable(self, process: SimulatedProcess, name: str) -> bool:
        machine: Any = process.machine
        found = machine.components.registry.subscriptions.get(name)
        return found is not None and found.durable

    def _subscribed(self, process: SimulatedProcess, client: str, notice: Subscribed) -> None:
        names = self._durable_of(process, client)
        if len(names) == 1 and notice.position:
            record = self._record(process, names[0])
            if record is not None:
                for pubend, _ in notice.position:
                    if pubend not in dict(record.started_after):
                        self._undurable(process, f"{names[0]} where it started on {pubend}")

    def _started(self, process: SimulatedProcess, client: str, notice: SubscriptionStarted) -> None:
        del client
        if self._is_durable(process, notice.subscription):
            record = self._record(process, notice.subscription)
            if record is not None and notice.pubend not in dict(record.started_after):
                self._undurable(process, f"{notice.subscription} its start on {notice.pubend}")

    def _filter_set(self, process: SimulatedProcess, client: str, notice: FilterSet) -> None:
        del notice
        for name in self._durable_of(process, client):
            machine: Any = process.machine
            record = self._record(process, name)
            newest = machine.components.registry.subscriptions[name].newest
            texts = [] if record is None else [each.filter for each in record.segments]
            changing = machine.components.registry.subscriptions[name].changes.current is not None
            if newest.text not in texts and not changing:
                self._undurable(process, f"{name} its filter {newest.text}")

    def _delivered(self, process: SimulatedProcess, client: str, notice: Delivery) -> None:
        del client
        if not self._is_durable(process, notice.subscription):
            return
        record = self._record(process, notice.subscription)
        if record is None:
            return
        bases = dict(record.started_after)
        for pubend, publication in notice.events:
            stream = self.oracle.streams.get(pubend)
            if stream is None or not stream.guaranteed:
                continue
            if publication.tick <= bases.get(pubend, publication.tick):
                self._undurable(process, f"{record.subscription} {pubend} {publication.tick}")
            elif not self._may_come(record, stream, publication.tick):
                self._undurable(
                    process, f"{record.subscription} {pubend} {publication.tick} by a filter"
                )

    def _may_come(self, record: SubscriptionRecord, stream: PublishedStream, tick: Tick) -> bool:
        """Return whether a filter on disk that may apply to a tick matches its event."""
        index = stream.after(tick) - 1
        pubend: PubendId = stream.pubend
        return any(
            self.oracle.matches(stream, segment.filter, index)
            for segment in record.segments
            if dict(segment.ends).get(pubend, tick) >= tick
        )
