"""Durable before told: what others rely on is on disk when they hear of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Event
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    FilterSet,
    PubendOpened,
    PublisherOpened,
    Started,
    Subscribed,
)
from gapless.messages.pubend_requests import HoldId, Read, ReadReply
from gapless.messages.records import (
    Change,
    JoinRecord,
    LifeRecord,
    PublisherRecord,
    Store,
    SubscriptionRecord,
)
from gapless.messages.streams import Piece, Regime, SetDefine
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Host, Process

__all__ = ["Durability"]

HOLDS_KEPT = 4_096
"""Reads with a hold whose answer may still come."""


class Durability(Invariant):
    """I13: on disk before any message depends on it: a life; a regime that is told or that a piece is
    of; a tick that the pubend's broker tells, by a row or below the ceiling; the stay that a host
    reports; a hold before its read is answered; a pubend before its publisher hears of it; and for a
    durable subscription its record with where it began, and the filter that lets an event through,
    before its client hears of them.

    Acknowledgements of publications are checked by their publishers, positions with I9. Reads of a
    pubend's own broker are not seen.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._lives: dict[BrokerId, int] = {}
        self._holds: dict[tuple[BrokerId, int], HoldId] = {}
        self._sessions: set[tuple[BrokerId, int]] = set()
        """The sessions of publishers that were ever on disk, also if the next was there at once."""

    def said(self) -> Mapping[type, Handler]:
        """Look at all that promises something."""
        return {
            Regime: self._regime,
            SetDefine: self._stay,
            Read: self._read,
            ReadReply: self._answered,
            PubendOpened: self._opened,
            PublisherOpened: self._publisher,
            Subscribed: self._subscribed,
            Started: self._started,
            Delivery: self._delivered,
            FilterSet: self._filter_set,
        }

    def durable(self, host: Host, change: Change) -> None:
        """Note sessions of publishers."""
        if type(change) is Store and type(change.record) is PublisherRecord:
            self._sessions.add((host.broker, change.record.session))

    def _undurable(self, process: Process, what: str) -> None:
        self.world.violate("I13", f"{process.host.broker} tells {what}, which is not on its disk")

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Check the life, once: a broker that has begun it may speak."""
        del event
        me, life = process.host.broker, machine.context.identity.life
        if self._lives.get(me) != life:
            self._lives[me] = life
            stored = process.host.disk.records.get(("life",))
            if not isinstance(stored, LifeRecord) or stored.life != life:
                self._undurable(process, f"its life {life}")

    # --- streams -----------------------------------------------------------------------------

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check the regime of a piece, and the ticks that leave their pubend's broker."""
        del leaf
        pubend = stream.pubend
        if piece.regime and piece.regime not in self.insight.regimes.get(pubend, {}):
            self._undurable(process, f"{peer} regime {piece.regime} of {pubend} in a piece")
        if stream.broker == process.host.broker:
            allowed = self.insight.told_up_to.get(pubend, 0)
            if piece.high > allowed:
                self._undurable(process, f"{pubend} up to {piece.high}, above {allowed}")

    def _regime(self, process: Process, peer: str, message: Regime) -> None:
        if message.number not in self.insight.regimes.get(message.pubend, {}):
            self._undurable(process, f"{peer} regime {message.number} of {message.pubend}")

    def _stay(self, process: Process, peer: str, message: SetDefine) -> None:
        del peer
        if message.number >= 0:
            return
        for member in message.members:
            stored = process.host.disk.records.values()
            joins = [each.join for each in stored if isinstance(each, JoinRecord)]
            if member.join not in joins:
                self._undurable(process, f"its stay {member.join}")

    def _read(self, process: Process, peer: str, read: Read) -> None:
        del process, peer
        if read.hold is not None and not read.route:
            self._holds[read.asker, read.request] = read.hold
            if len(self._holds) > HOLDS_KEPT:
                del self._holds[next(iter(self._holds))]

    def _answered(self, process: Process, peer: str, reply: ReadReply) -> None:
        hold = self._holds.get((reply.route[0], reply.request)) if reply.route else None
        if hold is not None and hold not in self.insight.held:
            self._undurable(process, f"{peer} what it reads under {hold}")

    # --- clients -----------------------------------------------------------------------------

    def _opened(self, process: Process, client: str, notice: PubendOpened) -> None:
        del client
        if ("pubend", str(notice.pubend)) not in process.host.disk.records:
            self._undurable(process, f"that {notice.pubend} is open")

    def _publisher(self, process: Process, client: str, notice: PublisherOpened) -> None:
        known = (process.host.broker, notice.session) in self._sessions
        if not known and self._is_guaranteed(process):
            self._undurable(process, f"{client} the session {notice.session}")

    def _is_guaranteed(self, process: Process) -> bool:
        """Say whether a broker has only pubends whose sessions are on disk (R33)."""
        return all(
            stream.guaranteed
            for stream in self.truth.streams.values()
            if stream.broker == process.host.broker
        )

    def _record(self, process: Process, name: str) -> SubscriptionRecord | None:
        """Return what is on disk of a durable subscription; None, and a violation, if nothing is."""
        record = self.insight.subscriptions[process.host.broker].get(name)
        if record is None:
            self._undurable(process, f"of the durable subscription {name}")
        return record

    def _durable_of(self, process: Process, client: str) -> list[str]:
        machine: Any = process.machine
        owned = machine.calls._by_client.get(client, {})
        return [each.name for each in owned.values() if each.durable]

    def _is_durable(self, process: Process, name: str) -> bool:
        machine: Any = process.machine
        found = machine.host.subscriptions.get(name)
        return found is not None and found.durable

    def _subscribed(self, process: Process, client: str, notice: Subscribed) -> None:
        names = self._durable_of(process, client)
        if len(names) == 1 and notice.position:
            record = self._record(process, names[0])
            if record is not None:
                for pubend, _ in notice.position:
                    if pubend not in dict(record.base):
                        self._undurable(process, f"{names[0]} where it began on {pubend}")

    def _started(self, process: Process, client: str, notice: Started) -> None:
        del client
        if self._is_durable(process, notice.subscription):
            record = self._record(process, notice.subscription)
            if record is not None and notice.pubend not in dict(record.base):
                self._undurable(process, f"{notice.subscription} its start on {notice.pubend}")

    def _filter_set(self, process: Process, client: str, notice: FilterSet) -> None:
        del notice
        for name in self._durable_of(process, client):
            machine: Any = process.machine
            record = self._record(process, name)
            newest = machine.host.subscriptions[name].newest
            texts = [] if record is None else [each.filter for each in record.segments]
            changing = machine.host.subscriptions[name].change is not None
            if newest.text not in texts and not changing:
                self._undurable(process, f"{name} its filter {newest.text}")

    def _delivered(self, process: Process, client: str, notice: Delivery) -> None:
        del client
        if not self._is_durable(process, notice.subscription):
            return
        record = self._record(process, notice.subscription)
        if record is None:
            return
        bases = dict(record.base)
        for pubend, publication in notice.events:
            stream = self.truth.streams.get(pubend)
            if stream is None or not stream.guaranteed:
                continue
            if publication.tick <= bases.get(pubend, publication.tick):
                self._undurable(process, f"{record.subscription} {pubend} {publication.tick}")
            elif not self._may_come(record, stream, publication.tick):
                self._undurable(
                    process, f"{record.subscription} {pubend} {publication.tick} by a filter"
                )

    def _may_come(self, record: SubscriptionRecord, stream: Stream, tick: Tick) -> bool:
        """Say whether a filter on disk that may govern a tick matches its event."""
        place = stream.after(tick) - 1
        pubend: PubendId = stream.pubend
        return any(
            self.truth.matches(stream, segment.filter, place)
            for segment in record.segments
            if dict(segment.ends).get(pubend, tick) >= tick
        )
