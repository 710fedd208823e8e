"""The end of a broker: an orderly stop, a failed step, a failed disk."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gapless.client import connect
from gapless.core.context import StepTime
from gapless.core.errors import DirectoryLockedError, DiskFullError, UsageError
from gapless.core.events import ClientRequest, MachineEvent
from gapless.core.parameters import Parameters
from gapless.runtime import Address, BrokerSettings, MachineError, Node
from gapless.runtime.logs import TextLines
from gapless.storage import Storage
from gapless.wire import DisconnectReason
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import RawClient


@pytest.mark.parametrize("loop", LOOPS)
def test_a_broker_that_stops_answers_pending_requests_and_disconnects(
    loop: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            disk = brokers["b1"].disk
            writes = disk.writes
            client.send_publish("trades", opened.session, 1, count=100)
            await until(lambda: disk.writes > writes or disk.pending_writes)
            await brokers["b1"].stop()
            assert await client.published(100) == 100
            assert (await client.read_disconnect()).code is DisconnectReason.STOPPING

    run(scenario(), loop)


def test_a_stopped_broker_refuses_connections_and_unlocks_its_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(data=tmp_path) as brokers:
            url = brokers["b1"].url
            await brokers["b1"].stop()
            await brokers["b1"].stop()
            with pytest.raises(OSError, match=r"refused|failed"):
                await RawClient(url).connect()
            await brokers.start("b1")

    run(scenario())


def test_a_directory_that_another_broker_uses_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(data=tmp_path) as brokers:
            with pytest.raises(DirectoryLockedError):
                await brokers.make("b1").start()
            assert brokers["b1"].is_running

    run(scenario())


def test_an_address_in_use_is_refused_with_a_remedy() -> None:
    async def scenario() -> None:
        async with world() as brokers:
            taken = Address.parse(brokers["b1"].url)
            with pytest.raises(UsageError, match="listen"):
                await Node(BrokerSettings(listen=taken)).start()

    run(scenario())


def test_a_failed_step_ends_the_broker_and_names_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: list[BaseException] = []

    async def scenario() -> None:
        node = Node(BrokerSettings(), on_failure=failures.append)
        await node.start()
        async with RawClient(node.url) as client:
            step_all = node.broker.step_all

            def broken(events: Iterable[MachineEvent], now: StepTime) -> list[Any]:
                if any(isinstance(event, ClientRequest) for event in events):
                    raise ZeroDivisionError("planted")
                return step_all(events, now)

            node.driver.step_all = broken
            client.send_keepalive()
            client.send_publish("trades", 1, 1)
            await until(lambda: node.failure is not None)
            assert isinstance(node.failure, MachineError)
            assert "Publish" in str(node.failure)
            assert not node.is_running
            assert await client.read_disconnect_or_reset() is None
        await node.stop()

    with caplog.at_level(logging.ERROR, "gapless"):
        run(scenario())
    assert [type(each.__cause__) for each in failures] == [ZeroDivisionError]
    assert "broker stops" in caplog.text


def test_a_disk_that_fails_ends_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(data=tmp_path) as brokers, RawClient(brokers["b1"].url) as client:
            await client.open("trades")
            node = brokers["b1"]
            node.disk_failed(DiskFullError("no space left"))
            assert isinstance(node.failure, DiskFullError)
            assert await client.read_disconnect_or_reset() is None

    run(scenario())


def fill_disk(node: Node) -> None:
    """Let no file of a broker grow by more than a few pages."""
    store = node.disk._store
    assert isinstance(store, Storage)
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count={pages + 2}")


def test_a_full_disk_is_logged_in_one_line_and_loses_no_event_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[int]:
        async with world(data=tmp_path) as brokers:
            node = brokers["b1"]
            listen = node.address
            async with connect(node.url) as session, session.publisher("trades") as publisher:
                await publisher.publish({"n": 1})
                fill_disk(node)
                waiting = asyncio.ensure_future(publisher.publish({"n": 2}, bytes(100_000)))
                await until(lambda: node.failure)
                await node.stop()
                await brokers.start("b1", listen=listen)
                await waiting
                return [int(event.attributes["n"]) async for event in session.read("trades")]

    with caplog.at_level(logging.ERROR, "gapless"):
        assert run(scenario()) == [1, 2]
    (record,) = caplog.records
    line = TextLines().format(record)
    assert "\n" not in line
    assert "no space is left on the disk" in line
    assert "free space and start the broker again" in line
    assert re.search(r'refused="writes that were not acknowledged: [1-9]', line)


def test_a_broker_open_to_other_computers_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(host: str) -> None:
        node = Node(BrokerSettings(listen=Address(host, 0)))
        await node.start()
        await node.stop()

    with caplog.at_level(logging.WARNING, "gapless"):
        run(scenario("127.0.0.1"))
        assert not caplog.records
        run(scenario("0.0.0.0"))  # noqa: S104 - the test needs an open address
    assert "open to other computers" in caplog.text


def test_acknowledgements_are_on_disk_after_a_stop(tmp_path: Path) -> None:
    parameters = Parameters(ack_ms=60_000, ack_report_ttl_ms=200_000, ended_membership_ttl_s=300)

    async def scenario(begin: int, expected: list[int]) -> None:
        async with (
            world(data=tmp_path, parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as client,
        ):
            opened = await client.open("trades")
            await client.subscribe("all", durable=True)
            await client.publish("trades", opened.session, begin)
            assert await client.events(len(expected)) == expected
            client.acknowledge("all", "trades")
            await client.subscribe("sync")

    run(scenario(1, [1]))
    run(scenario(2, [2]))
