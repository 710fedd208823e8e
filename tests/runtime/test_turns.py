"""Frames that take long are divided over turns of the event loop, among all connections."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gapless.runtime.connection import FramedConnection, TrafficCounters, WriteScheduler
from gapless.runtime.open_connections import OpenConnections
from gapless.runtime.turns import SLICE_S, TURN_S, LoopTurns
from tests.runtime.nodes import run


class Transport:
    """Knows whether it reads."""

    def __init__(self) -> None:
        self._reads = True

    def is_reading(self) -> bool:
        return self._reads

    def abort(self) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Do nothing."""


class Handler:
    """Processes each frame in the same time of a clock, and notes it."""

    def __init__(self, name: str, world: World, cost_s: float) -> None:
        self.traffic = TrafficCounters()
        self._name, self._world, self._cost_s = name, world, cost_s

    def take(self, body: bytes) -> None:
        self._world.now += self._cost_s
        self._world.taken.append(f"{self._name}{bytes(body).decode()}")

    def taken(self) -> None:
        """Do nothing."""

    def closed(self, reason: str) -> None:
        """Do nothing."""


class World:
    """Connections that share the turns of an event loop, with a clock that only frames move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.taken: list[str] = []
        loop = asyncio.get_running_loop()
        self.turns = LoopTurns(loop, now=lambda: self.now)
        self._scheduler = WriteScheduler(loop)
        self._connections = OpenConnections[FramedConnection]()

    def connect(self, name: str, cost_s: float) -> tuple[FramedConnection, Transport]:
        made = FramedConnection(self._scheduler, self.turns, self._connections, 10**6, 10**6)
        made.hand_to(cast("Any", Handler(name, self, cost_s)))
        transport = Transport()
        made.connection_made(cast("Any", transport))
        return made, transport

    async def turn(self) -> list[str]:
        """Let the event loop turn once; return what was processed."""
        before = len(self.taken)
        await asyncio.sleep(0)
        return self.taken[before:]


def arrive(connection: FramedConnection, *bodies: str) -> None:
    """Let a connection read frames at once."""
    data = b"".join(len(each).to_bytes(4, "big") + each.encode() for each in bodies)
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def test_a_slow_frame_lets_the_others_of_its_read_wait_and_pauses_reading() -> None:
    async def scenario() -> None:
        world = World()
        client, transport = world.connect("c", 2 * TURN_S)
        arrive(client, "1", "2", "3")
        assert world.taken == ["c1"]
        assert not transport.is_reading()
        assert await world.turn() == ["c2"]
        assert not transport.is_reading()
        assert await world.turn() == ["c3"]
        assert transport.is_reading()
        assert await world.turn() == []

    run(scenario())


def test_quick_frames_of_one_read_are_processed_in_one_turn() -> None:
    async def scenario() -> None:
        world = World()
        client, transport = world.connect("c", SLICE_S / 1_000)
        arrive(client, *["x"] * 900)
        assert len(world.taken) == 900
        assert transport.is_reading()

    run(scenario())


def test_connections_with_slow_frames_take_turns() -> None:
    async def scenario() -> None:
        world = World()
        slow, _ = world.connect("s", 2 * TURN_S)
        quick, _ = world.connect("q", 0)
        arrive(slow, "1", "2", "3")
        arrive(quick, "1", "2")
        assert world.taken == ["s1"]  # the turn is used up
        assert await world.turn() == ["s2"]
        assert await world.turn() == ["q1", "q2", "s3"]

    run(scenario())


def test_a_link_continues_in_every_turn() -> None:
    async def scenario() -> None:
        world = World()
        link, _ = world.connect("l", 0)
        link.prioritise()
        clients = [world.connect(name, 2 * TURN_S)[0] for name in "abc"]
        for client in clients:
            arrive(client, "1", "2")
        arrive(link, "1")
        assert await world.turn() == ["l1", "a2"]
        arrive(link, "2")
        assert (await world.turn())[0] == "l2"

    run(scenario())


def test_all_connections_together_use_a_bounded_part_of_a_turn() -> None:
    async def scenario() -> None:
        world = World()
        clients = [world.connect("c", SLICE_S)[0] for _ in range(20)]
        for client in clients:
            arrive(client, *"12345")
        for _ in range(5):
            assert len(await world.turn()) == round(TURN_S / SLICE_S)

    run(scenario())


def test_a_timer_runs_while_frames_wait() -> None:
    async def scenario() -> None:
        world = World()
        client, _ = world.connect("c", 2 * TURN_S)
        arrive(client, *"123456789")
        asyncio.get_running_loop().call_later(0, world.taken.append, "timer")
        while len(world.turns):
            await world.turn()
        assert "timer" in world.taken[:4]

    run(scenario())


def test_frames_of_a_paused_connection_wait_until_it_is_resumed() -> None:
    async def scenario() -> None:
        world = World()
        client, transport = world.connect("c", 2 * TURN_S)
        arrive(client, "1", "2")
        client.pause_reading()
        assert await world.turn() == []
        client.resume_reading()
        assert not transport.is_reading()
        assert await world.turn() == ["c2"]
        assert transport.is_reading()

    run(scenario())


def test_frames_that_wait_are_dropped_when_the_connection_ends() -> None:
    async def scenario() -> None:
        world = World()
        client, _ = world.connect("c", 2 * TURN_S)
        arrive(client, "1", "2")
        client.abort()
        assert await world.turn() == []
        assert not len(world.turns)

    run(scenario())


def test_a_client_whose_requests_wait_is_not_silent() -> None:
    async def scenario() -> None:
        world = World()
        client, _ = world.connect("c", 2 * TURN_S)
        arrive(client, "1", "2")
        assert client.take_received()
        await world.turn()
        assert client.take_received()

    run(scenario())
