"""Proxies between brokers: a cut delays bytes until it is healed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gapless.runtime.overlay_config import overlay_of
from gapless_lab.chaos.proxies import Proxies
from tests.client.running import async_test, soon

THERE = ("b1", "b2")
BACK = ("b2", "b1")


class Ends:
    """The two ends of connections from b1 to b2 through a proxy."""

    def __init__(self, proxies: Proxies) -> None:
        self.proxies = proxies
        self.accepted: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.dialled: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append((reader, writer))

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.proxies.addresses_for("b1")["b2"])
        self.dialled.append(writer)
        return reader, writer


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    proxies = Proxies()
    await proxies.start(overlay_of("line:2"))
    made = Ends(proxies)
    server = await asyncio.start_server(made.accept, *proxies.addresses["b2"])
    try:
        yield made
    finally:
        for writer in (*made.dialled, *(writer for _, writer in made.accepted)):
            writer.close()
        server.close()
        await proxies.stop()
        await asyncio.sleep(0.01)  # transports close in a later turn of the loop


@async_test
async def test_the_first_of_two_brokers_dials_a_proxy_instead_of_the_other() -> None:
    async with ends() as made:
        assert set(made.proxies.addresses_for("b1")) == {"b2"}
        assert made.proxies.addresses_for("b2") == {}
        assert made.proxies.command("b1") == ()


@async_test
async def test_a_cut_delays_one_direction_and_loses_nothing() -> None:
    async with ends() as made:
        reader, writer = await made.dial()
        writer.write(b"one")
        await soon(lambda: bool(made.accepted))
        there, back = made.accepted[0]
        assert await there.readexactly(3) == b"one"
        await made.proxies.cut([THERE])
        writer.write(b"two")
        back.write(b"answer")
        assert await reader.readexactly(6) == b"answer"
        waiting = asyncio.create_task(there.readexactly(3))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await made.proxies.heal([THERE])
        assert await waiting == b"two"


@async_test
async def test_a_dial_across_a_cut_waits_until_it_is_healed() -> None:
    async with ends() as made:
        await made.proxies.cut([THERE, BACK])
        _, writer = await made.dial()
        writer.write(b"hello")
        await asyncio.sleep(0.02)
        assert not made.accepted
        await made.proxies.heal([BACK])
        await asyncio.sleep(0.02)
        assert not made.accepted, "one direction is still cut"
        await made.proxies.heal([THERE])
        await soon(lambda: bool(made.accepted))
        assert await made.accepted[0][0].readexactly(5) == b"hello"


@async_test
async def test_a_close_of_a_broker_closes_the_other_end() -> None:
    async with ends() as made:
        reader, _ = await made.dial()
        await soon(lambda: bool(made.accepted))
        made.accepted[0][1].close()
        assert await reader.read() == b""


@async_test
async def test_a_dial_of_a_missing_broker_is_refused() -> None:
    proxies = Proxies()
    await proxies.start(overlay_of("line:2"))
    reader, writer = await asyncio.open_connection(*proxies.addresses_for("b1")["b2"])
    try:
        received = await reader.read()
    except ConnectionResetError:
        received = b""
    assert received == b""
    writer.close()
    await proxies.stop()
    await asyncio.sleep(0.01)
