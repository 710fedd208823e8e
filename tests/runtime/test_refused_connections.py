"""Invalid or unwanted connections are closed with a reason and affect no other connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from gapless.core.limits import INT_MAX
from gapless.core.parameters import Parameters
from gapless.messages.clients import Credit, HostingReference, Refused, Subscribe
from gapless.wire import (
    CLIENT_REQUESTS,
    HEADER_BYTES,
    VERSIONS,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Role,
    decode_handshake,
    encode_handshake,
)
from tests.runtime.nodes import LOOPS, run, until, world
from tests.runtime.raw_client import RawClient

HANDSHAKE = bytes(encode_handshake(Connect(Role.CLIENT, "unknown")))

UNINTELLIGIBLE = {
    "noise": b"GET / HTTP/1.1\r\n\r\n",
    "a frame that is no msgpack": b"\0\0\0\3\xc1\xc1\xc1",
    "a frame that is no handshake": b"\0\0\0\1\x05",
    "an empty frame": b"\0\0\0\0",
    "a request before the handshake": bytes(CLIENT_REQUESTS.encode(Credit("desk", 1))),
    "Connected instead of Connect": bytes(encode_handshake(Connected(1, "b1", "c1", 1, 1, ""))),
    "a second handshake": HANDSHAKE * 2,
    "a frame that is too large": HANDSHAKE + b"\x7f\0\0\0",
    "a request of another type": HANDSHAKE + b"\0\0\0\2\xa2no",
    "noise after the handshake": HANDSHAKE + b"\0\0\0\x09" + b"\xff" * 9,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", UNINTELLIGIBLE)
def test_an_invalid_message_closes_only_its_connection(what: str, loop: str) -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as bystander:
            opened = await bystander.open("trades")
            await bystander.subscribe("all")
            sender = RawClient(brokers["b1"].url)
            await sender.connect()
            sender.send_bytes(UNINTELLIGIBLE[what])
            disconnect = await sender.read_refusal()
            assert disconnect.code is DisconnectReason.PROTOCOL_ERROR, disconnect
            assert disconnect.reason
            await sender.close()
            await bystander.publish("trades", opened.session, 1)
            assert await bystander.events(1) == [1]
            assert len(brokers["b1"].clients) == 1

    run(scenario(), loop)


def test_a_frame_above_the_limit_of_the_handshake_closes_the_connection() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            opened = await client.open("trades")
            limit = client.handshake.frame_bytes_max
            client.send_publish("trades", opened.session, 1, payload=bytes(limit))
            disconnect = await client.read_disconnect()
            assert disconnect.code is DisconnectReason.PROTOCOL_ERROR
            assert f"{limit:,}" in disconnect.reason

    run(scenario())


async def refusal(url: str, handshake: Connect) -> Disconnect:
    client = RawClient(url)
    await client.connect()
    client.send_handshake(handshake)
    disconnect = await client.read_disconnect()
    await client.close()
    return disconnect


def test_a_client_of_another_version_is_refused() -> None:
    async def scenario() -> None:
        async with world() as brokers:
            later = Connect(Role.CLIENT, "later", versions=(max(VERSIONS) + 1,))
            disconnect = await refusal(brokers["b1"].url, later)
            assert disconnect.code is DisconnectReason.NO_COMMON_VERSION

    run(scenario())


@pytest.mark.parametrize(
    ("handshake", "why"),
    [
        (Connect(Role.BROKER, "b1", overlay="another"), "overlay"),
        (Connect(Role.BROKER, "b@9", overlay="gapless"), "no name"),
        (Connect(Role.BROKER, "b3", overlay="gapless"), "not vice versa"),
        (Connect(Role.BROKER, "b2", overlay="gapless"), "itself"),
    ],
)
def test_a_broker_of_another_overlay_or_neighbourhood_is_refused(
    handshake: Connect, why: str
) -> None:
    async def scenario() -> None:
        async with world("line:3") as brokers:
            disconnect = await refusal(brokers["b2"].url, handshake)
            assert disconnect.code is DisconnectReason.UNKNOWN_BROKER
            assert why in disconnect.reason

    run(scenario())


def test_a_connection_beyond_the_limit_is_refused_until_another_ends() -> None:
    async def scenario() -> None:
        async with world(parameters=Parameters(connections_max=1)) as brokers:
            url = brokers["b1"].url
            async with RawClient(url):
                disconnect = await refusal(url, Connect(Role.CLIENT, "late"))
                assert disconnect.code is DisconnectReason.CONNECTION_LIMIT
            await until(lambda: not len(brokers["b1"].clients))
            async with RawClient(url):
                pass

    run(scenario())


def test_at_the_limit_the_connection_waiting_longest_for_its_handshake_is_closed() -> None:
    async def scenario() -> None:
        async with world(parameters=Parameters(connections_max=3)) as brokers:
            node = brokers["b1"]
            async with RawClient(node.url) as client:
                silent = [RawClient(node.url) for _ in range(3)]
                for each in silent:
                    await each.connect()
                disconnect = await silent[0].read_disconnect()
                assert disconnect.code is DisconnectReason.CONNECTION_LIMIT
                assert "connections_max = 3" in disconnect.reason
                await until(lambda: len(node.acceptor.pending) == 2)
                assert node.acceptor.refused == 1
                await client.subscribe("all")
                for each in silent:
                    await each.close()
            await until(lambda: not node.acceptor.pending)

    run(scenario())


def test_at_the_limit_a_peer_broker_can_still_connect() -> None:
    async def scenario() -> None:
        async with world("line:2", parameters=Parameters(connections_max=1)) as brokers:
            node = brokers["b2"]
            await brokers["b1"].kill()
            await until(lambda: not node.links.open_peers)
            async with RawClient(node.url):
                silent = RawClient(node.url)
                await silent.connect()
                await until(lambda: node.acceptor.pending)
                await brokers.start("b1")
                await until(lambda: node.links.open_peers == ["b1"])
                await silent.close()

    run(scenario())


def test_a_connection_without_a_handshake_is_closed() -> None:
    async def scenario() -> None:
        async with world(parameters=Parameters(handshake_timeout_ms=20)) as brokers:
            silent = RawClient(brokers["b1"].url)
            await silent.connect()
            assert (await silent.read_disconnect()).code is DisconnectReason.KEEPALIVE_TIMEOUT
            await silent.close()

    run(scenario())


def test_a_silent_client_is_disconnected_and_one_with_keepalives_is_not() -> None:
    async def scenario() -> None:
        parameters = Parameters(keepalive_ms=40)
        async with (
            world(parameters=parameters) as brokers,
            RawClient(brokers["b1"].url) as active,
            RawClient(brokers["b1"].url) as silent,
        ):
            keeper = asyncio.create_task(active.keep_alive(0.01))
            assert (await silent.read_disconnect()).code is DisconnectReason.KEEPALIVE_TIMEOUT
            await active.subscribe("all")
            keeper.cancel()

    run(scenario())


def test_a_disconnect_of_a_client_ends_its_session_at_once() -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            client.send(Disconnect(DisconnectReason.CLIENT_DONE, "all is read"))
            await until(lambda: not len(brokers["b1"].clients))

    run(scenario())


def test_random_bytes_never_stop_a_broker() -> None:
    dice = random.Random(7)
    request = bytes(CLIENT_REQUESTS.encode(Subscribe(1, "desk", "price > 5", durable=True)))

    async def throw(connect: Callable[[], Awaitable[RawClient]]) -> None:
        sender = await connect()
        corrupt = bytearray(request)
        for _ in range(dice.randint(1, 4)):
            corrupt[dice.randrange(4, len(corrupt))] = dice.randrange(256)
        sender.send_bytes(bytes(corrupt))
        await sender.close()

    async def scenario() -> None:
        async with world() as brokers:

            async def connect() -> RawClient:
                return await RawClient(brokers["b1"].url).__aenter__()

            for _ in range(200):
                await throw(connect)
            async with RawClient(brokers["b1"].url) as bystander:
                await bystander.subscribe("all")
            assert brokers["b1"].failure is None

    run(scenario())


def frame_of(*parts: object) -> bytes:
    body = msgspec.msgpack.encode(parts)
    return len(body).to_bytes(4, "big") + body


WRONG_FIELDS: dict[str, bytes] = {
    "a number beyond 64 bits": frame_of("ReadLog", 1, ["trades", 1], "", 2**64 - 1, 2**64 - 1),
    "no name": frame_of("OpenPubend", 1, None),
    "a number instead of a name": frame_of("OpenPublisher", 1, ["trades", 1], 5),
    "no filter text": frame_of("Subscribe", 1, "desk", 5),
    "too few fields": frame_of("Subscribe", 1),
    "an attribute that is a list": frame_of(
        "Publish", 1, ["trades", 1], "desk", 1, 1, [[{"n": []}, b""]]
    ),
    "a hosting epoch beyond 64 bits": bytes(
        CLIENT_REQUESTS.encode(
            Subscribe(1, "s", "TRUE", True, hosting=HostingReference("x", INT_MAX + 1, "a"))
        )
    ),
}


@pytest.mark.parametrize("what", WRONG_FIELDS)
def test_a_request_with_a_wrong_field_is_refused_and_others_go_on(what: str) -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            client.send_bytes(WRONG_FIELDS[what])
            refused = await client.next(Refused, request=1)
            assert refused.reason
            client.number()
            opened = await client.open("trades")
            await client.subscribe("all")
            await client.publish("trades", opened.session, 1)
            assert await client.events(1) == [1]
            assert brokers["b1"].is_running

    run(scenario())


@pytest.mark.parametrize(
    "frame",
    [
        frame_of("Ack", 5, []),
        frame_of("Credit", 5, 5),
        frame_of("OpenPubend", -1, None),
        frame_of("OpenPubend", "a"),
        frame_of("OpenPubend"),
        frame_of("Teleport", 1, "desk"),
    ],
)
def test_a_message_with_a_wrong_field_and_no_number_closes_its_connection(frame: bytes) -> None:
    async def scenario() -> None:
        async with world() as brokers, RawClient(brokers["b1"].url) as client:
            client.send_bytes(frame)
            assert (await client.read_disconnect()).code is DisconnectReason.PROTOCOL_ERROR
            assert brokers["b1"].is_running

    run(scenario())


def test_a_broker_outside_the_neighbourhood_is_refused_beyond_a_limit() -> None:
    # RS-35: it may need a control session; brokers without one must not fill the memory
    async def scenario() -> None:
        parameters = Parameters(control_sessions_max=2)
        async with world("line:2", parameters=parameters) as brokers:
            node = brokers["b2"]
            made = []
            for name in ("x1", "x2"):
                made.append(await greeted(node.url, name))
                assert name in node.links.open_peers
            refused = await refusal(node.url, Connect(Role.BROKER, "x3", overlay="gapless"))
            assert refused.code is DisconnectReason.UNKNOWN_BROKER
            assert "control_sessions_max" in refused.reason
            for peer in made:
                await peer.close()

    run(scenario())


async def greeted(url: str, name: str) -> RawClient:
    """Connect as a broker, and wait until the connection is accepted."""
    peer = RawClient(url)
    await peer.connect()
    peer.send_handshake(Connect(Role.BROKER, name, overlay="gapless"))
    assert isinstance(decode_handshake(await peer.body()), Connected)
    return peer


@pytest.mark.parametrize(
    ("handshake", "shown"),
    [
        (Connect(Role.CLIENT, "c", versions=(7,) * 100_000), "you have 7, 7"),
        (Connect(Role.BROKER, "n" * 100_000, overlay="gapless"), "is no name of a broker"),
        (Connect(Role.BROKER, "b1", overlay="o" * 100_000), "this is the overlay"),
    ],
)
def test_the_reason_of_a_refused_handshake_does_not_repeat_it(
    handshake: Connect, shown: str
) -> None:
    async def scenario() -> None:
        async with world() as brokers:
            address = brokers["b1"].address
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(encode_handshake(handshake))
            size = int.from_bytes(await reader.readexactly(HEADER_BYTES), "big")
            answer = decode_handshake(await reader.readexactly(size))
            writer.close()
            assert isinstance(answer, Disconnect)
            assert shown in answer.reason
            assert len(answer.reason) < 300

    run(scenario())
