"""Observers of the experiments: nacks, and the brokers that forward events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gapless.core.effects import Send
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import TICKS_PER_MS
from gapless.messages.overlay import Packet, Relayed
from gapless.messages.streams import Nack, StreamData
from gapless_lab.sim.world import SimulatedProcess, World, WorldObserver

__all__ = ["FeedObserver", "ForwardingObserver", "NackObserver", "SentNack"]


def messages(effects: list[Any]) -> Iterator[tuple[BrokerId, Any]]:
    """Yield the messages of a step to other brokers, with their receivers."""
    for effect in effects:
        if type(effect) is Send and type(effect.packet) is Packet:
            for message in effect.packet.messages:
                if type(message) is not Relayed:
                    yield effect.peer, message
                elif message.index == 1 and type(message.inner) is Packet:
                    # at its sender; the brokers of the route only forward it
                    for inner in message.inner.messages:
                        yield message.route[-1], inner


class MessageObserver(WorldObserver):
    """Observes every message between brokers as it is sent."""

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """Handle the messages that a broker sends."""
        del event
        for target, message in messages(effects):
            self.message_sent(world.now, process.host.broker, target, message)

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Handle a message."""
        raise NotImplementedError


class SentNack(msgspec.Struct, frozen=True):
    """A nack: its time, sender and receiver, and how much of a stream it requests."""

    at_us: int
    source: BrokerId
    target: BrokerId
    pubend: PubendId
    range_ms: float


class NackObserver(MessageObserver):
    """Stores all nacks between brokers."""

    def __init__(self) -> None:
        self.nacks: list[SentNack] = []

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Store a nack."""
        if type(message) is Nack and target != source:
            ticks = sum(high - low + 1 for low, high in message.ranges)
            nack = SentNack(now, source, target, message.pubend, ticks / TICKS_PER_MS)
            self.nacks.append(nack)


class FeedObserver(MessageObserver):
    """Records from which broker another last received events of a pubend."""

    def __init__(self) -> None:
        self._from: dict[tuple[BrokerId, PubendId], BrokerId] = {}

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Record the sender of events."""
        del now
        if type(message) is StreamData:
            self._from[target, message.pubend] = source

    def feeder(self, broker: BrokerId, pubend: PubendId) -> BrokerId | None:
        """Return the feeder of a pubend at a broker."""
        return self._from.get((broker, pubend))


class ForwardingObserver(MessageObserver):
    """Counts the events that brokers send to others, second by second."""

    def __init__(self) -> None:
        self.sent: dict[BrokerId, dict[int, int]] = {}

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Count events that are sent for the first time."""
        del target
        if type(message) is StreamData and message.first:
            by_second = self.sent.setdefault(source, {})
            second = now // 1_000_000
            by_second[second] = by_second.get(second, 0) + len(message.knowledge.publications)
