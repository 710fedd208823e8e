"""Back-pressure: slow clients, links and disks are paused or disconnected; others are not affected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gapless.core.events import LinkDrained, LinkFull
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.messages.clients import (
    Delivery,
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    PublisherOpened,
    Refused,
)
from gapless.messages.operating import BrokerReply, GetBroker, ListPubends, PubendList
from gapless.messages.overlay import Packet, PeerSessionId
from gapless.messages.streams import KnowledgeRange, Publication, StreamData
from gapless.wire import LINK_PACKETS
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import RawClient

LARGE = bytes(200_000)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_queue_of_a_client_that_does_not_read_is_bounded_and_others_continue(loop: str) -> None:
    parameters = Parameters(queue_bytes_max=65_536, keepalive_ms=5_000)

    async def scenario() -> None:
        async with (
            world(parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b1"].url) as reader,
            RawClient(brokers["b1"].url) as sleeper,
        ):
            opened = await publisher.open("trades")
            await reader.subscribe("all")
            await sleeper.subscribe("more")
            clients = brokers["b1"].clients
            for number in range(1, 101):
                await publisher.publish("trades", opened.session, number, payload=LARGE)
                assert await reader.events(1) == [number]
            assert any(each.connection.is_congested for each in clients)
            assert clients.waiting_bytes < 65_536 + 2 * len(LARGE)
            assert await sleeper.events(100) == [*range(1, 101)], (
                "the sleeper gets all events when it reads"
            )

    run(scenario(), loop)


def test_a_client_that_is_congested_for_some_keepalives_is_disconnected() -> None:
    parameters = Parameters(queue_bytes_max=16_777_216, keepalive_ms=100)

    async def scenario() -> None:
        async with (
            world(parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b1"].url) as sleeper,
        ):
            opened = await publisher.open("trades")
            await sleeper.subscribe("all")
            number = 0
            clients = brokers["b1"].clients
            while not any(each.connection.is_congested for each in clients):
                number += 1
                await publisher.publish("trades", opened.session, number, payload=LARGE)
                sleeper.send_keepalive()
            keepalives = [
                asyncio.create_task(each.keep_alive(0.01)) for each in (publisher, sleeper)
            ]
            await until(lambda: len(clients) == 1)
            for task in keepalives:
                task.cancel()

    run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_of_a_client_that_does_not_read_its_answers_wait_unread(loop: str) -> None:
    parameters = Parameters(queue_bytes_max=65_536)
    long, requests = "x" * 50_000, 3_000

    async def scenario() -> None:
        async with (
            world(parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as client,
            RawClient(brokers["b1"].url) as bystander,
        ):
            (session,) = [each for each in brokers["b1"].clients if each.name.endswith(".1")]
            opened = await client.request(
                PubendOpened, OpenPubend(client.number(), "trades", f"a = '{long}'")
            )
            await client.request(
                PublisherOpened, OpenPublisher(client.number(), opened.pubend, "desk")
            )
            first = client.number()
            for number in range(first, first + requests):
                client.send(ListPubends(number) if number % 2 else _refused(number, opened.pubend))
            await until(lambda: session.connection.is_congested)
            for _ in range(20):
                await bystander.request(BrokerReply, GetBroker(bystander.number()))
                assert session.connection.waiting_bytes < 65_536 + 100 * len(long)
            for number in range(first, first + requests):
                await client.next(PubendList if number % 2 else Refused, request=number)

    run(scenario(), loop)


def _refused(number: int, pubend: PubendId) -> Publish:
    """Return a small request whose refusal names the long advertisement."""
    return Publish(number, pubend, "desk", 1, 1, (({}, b""),))


def test_a_reader_that_pauses_and_resumes_gets_every_event() -> None:
    async def scenario() -> None:
        async with (
            world(parameters=Parameters(queue_bytes_max=1_048_576)) as brokers,
            RawClient(brokers["b1"].url) as publisher,
            RawClient(brokers["b1"].url) as reader,
        ):
            opened = await publisher.open("trades")
            await reader.subscribe("all", credit=40)
            for number in range(1, 41):
                await publisher.publish("trades", opened.session, number, payload=LARGE)
            assert await reader.events(40) == list(range(1, 41))

    run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_machine_gets_an_event_when_a_link_is_full_and_when_it_is_drained(loop: str) -> None:
    parameters = Parameters(queue_bytes_max=65_536)

    async def scenario() -> None:
        async with world("line:2", parameters=parameters) as brokers:
            node = brokers["b1"]
            await until(lambda: node.links.open_peers and brokers["b2"].links.open_peers)
            handled: list[object] = []
            link = node.links.link("b2")
            other = brokers["b2"].links.link("b1")
            assert link is not None
            assert other is not None
            node.links.handle = handled.append
            other.connection.pause_reading()
            event = Publication(1, "p", 1, {}, bytes(50_000))
            large = StreamData(PubendId("P", 1), 1, KnowledgeRange(1, 1, 1, 0, (event,)))
            ends = (PeerSessionId(1, 1), PeerSessionId(1, 1))
            packet = LINK_PACKETS.encode(Packet(*ends, 1, (large,)))
            while LinkFull("b2") not in handled:
                link.connection.send(packet)
                link.connection.flush()
                await asyncio.sleep(0)
            assert link.connection.waiting_bytes > 65_536
            assert LinkDrained("b2") not in handled
            other.connection.resume_reading()
            await until(lambda: LinkDrained("b2") in handled)
            assert node.links.open_peers == ["b2"]

    run(scenario(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_publishers_are_paused_while_the_disk_is_behind(loop: str, tmp_path: Path) -> None:
    parameters = Parameters(pending_write_bytes_max=100_000)

    async def scenario() -> None:
        async with (
            world(data=tmp_path, parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as publisher,
        ):
            opened = await publisher.open("trades")
            held = _count_calls(brokers["b1"].clients, "pause_publishers")
            for number in range(1, 51):
                publisher.send_publish("trades", opened.session, number, payload=LARGE)
            assert await publisher.published(50) == 50
            assert held, "the disk was never behind"
            assert not any(each.is_paused for each in brokers["b1"].clients)
            await publisher.subscribe("all", durable=True)

    run(scenario(), loop)


def _count_calls(thing: object, name: str) -> list[str]:
    """Record every call of a method and make the call."""
    calls: list[str] = []
    method = getattr(thing, name)

    def noted() -> None:
        calls.append(name)
        method()

    setattr(thing, name, noted)
    return calls


def test_a_client_gets_no_more_events_than_it_gave_credit_for() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            await client.subscribe("some", credit=3)
            await client.publish("trades", opened.session, 1, count=10)
            assert await client.events(3) == [1, 2, 3]
            await client.subscribe("sync", credit=0)
            assert not client.received(Delivery)

    run(scenario())
