"""Frames are written at the end of the step that sends them, or once a turn under load."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gapless.runtime.connection import (
    MUCH_READ,
    TURN_BYTES,
    FramedConnection,
    TrafficCounters,
    WriteScheduler,
)
from gapless.runtime.open_connections import OpenConnections
from gapless.runtime.turns import LoopTurns
from tests.runtime.nodes import run


class Transport:
    """Records the writes of all transports in order."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        self._name = name
        self._written = written
        self._is_reading = True

    def abort(self) -> None:
        """Do nothing."""

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Do nothing."""

    def write(self, data: bytes | bytearray) -> None:
        self._written.append((self._name, bytes(data)))


class Echo:
    """Sends every body to another connection and a reply back, then ends its step."""

    def __init__(
        self, scheduler: WriteScheduler, here: FramedConnection, there: FramedConnection
    ) -> None:
        self.traffic = TrafficCounters()
        self._scheduler, self._here, self._there = scheduler, here, there

    def take(self, body: bytes) -> None:
        self._here.send(bytearray(b"ok"))
        self._there.send(bytearray(body[:2]))

    def taken(self) -> None:
        self._scheduler.flush()

    def closed(self, reason: str) -> None:
        """Do nothing."""


def line() -> tuple[FramedConnection, Transport, list[tuple[str, bytes]]]:
    """Return a client whose frames are forwarded to a broker."""
    written: list[tuple[str, bytes]] = []
    scheduler, connections = (
        WriteScheduler(asyncio.get_running_loop()),
        OpenConnections[FramedConnection](),
    )
    turns = LoopTurns(asyncio.get_running_loop(), now=lambda: 0.0)
    client, broker = (
        FramedConnection(scheduler, turns, connections, 10**6, 10**6) for _ in range(2)
    )
    broker.prioritise()
    echo = cast("Any", Echo(scheduler, client, broker))
    client.hand_to(echo)
    broker.hand_to(echo)
    transport = Transport("client", written)
    client.connection_made(cast("Any", transport))
    broker.connection_made(cast("Any", Transport("broker", written)))
    return client, transport, written


def arrive(connection: FramedConnection, data: bytes) -> None:
    """Let a connection read data."""
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_frames_to_brokers_are_written_before_frames_to_clients_in_the_same_turn() -> None:
    async def scenario() -> None:
        client, _, written = line()
        arrive(client, framed(b"hi"))
        assert written == [("broker", b"hi"), ("client", b"ok")]

    run(scenario())


def test_under_load_frames_are_written_once_a_turn() -> None:
    async def scenario() -> None:
        client, _, written = line()
        arrive(client, framed(b"one" + bytes(MUCH_READ)))
        arrive(client, framed(b"two"))
        assert written == []
        await asyncio.sleep(0)
        assert written == [("broker", b"ontw"), ("client", b"okok")]
        arrive(client, framed(b"hi"))
        assert written[2:] == [("broker", b"hi"), ("client", b"ok")]

    run(scenario())


def test_a_connection_that_sends_much_is_paused_until_the_next_turn() -> None:
    async def scenario() -> None:
        client, transport, _ = line()
        arrive(client, framed(bytes(TURN_BYTES // 2)))
        assert transport.is_reading()
        arrive(client, framed(bytes(TURN_BYTES // 2)))
        assert not transport.is_reading()
        await asyncio.sleep(0)
        assert transport.is_reading()
        arrive(client, framed(bytes(TURN_BYTES // 2)))
        assert transport.is_reading()

    run(scenario())


def test_a_paused_connection_is_not_read_before_it_is_resumed() -> None:
    async def scenario() -> None:
        client, transport, _ = line()
        arrive(client, framed(bytes(TURN_BYTES)))
        client.pause_reading()
        await asyncio.sleep(0)
        assert not transport.is_reading()
        client.resume_reading()
        assert transport.is_reading()

    run(scenario())


def test_bytes_after_the_end_are_discarded_in_large_chunks() -> None:
    async def scenario() -> None:
        client, transport, _ = line()
        arrive(client, framed(b"cut off")[:3])
        assert len(client.get_buffer(-1)) == 1
        client.abort()
        assert len(client.get_buffer(-1)) >= MUCH_READ
        client.buffer_updated(MUCH_READ)
        assert transport.is_reading()

    run(scenario())
