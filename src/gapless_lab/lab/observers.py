"""Probes of the experiments: who asked again for what, and whose hands events went through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import MachineEvent, Send
from gapless.core.ticks import TICKS_PER_MS
from gapless.messages.overlay import Packet, Relayed
from gapless.messages.streams import Nack, StreamData
from gapless_lab.sim.world import SimulatedProcess, World, WorldObserver

__all__ = ["FeedObserver", "ForwardingObserver", "NackObserver", "SentNack"]


def messages(effects: list[Any]) -> Iterator[tuple[BrokerId, Any]]:
    """Return what a step says to other brokers: to whom, and each message."""
    for effect in effects:
        if type(effect) is Send and type(effect.packet) is Packet:
            for message in effect.packet.messages:
                if type(message) is not Relayed:
                    yield effect.peer, message
                elif message.index == 1 and type(message.inner) is Packet:
                    # as its sender says it; those on the way only pass it on
                    for inner in message.inner.messages:
                        yield message.route[-1], inner


class MessageObserver(WorldObserver):
    """Hears every message between brokers, as it is sent."""

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """Look through what a broker sends."""
        del event
        for target, message in messages(effects):
            self.message_sent(world.now, process.host.broker, target, message)

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Take note of a message."""
        raise NotImplementedError


class SentNack(msgspec.Struct, frozen=True):
    """A nack: when, from whom to whom, and how much of a stream it asks for."""

    at_us: int
    source: BrokerId
    target: BrokerId
    pubend: PubendId
    range_ms: float


class NackObserver(MessageObserver):
    """Keeps all nacks between brokers."""

    def __init__(self) -> None:
        self.nacks: list[SentNack] = []

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Keep a nack."""
        if type(message) is Nack and target != source:
            ticks = sum(high - low + 1 for low, high in message.ranges)
            nack = SentNack(now, source, target, message.pubend, ticks / TICKS_PER_MS)
            self.nacks.append(nack)


class FeedObserver(MessageObserver):
    """Knows from whom a broker last got events of a pubend."""

    def __init__(self) -> None:
        self._from: dict[tuple[BrokerId, PubendId], BrokerId] = {}

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Note who sends events."""
        del now
        if type(message) is StreamData:
            self._from[target, message.pubend] = source

    def feeder(self, broker: BrokerId, pubend: PubendId) -> BrokerId | None:
        """Return who feeds a broker with a pubend."""
        return self._from.get((broker, pubend))


class ForwardingObserver(MessageObserver):
    """Counts the events that brokers send on to others, second by second."""

    def __init__(self) -> None:
        self.sent: dict[BrokerId, dict[int, int]] = {}

    def message_sent(self, now: int, source: BrokerId, target: BrokerId, message: Any) -> None:
        """Count events that are sent for the first time."""
        del target
        if type(message) is StreamData and message.first:
            by_second = self.sent.setdefault(source, {})
            second = now // 1_000_000
            by_second[second] = by_second.get(second, 0) + len(message.knowledge.publications)
