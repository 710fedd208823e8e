"""Frames go out when the step that sends them is through, or once in a turn when much comes in."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gapless.runtime.connection import MUCH_READ, Connection, Outbox, Traffic
from gapless.runtime.crowd import Crowd
from tests.runtime.nodes import run


class Transport:
    """Notes who writes what, in which order."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        self._name = name
        self._written = written

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing waits here."""

    def write(self, data: bytes | bytearray) -> None:
        self._written.append((self._name, bytes(data)))


class Echo:
    """Sends every body to another connection, and an answer back, and is done with its step."""

    def __init__(self, outbox: Outbox, here: Connection, there: Connection) -> None:
        self.traffic = Traffic()
        self._outbox, self._here, self._there = outbox, here, there

    def take(self, body: bytes) -> None:
        self._here.send(bytearray(b"ok"))
        self._there.send(bytearray(body[:2]))

    def taken(self) -> None:
        self._outbox.flush()


def line() -> tuple[Connection, list[tuple[str, bytes]]]:
    """A client whose frames are passed on to a broker."""
    written: list[tuple[str, bytes]] = []
    outbox, everyone = Outbox(asyncio.get_running_loop()), Crowd[Connection]()
    client, broker = (Connection(outbox, everyone, 10**6, 10**6) for _ in range(2))
    broker.goes_on = True
    client.handler = broker.handler = cast("Any", Echo(outbox, client, broker))
    client.connection_made(cast("Any", Transport("client", written)))
    broker.connection_made(cast("Any", Transport("broker", written)))
    return client, written


def arrive(connection: Connection, data: bytes) -> None:
    """Let a connection read."""
    room = connection.get_buffer(-1)
    room[: len(data)] = data
    connection.buffer_updated(len(data))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_what_has_farther_to_go_is_written_first_and_in_the_same_turn() -> None:
    async def scenario() -> None:
        client, written = line()
        arrive(client, framed(b"hi"))
        assert written == [("broker", b"hi"), ("client", b"ok")]

    run(scenario())


def test_when_much_comes_in_what_goes_out_is_written_once_in_a_turn() -> None:
    async def scenario() -> None:
        client, written = line()
        arrive(client, framed(b"one" + bytes(MUCH_READ)))
        arrive(client, framed(b"two"))
        assert written == []
        await asyncio.sleep(0)
        assert written == [("broker", b"ontw"), ("client", b"okok")]
        arrive(client, framed(b"hi"))
        assert written[2:] == [("broker", b"hi"), ("client", b"ok")]

    run(scenario())
