"""Recorded sessions: the requests and the messages of brokers in runs of the simulator.

A run of the simulator visits states that hardly any generator reaches, and is the same for the same
seed. Names are replaced by those of the fuzzed overlay.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any, Final

import msgspec

from gapless.core.events import ClientRequest, MachineEvent, Received
from gapless.messages.overlay import Packet, Relayed
from gapless_lab.fuzz.vocabulary import BROKERS, PUBENDS
from gapless_lab.sim.options import draw
from gapless_lab.sim.runner import SimulationRun
from gapless_lab.sim.world import World, WorldObserver

__all__ = ["Recording", "record"]

SAMPLES_MAX: Final = 60
"""Messages of one type that are kept of a run; later ones replace earlier ones at random."""

SAFETY_MS: Final = 1_500
"""How long the faults of a recorded run last."""


class Recording:
    """Messages of each type, in msgpack, as clients and as brokers have sent them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.requests: dict[str, list[bytes]] = defaultdict(list)
        self.messages: dict[str, list[bytes]] = defaultdict(list)
        self._seen: dict[str, int] = defaultdict(int)

    def request(self) -> bytes:
        """Return a request of a client."""
        return self._drawn(self.requests)

    def message(self) -> bytes:
        """Return a message of a broker."""
        return self._drawn(self.messages)

    def _drawn(self, kinds: dict[str, list[bytes]]) -> bytes:
        kind = self._random.choice(sorted(kinds))
        return self._random.choice(kinds[kind])

    def add(self, kinds: dict[str, list[bytes]], message: Any) -> None:
        """Add a message, unless there are enough of its type."""
        tag = type(message).__name__
        self._seen[tag] += 1
        samples = kinds[tag]
        if len(samples) < SAMPLES_MAX:
            samples.append(_renamed(message))
        elif self._random.randrange(self._seen[tag]) < SAMPLES_MAX:
            samples[self._random.randrange(SAMPLES_MAX)] = _renamed(message)


class _Recorder(WorldObserver):
    """Adds what brokers receive to a recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def stepped(self, world: World, process: Any, event: MachineEvent, effects: list[Any]) -> None:
        del world, process, effects
        recording = self._recording
        if isinstance(event, ClientRequest):
            recording.add(recording.requests, event.request)
        elif isinstance(event, Received) and isinstance(event.packet, Packet):
            for message in event.packet.messages:
                recording.add(recording.messages, message)


def record(seeds: range, random: Random) -> Recording:
    """Record runs of the simulator."""
    recording = Recording(random)
    for seed in seeds:
        options = msgspec.structs.replace(draw(seed), safety_ms=SAFETY_MS, liveness_ms=1)
        run = SimulationRun(options, observers=())
        run.world.observers.append(_Recorder(recording))
        run.start()
        run.world.run_until(options.safety_ms * 1_000)
    return recording


def _renamed(message: Any) -> bytes:
    """Return a message in msgpack, with the names of the fuzzed overlay."""
    if isinstance(message, Relayed) and not isinstance(message.inner, bytes | msgspec.Raw):
        message = msgspec.structs.replace(message, inner=msgspec.to_builtins(message.inner))
    encoded = msgspec.msgpack.encode(message)
    return msgspec.msgpack.encode(_with_names(msgspec.msgpack.decode(encoded)))


_FUZZED: Final = tuple(BROKERS)


def _with_names(value: Any) -> Any:
    if isinstance(value, str):
        return _name(value)
    if isinstance(value, list):
        return [_with_names(each) for each in value]
    if isinstance(value, dict):
        return {key: _with_names(each) for key, each in value.items()}
    return value


def _name(text: str) -> str:
    """Return the name for a name of the simulator: cells n0, n1, brokers n0a, pubends P0.

    >>> _name("n1a"), _name("n0"), _name("n0b@n0"), _name("P3"), _name("price > 9")
    ('b1', 'c0', 'a0@c0', 'f3', 'price > 9')
    """
    broker, at, cell = text.partition("@")
    if at and broker and cell:
        return f"{_name(broker)}@{_name(cell)}"
    if len(text) < 2 or not text[1].isdigit():
        return text
    if text[0] == "P" and text[1:].isdigit():
        return PUBENDS[int(text[1:]) % len(PUBENDS)]
    if text[0] == "n":
        number = int(text[1]) % 2  # the hostile neighbour and the broker next to it
        return _FUZZED[number] if text[-1].isalpha() else BROKERS[_FUZZED[number]]
    return text
